"""`svc webhook …`: the watches of a merchant at a node (docs/webhook-reference.md)."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import click

from svcd.chain.units import parse_amount
from svcd.cli import options
from svcd.cli.answers import ResponseObject, invalid_response
from svcd.cli.errors import CommandError, NoValidResponse
from svcd.cli.http_client import NodeClient
from svcd.cli.merchant.following import PATH, Follower, find_watch, order, watch_id
from svcd.cli.merchant.story import active_text, event_text, is_waiting, watch_text
from svcd.cli.rendering import TableColumn, table
from svcd.cli.secure_files import read_secret_line
from svcd.cli.session import Session
from svcd.commerce.payment_request import MAX_CONFIRMATIONS, parse_reference

TOKEN_VARIABLE: Final = "SVC_MANAGE_TOKEN"  # noqa: S105
TTL_SECONDS: Final = (60, 604_800)
STATES: Final = ("unpaid", "pending", "confirming", "confirmed", "expired")
"""The states by which watches are listed."""
EVENTS: Final = (
    *("payment.pending", "payment.confirming", "payment.confirmed", "payment.reorged", "payment.expired"),
    *("payment.dropped", "payment.mismatched", "node.alarm"),
)
"""The events that a watch can send."""
_TRIGGERS: Final = tuple(event for event in EVENTS if event != "node.alarm")
"""The events that can be made on a devnet."""
_TEST: Final = "webhook.test"
INTERRUPTED: Final = 130
"""The exit status after Ctrl-C, as shells have it: the watches have not ended."""
MAX_PAGE: Final = 50
"""Watches in one response, at most."""

_TOKEN: Final = re.compile("[!-~]+")

F = TypeVar("F", bound=Callable[..., Any])


def _watch_id(text: str) -> str:
    """The id of a watch; raises ValueError."""
    if not re.fullmatch("svcwh_[0-9a-f]{32}", text):
        raise ValueError("the id of a watch is svcwh_ and 32 lower-case hex digits")
    return text


def _each_order(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Orders as a click callback checks them."""
    parse = options.validated(order)
    return tuple(str(parse(context, parameter, text)) for text in texts)


def _event_id(text: str) -> str:
    """The id of an event; raises ValueError."""
    if not re.fullmatch("svcevt_[0-9a-f]{32}", text):
        raise ValueError("the id of an event is svcevt_ and 32 lower-case hex digits")
    return text


def _words(words: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completes what has been typed in a shell to one of these words."""
    return lambda _context, _parameter, typed: [word for word in words if word.startswith(typed)]


def _token_option(command: F) -> F:
    """``--token-file``, the parameter ``token_file``, of a command that changes or sends something."""
    return _token_file(
        f"Read the node's management token from a file of mode 0600; {TOKEN_VARIABLE} may contain it instead. A "
        "read-only token is not enough."
    )(command)


def _reading_token_option(command: F) -> F:
    """The same of a command that only reads."""
    return _token_file(
        f"Read the node's management token or read-only token from a file of mode 0600; {TOKEN_VARIABLE} may contain "
        "it instead."
    )(command)


def _token_file(text: str) -> Callable[[F], F]:
    """``--token-file`` and ``--insecure-http``, which go together."""
    token_file = click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE", help=text)
    return lambda command: token_file(options.insecure_http_option(command))


@click.command(cls=options.NumericCommand)
@click.argument("reference", callback=options.validated(parse_reference))
@click.argument("recipient", callback=options.address)
@click.argument("amount", callback=options.validated(parse_amount))
@click.option("--callback", "callback_url", metavar="URL", required=True, help="The URL that the node calls.")
@click.option(
    "--confirmations",
    metavar="N",
    callback=options.validated(options.integer(1, MAX_CONFIRMATIONS)),
    help="Confirmations that the payment needs to be confirmed.  [default: the node's]",
)
@click.option(
    "--ttl",
    metavar="SECONDS",
    callback=options.validated(options.integer(*TTL_SECONDS)),
    help="The lifetime of the watch.  [default: the node's; with --pay-within its longest]",
)
@click.option(
    "--pay-within",
    metavar="SECONDS",
    callback=options.validated(options.integer(*TTL_SECONDS)),
    help="How long the buyer has to pay; a payment seen by then is followed until it is confirmed.",
)
@click.option(
    "--event",
    "events",
    metavar="NAME",
    multiple=True,
    shell_complete=_words(EVENTS),
    help="An event to send, such as payment.confirmed; may be repeated.  "
    "[default: all but payment.dropped and node.alarm]",
)
@options.since_height_option
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
    pay_within: int | None,
    events: tuple[str, ...],
    since_height: int | None,
    token_file: Path | None,
) -> None:
    """Watch for the payment of AMOUNT coins to RECIPIENT under REFERENCE.

    The same terms return the same watch, so the command can be repeated.

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
    if pay_within is not None:
        body["payWithinSeconds"] = pay_within
    if events:
        body["events"] = list(events)
    if since_height is not None:
        body["sinceHeight"] = str(since_height)
    try:
        response = _node(session, token_file).post(PATH, body)
    except NoValidResponse as error:
        raise CommandError(
            f"{error}. The watch may still have been created; repeating the command shows it and creates no second one"
        ) from None
    watch = response.object("subscription")
    watch.check(reference=reference, recipient=recipient, amount=str(amount))
    if confirmations is not None:
        watch.check(requiredConfirmations=confirmations)
    if since_height is not None:
        watch.check(sinceHeight=str(since_height))
    _print_watch(session, watch)


@click.command()
@click.argument("wanted", metavar="ORDER", callback=options.validated(order))
@_reading_token_option
@options.node_option
@options.json_option
@click.pass_obj
def show(session: Session, wanted: str, token_file: Path | None) -> None:
    """Show the watch of ORDER, its history and what comes next; ORDER is a reference or the id of a watch.

    The history has each event, oldest first: its time, the payment's state, its block and the newest block (tip) at
    that time, and how it was delivered. A read-only token is enough.

    \b
    Example:
      svc webhook show order-17 --token-file manage-token
      svc webhook show svcwh_5b1f7d26a1c94f4e8f3c0d9e7a6b5c4d --token-file read-only-token
    """
    _print_watch(session, find_watch(_node(session, token_file, reads=True), wanted))


@click.command("watch")
@click.argument("orders", metavar="ORDER...", nargs=-1, required=True, callback=_each_order)
@_reading_token_option
@options.node_option
@options.json_option
@click.pass_context
def follow(context: click.Context, orders: tuple[str, ...], token_file: Path | None) -> None:
    """Print each new event of the watches of the given ORDERs, one a line, until all of them have ended.

    An ORDER is a reference or the id of a watch. The lines have the time, the order, the event, the payment's state and
    its confirmations; with --json each is a JSON object. While the node is away the command asks again. Ctrl-C ends it
    with exit status 130. A read-only token is enough.

    \b
    Example:
      svc webhook watch order-17 order-18 --token-file manage-token
      svc webhook watch svcwh_5b1f7d26a1c94f4e8f3c0d9e7a6b5c4d --json --token-file read-only-token
    """
    session: Session = context.obj
    follower = Follower(_node(session, token_file, reads=True), session.as_json, session.unit)
    try:
        follower.follow(orders)
    except KeyboardInterrupt:
        context.exit(INTERRUPTED)


@click.command()
@click.argument("id", callback=options.validated(_watch_id))
@_token_option
@options.node_option
@options.json_option
@click.pass_obj
def cancel(session: Session, id: str, token_file: Path | None) -> None:  # noqa: A002
    """End the watch ID; its undelivered events are dropped.

    \b
    Example:
      svc webhook cancel svcwh_5b1f7d26a1c94f4e8f3c0d9e7a6b5c4d --token-file manage-token
    """
    watch = _node(session, token_file).post(f"{PATH}/{id}/cancel", {}).object("subscription")
    watch.check(id=id)
    _print_watch(session, watch)


@click.command("list")
@click.option(
    "--state",
    metavar="STATE",
    shell_complete=_words(STATES),
    help=f"Only watches in this state: {', '.join(STATES[:-1])} or {STATES[-1]}.",
)
@click.option("--host", metavar="HOST", help="Only watches with a callback at this host.")
@click.option("--after", metavar="ID", callback=options.validated(_watch_id), help="Begin after this watch.")
@click.option(
    "--limit",
    metavar="N",
    default="20",
    show_default=True,
    callback=options.validated(options.integer(1, MAX_PAGE)),
    help="How many watches to print at most.",
)
@_reading_token_option
@options.node_option
@options.json_option
@click.pass_obj
def list_watches(
    session: Session, state: str | None, host: str | None, after: str | None, limit: int, token_file: Path | None
) -> None:
    """List the watches of the merchant, newest first.

    \b
    Example:
      svc webhook list --state pending --token-file read-only-token
    """
    given = {"state": state, "host": host, "after": after, "limit": limit}
    query = urlencode({name: value for name, value in given.items() if value is not None})
    page = _node(session, token_file, reads=True).get(f"{PATH}?{query}")
    for watch in page.objects("subscriptions"):
        if state is not None:
            watch.check(lastState=state)
        if host is not None and _host(watch) != host:
            raise invalid_response(f"it lists the watch {watch_id(watch)}, whose callback is not at {host}")
    rows = [
        (
            watch_id(watch),
            watch.text("reference"),
            watch.text("lastState"),
            active_text(watch),
            str(sum(map(is_waiting, watch.objects("events")))),
        )
        for watch in page.objects("subscriptions")
    ]
    columns = [TableColumn(name) for name in ("watch", "reference", "last state", "active")]
    text = table([*columns, TableColumn("undelivered", align_right=True)], rows, None) if rows else "no watches"
    if following := page.cursor():
        text += f"\nmore: --after {following}"
    session.print_result({"subscriptions": page.verbatim("subscriptions"), "next": following}, text)


def _host(watch: ResponseObject) -> str | None:
    try:
        return urlsplit(watch.text("callbackUrl")).hostname
    except ValueError:
        return None


@click.command("events")
@click.argument("wanted", metavar="ORDER", callback=options.validated(order))
@_reading_token_option
@options.node_option
@options.json_option
@click.pass_obj
def list_events(session: Session, wanted: str, token_file: Path | None) -> None:
    """List the newest events of the watch of ORDER and how they were delivered, newest first.

    ORDER is a reference or the id of a watch.

    \b
    Example:
      svc webhook events order-17 --token-file read-only-token
    """
    watch = find_watch(_node(session, token_file, reads=True), wanted)
    required = watch.count("requiredConfirmations")
    text = "\n\n".join(event_text(event, session.unit, required) for event in watch.objects("events")) or "no events"
    session.print_result({"events": watch.verbatim("events")}, text)


@click.command()
@click.argument("id", callback=options.validated(_watch_id))
@click.argument("event", callback=options.validated(_event_id))
@_token_option
@options.node_option
@options.json_option
@click.pass_obj
def redeliver(session: Session, id: str, event: str, token_file: Path | None) -> None:  # noqa: A002
    """Send the event EVENT of the watch ID again, with the same id and body.

    \b
    Example:
      svc webhook redeliver svcwh_5b1f7d26a1c94f4e8f3c0d9e7a6b5c4d \\
        svcevt_9c145d42cea4a65cfdec37f4aa0ed02c --token-file manage-token
    """
    path = f"{PATH}/{id}/events/{event}/redeliver"
    answer = _node(session, token_file).post(path, {}).object("event")
    answer.check(id=event)
    session.print_result(answer, event_text(answer, session.unit))


@click.command()
@click.argument("event", type=click.Choice([*_TRIGGERS, _TEST]), metavar="EVENT")
@click.option(
    "--callback",
    "callback_url",
    metavar="URL",
    default="http://127.0.0.1:8080/",
    show_default=True,
    help="The URL that the node calls; the default is that of `svc webhook listen`.",
)
@_token_option
@options.node_option
@options.operator_option
@options.json_option
@click.pass_obj
def trigger(session: Session, event: str, callback_url: str, token_file: Path | None) -> None:
    """Make an EVENT happen, and fail unless the receiver at the callback URL answers it with 2xx.

    On a devnet the node gets a new order, which the faucet pays as the EVENT needs it; blocks are made or undone, and
    the event takes the way of every event. payment.expired takes a minute. On any network webhook.test, which belongs
    to no order, shows whether the node reaches the receiver, and whether this accepts the signature.

    \b
    EVENT: payment.pending, payment.confirming, payment.confirmed, payment.reorged, payment.expired, payment.dropped,
    payment.mismatched, or webhook.test

    \b
    Example:
      svc webhook trigger payment.confirmed --token-file devnet/manage-token
      svc webhook trigger webhook.test --callback https://shop.example.org/paid --token-file manage-token
    """
    node = _node(session, token_file)
    if event == _TEST:
        _send_test(session, node, callback_url)
        return
    # Only here are signatures needed.
    from svcd.cli.merchant.trigger import Trigger

    made = Trigger(node, session.operator(), session.runtime.random, callback_url).event(event)
    if "deliveredAt" not in made:
        error = made.text("lastError") if "lastError" in made else "no answer"
        raise CommandError(f"{event} was made, and the receiver at {callback_url} has not accepted it: {error}")
    session.print_result(made, event_text(made, session.unit))


def _send_test(session: Session, node: NodeClient, callback_url: str) -> None:
    test = node.post(f"{PATH}/test", {"callbackUrl": callback_url}).object("test")
    seconds = f"{test.count('milliseconds') / 1000:.3f} s"
    if "error" in test:
        raise CommandError(f"the callback failed after {seconds}: {test.text('error')}")
    session.print_result(test, f"the callback answered {test.count('status')} after {seconds}")


def _print_watch(session: Session, watch: ResponseObject) -> None:
    session.print_result(watch, watch_text(watch, session.runtime.clock.milliseconds(), session.unit))


def _node(session: Session, token_file: Path | None, *, reads: bool = False) -> NodeClient:
    """The node, asked with the token from the file or the environment; raises CommandError or click.UsageError.

    ``reads`` says whether a read-only token is enough.
    """
    return session.node(token=_token(session, token_file, reads=reads))


def _token(session: Session, token_file: Path | None, *, reads: bool) -> str:
    name = "management token or read-only token" if reads else "management token"
    if token_file is not None:
        token = read_secret_line(token_file, "the token").strip()
    else:
        token = session.runtime.environ.get(TOKEN_VARIABLE, "").strip()
        if not token:
            raise click.UsageError(f"the {name} is missing: give --token-file, or set {TOKEN_VARIABLE}")
    if not _TOKEN.fullmatch(token):
        raise CommandError("the token must be printable ASCII without spaces; copy it again")
    return token
