"""`svc webhook …`: watches that a merchant has a node keep, and a receiver to try callbacks with."""

import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from svcd.chain.transaction import check_reference
from svcd.chain.units import parse_amount
from svcd.wallet import options
from svcd.wallet.answer import Answer
from svcd.wallet.bind import Bind, bind, tls_options
from svcd.wallet.callbacks import Event
from svcd.wallet.client import Node
from svcd.wallet.disk import read_secret_line
from svcd.wallet.failed import Failed, Unanswered
from svcd.wallet.receiving import Callbacks, Receiver, Told, site_of
from svcd.wallet.session import Session
from svcd.wallet.show import plain
from svcd.wallet.show_webhooks import watch_text

TOKEN_VARIABLE: Final = "SVC_MANAGE_TOKEN"  # noqa: S105
MAX_CONFIRMATIONS: Final = 1_000
TTL_SECONDS: Final = (60, 604_800)
MIN_SECRET: Final = 32

_PATH: Final = "/rpc/commerce/webhooks"
_TOKEN: Final = re.compile("[!-~]+")

F = TypeVar("F", bound=Callable[..., Any])


def _watch_id(text: str) -> str:
    """The id of a watch; raises ValueError."""
    if not re.fullmatch("svcwh_[0-9a-f]{32}", text):
        raise ValueError("the id of a watch is svcwh_ and 32 lower-case hex digits")
    return text


def _token_option(command: F) -> F:
    """``--token-file``, given to the command as ``token_file``."""
    return click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"Read the node's management token from a file of mode 0600; {TOKEN_VARIABLE} may hold it instead.",
    )(command)


@click.group()
def webhook() -> None:
    """Let a node tell a shop of payments, and receive what it tells.

    A watch is for one order: the node calls a URL whenever the order's payment gets further. All but `listen` need
    the management token of the node.

    \b
    Example:
      svc webhook listen --secret-file devnet/signing-secret
      svc webhook show svcwh_5b1f7d26a1c94f4e8f3c0d9e7a6b5c4d --token-file devnet/manage-token
    """


@webhook.command(cls=options.WithNumbers)
@click.argument("reference", callback=options.judged(check_reference))
@click.argument("recipient", callback=options.judged(options.address))
@click.argument("amount", callback=options.judged(parse_amount))
@click.option("--callback", "callback_url", metavar="URL", required=True, help="What the node is to call.")
@click.option(
    "--confirmations",
    metavar="N",
    callback=options.judged(options.integer(1, MAX_CONFIRMATIONS)),
    help="How deep the payment must lie to be confirmed.  [default: the node's]",
)
@click.option(
    "--ttl",
    metavar="SECONDS",
    callback=options.judged(options.integer(*TTL_SECONDS)),
    help="How long to wait for the payment.  [default: the node's]",
)
@click.option(
    "--since-height",
    metavar="H",
    callback=options.judged(options.integer(0)),
    help="Payments in blocks below this height do not count.",
)
@_token_option
@options.node_option
@options.json_option
@click.pass_obj
def register(
    session: Session,
    reference: str,
    recipient: str,
    amount: int,
    callback_url: str,
    confirmations: int | None,
    ttl: int | None,
    since_height: int | None,
    token_file: Path | None,
) -> None:
    """Watch for the payment of AMOUNT coins to RECIPIENT under REFERENCE.

    The same terms again give the same watch, so the command can be repeated.

    \b
    Example:
      svc webhook register order-17 svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 25 \\
        --callback https://shop.example.org/paid --token-file manage-token
    """
    body: dict[str, object] = {
        "reference": reference,
        "recipient": recipient,
        "amountBaseUnits": str(amount),
        "callbackUrl": callback_url,
    }
    if confirmations is not None:
        body["confirmations"] = confirmations
    if ttl is not None:
        body["ttlSeconds"] = ttl
    if since_height is not None:
        body["sinceHeight"] = str(since_height)

    async def order(node: Node) -> Answer:
        try:
            return await node.post(_PATH, body)
        except Unanswered as failed:
            again = "The watch may have been made all the same; the same command again shows it and makes no second one"
            raise Failed(f"{failed}. {again}") from None

    _show_watch(session, token_file, order)


@webhook.command()
@click.argument("id", callback=options.judged(_watch_id))
@_token_option
@options.node_option
@options.json_option
@click.pass_obj
def show(session: Session, id: str, token_file: Path | None) -> None:  # noqa: A002
    """Show the watch ID: its terms, what has been seen of the payment, and how its events were delivered.

    \b
    Example:
      svc webhook show svcwh_5b1f7d26a1c94f4e8f3c0d9e7a6b5c4d --token-file manage-token
    """
    _show_watch(session, token_file, lambda node: node.get(f"{_PATH}/{id}"))


@webhook.command()
@click.argument("id", callback=options.judged(_watch_id))
@_token_option
@options.node_option
@options.json_option
@click.pass_obj
def cancel(session: Session, id: str, token_file: Path | None) -> None:  # noqa: A002
    """End the watch ID; what it has not yet delivered is dropped.

    \b
    Example:
      svc webhook cancel svcwh_5b1f7d26a1c94f4e8f3c0d9e7a6b5c4d --token-file manage-token
    """
    _show_watch(session, token_file, lambda node: node.post(f"{_PATH}/{id}/cancel", {}))


def _show_watch(session: Session, token_file: Path | None, ask: Callable[[Node], Coroutine[Any, Any, Answer]]) -> None:
    """Ask the node with the token, and show the watch that it answers with; raises Failed."""
    answer = session.with_node(lambda reach: ask(reach.node), token=_token(session, token_file))
    watch = answer.object("subscription")
    session.show(watch.members, watch_text(watch))


def _token(session: Session, token_file: Path | None) -> str:
    """The management token from the file or the environment; raises Failed or click.UsageError."""
    if token_file is not None:
        token = read_secret_line(token_file, "the token").strip()
    else:
        token = session.outside.environment.get(TOKEN_VARIABLE, "").strip()
        if not token:
            raise click.UsageError(f"the management token is missing: give --token-file, or set {TOKEN_VARIABLE}")
    if not _TOKEN.fullmatch(token):
        raise Failed("the management token must be printable ASCII without blanks; copy it again")
    return token


@webhook.command()
@click.option(
    "--listen",
    "place",
    metavar="ADDRESS:PORT",
    default="127.0.0.1:8080",
    show_default=True,
    callback=options.judged(bind),
    help="Where to listen; port 0 takes a free one.",
)
@click.option(
    "--secret-file",
    "secret_files",
    type=click.Path(path_type=Path),
    metavar="FILE",
    multiple=True,
    required=True,
    help="The file of mode 0600 that holds the node's signing secret. Give it twice while a secret is being replaced.",
)
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="The certificate for https, in PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its private key, in PEM.")
@options.json_option
@click.pass_obj
def listen(
    session: Session, place: Bind, secret_files: tuple[Path, ...], tls_cert: Path | None, tls_key: Path | None
) -> None:
    """Receive callbacks, check their signatures, and print one line for each event, until Ctrl-C.

    This is for trying things out: it stores nothing. With --json it prints the body of each event on one line, once.

    \b
    Example:
      svc webhook listen --secret-file devnet/signing-secret
      svc webhook listen --secret-file devnet/signing-secret --listen 127.0.0.1:0 --json
    """
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together; give both, or neither for http")
    tls = tls_options(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None
    secrets = [_secret(path) for path in secret_files]
    receiver = Receiver(place, tls)
    told = _printed(session, receiver)

    async def work(reactor: Any) -> None:
        site = site_of(Callbacks(secrets, clock=reactor, told=told), clock=reactor, random=session.outside.random)
        await receiver.run(reactor, site, lambda url: click.echo(f"listening on {url} until Ctrl-C", err=True))

    session.outside.run(work)


def _secret(path: Path) -> str:
    """The signing secret in a file; raises Failed."""
    # As the node does: blanks around it are no part of it.
    secret = read_secret_line(path, "the secret").strip()
    if len(secret) < MIN_SECRET:
        raise Failed(f"the secret in {path} has {len(secret)} characters; that of a node has at least {MIN_SECRET}")
    return secret


def _printed(session: Session, receiver: Receiver) -> Told:
    """Prints what comes, and ends the receiver when nobody reads it any more (`… | head -1`)."""

    def event(event: Event, again: bool, now: float) -> None:
        whole = session.as_json and not again
        try:
            click.echo(event.json() if whole else event.line(now, again=again), err=session.as_json and again)
        except OSError as gone:
            receiver.end(gone)
            raise

    return Told(event, lambda sentence: click.echo(plain(f"refused: {sentence}"), err=True))
