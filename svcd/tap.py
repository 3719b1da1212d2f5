"""The plugin that twistd runs, and the one module that imports the global reactor."""

from twisted.internet import reactor

from svcd.composition.file_descriptors import fit_connections, raise_open_files_limit
from svcd.composition.lifecycle import root_service
from svcd.process.logs import Observer, log_writer, make_observer
from svcd.process.options import Options
from svcd.process.sequential import RootService
from svcd.process.timers import use_monotonic_clock

__all__ = ["Options", "makeService"]


def makeService(options: Options) -> RootService:
    """The service that twistd runs, from the options of its command line."""
    config = fit_connections(options.config, raise_open_files_limit())
    use_monotonic_clock(reactor)
    return root_service(config, reactor, _observer(options))


def _observer(options: Options) -> Observer | None:
    """The log in its configured form; None where twistd itself must open it."""
    write, log = log_writer(options.parent or {}), options.config.log
    return None if write is None else make_observer(log.format, log.level, write)
