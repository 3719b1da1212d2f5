"""The plugin that twistd runs: its command line and its service.

The one module of svcd that imports the global reactor; Klein, which svcd/web imports, imports it too.
"""

import os
import re
import signal
import stat
import sys
from collections.abc import Callable
from getpass import getpass
from pathlib import Path
from typing import ClassVar

from twisted.internet import reactor
from twisted.python import usage

from svcd.composition.block_key import EXIT_STATUS, KeyLocked, KeyPassword, unlock
from svcd.composition.file_descriptors import fit_connections, raise_open_files_limit
from svcd.composition.lifecycle import root_service
from svcd.config.layers import ConfigError, KeyPath, Layer, from_assignment, from_option
from svcd.config.loader import load, with_network_file
from svcd.config.schema import NETWORKS, Config
from svcd.process.header_names import keep_no_other_header_names
from svcd.process.logs import NodeLog
from svcd.process.sequential import RootService
from svcd.process.timers import use_monotonic_clock

__all__ = ["Options", "makeService"]

DEFAULT_FILE = Path("conf", "svcd.toml")

_SETTINGS: dict[str, KeyPath] = {
    "network": ("network",),
    "data-dir": ("dataDir",),
    "listen": ("http", "listen"),
    "operator-listen": ("operator", "listen"),
}


class Options(usage.Options):
    """Options of `twistd svcd`; after parsing, `config` is the whole configuration."""

    synopsis = "[options]"
    longdesc = "Runs a node of the chain. Settings: docs/settings.md and conf/svcd.toml; options win over the file."

    optParameters: ClassVar[list[list[str | None]]] = [  # noqa: N815
        ["config", "c", None, f"configuration file (TOML); default {DEFAULT_FILE} where it exists"],
        ["data-dir", None, None, "folder of the chain, the keys and the operator's socket"],
        ["network", None, None, f"{', '.join(NETWORKS)}, or the file of another network"],
        ["listen", None, None, "where to serve, a Twisted endpoint such as tcp:8645:interface=127.0.0.1"],
        ["operator-listen", None, None, "where to serve the operator: a Unix socket or a port on loopback"],
        ["greeting", None, "", "text to print once the node answers"],
        ["key-password-fd", None, None, "file descriptor from which to read the password of an encrypted block key"],
    ]

    config: Config
    read_config: Callable[[], Config]
    """Loads the configuration again from the same file and options; raises ConfigError."""
    key_password_fd: int | None
    """The file descriptor with the password of the block key."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._assignments: list[Layer] = []

    def opt_set(self, assignment: str) -> None:
        """set any key of the configuration: section.key=value (may be repeated)"""
        try:
            self._assignments.append(from_assignment(assignment))
        except ConfigError as error:
            _refuse(error)

    def postOptions(self) -> None:  # noqa: N802
        """Read the configuration, or end the process with one line and status 1."""
        given = [
            from_option(f"--{option}", path, self[option])
            for option, path in _SETTINGS.items()
            if self[option] is not None
        ]
        self.key_password_fd = self._descriptor("key-password-fd")
        layers = [*given, *self._assignments]
        try:
            file = Path(self["config"]) if self["config"] else _default_file()
            # twistd may change the working directory later.
            layers = [with_network_file(layer, Path.cwd()) for layer in layers]
            self.config = load(file, overrides=layers, environment=os.environ)
        except ConfigError as error:
            _refuse(error)
        # The data directory cannot change while the node runs.
        again = None if file is None else file.absolute()
        layers.append(from_option("--data-dir", ("dataDir",), str(self.config.data_dir)))
        self.read_config = lambda: load(again, overrides=layers, environment=os.environ)

    def _descriptor(self, option: str) -> int | None:
        given: str | None = self[option]
        if given is None:
            return None
        if not re.fullmatch("[0-9]{1,6}", given):
            _refuse(ConfigError(f"--{option} {given}: must be the number of an open file descriptor, such as 3"))
        return int(given)


def _default_file() -> Path | None:
    """The configuration file below the working directory, if there is one; raises ConfigError."""
    try:
        return DEFAULT_FILE if stat.S_ISREG(os.stat(DEFAULT_FILE).st_mode) else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(
            f"{DEFAULT_FILE}: {(error.strerror or str(error)).lower()}; name another file with --config, or start the "
            "node in a directory that its user can read"
        ) from error


def _refuse(error: ConfigError) -> None:
    # twistd would print its usage before the text of a UsageError; one line is enough here.
    sys.exit(f"svcd: {error}")


def makeService(options: Options) -> RootService:
    """The service that twistd runs, from the options of its command line."""
    keep_no_other_header_names()
    open_files = raise_open_files_limit()
    config = fit_connections(options.config, open_files)
    block_key = _unlocked(options)
    use_monotonic_clock(reactor)
    log = NodeLog.opened(options.parent or {}, config.log.format, config.log.level)
    return root_service(
        config,
        reactor,
        log,
        lambda: fit_connections(options.read_config(), open_files),
        block_key=block_key,
        greeting=options["greeting"],
    )


def _unlocked(options: Options) -> bytes | None:
    """The seed in an encrypted key file, or None; ends the process with one line and EXIT_STATUS."""
    # twistd becomes a daemon later: the terminal and the descriptors are still those of the user.
    prompt = getpass if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty() else None
    try:
        return unlock(options.config, KeyPassword(options.key_password_fd, os.environ, prompt))
    except KeyLocked as locked:
        sys.stderr.write(f"svcd: {locked}\n")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    sys.exit(EXIT_STATUS)
