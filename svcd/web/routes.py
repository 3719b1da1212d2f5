"""The declaration of a route: its path, fields, responses and limits, and how a request is read by it.

The same declaration answers requests (svcd.web.api) and describes the route in OpenAPI (svcd.rpc.openapi). A route is
about five lines::

    @Route("GET", "/rpc/block/{height}", "The canonical block at a height", bucket="read",
           path_fields=(HEIGHT,), answers={200: object_schema({"block": BLOCK})})
    async def block(self, height: int) -> Renderable:
        return {"block": await self._reader.block(height)}
"""

import hmac
import keyword
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from attrs import field, frozen
from attrs.validators import ge, gt, in_

from svcd.limits import limit
from svcd.web.field_types import FieldType, Int, Schema, component
from svcd.web.rate_limits import Surcharge
from svcd.web.request import IncomingRequest
from svcd.web.responses import HttpError, unauthorized

F = TypeVar("F", bound=Callable[..., object])

METHODS: Final = ("GET", "POST")
BYTES_PER_TOKEN: Final = limit(
    64 * 1024,
    "size of blocks that counts as one request",
    "bytes",
    "Requesting full blocks at the rate of status answers, or hanging up before they "
    "arrive, so that disk and network serve one client",
)
"""How many bytes of a large response cost one token."""
MAX_QUERY_FIELDS: Final = limit(
    100,
    "names in a query",
    "names",
    "Deeply nested JSON, millions of empty arrays, long integers, or a query of thousands of names",
)
MAX_SHOWN: Final = 64
"""How many characters of an unknown name are repeated in the error."""
REQUIRED: Final = object()
"""The default of a field that must be given."""

_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z]+)\}")
_DECLARATION: Final = "_svcd_route"


@frozen
class Field:
    """One named value of a request: in the path, the query or the JSON body.

    A field with a ``default`` may be left out; the schema shows every default but None.
    """

    name: str
    type: FieldType
    description: str
    default: object = REQUIRED
    argument: str = field(init=False)
    """The keyword of the route's method: ``ttl_seconds`` for ``ttlSeconds``, ``from_`` for ``from``."""

    @argument.default
    def _snake_case(self) -> str:
        snake = re.sub("[A-Z]", lambda capital: "_" + capital[0].lower(), self.name)
        return snake + "_" if keyword.iskeyword(snake) else snake

    @property
    def required(self) -> bool:
        """Whether a request without this field is refused."""
        return self.default is REQUIRED

    @property
    def schema(self) -> Schema:
        """The JSON schema of the value."""
        shown = {} if self.required or self.default is None else {"default": self.default}
        return {**self.type.schema, **shown}


@frozen
class Guard:
    """A condition that is checked before the request's fields are read.

    ``check(owner, request)`` raises HttpError with ``status``; ``owner`` is the object whose method the route is.
    ``scheme`` is the authentication scheme, ``"bearer"`` or None. The method gets the result of ``check`` as
    ``argument``, unless that is None.
    """

    status: int
    description: str
    check: Callable[[Any, IncomingRequest], object]
    scheme: str | None = None
    argument: str | None = None


MIN_HEIGHT: Final = Field(
    "minHeight",
    Int(0, 2**53 - 1),
    "Answer only if the chain of this node is at least so high; otherwise 503. A client that reads from several nodes "
    "gives the greatest height that `Svc-Tip` has shown it.",
    default=None,
)
"""The query field of every GET route that shows the chain."""


def in_order(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """The guards in the order of their checks: 503 comes before 401."""
    return tuple(sorted(guards, key=lambda guard: -guard.status))


def require_bearer(request: IncomingRequest, *tokens: str) -> int:
    """The index of the token that the only ``Authorization`` header has after ``Bearer`` (RFC 6750).

    Raises HttpError 401 if it is none of ``tokens``. The time that it takes tells nothing about them.
    """
    lines = request.requestHeaders.getRawHeaders(b"Authorization") or []
    scheme, _, given = lines[0].partition(b" ") if len(lines) == 1 else (b"", b"", b"")
    digest, found = sha256(given.strip()).digest(), None
    for index, token in enumerate(tokens):
        if hmac.compare_digest(digest, sha256(token.encode("utf-8")).digest()):
            found = index
    if scheme.lower() != b"bearer" or found is None:
        raise unauthorized("this needs the header Authorization: Bearer <token> with the right token")
    return found


@frozen
class Route:
    """One declared route; as a decorator it marks the method that answers it.

    ``path`` is the full path with placeholders such as ``{height}``. ``answers`` are the schemas of the JSON objects by
    status, without the member ``ok``; ``errors`` describe error statuses further, and ``error_members`` are the members
    that the bodies of these have beside ``ok`` and ``error``. A request costs ``cost`` tokens of ``bucket``. A
    response of up to ``by_size`` bytes costs a token for each BYTES_PER_TOKEN, if that is more. The method has
    ``seconds`` to answer.

    When the client disconnects, a ``cancellable`` method is cancelled, and its client pays for the largest response,
    which may have been read already. Only GET is cancellable by default.
    """

    method: str = field(validator=in_(METHODS))
    path: str
    summary: str
    bucket: str = field(kw_only=True)
    answers: Mapping[int, Schema] = field(kw_only=True)
    errors: Mapping[int, str] = field(kw_only=True, factory=dict)
    error_members: Mapping[int, Mapping[str, Schema]] = field(kw_only=True, factory=dict)
    path_fields: tuple[Field, ...] = field(kw_only=True, default=())
    query_fields: tuple[Field, ...] = field(kw_only=True, default=())
    body_fields: tuple[Field, ...] = field(kw_only=True, default=())
    one_of: tuple[str, ...] = field(kw_only=True, default=())
    """The names of optional fields, of the query or of the body, of which a request has exactly one."""
    body_name: str = field(kw_only=True, default="")
    """Of the component of the document that describes the body; "" for none."""
    guards: tuple[Guard, ...] = field(kw_only=True, default=(), converter=in_order)
    with_client: bool = field(kw_only=True, default=False)
    """Whether the method takes ``client``: the client's IP address, None for a client without limits."""
    with_host: bool = field(kw_only=True, default=False)
    """Whether the method takes ``host``: the ``Host`` of the request, "" if it has none."""
    with_charge: bool = field(kw_only=True, default=False)
    """Whether the method takes ``charge``: a function that draws tokens from the client's bucket, even if there are
    fewer, for work that only some requests cause."""
    surcharges: tuple[Surcharge, ...] = field(kw_only=True, default=())
    """What the method draws with ``charge``, as the description of the route says it."""
    example: Mapping[str, object] = field(kw_only=True, factory=dict)
    """The members in which the example of the answers differs from that of their schemas; None leaves one out."""
    raw_body: bool = field(kw_only=True, default=False)
    """Whether the method takes ``body`` as bytes; ``body_fields`` then only describe it."""
    cost: float = field(kw_only=True, default=1.0, validator=gt(0))
    by_size: int = field(kw_only=True, default=0, validator=ge(0))
    malformed_tokens: float = field(kw_only=True, default=0.0, validator=ge(0))
    """The additional cost of a request whose query, path or body is not as declared."""
    on_flood: Callable[[Any, str], None] | None = field(kw_only=True, default=None)
    """Called with the owner and the client's address when refusals alone have kept the client's bucket empty for
    svcd.web.rate_limits.FLOOD_SECONDS."""
    seconds: float = field(kw_only=True, default=25.0, validator=gt(0))
    cancellable: bool = field(kw_only=True)
    shows_chain: bool = field(kw_only=True, default=False)
    """Whether responses depend on the chain. They name the tip on which they rest, and a GET takes MIN_HEIGHT; the
    owner then has an attribute ``tip``, the current :class:`svcd.web.responses.Tip`."""
    media_type: str = field(kw_only=True, default="application/json")
    other_methods: str = field(kw_only=True, default="")
    """What 405 says beside the allowed methods: the route that does what the client probably wants."""

    @cancellable.default
    def _is_read(self) -> bool:
        return self.method == "GET"

    takes_min_height: bool = field(init=False)
    """Whether MIN_HEIGHT is among the query fields."""
    query_by_name: Mapping[str, Field] = field(init=False, factory=dict)
    query_defaults: Mapping[str, object] = field(init=False, factory=dict)
    """What a request without a query gives the method, by its arguments; without required fields."""
    required_in_query: tuple[Field, ...] = field(init=False, default=())
    one_of_in_query: tuple[str, ...] = field(init=False, default=())
    """Those names of ``one_of`` that are of fields of the query."""

    @takes_min_height.default
    def _reads_chain(self) -> bool:
        return self.shows_chain and self.method == "GET"

    def __attrs_post_init__(self) -> None:
        if self.takes_min_height:
            object.__setattr__(self, "query_fields", (*self.query_fields, MIN_HEIGHT))
        for name, value in {
            "query_by_name": (by_name := {each.name: each for each in self.query_fields}),
            "query_defaults": {each.argument: each.default for each in self.query_fields if not each.required},
            "required_in_query": tuple(each for each in self.query_fields if each.required),
            "one_of_in_query": tuple(name for name in self.one_of if name in by_name),
        }.items():
            object.__setattr__(self, name, value)
        placeholders = _PLACEHOLDER.findall(self.path)
        if placeholders != [field.name for field in self.path_fields]:
            raise ValueError(f"{self.path}: path_fields must be its placeholders, in order: {placeholders}")
        known = {field.name for field in self.query_fields + self.body_fields if not field.required}
        if not known.issuperset(self.one_of):
            raise ValueError(f"{self.path}: one_of must name optional fields")
        if self.surcharges and not self.with_charge:
            raise ValueError(f"{self.path}: surcharges need with_charge")
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
    def arguments(self) -> list[str]:
        """The keywords that the method is called with."""
        fields = self.path_fields + self.query_fields + (() if self.raw_body else self.body_fields)
        names = [field.argument for field in fields if field is not MIN_HEIGHT]
        names += [guard.argument for guard in self.guards if guard.argument is not None]
        names += ["body"] * self.raw_body + ["client"] * self.with_client + ["host"] * self.with_host
        return names + ["charge"] * self.with_charge


def routes_of(owner: object) -> Iterable[tuple[Route, Callable[..., object]]]:
    """The routes that the class of ``owner`` declares, each with its bound method, in the order of declaration."""
    for cls in reversed(type(owner).__mro__):
        for name, member in vars(cls).items():
            declared = getattr(member, _DECLARATION, None)
            if isinstance(declared, Route):
                yield declared, getattr(owner, name)


def object_schema(properties: Mapping[str, Schema], optional: Iterable[str] = ()) -> Schema:
    """The schema of an object with exactly these members, all required except the ``optional`` ones."""
    left_out = frozenset(optional)
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in left_out],
        "additionalProperties": False,
    }


def named_object(name: str, properties: Mapping[str, Schema], optional: Iterable[str] = (), about: str = "") -> Schema:
    """The same as a component of the document; ``about`` says what it is where the name does not."""
    described = {"description": about} if about else {}
    return component(name, {**object_schema(properties, optional), **described})


def read_values(
    route: Route, request: IncomingRequest, path_values: Mapping[str, str], parse_json: Callable[[bytes], object]
) -> dict[str, object]:
    """The validated values of all fields of ``route``, by the arguments of its method, and of MIN_HEIGHT.

    Raises HttpError(400), and what ``parse_json`` and custom field types raise beside ValueError.
    """
    values = {each.argument: _parsed(each, each.type.parse_text, path_values[each.name]) for each in route.path_fields}
    if route.query_fields:
        values.update(route.query_defaults)
        if b"?" in request.uri or route.required_in_query or route.one_of_in_query:
            _read_query(route, request, values)
    if route.raw_body:
        values["body"] = _bytes(request)
    elif route.method != "GET":
        body = _body(route, request, parse_json)
        _check_one_of(route.one_of, body)
        for each in route.body_fields:
            found = each.name in body
            if not found and each.required:
                raise _missing(each)
            values[each.argument] = _parsed(each, each.type.parse, body[each.name]) if found else each.default
    return values


def unknown_query_fields(route: Route, request: IncomingRequest) -> list[str]:
    """The names in the query that ``route`` does not know and ignores, in order; none if the query is malformed."""
    try:
        names = [name for name, *_ in _splits(request.uri.partition(b"?")[2].decode("ascii"))]
    except ValueError:
        return []
    return [name for name in dict.fromkeys(names) if name not in route.query_by_name]


def _check_one_of(names: Sequence[str], given: Mapping[str, object]) -> None:
    if names and sum(map(given.__contains__, names)) != 1:
        raise HttpError(400, f"give {exactly_one(names)}")


def exactly_one(names: Sequence[str]) -> str:
    """Such as ``exactly one of a, b and c``."""
    return f"exactly one of {', '.join(names[:-1])} and {names[-1]}"


def _missing(declared: Field) -> HttpError:
    return HttpError(400, f"{declared.name} is missing: {declared.description}")


def _parsed(declared: Field, parse: Callable[[Any], object], raw: Any) -> object:
    try:
        return parse(raw)
    except ValueError as error:
        raise _wrong(declared, error) from error


def _wrong(declared: Field, error: ValueError) -> HttpError:
    return HttpError(400, f"{declared.name}: {error}")


def _read_query(route: Route, request: IncomingRequest, values: dict[str, object]) -> None:
    """Add the values of the fields that a request has in its query."""
    # Not request.args: Twisted also splits at semicolons, so that one value could pass for two.
    try:
        splits = _splits(request.uri.partition(b"?")[2].decode("ascii"))
    except UnicodeDecodeError as error:
        raise HttpError(400, "the query must be UTF-8 in percent-encoding") from error
    except ValueError as error:
        raise HttpError(400, f"the query may have at most {MAX_QUERY_FIELDS} fields") from error
    query = {name: text for name, _, text in splits}
    if len(query) < len(splits):
        names = [name for name, *_ in splits]
        for name in route.query_by_name:
            if names.count(name) > 1:
                raise HttpError(400, f"{name} occurs more than once in the query; give it once")
    _check_one_of(route.one_of_in_query, query)
    for declared in route.required_in_query:
        if declared.name not in query:
            raise _missing(declared)
    # Few of the fields are in a query, so each name in it is looked up, not each field.
    for name, text in query.items():
        known = route.query_by_name.get(name)
        if known is not None:
            try:
                values[known.argument] = known.type.parse_text(text)
            except ValueError as error:
                raise _wrong(known, error) from error


def _splits(text: str) -> Sequence[tuple[str, str, str]]:
    """Each field of a query as ``str.partition`` splits it at its equals sign, without percent-encoding."""
    parts = text.split("&")
    if "%" in text or "+" in text or len(parts) > MAX_QUERY_FIELDS:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS)
        return [(name, "=", value) for name, value in pairs]
    # Most queries have nothing to decode: this gives the same in a fifth of the time.
    return [part.partition("=") for part in parts if part]


def _bytes(request: IncomingRequest) -> bytes:
    for coding in request.requestHeaders.getRawHeaders(b"Content-Encoding") or []:
        if coding.strip().lower() != b"identity":
            shown = coding[:MAX_SHOWN].decode("latin-1")
            raise HttpError(400, f"a body with Content-Encoding {shown!r} is not accepted here; send it unencoded")
    return request.content.read() if request.content is not None else b""


def _body(route: Route, request: IncomingRequest, parse_json: Callable[[bytes], object]) -> dict[str, object]:
    data = _bytes(request)
    try:
        body = parse_json(data) if data else {}
    except RecursionError as error:
        raise HttpError(400, "the body is nested too deeply") from error
    if not isinstance(body, dict):
        raise HttpError(400, "the body must be a JSON object")
    known = [each.name for each in route.body_fields]
    unknown = next((name for name in body if name not in known), None)
    if unknown is not None:
        allowed = f"the known ones are {', '.join(known)}" if known else "this route has none"
        raise HttpError(400, f"unknown field {unknown[:MAX_SHOWN]!r} in the body; {allowed}")
    return body
