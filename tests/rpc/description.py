"""Holds requests and answers to an OpenAPI document: what a node says of itself must be true of every exchange."""

import json
import re
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote

from attrs import frozen
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.web.wire import Response

Schema = dict[str, Any]


@frozen
class Asked:
    """One request."""

    method: str
    target: str
    body: bytes

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


@frozen(eq=False)
class Operation:
    """What a document says of one method of one path."""

    path: str
    declared: Schema

    @property
    def placeholders(self) -> list[str]:
        """The names in the path, in order."""
        return re.findall(r"\{(\w+)\}", self.path)


class Description:
    """An OpenAPI document; with ``cors`` every answer must be readable by pages of every origin."""

    def __init__(self, document: Schema, *, cors: bool) -> None:
        self.document = document
        self._cors = cors
        self._operations = {
            (path, method.upper()): Operation(path, declared)
            for path, methods in document["paths"].items()
            for method, declared in methods.items()
        }
        self._patterns = {path: re.compile(re.sub(r"\{\w+\}", "([^/]+)", path)) for path in document["paths"]}
        self._validators = cache(lambda text: Draft202012Validator({**json.loads(text), "components": components}))
        components = document["components"]

    def check(self, asked: Asked, response: Response) -> None:
        """Fail unless the answer is one that the document announces for this request."""
        self._check_headers(asked, response)
        if asked.method == "OPTIONS" and self._cors:
            assert (response.status, response.body) == (204, b"")
            assert "authorization" not in response.headers["access-control-allow-headers"].lower()
            return
        # A path without placeholders comes first (OpenAPI 3.1, Path Templating).
        paths = sorted(self._patterns, key=lambda path: path.count("{"))
        path = next((path for path in paths if self._patterns[path].fullmatch(asked.path)), None)
        operation = self._operations.get((path or "", asked.method))
        if operation is not None:
            self._check_answer(asked, operation, response)
            return
        if path is None:
            assert response.status in {400, 404}, f"{asked.path} is not described"
        else:
            allowed = sorted(method for each, method in self._operations if each == path)
            assert (response.status, response.headers["allow"]) == (405, ", ".join(allowed))
        if asked.method != "HEAD":
            self._validate(self.document["components"]["schemas"]["ApiError"], response.json)

    def _check_headers(self, asked: Asked, response: Response) -> None:
        headers = response.headers
        assert headers["server"] == "svcd"
        assert headers["cache-control"] == "no-store"
        assert headers.get("access-control-allow-origin") == ("*" if self._cors else None)
        assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", headers["date"])
        assert ("content-length" in headers) == (response.status != 204)
        # A 503 has it where the cause may soon be gone.
        assert response.status == 503 or ("retry-after" in headers) == (response.status == 429)
        assert ("www-authenticate" in headers) == (response.status == 401)
        if asked.method == "HEAD":
            assert response.body == b""

    def _check_answer(self, asked: Asked, operation: Operation, response: Response) -> None:
        responses = operation.declared["responses"]
        described = responses.get(str(response.status)) or responses[f"{response.status // 100}XX"]
        if "$ref" in described:
            described = self.document["components"]["responses"][described["$ref"].rpartition("/")[2]]
        if asked.method != "HEAD":
            ((media_type, content),) = described["content"].items()
            assert response.headers["content-type"] == media_type
            is_json = "json" in media_type
            self._validate(content["schema"], json.loads(response.body) if is_json else response.body.decode("latin-1"))
        for name, header in described.get("headers", {}).items():
            assert not self._cors or name.lower() in response.headers["access-control-expose-headers"].lower()
            if name.lower() in response.headers:
                self._validate(header["schema"], _as_json(response.headers[name.lower()], header["schema"]))
        if response.status == 200:
            self._check_request(asked, operation)
            assert asked.method == "HEAD" or ("svc-tip" in response.headers) == (
                "Svc-Tip" in described.get("headers", {})
            )

    def _check_request(self, asked: Asked, operation: Operation) -> None:
        """What the node takes must be what it says it takes."""
        match = self._patterns[operation.path].fullmatch(asked.path)
        assert match is not None
        given = dict(zip(operation.placeholders, map(unquote, match.groups()), strict=True))
        given |= dict(parse_qsl(asked.target.partition("?")[2], keep_blank_values=True))
        for parameter in operation.declared.get("parameters", []):
            if parameter["name"] in given:
                self._validate(
                    parameter["schema"], _as_json(given[parameter["name"]], self._resolved(parameter["schema"]))
                )
            else:
                assert not parameter["required"]
        if "requestBody" in operation.declared:
            schema = operation.declared["requestBody"]["content"]["application/json"]["schema"]
            self._validate(schema, json.loads(asked.body or b"{}"))

    def _resolved(self, schema: Schema) -> Schema:
        return self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

    def _validate(self, schema: Schema, value: object) -> None:
        self._validators(json.dumps(schema)).validate(value)


def _as_json(text: str, schema: Schema) -> object:
    """The JSON value of a text in a path, a query or a header."""
    return json.loads(text) if schema["type"] in ("integer", "boolean") else text
