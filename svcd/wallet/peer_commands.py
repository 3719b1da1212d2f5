"""`svc node peers …`: whom a node talks to, and whom it must not talk to, over the socket in its data directory."""

from collections.abc import Iterator
from typing import Final

import click

from svcd.wallet import options, show
from svcd.wallet.answer import Answer
from svcd.wallet.failed import Failed
from svcd.wallet.session import Session

MAX_SECONDS: Final = 10 * 365 * 24 * 3_600
_DIRECTIONS: Final = {"outbound": "of the node's choice", "inbound": "it called first"}
_KINDS: Final = {"node": "node", "endpoint": "endpoint", "address": "address", "posts": "posts from"}


def _who(text: str) -> dict[str, object]:
    """The field that names an endpoint, a node or an address; raises ValueError."""
    if text.lower().startswith(("http://", "https://")):
        return {"endpoint": text}
    if text.startswith("svcnode_"):
        return {"nodeId": text}
    if text and all(character in "0123456789abcdefABCDEF.:/" for character in text):
        return {"address": text}
    raise ValueError("name an endpoint (http://…), a node (svcnode_…) or an IP address")


@click.group(invoke_without_command=True)
@options.operator_option
@options.json_option
@click.pass_context
def peers(context: click.Context) -> None:
    """Show whom a node talks to and who is banned, or change it.

    Without a further command it lists every peer, with the address behind its endpoint and the chain that it shows,
    and every ban with its end and reason. Peers of the node's choice are those that it catches up from; acquaintances
    called first.

    \b
    Example:
      svc node peers
      svc node peers add http://192.0.2.1:8645
      svc node peers ban 192.0.2.7 --seconds 86400
    """
    if context.invoked_subcommand is None:
        session: Session = context.obj
        answer = session.with_operator(lambda operator: operator.get("/operator/peers"))
        text = peers_text(answer)
        session.show({"peers": answer.value("peers"), "bans": answer.value("bans")}, text)


@peers.command()
@click.argument("endpoint")
@options.operator_option
@options.json_option
@click.pass_obj
def add(session: Session, endpoint: str) -> None:
    """Tell the node of another one at ENDPOINT, and let it greet that one now.

    The node keeps the endpoint and tries it again later if nobody answers; it never takes anybody's word for more
    than that. To have an endpoint known at every start, name it in `[p2p] seeds`.

    \b
    Example:
      svc node peers add http://192.0.2.1:8645
      svc node peers add https://node.example
    """
    answer = session.with_operator(lambda operator: operator.post("/operator/peers/add", {"endpoint": endpoint}))
    record = {"peer": answer.value("peer"), "why": answer.value("why")}
    if record["peer"] is None:
        text = f"{show.plain(endpoint)} is noted, and no peer yet: {show.plain(answer.text('why'))}"
    else:
        text = "\n".join(["met", *_peer_lines(answer.object("peer"))])
    session.show(record, text)


@peers.command()
@click.argument("who", callback=options.judged(_who))
@click.option(
    "--seconds",
    metavar="N",
    callback=options.judged(options.integer(1, MAX_SECONDS)),
    help="How long the ban lasts; for good if absent.",
)
@options.operator_option
@options.json_option
@click.pass_obj
def ban(session: Session, who: dict[str, object], seconds: int | None) -> None:
    """Ban WHO, and let the node talk no more to whoever that is.

    WHO is an endpoint, which is called no more; a node by its id, wherever it is; or an IP address, where nobody is
    called or listened to any more. Of IPv6 an address is its /64. The ban outlives a restart of the node.

    \b
    Example:
      svc node peers ban http://192.0.2.7:8645
      svc node peers ban svcnode_773b63a2de4a437c36d424150c560f07
      svc node peers ban 192.0.2.7 --seconds 86400
    """
    body = who if seconds is None else {**who, "seconds": seconds}
    answer = session.with_operator(lambda operator: operator.post("/operator/peers/ban", body))
    banned, dropped = answer.object("ban"), answer.texts("dropped")
    gone = f"no longer talked to: {', '.join(map(show.plain, dropped))}" if dropped else "none of the peers is hit"
    text = "\n".join(["banned", *_ban_lines(banned), f"  {gone}"])
    session.show({"ban": dict(banned.members), "dropped": dropped}, text)


@peers.command()
@click.argument("who", callback=options.judged(_who))
@options.operator_option
@options.json_option
@click.pass_obj
def unban(session: Session, who: dict[str, object]) -> None:
    """Lift every ban of WHO: those of yours, and those that the node imposed as a price.

    WHO is what `svc node peers` shows: an endpoint, a node id or an address.

    \b
    Example:
      svc node peers unban 192.0.2.7
    """
    session.with_operator(lambda operator: operator.post("/operator/peers/unban", who))
    (name,) = who.values()
    session.show({"unbanned": name}, f"{show.plain(str(name))} is no longer banned")


def peers_text(answer: Answer) -> str:
    """What `svc node peers` says; raises Failed."""
    return "\n".join([*_section("peer", answer.objects("peers")), "", *_section("ban", answer.objects("bans"))])


def _section(thing: str, items: list[Answer]) -> Iterator[str]:
    yield show.counted(len(items), thing)
    for item in items:
        yield ""
        yield from _peer_lines(item) if thing == "peer" else _ban_lines(item)


def _peer_lines(peer: Answer) -> Iterator[str]:
    address = f" at {show.plain(peer.text('address'))}" if "address" in peer else ""
    yield f"  {show.plain(peer.text('endpoint'))}{address}"
    yield f"    {show.plain(peer.text('nodeId'))}, {_DIRECTIONS.get(peer.text('direction'), 'of an unknown kind')}"
    chain = "shows no chain yet"
    if "height" in peer:
        chain = f"height {peer.number('height')}, work {_work(peer)}"
    failures = show.counted(peer.count("failures"), "failure")
    yield f"    {chain}, last seen {show.moment(peer.number('lastSeen'))}, {failures} since"


def _work(peer: Answer) -> str:
    text = peer.text("work")
    if not (text.isascii() and text.isdigit()):
        raise Failed("the node does not answer as svcd does: work must be a number")
    return text


def _ban_lines(ban: Answer) -> Iterator[str]:
    yield f"  {_KINDS.get(ban.text('kind'), 'something')} {show.plain(ban.text('name'))}"
    end = f"until {show.moment(ban.number('until'))}" if "until" in ban else "for good"
    reason = f": {show.plain(ban.text('reason'))}" if "reason" in ban else ""
    yield f"    {end}, {'by the operator' if ban.value('own') is True else 'by the node'}{reason}"
