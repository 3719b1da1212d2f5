"""The limits of a site as data, each with the attack that it stops."""

from collections.abc import Mapping
from typing import Final

from attrs import field, fields, frozen
from attrs.validators import ge, gt

DEFAULT_BODY_CAP: Final = 16 * 1024


@frozen
class BodyCaps:
    """How many bytes of body a request may bring: ``of`` a (method, path), or ``default``."""

    of: Mapping[tuple[bytes, bytes], int] = field(factory=dict)
    default: int = DEFAULT_BODY_CAP

    def __call__(self, method: bytes, path: bytes) -> int:
        return self.of.get((method, path), self.default)

    @property
    def largest(self) -> int:
        """The greatest of them."""
        return max([self.default, *self.of.values()])


@frozen(kw_only=True)
class SiteLimits:
    """What one site grants its clients. Times are in seconds; a number of connections of 0 sets no limit."""

    header_seconds: float = field(default=10.0, validator=gt(0))
    """From the connection, or a request's first byte, to the end of its headers: dripping holds no connection."""
    request_seconds: float = field(default=30.0, validator=gt(0))
    """From a request's first byte to the last of its body: the same for bodies that drip."""
    answer_seconds: float = field(default=60.0, validator=gt(0))
    """From the start of an answer until the client has taken it: clients that ask and never read cannot fill memory.

    A request whose route states no time of its own has to be answered within it too.
    """
    idle_seconds: float = field(default=60.0, validator=gt(0))
    """Between two requests on one connection."""
    close_seconds: float = field(default=5.0, validator=gt(0))
    """For a client to take the last bytes of a connection that we close, or that it has closed for its part."""
    connections: int = field(default=1_000, validator=ge(0))
    """Open at once: sockets are a finite resource of the process."""
    connections_per_client: int = field(default=64, validator=ge(0))
    """Open at once by one client group: one client cannot take all of them."""
    body_caps: BodyCaps = field(factory=BodyCaps)
    """Bytes in the body of one request: nothing bigger is ever held in memory, and nothing at all on disk."""
    bodies_bytes: int = field(default=64 * 1024 * 1024, validator=ge(1))
    """Bytes in the bodies of all requests at once: a thousand connections cannot hold a thousand full bodies."""
    bodies_bytes_per_client: int = field(default=8 * 1024 * 1024, validator=ge(1))
    """Bytes in the bodies of one client group at once: six full blocks, and no client holds what all have together."""
    untaken_bytes: int = field(default=64 * 1024 * 1024, validator=ge(1))
    """Bytes in the answers that clients have not taken yet: whoever asks and does not read holds no more than this."""

    @classmethod
    def picked_from(cls, settings: object, body_caps: BodyCaps) -> "SiteLimits":
        """The limits that ``settings`` has attributes of the same name for, and ``body_caps``."""
        names = [field.name for field in fields(cls) if hasattr(settings, field.name)]
        return cls(body_caps=body_caps, **{name: getattr(settings, name) for name in names})
