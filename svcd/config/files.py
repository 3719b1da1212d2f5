"""The files that settings may name: none of those that the node itself uses in its data directory."""

import os
from collections.abc import Iterator
from typing import Any, Final

import attrs

from svcd.config.layers import KeyPath, Settings, camel
from svcd.config.schema import OPERATOR_SOCKET, Config
from svcd.endpoint_description import EndpointDescription

_DATABASES: Final = ("chain.sqlite", "mempool.journal", "webhooks.sqlite")
"""All files whose names begin so: SQLite, the unclean shutdown marker, the journal and ``svc db`` add endings."""
_FILES: Final = ("node.key", "node.key.new", "peers.json", "peers.json.new", "lock", OPERATOR_SOCKET)
"""The other files whose names cannot be configured."""
_MADE: Final = (("operator", "tokenFile"), ("participation", "keyFile"))
"""The settings that name a file which the node makes, first under the same name with the ending ``.new``."""


def check_files(config: Config, settings: Settings) -> None:
    """Refuse a setting that names a file which the node uses for something else.

    Raises:
        ConfigError: the node would overwrite a file of its own, or use a key of its own as the secret of a merchant.
    """
    folder = os.path.realpath(config.data_dir)
    taken = {os.path.realpath(config.data_dir / name) for name in _FILES}

    def check(setting: KeyPath, path: str, example: str) -> None:
        is_database = os.path.dirname(path) == folder and os.path.basename(path).startswith(_DATABASES)
        if is_database or path in taken:
            such_as = f', such as "{example}"' if example else ""
            raise settings.problem(
                setting, f"must name a file of its own{such_as}; the node uses {path} for something else"
            )

    def order(found: tuple[KeyPath, str, str]) -> tuple[bool, bool]:
        # The files that the node makes come first, and of these a configured one last: the error must name a setting
        # that the operator has set.
        return found[0] not in _MADE, settings.has(found[0])

    for setting, name, example in sorted(_files_in(config), key=order):
        endings = ("", ".new") if setting in _MADE else ("",)
        paths = [os.path.realpath(config.data_dir / f"{name}{ending}") for ending in endings]
        for path in paths:
            check(setting, path, example)
        if setting in _MADE:
            taken.update(paths)
    operator = EndpointDescription.parse(config.operator.listen)
    if operator.kind == "unix":
        # The socket may have the place in the data directory that is the default.
        taken.discard(os.path.join(folder, OPERATOR_SOCKET))
        path = os.path.realpath(operator.arguments["address"].replace("\0", "@"))
        check(("operator", "listen"), path, f"unix:{folder}/{OPERATOR_SOCKET}")


def _files_in(section: Any, at: KeyPath = ()) -> Iterator[tuple[KeyPath, str, str]]:
    """The settings that name a file, with the name and its default."""
    for attribute in attrs.fields(type(section)):
        value, path = getattr(section, attribute.name), (*at, camel(attribute.name))
        if attrs.has(type(value)):
            yield from _files_in(value, path)
        elif isinstance(value, tuple):
            for number, each in enumerate(value):
                if attrs.has(type(each)):
                    yield from _files_in(each, (*path, number))
        elif attribute.name.endswith("_file") and value:
            yield path, value, attribute.default or ""
