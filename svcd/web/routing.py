"""What a route declares, once: its path, its fields, its answers and its limits.

The same declaration reads requests and binds the route (svcd.web.api), and describes it to others
(svcd.web.openapi). A route is about five lines::

    @Route("GET", "/rpc/block/{height}", "The canonical block at a height", bucket="read",
           path_fields=(HEIGHT,), answers={200: object_schema({"block": BLOCK})})
    async def block(self, height: int) -> Answer:
        return {"block": await self._ledger.block(height)}
"""

import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from attrs import field, frozen
from attrs.validators import ge, gt, in_
from twisted.internet.interfaces import IAddress
from twisted.web.http_headers import Headers

if TYPE_CHECKING:
    from svcd.web.site import Site

Schema = Mapping[str, object]
"""A JSON schema (draft 2020-12, as OpenAPI 3.1 uses it)."""

F = TypeVar("F", bound=Callable[..., object])

METHODS: Final = ("GET", "POST", "PUT", "DELETE")
BYTES_PER_TOKEN: Final = 64 * 1024
"""Of an answer that costs more the larger it is."""

_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z]+)\}")
_DECLARATION: Final = "_svcd_route"


class Asked(Protocol):
    """What routes see of a request, whichever way it was read."""

    method: bytes
    uri: bytes
    """The target as it was sent: the path and the query."""
    route: str
    """The declared path, with placeholders, of the route that answers; "" where there is none."""

    @property
    def client(self) -> IAddress:
        """The other end of the connection."""

    @property
    def requestHeaders(self) -> Headers:  # noqa: N802
        """Its headers, which must not be changed."""

    @property
    def content(self) -> BytesIO | None:
        """Its body."""

    @property
    def channel(self) -> object:
        """The connection; None once the client is gone."""

    @property
    def site(self) -> "Site":
        """What it was sent to."""

    def answer_within(self, seconds: float) -> None:
        """Announce that the route answers within ``seconds``; nothing happens if the client is gone."""


def read_boolean(value: object) -> bool:
    """A JSON boolean; raises ValueError."""
    if type(value) is bool:
        return value
    raise ValueError("must be true or false")


def read_text(value: object) -> str:
    """A JSON string; raises ValueError."""
    if type(value) is str:
        return value
    raise ValueError("must be a string")


@frozen
class Field:
    """One value that a request brings.

    ``parse`` makes it from the text in a path or query, or from the JSON value in a body, and raises ValueError with a
    sentence that says what would be right. An absent field that is not ``required`` has the value ``default``.
    """

    name: str
    parse: Callable[[Any], object]
    schema: Schema
    description: str
    required: bool = True
    default: object = None
    argument: str = field(init=False)
    """The keyword under which a route gets the value: ``ttlSeconds`` is ``ttl_seconds``, ``from`` is ``from_``."""

    @argument.default
    def _snake_case(self) -> str:
        snake = re.sub("[A-Z]", lambda capital: "_" + capital[0].lower(), self.name)
        return snake + "_" if keyword.iskeyword(snake) else snake


@frozen
class Guard:
    """A condition that is checked before anything of a request is read.

    ``check(room, request)`` raises HttpError with ``status``; ``room`` is the object whose method the route is.
    ``scheme`` names the credentials it asks for: ``"bearer"`` or None.
    """

    status: int
    description: str
    check: Callable[[Any, Asked], None]
    scheme: str | None = None


def in_order(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """The order in which guards are checked: where several errors apply, 503 comes before 401."""
    return tuple(sorted(guards, key=lambda guard: -guard.status))


@frozen
class Route:
    """One declared route; as a decorator it marks the method that answers it.

    ``path`` is the whole path with placeholders such as ``{height}``. ``answers`` are the schemas of the JSON objects
    returned, by status, without the member ``ok``; ``errors`` say more about what an error status means here.
    Each request draws ``cost`` from the bucket named ``bucket`` and is answered within ``seconds``. Where the largest
    answer that is paid ``by_size`` is not 0 bytes, each BYTES_PER_TOKEN of the answer cost one, if that is more. If the
    client goes away, a ``cancellable`` method is cancelled, and its client pays for the largest answer, which may have
    been read already; the default is to cancel GET and nothing else, since other work must go on.
    """

    method: str = field(validator=in_(METHODS))
    path: str
    summary: str
    bucket: str = field(kw_only=True)
    answers: Mapping[int, Schema] = field(kw_only=True)
    errors: Mapping[int, str] = field(kw_only=True, factory=dict)
    path_fields: tuple[Field, ...] = field(kw_only=True, default=())
    query_fields: tuple[Field, ...] = field(kw_only=True, default=())
    body_fields: tuple[Field, ...] = field(kw_only=True, default=())
    guards: tuple[Guard, ...] = field(kw_only=True, default=(), converter=in_order)
    with_client: bool = field(kw_only=True, default=False)
    """Whether the method takes ``client``: the address that asks, None for one without limits."""
    raw_body: bool = field(kw_only=True, default=False)
    """Whether the method takes ``body`` as bytes instead of the body's fields, which then only describe it."""
    cost: float = field(kw_only=True, default=1.0, validator=gt(0))
    by_size: int = field(kw_only=True, default=0, validator=ge(0))
    malformed_tokens: float = field(kw_only=True, default=0.0, validator=ge(0))
    """What a request costs beside ``cost`` whose query, path or body is not as declared."""
    on_persistence: Callable[[Any, str], None] | None = field(kw_only=True, default=None)
    """Called with the room and the client's address when refusals alone have kept the client's bucket empty for long
    (svcd.web.buckets.PERSISTENT_SECONDS)."""
    seconds: float = field(kw_only=True, default=25.0, validator=gt(0))
    cancellable: bool = field(kw_only=True)
    media_type: str = field(kw_only=True, default="application/json")
    description: str = field(kw_only=True, default="")

    @cancellable.default
    def _reads_only(self) -> bool:
        return self.method == "GET"

    def __attrs_post_init__(self) -> None:
        placeholders = _PLACEHOLDER.findall(self.path)
        if placeholders != [field.name for field in self.path_fields]:
            raise ValueError(f"{self.path}: path_fields must be its placeholders, in order: {placeholders}")
        if self.body_fields and self.method == "GET":
            raise ValueError(f"{self.path}: a GET request has no body")
        names = self.arguments
        if len(names) != len(set(names)):
            raise ValueError(f"{self.path}: two fields have the same name")

    def __call__(self, method: F) -> F:
        """Mark ``method`` as the one that answers this route."""
        setattr(method, _DECLARATION, self)
        return method

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields: of the path, the query and the body."""
        return self.path_fields + self.query_fields + self.body_fields

    @property
    def arguments(self) -> list[str]:
        """The keywords that the method is called with."""
        fields = self.path_fields + self.query_fields + (() if self.raw_body else self.body_fields)
        names = [field.argument for field in fields]
        return names + ["body"] * self.raw_body + ["client"] * self.with_client

    @property
    def rule(self) -> str:
        """The path with placeholders as Klein writes them: ``<height>``."""
        return _PLACEHOLDER.sub(r"<\1>", self.path)


def routes_of(room: object) -> Iterable[tuple[Route, Callable[..., object]]]:
    """The routes that ``room``'s class declares, with its bound methods, in the order of declaration."""
    for cls in reversed(type(room).__mro__):
        for name, member in vars(cls).items():
            declared = getattr(member, _DECLARATION, None)
            if isinstance(declared, Route):
                yield declared, getattr(room, name)


def object_schema(properties: Mapping[str, Schema], optional: Iterable[str] = ()) -> Schema:
    """The schema of an object with exactly these members, all required but the ``optional`` ones."""
    left_out = frozenset(optional)
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in left_out],
        "additionalProperties": False,
    }
