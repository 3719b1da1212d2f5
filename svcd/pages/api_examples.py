"""The examples of the API reference: JSON in lines, and a request as a command for a shell."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

_WIDTH: Final = 84
TOKEN_FILE: Final = "manage-token"  # noqa: S105
"""The file with the management token."""
HEADER_FILE: Final = "authorization"
"""The file with the header that has the token."""
HEADER_COMMAND: Final = f"(umask 077; printf 'Authorization: Bearer %s\\n' \"$(cat {TOKEN_FILE})\" > {HEADER_FILE})"
"""The command that writes the header."""


def laid_out(value: object, indent: int = 0) -> str:
    """``value`` as JSON, on one line if it fits, otherwise with a line for each member."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or not value or indent + len(line) <= _WIDTH:
        return line
    pad, end = " " * (indent + 2), " " * indent
    if isinstance(value, dict):
        members = [f"{pad}{json.dumps(name)}: {laid_out(each, indent + 2)}" for name, each in value.items()]
        return "{\n" + ",\n".join(members) + f"\n{end}}}"
    return "[\n" + ",\n".join(f"{pad}{laid_out(each, indent + 2)}" for each in value) + f"\n{end}]"


def curl(origin: str, method: str, path: str, operation: Mapping[str, Any]) -> str:
    """The command that sends the example of an operation, with the parameters that it needs."""
    parameters = operation.get("parameters", ())
    url = origin + _filled(path, parameters)
    query = _query(parameters, operation.get("x-exactly-one-of", ()))
    url += f"?{query}" if query else ""
    parts = ["curl -s"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if method != "GET" and body is None:
        parts[0] += f" -X {method}"
    parts[0] += f" {shlex.quote(url)}"
    if operation.get("security"):
        parts.append(f"-H @{HEADER_FILE}")
    if body is not None:
        parts.append(f"-d {shlex.quote(laid_out(body['example']))}")
    return " \\\n  ".join(parts)


def _filled(path: str, parameters: Iterable[Mapping[str, Any]]) -> str:
    examples = {each["name"]: str(each["example"]) for each in parameters if each["in"] == "path"}
    return re.sub(r"\{([A-Za-z]+)\}", lambda match: quote(examples[match[1]], safe=""), path)


def _query(parameters: Iterable[Mapping[str, Any]], one_of: Iterable[str]) -> str:
    """The required parameters, and the first of those of which exactly one is required."""
    chosen = set(list(one_of)[:1])
    given = {
        each["name"]: each["example"]
        for each in parameters
        if each["in"] == "query" and (each["required"] or each["name"] in chosen)
    }
    return urlencode({name: ",".join(each) if isinstance(each, list) else each for name, each in given.items()})
