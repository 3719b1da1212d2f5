"""Follows watches at a node: `svc webhook watch` (docs/command-line.md)."""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

import click
from attrs import define, field, frozen

from svcd.cli.answers import ResponseObject, dumps
from svcd.cli.errors import CommandError, is_final
from svcd.cli.http_client import NodeClient
from svcd.cli.merchant.story import KEPT_EVENTS, ending_line, event_line, standing_line
from svcd.commerce.payment_request import parse_reference

PATH: Final = "/rpc/commerce/webhooks"
POLL_SECONDS: Final = 2.0
"""Between two looks at a watch."""
REQUESTS_PER_SECOND: Final = 5
"""At most, however many orders are followed: a quarter of what a node allows each client."""
MAX_RETRY_SECONDS: Final = 30.0
"""Between two attempts to reach a node that is away, at most."""
_WATCH: Final = re.compile("svcwh_[0-9a-f]{32}")
_FOUND: Final = 2
"""Watches of an order that are asked for: the newest one, and whether there are others."""


def order(text: str) -> str:
    """An order as merchants name it: the id of its watch, or its reference; raises ValueError or RuleViolation."""
    if not _WATCH.fullmatch(text):
        parse_reference(text)
    return text


def find_watch(node: NodeClient, wanted: str) -> ResponseObject:
    """The watch with this id, or the merchant's newest one of the order with this reference; raises CommandError.

    If the reference has others, standard error says so.
    """
    if _WATCH.fullmatch(wanted):
        return watch_with(node, wanted)
    page = node.get(f"{PATH}?{urlencode({'reference': wanted, 'limit': _FOUND})}")
    watches = page.objects("subscriptions")
    for watch in watches:
        watch.check(reference=wanted)
    if not watches:
        raise CommandError(
            f"the merchant of this token has no watch of the order {wanted}; `svc webhook list` shows the watches"
        )
    if len(watches) > 1:
        newest = watch_id(watches[0])
        click.echo(f"{wanted} has several watches; the newest is {newest}, give an id for another", err=True)
    return watches[0]


def watch_with(node: NodeClient, wanted: str) -> ResponseObject:
    """The watch with this id; raises CommandError, even if the node shows another one."""
    watch = node.get(f"{PATH}/{wanted}").object("subscription")
    watch.check(id=wanted)
    return watch


def watch_id(watch: ResponseObject) -> str:
    """The id of a watch, which goes into paths and commands; raises NoValidResponse."""
    return watch.identifier("id", _WATCH, "svcwh_ and 32 lower-case hex digits")


@define
class _Followed:
    """A watch that is being followed."""

    id: str
    reference: str
    seen: set[str] = field(factory=set)
    """The ids of its events so far."""
    ended: bool = False


@frozen
class Follower:
    """Prints the new events of watches until all have ended."""

    node: NodeClient
    as_json: bool
    unit: str
    """What coins are called."""

    def follow(self, orders: Sequence[str]) -> None:
        """Return when all watches of ``orders`` have ended; raises CommandError.

        An error of the first requests is raised. Later ones are reported in a line while the node is away.
        """
        followed = self._begin(orders)
        failures = 0
        while active := [each for each in followed if not each.ended]:
            pause = max(POLL_SECONDS, len(active) / REQUESTS_PER_SECOND)
            self.node.clock.sleep(min(pause * 2**failures, max(pause, MAX_RETRY_SECONDS)))
            failures = self._round(active, failures)

    def _begin(self, orders: Sequence[str]) -> list[_Followed]:
        followed: dict[str, _Followed] = {}
        for wanted in orders:
            watch = find_watch(self.node, wanted)
            each = _Followed(watch_id(watch), watch.text("reference"))
            if each.id in followed:
                continue
            followed[each.id] = each
            self._new_events(each, watch)
            each.ended = not watch.flag("active")
            click.echo(standing_line(watch), err=True)
        return [*followed.values()]

    def _round(self, active: Sequence[_Followed], failures: int) -> int:
        """Look at each watch once; gives the number of failures in a row since the node last answered."""
        for each in active:
            try:
                watch = watch_with(self.node, each.id)
                watch.check(reference=each.reference)
            except CommandError as error:
                if is_final(error):
                    raise
                if failures == 0:
                    click.echo(f"no answer, asking again until there is one: {error}", err=True)
                return min(failures + 1, 10)
            if failures:
                failures = 0
                click.echo("the node answers again", err=True)
            self._print(each, watch)
        return failures

    def _print(self, each: _Followed, watch: ResponseObject) -> None:
        new = self._new_events(each, watch)
        if len(new) == KEPT_EVENTS:
            sentence = f"events may be missing, because the node shows the newest {KEPT_EVENTS}"
            click.echo(f"{each.reference}: {sentence}", err=True)
        for event in new:
            self._put(event.with_members(_named(watch)), event_line(event, watch, self.unit))
        if not watch.flag("active"):
            each.ended = True
            ending = {name: watch.verbatim(name) for name in ("ending", "endedAt") if name in watch}
            self._put({**_named(watch), **ending}, ending_line(watch))

    def _put(self, value: ResponseObject | dict[str, object], line: str) -> None:
        click.echo(dumps(value) if self.as_json else line)

    def _new_events(self, each: _Followed, watch: ResponseObject) -> list[ResponseObject]:
        """The events that were not seen before, oldest first."""
        new = [event for event in reversed(watch.objects("events")) if event.text("id") not in each.seen]
        each.seen = {event.text("id") for event in watch.objects("events")}
        return new


def _named(watch: ResponseObject) -> dict[str, object]:
    """What every line of JSON says of its watch."""
    return {"subscriptionId": watch_id(watch), **{name: watch.verbatim(name) for name in ("reference", "active")}}
