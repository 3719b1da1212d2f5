"""The endpoint of a node as one value, equal for all spellings of one URL (docs/protocol.md 11).

``http://LOCALHOST:80`` and ``http://localhost`` are one endpoint. Peers, the address book, bans and connections are
keyed by this value, so that another spelling cannot evade a ban.
"""

from functools import lru_cache
from typing import Final

from svcd.net.addresses import Address
from svcd.net.targets import Rules, Target

_RULES: Final = Rules.for_peers(allow_private=True)
"""The form of an endpoint. Whether this node may call it is decided by its transport (svcd.p2p.transport)."""
_read: Final = lru_cache(4_096)(_RULES.parse)


class Endpoint(str):
    """The base URL of a node in canonical form: scheme, lower-case host, and the port unless it is the scheme's own.

    A string, so that it serves as a key, in JSON and in log lines. The constructor raises
    :class:`svcd.net.targets.BadTarget` for text that cannot be the endpoint of a node.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> "Endpoint":
        """Parse ``text`` strictly; scheme and host in any case, with or without the scheme's own port."""
        return text if type(text) is Endpoint else super().__new__(cls, _read(text).origin)

    @property
    def host(self) -> str:
        """The name, or the canonical literal of an IP address without brackets."""
        return self._target.host

    @property
    def address(self) -> Address | None:
        """The IP address of the host; None for a name."""
        return self._target.address

    @property
    def _target(self) -> Target:
        return _read(str(self))
