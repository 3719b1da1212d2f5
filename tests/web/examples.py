"""The examples in an OpenAPI document, each with the schema that it must conform to."""

from collections.abc import Iterator, Mapping
from typing import Any


def examples(described: Any) -> Iterator[tuple[Any, Any]]:
    """Every example beside a schema; fails where parameters, bodies or answers have none."""
    if isinstance(described, list):
        for each in described:
            yield from examples(each)
    if not isinstance(described, dict):
        return
    if "schema" in described:
        assert "example" in described or "in" not in described, f"no example: {described}"
        if "example" in described:
            yield described["schema"], described["example"]
    if isinstance(described.get("examples"), list):
        for example in described["examples"]:
            yield {name: value for name, value in described.items() if name != "examples"}, example
    for name, media_type in described["content"].items() if isinstance(described.get("content"), dict) else ():
        assert "example" in media_type or "/" not in name, f"no example: {described}"
    for name, each in described.items():
        if name not in ("example", "examples"):  # an example's own members may be called as the document's are
            yield from examples(each)


def inlined(schema: Any) -> Any:
    """``schema`` with the definitions of components in the place of references to them."""
    if isinstance(schema, list):
        return [inlined(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {name: inlined(each) for name, each in schema.items() if name != "$ref"}
    return {**inlined(schema["$ref"].definition), **found} if "$ref" in schema else found
