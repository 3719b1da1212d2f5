"""`svc node participation` and `svc node limits`: what an operator changes, and looks up, while a node runs."""

import click

from svcd.wallet import options, show
from svcd.wallet.answer import Answer
from svcd.wallet.failed import Failed
from svcd.wallet.session import Session


@click.command()
@click.argument("state", type=click.Choice(["on", "off"]))
@options.operator_option
@options.json_option
@click.pass_obj
def participation(session: Session, state: str) -> None:
    """Let a running node make blocks (on), or let it stop that (off).

    This lasts until the node is started anew: then it does what `[participation] enabled` in its configuration says.

    \b
    Example:
      svc node participation off
      svc node participation on --data-dir /var/lib/svcd
    """
    body = {"enabled": state == "on"}
    answer = session.with_operator(lambda operator: operator.post("/operator/participation", body))
    record = {"enabled": answer.value("enabled"), "waitsFor": answer.value("waitsFor")}
    if record["enabled"] is not (state == "on"):
        raise Failed(f"the node does not say that participation is {state}")
    waits = f", but not yet: {show.plain(answer.text('waitsFor'))}" if record["waitsFor"] is not None else ""
    text = f"the node makes blocks{waits}" if record["enabled"] else "the node makes no blocks"
    session.show(record, text)


@click.command()
@options.operator_option
@options.json_option
@click.pass_obj
def limits(session: Session) -> None:
    """Show every limit of a running node, the setting that changes it, and the attack that it stops.

    \b
    Example:
      svc node limits
    """
    answer = session.with_operator(lambda operator: operator.get("/operator/limits"))
    text = "\n\n".join(_limit(limit) for limit in answer.objects("limits"))
    session.show({"limits": answer.value("limits")}, text)


def _limit(limit: Answer) -> str:
    value = limit.value("value")
    if type(value) not in {int, float}:
        raise Failed("the node does not answer as svcd does: value must be a number")
    setting = f", set by {show.plain(limit.text('setting'))}" if limit.value("setting") is not None else ""
    shown = "none" if value == 0 else f"{value} {show.plain(limit.text('unit'))}"
    return f"{show.plain(limit.text('name'))}: {shown}{setting}\n  stops: {show.plain(limit.text('stops'))}"
