"""Where a node can be called, as one value that is equal for all spellings of one place (docs/protocol.md 11).

``http://LOCALHOST:80`` and ``http://localhost`` are one place. Whatever is kept by endpoint (peers, the address book,
bans, connections) is kept by this value, so that no other spelling is a way around it.
"""

from functools import lru_cache
from typing import Final

from svcd.net.addresses import Address
from svcd.net.targets import Rules, Target

_RULES: Final = Rules.for_peers(allow_private=True)
"""What an endpoint looks like. Whether this node may call it is decided where it is called (svcd.p2p.transport)."""
_read: Final = lru_cache(4_096)(_RULES.parse)


class Endpoint(str):
    """The base URL of a node in canonical form: scheme, lower-case host, and the port unless it is the scheme's own.

    A string, so that it serves as a key, in JSON and in a log line as it is. Making one from a text raises
    :class:`svcd.net.targets.BadTarget` for what cannot be the endpoint of a node.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> "Endpoint":
        """Read ``text`` strictly, in any spelling of the scheme's and the host's case and with the port or without."""
        return text if type(text) is Endpoint else super().__new__(cls, _read(text).origin)

    @property
    def host(self) -> str:
        """The name, or the canonical literal of an IP address without brackets."""
        return self._target.host

    @property
    def address(self) -> Address | None:
        """The IP address that it shows; None for a name."""
        return self._target.address

    @property
    def _target(self) -> Target:
        return _read(str(self))
