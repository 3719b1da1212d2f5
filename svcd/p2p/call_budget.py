"""How often this node calls addresses where no node has answered (docs/threats.md "Outbound calls").

An endpoint costs nothing. A third party's host can be named under any number of names and ports: by hellos, by the
lists of peers, and by a name that leads there only after a node has answered under it. So calls are counted where they
arrive, at the address and in its network group, whatever caused them.
"""

from collections import deque
from contextlib import suppress
from enum import Enum
from typing import Final

from attrs import frozen

from svcd.bounded_dict import BoundedDict
from svcd.interfaces import Clock
from svcd.ip_addresses import Address
from svcd.limits import limit
from svcd.net.addresses import category_of, text_of
from svcd.p2p.address_book import group_of
from svcd.p2p.bans import address_name

_REFLECTION: Final = "Naming a third party's host, also under many names, to have nodes call it again and again"
CALLS_PER_HOUR: Final = limit(12, "calls in an hour to an address where no node has answered", "calls", _REFLECTION)
"""To an address where no node has answered under the endpoint that is called."""
GROUP_CALLS_PER_HOUR: Final = limit(
    128, "calls in an hour to addresses of a network group where no node has answered", "calls", _REFLECTION
)
"""To all such addresses in a network group. A node needs far fewer: it wants one outbound peer in each group. A victim
with a whole network gets two calls a minute."""
GROUP_REPEATS_PER_HOUR: Final = limit(
    64,
    "calls in an hour to a network group without an answering node, after which none is repeated",
    "calls",
    _REFLECTION,
)
"""Calls in a group after which an address that was called within the hour is not called again. So dead addresses leave
room for those that have not been called: a provider's network is tried however many of its hosts do not answer."""
LOST_CALLS_PER_HOUR: Final = limit(240, "calls in an hour to an address whose nodes are gone", "calls", _REFLECTION)
"""To an address where nodes answered that are no peers now: one every 15 s, as for one lost node."""
_HOUR: Final = 3_600.0
_ADDRESSES: Final = 4_096
_GROUPS: Final = 1_024


class CallReason(Enum):
    """What a call is for."""

    PEER = "peer"
    """A request to a peer, or the renewal of its handshake."""
    HINT = "hint"
    """A handshake with an endpoint that others named, or that has answered before."""
    OPERATOR = "operator"
    """A handshake with an endpoint that the operator has named."""
    COMMAND = "command"
    """The same, at the operator's command."""


@frozen(kw_only=True)
class PlannedCall:
    """A call to one address of an endpoint, before the connection is opened."""

    endpoint: str
    address: Address
    """An IPv4 address behind a translator (NAT64) as IPv4."""
    port: int
    answered: bool
    """Whether a node has answered there under this endpoint."""
    reason: CallReason
    client: str
    """The address from which the node there asked for the call; "" if it did not."""


class CallBudget:
    """Counts calls by address and network group, each over the last hour; what it remembers is bounded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._addresses: BoundedDict[str, deque[float]] = BoundedDict(_ADDRESSES)
        """The times of calls by the name of a limit, mostly an address (the clock's seconds)."""
        self._groups: BoundedDict[str, deque[float]] = BoundedDict(_GROUPS)
        """The times of calls by network group."""

    def take(self, call: PlannedCall) -> bool:
        """Whether a call may be made, which then counts."""
        if call.reason is CallReason.COMMAND or (call.answered and call.reason is CallReason.PEER):
            return True
        host = address_name(text_of(call.address))
        asked = _is_at(call.client, host)
        is_public = category_of(call.address) == "public"
        if not is_public:
            # One private address may be many nodes: loopback is. The operator has allowed them to be called.
            host = f"{host} {call.port}"
        if call.answered:
            return self._take(f"lost {host}", LOST_CALLS_PER_HOUR)
        # What others name must not use up the calls to a seed, or to a node that asks for the call itself.
        if call.reason is CallReason.OPERATOR:
            return self._take(f"operator {call.endpoint}", CALLS_PER_HOUR)
        if asked:
            return self._take(f"asked {host}", CALLS_PER_HOUR)
        if not is_public:
            return self._take(host, CALLS_PER_HOUR)
        return self._take_in_group(host, group_of(text_of(call.address)))

    def _take(self, name: str, maximum: int) -> bool:
        calls = self._last_hour(self._addresses, name)
        if len(calls) >= maximum:
            return False
        calls.append(self._clock.seconds())
        return True

    def _take_in_group(self, host: str, group: str) -> bool:
        in_group = self._last_hour(self._groups, group)
        is_repeated = bool(self._last_hour(self._addresses, host))
        if len(in_group) >= (GROUP_REPEATS_PER_HOUR if is_repeated else GROUP_CALLS_PER_HOUR):
            return False
        if not self._take(host, CALLS_PER_HOUR):
            return False
        in_group.append(self._clock.seconds())
        return True

    def _last_hour(self, table: BoundedDict[str, deque[float]], name: str) -> deque[float]:
        """The times of the calls of the last hour, which the caller may add to."""
        calls = table.get(name)
        # Set even if nothing has changed: what is still asked for must not be the first to be forgotten.
        table[name] = calls = deque[float]() if calls is None else calls
        since = self._clock.seconds() - _HOUR
        while calls and calls[0] <= since:
            calls.popleft()
        return calls


def _is_at(client: str, host: str) -> bool:
    """Whether ``client`` is an address that has the name ``host``; an exempt client has none."""
    with suppress(ValueError):
        return address_name(client) == host
    return False
