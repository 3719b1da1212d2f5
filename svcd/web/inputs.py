"""Reads what a request brings as its route declares it; anything else is 400 with a sentence (docs/http.md)."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from svcd.web.errors import HttpError
from svcd.web.routing import Asked, Field, Route

MAX_QUERY_FIELDS: Final = 100
MAX_SHOWN: Final = 64
"""How much of a name that a client sent is repeated to it."""


def read_values(
    route: Route, request: Asked, path_values: Mapping[str, str], parse_json: Callable[[bytes], object]
) -> dict[str, object]:
    """The validated values of all fields of ``route``, by the arguments of its method.

    Raises HttpError, and whatever ``parse_json`` and the fields' ``parse`` raise that is no ValueError.
    """
    values = {field.argument: _parse(field, path_values[field.name]) for field in route.path_fields}
    if route.query_fields:
        values |= _read(route.query_fields, _query(route, request))
    if route.raw_body:
        values["body"] = _bytes(request)
    elif route.method != "GET":
        values |= _read(route.body_fields, _body(route, request, parse_json))
    return values


def _read(fields: tuple[Field, ...], given: Mapping[str, Any]) -> dict[str, object]:
    values = {}
    for field in fields:
        if field.name in given:
            values[field.argument] = _parse(field, given[field.name])
        elif field.required:
            raise HttpError(400, f"{field.name} is missing: {field.description}")
        else:
            values[field.argument] = field.default
    return values


def _parse(field: Field, raw: Any) -> object:
    try:
        return field.parse(raw)
    except ValueError as error:
        raise HttpError(400, f"{field.name}: {error}") from error


def _query(route: Route, request: Asked) -> dict[str, str]:
    # Not request.args: Twisted also splits at semicolons, so that one value could pass for two.
    try:
        pairs = _pairs(request.uri.partition(b"?")[2].decode("ascii"))
    except UnicodeDecodeError as error:
        raise HttpError(400, "the query must be UTF-8 in percent-encoding") from error
    except ValueError as error:
        raise HttpError(400, f"the query may have at most {MAX_QUERY_FIELDS} fields") from error
    names = [name for name, _ in pairs]
    for field in route.query_fields:
        if names.count(field.name) > 1:
            raise HttpError(400, f"{field.name} stands more than once in the query; once is right")
    return dict(pairs)


def _pairs(text: str) -> list[tuple[str, str]]:
    if "%" in text or "+" in text or text.count("&") >= MAX_QUERY_FIELDS:
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS)
    # Nothing to decode, as in nearly every query: a fifth of the time, and the same outcome.
    splits = [part.partition("=") for part in text.split("&") if part]
    return [(name, value) for name, _, value in splits]


def _bytes(request: Asked) -> bytes:
    return request.content.read() if request.content is not None else b""


def _body(route: Route, request: Asked, parse_json: Callable[[bytes], object]) -> dict[str, object]:
    data = _bytes(request)
    try:
        body = parse_json(data) if data else {}
    except RecursionError as error:
        raise HttpError(400, "the body is nested too deeply") from error
    if not isinstance(body, dict):
        raise HttpError(400, "the body must be a JSON object")
    known = [field.name for field in route.body_fields]
    unknown = next((name for name in body if name not in known), None)
    if unknown is not None:
        allowed = f"the known ones are {', '.join(known)}" if known else "this route has none"
        raise HttpError(400, f"unknown field {unknown[:MAX_SHOWN]!r} in the body; {allowed}")
    return body
