"""`svc node reload`: the configuration of a running node, over the socket in its data directory."""

from collections.abc import Iterator

import click

from svcd.cli import options
from svcd.cli.answers import ResponseObject
from svcd.cli.session import Session
from svcd.quantities import counted


@click.command("reload")
@click.option(
    "--trust-clock",
    is_flag=True,
    help="The computer's clock, which was set, is right: trust it at once, even if the configuration cannot be used.",
)
@options.operator_option
@options.json_option
@click.pass_obj
def reload_configuration(session: Session, trust_clock: bool) -> None:
    """Read the configuration and the certificates again, and apply what can change without a restart.

    These are the merchants with their tokens and secrets, `[limits]`, `[pages]`, the level of the log, and the
    certificates of `ssl:` endpoints. The answer names every other setting that differs. If anything is wrong, none of
    them changes. SIGHUP to the node's process does the same and answers in the log.

    A token that was removed is refused at once. A merchant that was removed loses nothing: its watches stay, and its
    events are kept for a week and sent if it is configured again.

    \b
    Example:
      svc node reload --data-dir /var/lib/svcd
    """
    _reload(session, trust_clock=trust_clock)


def _reload(session: Session, *, trust_clock: bool = False) -> None:
    response = session.operator().post("/operator/reload", {"trustClock": True} if trust_clock else {})
    keys = ("added", "changed", "removed", "settings", "certificates", "left")
    session.print_result({key: response.verbatim(key) for key in keys}, "\n".join(_lines(response)))


@click.group()
def merchants() -> None:
    """Change the merchants of the node without a restart.

    The merchants are in the configuration file: `[commerce.webhooks]` has the one named default, and each
    `[[commerce.merchants]]` another. `svc node merchants reload` is `svc node reload`.

    \b
    Example:
      svc node merchants reload --data-dir /var/lib/svcd
    """


@merchants.command("reload")
@options.operator_option
@options.json_option
@click.pass_obj
def reload_merchants(session: Session) -> None:
    """Read the configuration again, as `svc node reload` does.

    \b
    Example:
      svc node merchants reload --data-dir /var/lib/svcd
    """
    _reload(session)


def _lines(response: ResponseObject) -> Iterator[str]:
    changes = list(_changes(response))
    yield from changes or ["nothing has changed"]
    if left := response.texts("left"):
        yield f"restart the node to change {', '.join(left)}"


def _changes(response: ResponseObject) -> Iterator[str]:
    for name in response.texts("added"):
        yield f"added {name}"
    for merchant in response.objects("changed"):
        yield f"changed {merchant.text('name')}: {', '.join(merchant.texts('settings'))}"
    for merchant in response.objects("removed"):
        watches, undelivered = merchant.count("watches"), merchant.count("undelivered")
        yield (
            f"removed {merchant.text('name')}: {counted(watches, 'active webhook')} continue; events wait "
            f"for {counted(undelivered, 'webhook')}, and are kept for a week and sent if it is configured again"
        )
    for name in response.texts("settings"):
        yield f"set {name}"
    for certificate in response.objects("certificates"):
        yield f"renewed {certificate.text('file')}"
