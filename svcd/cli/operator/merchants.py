"""`svc node merchants …`: the merchants of a running node, over the socket in its data directory."""

from collections.abc import Iterator

import click

from svcd.cli import options
from svcd.cli.http_client import ResponseObject
from svcd.cli.rendering import escape, pluralize
from svcd.cli.session import Session


@click.group()
def merchants() -> None:
    """Change the merchants of the node without a restart.

    The merchants are in the configuration file: `[commerce.webhooks]` has the one named default, and each
    `[[commerce.merchants]]` another.

    \b
    Example:
      svc node merchants reload --data-dir /var/lib/svcd
    """


@merchants.command("reload")
@options.operator_option
@options.json_option
@click.pass_obj
def reload_merchants(session: Session) -> None:
    """Read the configuration and the files with tokens and secrets again, and serve the merchants that they name.

    A token that has gone is refused from now on. A merchant that has gone loses nothing: its webhooks go on, and its
    events are kept for a week and sent if it is configured again. If anything is wrong with the configuration, nothing
    changes. Other settings wait for a restart, and the answer names those that differ. SIGHUP to the node's process
    does the same and answers in the log.

    \b
    Example:
      svc node merchants reload --data-dir /var/lib/svcd
    """
    response = session.with_operator(lambda operator: operator.post("/operator/merchants/reload", {}))
    keys = ("added", "changed", "removed", "left")
    session.print_result({key: response.value(key) for key in keys}, "\n".join(_lines(response)))


def _lines(response: ResponseObject) -> Iterator[str]:
    added, changed, removed = response.texts("added"), response.objects("changed"), response.objects("removed")
    for name in added:
        yield f"added {escape(name)}"
    for merchant in changed:
        yield f"changed {escape(merchant.text('name'))}: {', '.join(map(escape, merchant.texts('settings')))}"
    for merchant in removed:
        watches, undelivered = merchant.count("watches"), merchant.count("undelivered")
        yield (
            f"removed {escape(merchant.text('name'))}: {pluralize(watches, 'active webhook')} of it go on; events wait "
            f"for {pluralize(undelivered, 'webhook')}, and are kept for a week and sent if it is configured again"
        )
    if not added and not changed and not removed:
        yield "no merchant has changed"
    if left := response.texts("left"):
        yield f"restart the node to change {', '.join(map(escape, left))}"
