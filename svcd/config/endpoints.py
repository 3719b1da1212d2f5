"""The parts of a Twisted endpoint string, and who can open a Unix socket."""

import re
from collections.abc import Mapping
from typing import Final

_FIRST_ARGUMENTS: Final = {
    "tcp": ("port", "interface"),
    "tcp6": ("port", "backlog", "interface"),
    "unix": ("address", "mode"),
    "systemd": ("domain", "index"),
}
# What a backslash stands before is no colon that ends an argument and no sign that ends its name.
_ARGUMENT: Final = re.compile(r"(?:^|:)((?:\\.|[^\\:])*)", re.DOTALL)
_NAMED: Final = re.compile(r"((?:\\.|[^\\=])*)=(.*)", re.DOTALL)


def parts(endpoint: str) -> tuple[str, Mapping[str, str]]:
    """Its kind, and its arguments by name; a backslash takes the next character out of the syntax."""
    kind, *written = _ARGUMENT.findall(endpoint)
    arguments, unnamed = {}, iter(_FIRST_ARGUMENTS.get(kind, ()))
    for argument in written:
        named = _NAMED.fullmatch(argument)
        name, value = named.groups() if named else (next(unnamed, ""), argument)
        arguments[_plain(name)] = _plain(value)
    return _plain(kind), arguments


def for_its_owner(endpoint: str) -> str:
    """``endpoint`` with mode 600 where it is a Unix socket without a mode; Twisted's own default is 666."""
    kind, arguments = parts(endpoint)
    return f"{endpoint}:mode=600" if kind == "unix" and "mode" not in arguments else endpoint


def _plain(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
