"""The sources of settings (file, environment, command line) as layers, and their merge."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from svcd.visible_text import BadText, text_of

KeyPath = tuple[str | int, ...]
"""The keys that lead to a setting; a number is the place of a section among several with one name, from 0."""

_HEADER = re.compile(r"\s*(\[\[?)\s*([A-Za-z0-9_.-]+)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+)\s*=")

SECRETS_IN_ENVIRONMENT = {
    "SVCD_COMMERCE_WEBHOOKS_MANAGE_TOKEN": "manageToken",
    "SVCD_COMMERCE_WEBHOOKS_SIGNING_SECRET": "signingSecret",
}


class ConfigError(Exception):
    """The configuration cannot be used; the text is one sentence that names the place and says what would be right."""


@frozen
class Layer:
    """The settings of one source, nested as in the file."""

    origin: str
    values: Mapping[str, Any] = field(repr=False)
    lines: Mapping[KeyPath, int] = field(factory=dict, repr=False)
    """The line of each key, for sources of which the errors name it."""

    def place(self, path: KeyPath) -> str:
        """The origin of the key at a path, with its line if that is known."""
        return f"{self.origin}, line {self.lines[path]}" if path in self.lines else self.origin


@frozen
class Settings:
    """The merged settings of all sources, and the origin of each."""

    values: dict[str, Any] = field(factory=dict, repr=False)
    origins: dict[KeyPath, str] = field(factory=dict)

    def add(self, layer: Layer) -> None:
        """Merge a layer, whose settings win; sections are merged, lists replaced."""
        # What no layer has is missing in the first one.
        self.origins.setdefault((), layer.origin)
        self._merge(self.values, layer.values, layer, ())

    def _merge(self, below: dict[str, Any], above: Mapping[str, Any], layer: Layer, path: KeyPath) -> None:
        for key, value in above.items():
            here = (*path, key)
            if isinstance(value, Mapping) and isinstance(below.setdefault(key, {}), dict):
                self.origins.setdefault(here, layer.place(here))
                self._merge(below[key], value, layer, here)
            else:
                below[key] = value
                self.origins[here] = layer.place(here)
                for inner in layer.lines:
                    if len(inner) > len(here) and inner[: len(here)] == here:
                        self.origins[inner] = layer.place(inner)

    def has(self, path: KeyPath) -> bool:
        """Whether any layer sets the key at a path."""
        return path in self.origins

    def problem(self, path: KeyPath, reason: str) -> ConfigError:
        """The error for the key at a path: its origin, its value unless that is a secret, and the reason."""
        return ConfigError(f"{self._origin(path)}: {name_of(path)} = {self._shown(path)}: {reason}")

    def missing(self, path: KeyPath) -> ConfigError:
        """The error for a required key that is not set."""
        return ConfigError(f"{self._origin(path)}: {name_of(path)} is missing")

    def unknown(self, path: KeyPath, hint: str) -> ConfigError:
        """The error for an unknown section or key."""
        what = f"section [{'.'.join(map(str, path))}]" if isinstance(self._value(path), dict) else name_of(path)
        return ConfigError(f"{self._origin(path)}: {what} is not known; {hint}")

    def _origin(self, path: KeyPath) -> str:
        # Lists have one origin.
        while path not in self.origins:
            path = path[:-1]
        return self.origins[path]

    def _shown(self, path: KeyPath) -> str:
        value = self._value(path)
        # A section may contain a secret in the place of its file.
        if str(path[-1]).lower().endswith(("token", "secret", "database", "merchants")) or isinstance(value, dict):
            return "(not shown)"
        text = json.dumps(value, default=str, ensure_ascii=False)
        return text if len(text) <= 100 else text[:99] + "…"

    def _value(self, path: KeyPath) -> Any:
        value: Any = self.values
        for key in path:
            value = value[key]
        return value


def name_of(path: KeyPath) -> str:
    """The name of a setting as in the documentation: `[http] listen`."""
    *section, key = path
    number = next((part for part in path if isinstance(part, int)), None)
    if number is not None:
        sections = ".".join(str(part) for part in path[: path.index(number)])
        return f"[[{sections}]] number {number + 1}" + (f", {key}" if key != number else "")
    return f"[{'.'.join(map(str, section))}] {key}" if section else str(key)


def camel(name: str) -> str:
    """`data_dir` as the file has it: `dataDir`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def merged(layers: Iterable[Layer]) -> Settings:
    """Merge layers; later ones win."""
    settings = Settings()
    for layer in layers:
        settings.add(layer)
    return settings


def from_file(path: Path) -> Layer:
    """The settings of a TOML file.

    Raises:
        ConfigError: the file cannot be read or is not TOML; the sentence names the line.
    """
    try:
        return Layer(str(path), tomllib.loads(text_of(path.read_bytes())))
    except OSError as error:
        raise ConfigError(f"{path}: the configuration file cannot be read: {error.strerror}") from error
    except BadText as error:
        raise ConfigError(f"{path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from error


def lines_of(text: str) -> dict[KeyPath, int]:
    """The lines of the sections and keys of a valid TOML text, as far as each begins a line in the usual way."""
    lines: dict[KeyPath, int] = {}
    sections: dict[tuple[str, ...], int] = {}
    here: KeyPath = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            names = tuple(header[2].split("."))
            here = names
            if header[1] == "[[":
                sections[names] = sections.get(names, -1) + 1
                lines.setdefault(names, number)
                here = (*names, sections[names])
            lines[here] = number
        elif key := _KEY.match(line):
            lines[(*here, key[1])] = number
    return lines


def from_option(option: str, path: KeyPath, value: object) -> Layer:
    """One setting from the command line; `option` is what the user typed."""
    nested: Any = value
    for key in reversed(path):
        nested = {key: nested}
    return Layer(option, nested)


def from_assignment(text: str) -> Layer:
    """One setting written `section.key=value`; the value is parsed as TOML; if it is not TOML, it is a plain string.

    Raises:
        ConfigError: there is no `=`, or no key before it.
    """
    name_text, equals, right = text.partition("=")
    path = tuple(name_text.strip().split("."))
    if not equals or not all(path):
        raise ConfigError(f'--set {text}: must be written section.key=value, such as "http.listen=tcp:8645"')
    try:
        read = tomllib.loads(f"value = {right}")
    except tomllib.TOMLDecodeError:
        read = {}
    # A line break in the value could add a second key.
    value = read["value"] if set(read) == {"value"} else right
    return from_option(f"--set {name_text}", path, value)


def from_environment(environment: Mapping[str, str]) -> list[Layer]:
    """The secrets of webhooks in the environment; each replaces the file that the configuration names."""
    return [
        Layer(variable, {"commerce": {"webhooks": {key: environment[variable], f"{key}File": ""}}})
        for variable, key in SECRETS_IN_ENVIRONMENT.items()
        if variable in environment
    ]
