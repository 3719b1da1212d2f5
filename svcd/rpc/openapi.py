"""Describes declared routes in OpenAPI 3.1 (https://spec.openapis.org/oas/v3.1.1), from the types of their fields."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import define, field, frozen

from svcd.web.field_types import Schema, SchemaReference, Text, component, constant
from svcd.web.responses import reason_phrase
from svcd.web.routes import BYTES_PER_TOKEN, Field, Route, exactly_one, named_object

JSON: Final = "application/json"
_MEMBERS: Final[Mapping[str, Schema]] = {
    "ok": constant(False),
    "error": {
        "type": "string",
        "description": "One sentence: what is wrong and what would be right.",
        "examples": ["height: must be a whole number from 0 to 9007199254740991"],
    },
}
ERROR: Final = named_object("ApiError", _MEMBERS, about="Every answer that is not a success.")

ERRORS: Final[Mapping[int, str]] = {
    400: "The request is not valid.",
    404: "There is no such path or object.",
    405: "The path does not answer this method; `Allow` lists those it does.",
    408: "The request did not arrive in time; the connection is closed.",
    413: "The body is larger than this path accepts; the connection is closed.",
    429: "The client asks too often; `Retry-After` says after how many seconds to ask again.",
    500: "The node failed; the sentence names the id under which its log has the details.",
    503: "The node cannot answer at present.",
}
"""The errors that every route may answer."""

_SENTENCES: Final[Mapping[int, str]] = {
    400: "height: must be a whole number from 0 to 9007199254740991",
    404: "there is no such path here; paths are case-sensitive and have no slash at the end",
    405: "this path answers GET, HEAD, OPTIONS only",
    408: "the request's headers did not arrive within 10 seconds",
    413: "the body is too large; at most 16384 bytes are accepted here",
    429: "too many requests; try again in 2 s",
    500: "the node failed to answer; its log has the details under 0123456789abcdef",
    503: "the node cannot write to its disk at present; nothing has changed, so try again later",
}
"""An example sentence of each error."""

_RETRY_AFTER: Final[Schema] = {"type": "integer", "minimum": 1, "examples": [2]}
_HEADERS: Final[Mapping[int, Mapping[str, Schema]]] = {
    401: {"WWW-Authenticate": constant("Bearer")},
    405: {"Allow": {"type": "string", "examples": ["GET, HEAD, OPTIONS"]}},
    429: {"Retry-After": _RETRY_AFTER},
    503: {"Retry-After": {**_RETRY_AFTER, "description": "Present if the cause is likely to end soon."}},
}


TIP: Final[Schema] = {
    "type": "string",
    "pattern": "^(0|[1-9][0-9]{0,15}):[0-9a-f]{64}$",
    "description": "Height and hash of the newest block of the chain on which this answer rests.",
    "examples": ["14:" + 4 * "fedcba9876543210"],
}


@frozen
class Tag:
    """A group of operations: those of the routes whose paths begin with ``below``, the longest of which counts."""

    name: str
    below: str
    description: str


@frozen(kw_only=True)
class Webhook:
    """A request that the server makes; ``name`` is its occasion. ``body`` is what it posts, with ``headers``."""

    name: str
    summary: str
    tag: str
    body: Schema
    headers: tuple[Field, ...]
    responses: Mapping[str, str]
    """The meaning of each range of statuses, such as ``2XX``."""
    values: Mapping[str, object]
    """The members in which the example differs from that of ``body``; None leaves one out."""


@frozen(kw_only=True)
class About:
    """The parts of a document that concern the whole interface.

    ``narrowed`` are components that this server defines more narrowly, by name. Pages of other origins may read what is
    below the path ``shared_below``, "" for nothing.
    """

    info: Mapping[str, object]
    tags: Sequence[Tag]
    narrowed: Mapping[str, Schema] = field(factory=dict)
    shared_below: str = ""


def document(routes: Iterable[Route], about: About, webhooks: Iterable[Webhook] = ()) -> dict[str, object]:
    """The OpenAPI document of ``routes``, and of ``webhooks``; paths are in the order of the alphabet."""
    return _Builder(about).document(sorted(routes, key=lambda route: route.path), list(webhooks))


@define
class _Builder:
    """Builds one document, and collects the components to which it refers."""

    _about: About
    _components: dict[str, Schema] = field(init=False, factory=dict)

    def document(self, routes: Sequence[Route], webhooks: Sequence[Webhook]) -> dict[str, object]:
        """The whole document."""
        paths: dict[str, dict[str, object]] = {}
        for route in routes:
            paths.setdefault(route.path, {}).update(self._operations(route))
        hooks = {webhook.name: {"post": self._webhook(webhook)} for webhook in webhooks}
        used = {self._tag(route.path) for route in routes} | {webhook.tag for webhook in webhooks}
        schemes = {guard.scheme for route in routes for guard in route.guards if guard.scheme}
        responses = (
            {_name(status): self._error(status, text, _SENTENCES[status]) for status, text in ERRORS.items()}
            if routes
            else {}
        )
        return {
            "openapi": "3.1.1",
            "info": dict(self._about.info),
            "servers": [{"url": "/", "description": "The node that answers with this document."}],
            "tags": [
                {"name": each.name, "description": each.description} for each in self._about.tags if each.name in used
            ],
            "paths": paths,
            **({"webhooks": hooks} if hooks else {}),
            "components": {
                "schemas": dict(sorted(self._components.items())),
                "responses": responses,
                "securitySchemes": {scheme: {"type": "http", "scheme": scheme} for scheme in sorted(schemes)},
            },
        }

    # Operations

    def _operations(self, route: Route) -> dict[str, object]:
        """What the path of ``route`` answers: with GET also HEAD, and OPTIONS where pages of other origins may read."""
        found: dict[str, object] = {route.method.lower(): self._operation(route)}
        if route.method == "GET":
            found["head"] = self._bodiless(route, "head", "The same as GET, without the body")
        if self._about.shared_below and route.path.startswith(self._about.shared_below + "/"):
            found["options"] = self._bodiless(route, "options", "What pages of other origins may send")
        return found

    def _operation(self, route: Route) -> dict[str, object]:
        operation = self._beginning(route, route.method.lower(), route.summary, _described(route))
        self._parameters(route, operation)
        if route.method == "GET" and route.one_of:
            # What OpenAPI cannot say of parameters.
            operation["x-exactly-one-of"] = list(route.one_of)
        if route.method != "GET":
            operation["requestBody"] = self._body(route)
        operation["responses"] = self._responses(route)
        return operation

    def _bodiless(self, route: Route, method: str, summary: str) -> dict[str, object]:
        """HEAD or OPTIONS on the path of ``route``."""
        operation = self._beginning(route, method, summary, f"{summary}.")
        if method == "head":
            self._parameters(route, operation)
            success = {"200": {"description": "The headers of the answer to GET."}}
        else:
            if route.path_fields:
                operation["parameters"] = [self._any_text(each) for each in route.path_fields]
            success = {"204": {"description": "`Access-Control-Allow-…` say what pages may send; it is never a token."}}
            operation["security"] = []
        refused = {"description": "As for other methods, without a body."}
        operation["responses"] = {**success, "4XX": refused, "5XX": refused}
        return operation

    def _beginning(self, route: Route, method: str, summary: str, description: str) -> dict[str, object]:
        schemes = [guard.scheme for guard in route.guards if guard.scheme]
        return {
            "operationId": _operation_id(method, route.path),
            "tags": [self._tag(route.path)],
            "summary": summary,
            "description": description,
            "security": [{scheme: [] for scheme in schemes}] if schemes else [],
        }

    def _tag(self, path: str) -> str:
        return max((tag for tag in self._about.tags if path.startswith(tag.below)), key=lambda tag: len(tag.below)).name

    def _webhook(self, webhook: Webhook) -> dict[str, object]:
        return {
            "operationId": _operation_id("receive", webhook.name),
            "tags": [webhook.tag],
            "summary": webhook.summary,
            "description": f"{webhook.summary}.",
            "security": [],
            "parameters": [self._parameter(each, "header") for each in webhook.headers],
            "requestBody": {"required": True, "content": self._content(JSON, webhook.body, webhook.values)},
            "responses": {status: {"description": text} for status, text in webhook.responses.items()},
        }

    # Requests

    def _parameters(self, route: Route, operation: dict[str, object]) -> None:
        described = [
            self._parameter(each, "path" if each in route.path_fields else "query", _choice(route, each))
            for each in (*route.path_fields, *route.query_fields)
        ]
        if described:
            operation["parameters"] = described

    def _parameter(self, declared: Field, where: str, more: str = "") -> dict[str, object]:
        return {
            "name": declared.name,
            "in": where,
            "required": declared.required,
            "description": declared.description + more,
            "schema": self._collected(declared.schema),
            "example": self._example(declared.schema),
        }

    def _any_text(self, declared: Field) -> dict[str, object]:
        """A placeholder of a path whose value does not matter, because OPTIONS is answered everywhere."""
        example = str(self._example(declared.schema))
        return self._parameter(Field(declared.name, Text(more={"examples": [example]}), "Any text."), "path")

    def _body(self, route: Route) -> dict[str, object]:
        required = [each.name for each in route.body_fields if each.required]
        return {"required": bool(required), "content": self._content(JSON, _body_schema(route))}

    # Responses

    def _responses(self, route: Route) -> dict[str, object]:
        responses: dict[str, object] = {}
        for status, schema in route.answers.items():
            schema = _with_ok(schema) if route.media_type == JSON else schema
            content = self._content(route.media_type, schema, route.example)
            headers = {"headers": {"Svc-Tip": {"schema": TIP}}} if route.shows_chain else {}
            responses[str(status)] = {
                "description": reason_phrase(status).decode("ascii"),
                **headers,
                "content": content,
            }
        special = {guard.status: guard.description for guard in route.guards} | dict(route.errors)
        for status in ERRORS:
            responses[str(status)] = {"$ref": f"#/components/responses/{_name(status)}"}
        for status, text in special.items():
            responses[str(status)] = self._error(status, text, text, route.error_members.get(status))
        return dict(sorted(responses.items()))

    def _error(
        self, status: int, text: str, sentence: str, members: Mapping[str, Schema] | None = None
    ) -> dict[str, object]:
        schema = ERROR
        if members:
            schema = component(f"{_name(status)}Error", _object({**_MEMBERS, **members}, [*_MEMBERS, *members]))
        content = self._content(JSON, schema, {"error": sentence})
        response: dict[str, object] = {"description": text, "content": content}
        if status in _HEADERS:
            response["headers"] = {name: {"schema": schema} for name, schema in _HEADERS[status].items()}
        return response

    def _content(
        self, media_type: str, schema: Schema, values: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """``schema`` with an example, in which ``values`` replace those of the schema."""
        example = _replaced(self._example(schema), values or {})
        return {media_type: {"schema": self._collected(schema), "example": example}}

    # Components and examples

    def _definition(self, reference: SchemaReference) -> Schema:
        return self._about.narrowed.get(reference.name, reference.definition)

    def _collected(self, schema: Any) -> Any:
        """``schema``, and the components to which it refers are in the document."""
        for each in schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ():
            if isinstance(each, SchemaReference):
                definition = self._definition(each)
                if each.name not in self._components:
                    self._components[each.name] = definition
                    self._collected(definition)
                elif self._components[each.name] != definition:
                    raise ValueError(f"there are two schemas named {each.name}")
            else:
                self._collected(each)
        return schema

    def _example(self, schema: Any) -> object:
        """A value that ``schema`` describes: the example that it has, or one made of the examples of its parts."""
        if "examples" in schema:
            return schema["examples"][0]
        if "$ref" in schema:
            return self._example(self._definition(schema["$ref"]))
        for keyword in ("const", "default"):
            if keyword in schema:
                return schema[keyword]
        if "enum" in schema:
            return schema["enum"][0]
        for keyword in ("oneOf", "anyOf"):
            if keyword in schema:
                return self._example(schema[keyword][0])
        match schema.get("type", "string"):
            case "object":
                return {name: self._example(each) for name, each in schema.get("properties", {}).items()}
            case "array":
                return [self._example(schema["items"])]
            case "integer" | "number":
                return max(schema.get("minimum", 0), min(3, schema.get("maximum", 3)))
            case "boolean":
                return True
            case _:
                return "text"


def _replaced(example: Any, values: Mapping[str, object]) -> Any:
    """``example`` with ``values`` in the place of its members, at every depth; None leaves a member out.

    In a list they replace the members of each object.
    """
    if not values:
        return example
    if isinstance(example, list):
        return [_replaced(each, values) for each in example]
    replaced = {
        name: _replaced(example[name], value) if isinstance(value, Mapping) else value for name, value in values.items()
    }
    return {name: value for name, value in {**example, **replaced}.items() if value is not None or name not in values}


def _described(route: Route) -> str:
    """The cost and the time limit of an operation."""
    cost = "one request" if route.cost == 1 else f"{route.cost:g} requests"
    by_size = (
        f", or as one for each {BYTES_PER_TOKEN // 1024} KiB of the answer, if that is more" if route.by_size else ""
    )
    more = "".join(f"; {each.when}, as {each.tokens:g} more" for each in route.surcharges)
    rate = f"Counts as {cost} of the rate `{route.bucket}`{by_size}{more}."
    return f"{route.summary}. {rate} The node answers within {route.seconds:g} s."


def _choice(route: Route, declared: Field) -> str:
    return f" Give {exactly_one([f'`{name}`' for name in route.one_of])}." if declared.name in route.one_of else ""


def _object(properties: Mapping[str, Schema], required: Sequence[str]) -> dict[str, object]:
    schema: dict[str, object] = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    return schema


def _body_schema(route: Route) -> Schema:
    """The schema of the body; if one field of several must be given, a choice of a schema for each."""

    def schema(fields: Sequence[Field], chosen: str) -> Schema:
        properties = {each.name: {**each.schema, "description": each.description} for each in fields}
        found: Schema = _object(properties, [each.name for each in fields if each.required or each.name == chosen])
        suffix = f"With{chosen[0].upper()}{chosen[1:]}" if chosen else ""
        return component(route.body_name + suffix, found) if route.body_name else found

    if not route.one_of:
        return schema(route.body_fields, "")
    others = [each for each in route.body_fields if each.name not in route.one_of]
    chosen = [each for each in route.body_fields if each.name in route.one_of]
    return {"oneOf": [schema([*others, each], each.name) for each in chosen]}


def _with_ok(schema: Schema) -> Schema:
    """``schema`` of an object, with the member ``ok`` that every success has; of a component, with the same name."""
    reference = schema.get("$ref")
    if isinstance(reference, SchemaReference):
        return component(reference.name, _with_ok(reference.definition))
    properties, required = schema.get("properties"), schema.get("required")
    return {
        **schema,
        "properties": {"ok": constant(True), **(properties if isinstance(properties, Mapping) else {})},
        "required": ["ok", *(required if isinstance(required, list) else [])],
    }


def _name(status: int) -> str:
    return re.sub("[^A-Za-z]", "", reason_phrase(status).decode("ascii"))


def _operation_id(method: str, path: str) -> str:
    words = re.findall("[A-Za-z0-9]+", path)
    return method + "".join(word[0].upper() + word[1:] for word in words)
