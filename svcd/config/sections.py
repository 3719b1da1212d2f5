"""Makes an object of the merged settings, each read by the type in the annotation of its field."""

import difflib
from collections.abc import Collection, Iterator
from typing import Any, TypeVar, get_args

import attrs
from cattrs import ClassValidationError, Converter, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, override

from svcd.chain.value_types import BadValue, ValueType
from svcd.config.layers import ConfigError, KeyPath, Settings, camel

T = TypeVar("T")


class _InSection(Exception):
    """An error in one of several sections of one name."""

    def __init__(self, number: int, error: Exception) -> None:
        super().__init__(number)
        self.number = number
        self.error = error


def structured(settings: Settings, cls: type[T]) -> T:
    """The merged settings as an instance of ``cls``, whose fields are annotated with their types.

    Raises:
        ConfigError: a setting is missing, unknown or not of its type.
    """
    try:
        return _CONVERTER.structure(settings.values, cls)
    except ClassValidationError as group:
        path, error = next(_leaves(group, ()))
        if isinstance(error, ForbiddenExtraKeysError):
            raise _unknown(settings, path, error) from error
        if isinstance(error, BadValue):
            raise settings.problem(path, str(error)) from error
        if isinstance(error, KeyError):
            raise settings.missing(path) from error
        raise


def _leaves(error: Exception, path: KeyPath) -> Iterator[tuple[KeyPath, Exception]]:
    """Yield each error of a group with the path of its setting; each level of groups is one section."""
    if isinstance(error, _InSection):
        yield from _leaves(error.error, (*path, error.number))
        return
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
    known = [camel(each.name) for each in attrs.fields(error.cl) if _is_setting(each.type)]
    return settings.unknown((*section, key), hint(key, known))


def hint(key: str, known: Collection[str]) -> str:
    """What a person may have meant by an unknown key, of those that are ``known``."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(key.lower().replace("_", ""), names, n=1)
    return f"did you mean {names[close[0]]}?" if close else f"there are {', '.join(known)}"


def type_of(annotation: Any) -> ValueType | None:
    """The type of value in the annotation of a setting; None if it has none."""
    for mark in get_args(annotation)[1:]:
        if hasattr(mark, "read"):
            value_type: ValueType = mark
            return value_type
    return None


def _read(value: object, annotation: Any) -> object:
    value_type = type_of(annotation)
    return value if value_type is None else value_type.read(value)


def _section(cls: type, converter: Converter) -> Any:
    # Any: mypy would match the renamed attributes against the generator's own keywords.
    names: Any = {
        attribute.name: override(rename=camel(attribute.name)) if _is_setting(attribute.type) else override(omit=True)
        for attribute in attrs.fields(cls)
    }
    structure: Any = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True, **names)

    def read(value: object, _: type) -> object:
        if not isinstance(value, dict):
            raise BadValue("must be a section with keys of its own")
        return structure(value, cls)

    return read


def _is_setting(annotation: Any) -> bool:
    """Whether an attribute is set by the configuration; others are read from files."""
    return type_of(annotation) is not None or attrs.has(annotation) or _section_of_many(annotation) is not None


def _section_of_many(annotation: Any) -> Any:
    """The class of the sections in ``tuple[Class, ...]``; None for any other type."""
    member, *rest = get_args(annotation) or (None,)
    return member if rest == [Ellipsis] and attrs.has(member) else None


def _sections(converter: Converter) -> Any:
    def read(value: object, annotation: Any) -> object:
        cls = _section_of_many(annotation)
        if not isinstance(value, list) or cls is None:
            raise BadValue("must be sections, each with its name in double brackets")
        most: int = cls.MAX_SECTIONS
        if len(value) > most:
            raise BadValue(f"there must be at most {most}")
        return tuple(section(number, each, cls) for number, each in enumerate(value))

    def section(number: int, value: object, cls: Any) -> object:
        try:
            return converter.structure(value, cls)
        except (BadValue, ClassValidationError) as error:
            raise _InSection(number, error) from error

    return read


def _converter() -> Converter:
    converter = Converter()
    converter.register_structure_hook_factory(attrs.has, lambda cls: _section(cls, converter))
    converter.register_structure_hook_func(
        lambda annotation: _section_of_many(annotation) is not None, _sections(converter)
    )
    converter.register_structure_hook_func(lambda annotation: type_of(annotation) is not None, _read)
    return converter


_CONVERTER = _converter()
