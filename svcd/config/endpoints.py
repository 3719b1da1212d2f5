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


def parts(endpoint: str) -> tuple[str, Mapping[str, str]]:
    """Its kind, and its arguments by name; a backslash takes the next character out of the syntax."""
    kind, *written = re.split(r"(?<!\\):", endpoint)
    arguments = {}
    for position, argument in enumerate(written):
        left, equals, right = argument.partition("=")
        names = _FIRST_ARGUMENTS.get(kind, ())
        name = left if equals else names[position] if position < len(names) else str(position)
        arguments[name] = re.sub(r"\\(.)", r"\1", right if equals else left)
    return kind, arguments


def for_its_owner(endpoint: str) -> str:
    """``endpoint`` with mode 600 where it is a Unix socket without a mode; Twisted's own default is 666."""
    kind, arguments = parts(endpoint)
    return f"{endpoint}:mode=600" if kind == "unix" and "mode" not in arguments else endpoint
