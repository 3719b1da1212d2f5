"""Turns layers of settings into a `Config`, or into one sentence that says what is wrong."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import attrs
from cattrs import ClassValidationError, Converter, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, override

from svcd.config import rules, secrets
from svcd.config.kinds import BadValue, Kind
from svcd.config.layers import ConfigError, KeyPath, Layer, Settings, from_environment, from_file, merged
from svcd.config.schema import DEFAULTS, Config


def load(
    file: Path | None = None, *, overrides: Sequence[Layer] = (), environment: Mapping[str, str] | None = None
) -> Config:
    """Read the configuration: defaults, then the file, the environment and the command line, later ones winning.

    Args:
        file: the TOML file, if there is one.
        overrides: settings from the command line, in order.
        environment: the process's environment variables.

    Raises:
        ConfigError: something is wrong; nothing has been changed anywhere.
    """
    environment = environment or {}
    layers = [*([from_file(file)] if file else []), *from_environment(environment), *overrides]
    network = merged(layers).values.get("network")
    defaults = DEFAULTS["devnet" if network == "devnet" else "mainnet"]
    settings = merged([Layer("built-in default", defaults), *layers])
    config = _structured(settings)
    rules.check(config, settings, environment)
    return secrets.with_secrets(config, settings, environment)


def camel(name: str) -> str:
    """`data_dir` as the file has it: `dataDir`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _structured(settings: Settings) -> Config:
    try:
        return _CONVERTER.structure(settings.values, Config)
    except ClassValidationError as group:
        path, error = next(_leaves(group, ()))
        if isinstance(error, ForbiddenExtraKeysError):
            raise _unknown(settings, path, error) from error
        if isinstance(error, BadValue):
            raise settings.problem(path, str(error)) from error
        raise


def _leaves(error: Exception, path: KeyPath) -> Iterator[tuple[KeyPath, Exception]]:
    """Each single error of a group with the path of the setting it is about; one level of groups is one section."""
    if not isinstance(error, ClassValidationError):
        yield path, error
        return
    about_keys, about_section = error.group_exceptions()
    for inner in about_section:
        yield path, inner
    for inner, note in about_keys:
        yield from _leaves(inner, (*path, camel(note.name)))


def _unknown(settings: Settings, section: KeyPath, error: ForbiddenExtraKeysError) -> ConfigError:
    key = min(error.extra_fields)
    known = {camel(name).lower(): camel(name) for name in attrs.fields_dict(error.cl)}
    close = difflib.get_close_matches(key.lower().replace("_", ""), known, n=1)
    hint = f"did you mean {known[close[0]]}?" if close else f"there are {', '.join(known.values())}"
    return settings.unknown((*section, key), hint)


def _kind_of(annotation: Any) -> Kind | None:
    for mark in get_args(annotation)[1:]:
        if hasattr(mark, "read"):
            kind: Kind = mark
            return kind
    return None


def _read(value: object, annotation: Any) -> object:
    kind = _kind_of(annotation)
    return value if kind is None else kind.read(value)


def _section(cls: type, converter: Converter) -> Any:
    # Any: mypy would match the renamed attributes against the generator's own keywords.
    names: Any = {attribute.name: override(rename=camel(attribute.name)) for attribute in attrs.fields(cls)}
    structure: Any = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True, **names)

    def read(value: object, _: type) -> object:
        if not isinstance(value, dict):
            raise BadValue("must be a section with keys of its own")
        return structure(value, cls)

    return read


def _converter() -> Converter:
    converter = Converter()
    converter.register_structure_hook_factory(attrs.has, lambda cls: _section(cls, converter))
    converter.register_structure_hook_func(lambda annotation: _kind_of(annotation) is not None, _read)
    return converter


_CONVERTER = _converter()
