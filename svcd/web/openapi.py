"""Describes declared routes in OpenAPI 3.1 (https://spec.openapis.org/oas/v3.1.1), from what also reads requests."""

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final

from svcd.web.field_types import Schema
from svcd.web.routes import Field, Route

_PROPERTIES: Final[Mapping[str, Schema]] = {
    "ok": {"const": False},
    "error": {"type": "string", "description": "One sentence: what is wrong and what would be right."},
}
ERROR: Final[Schema] = {
    "type": "object",
    "description": "Every answer that is not a success.",
    "properties": _PROPERTIES,
    "required": [*_PROPERTIES],
    "additionalProperties": False,
}

ERRORS: Final[Mapping[int, str]] = {
    400: "The request is not valid.",
    404: "There is no such path, or no such thing.",
    405: "The path does not answer this method; `Allow` lists those it does.",
    408: "The request did not arrive in time; the connection is closed.",
    413: "The body is larger than this path accepts; the connection is closed.",
    429: "The client asks too often; `Retry-After` says after how many seconds to ask again.",
    500: "The node failed; the sentence names the id under which its log has the details.",
    503: "The node cannot answer at present.",
}
"""The errors that every route may answer."""

_HEADERS: Final[Mapping[int, Mapping[str, Schema]]] = {
    401: {"WWW-Authenticate": {"type": "string"}},
    405: {"Allow": {"type": "string"}},
    429: {"Retry-After": {"type": "integer", "minimum": 1}},
}


TIP: Final[Schema] = {
    "type": "string",
    "pattern": "^(0|[1-9][0-9]{0,15}):[0-9a-f]{64}$",
    "description": "Height and hash of the newest block of the chain on which this answer rests.",
}


def document(
    routes: Iterable[Route],
    info: Mapping[str, object],
    *,
    schemas: Mapping[str, Schema] | None = None,
    servers: Iterable[str] = (),
) -> dict[str, object]:
    """The OpenAPI document of ``routes``.

    ``info`` has ``title`` and ``version`` at least; ``schemas`` are those that fields and answers refer to as
    ``#/components/schemas/<name>``; ``servers`` are base URLs.
    """
    declared = list(routes)
    paths: dict[str, dict[str, object]] = {}
    for route in declared:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    schemes = {guard.scheme for route in declared for guard in route.guards if guard.scheme}
    described: dict[str, object] = {"openapi": "3.1.1", "info": dict(info)}
    if urls := list(servers):
        described["servers"] = [{"url": url} for url in urls]
    described["paths"] = paths
    described["components"] = {
        "schemas": {"Error": ERROR, **(schemas or {})},
        "responses": {_name(status): _error(status, text) for status, text in ERRORS.items()},
        "securitySchemes": {scheme: {"type": "http", "scheme": scheme} for scheme in sorted(schemes)},
    }
    return described


def _operation(route: Route) -> dict[str, object]:
    operation: dict[str, object] = {"operationId": _operation_id(route), "summary": route.summary}
    parameters = [_parameter(field, "path") for field in route.path_fields]
    parameters += [_parameter(field, "query") for field in route.query_fields]
    if parameters:
        operation["parameters"] = parameters
    if route.method != "GET":
        operation["requestBody"] = _body(route.body_fields)
    operation["responses"] = _responses(route)
    schemes = [guard.scheme for guard in route.guards if guard.scheme]
    if schemes:
        operation["security"] = [{scheme: [] for scheme in schemes}]
    return operation


def _parameter(field: Field, place: str) -> dict[str, object]:
    return {
        "name": field.name,
        "in": place,
        "required": field.required,
        "description": field.description,
        "schema": dict(field.schema),
    }


def _body(fields: tuple[Field, ...]) -> dict[str, object]:
    required = [field.name for field in fields if field.required]
    schema: dict[str, object] = {
        "type": "object",
        "properties": {field.name: {**field.schema, "description": field.description} for field in fields},
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    return {"required": bool(required), "content": {"application/json": {"schema": schema}}}


def _responses(route: Route) -> dict[str, object]:
    responses: dict[str, object] = {}
    for status, schema in route.answers.items():
        content = {route.media_type: {"schema": _with_ok(schema) if route.media_type == "application/json" else schema}}
        headers = {"headers": {"Svc-Tip": {"schema": TIP}}} if route.shows_chain else {}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, **headers, "content": content}
    special = {guard.status: guard.description for guard in route.guards} | dict(route.errors)
    for status in ERRORS:
        responses[str(status)] = {"$ref": f"#/components/responses/{_name(status)}"}
    for status, text in special.items():
        responses[str(status)] = _error(status, text, route.error_members.get(status))
    return dict(sorted(responses.items()))


def _with_ok(schema: Schema) -> Schema:
    """``schema`` of an object, with the member ``ok`` that every success has."""
    properties = schema.get("properties")
    required = schema.get("required")
    return {
        **schema,
        "properties": {"ok": {"const": True}, **(properties if isinstance(properties, Mapping) else {})},
        "required": ["ok", *(required if isinstance(required, list) else [])],
    }


def _error(status: int, text: str, members: Mapping[str, Schema] | None = None) -> dict[str, object]:
    schema: Schema = {"$ref": "#/components/schemas/Error"}
    if members:
        schema = {**ERROR, "properties": {**_PROPERTIES, **members}, "required": [*_PROPERTIES, *members]}
    response: dict[str, object] = {"description": text, "content": {"application/json": {"schema": schema}}}
    if status in _HEADERS:
        response["headers"] = {name: {"schema": schema} for name, schema in _HEADERS[status].items()}
    return response


def _name(status: int) -> str:
    return re.sub("[^A-Za-z]", "", HTTPStatus(status).phrase)


def _operation_id(route: Route) -> str:
    words = re.findall("[A-Za-z0-9]+", route.path)
    return route.method.lower() + "".join(word[0].upper() + word[1:] for word in words)
