"""A writer that ends the node when its data turn out to be damaged: better no answer than a wrong one."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.errors import Corrupt
from svcd.node.threads import Worker
from svcd.store.database import is_damage

P = ParamSpec("P")
T = TypeVar("T")


@frozen
class GuardedWorker:
    """Passes work on to ``worker``, and calls ``damaged`` once the disk or our own data contradict themselves."""

    worker: Worker
    damaged: Callable[[], object]

    _log = Logger()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """See :class:`svcd.node.threads.Worker`."""
        return self.worker.run(function, *args, **kwargs).addErrback(self._look)

    def _look(self, failure: Failure) -> Failure:
        error = failure.value
        if isinstance(error, Corrupt) or is_damage(error):
            self._log.critical(
                "the database is damaged: {why}. The node stops; restore the database from a backup, or move it away "
                "and the node fetches the chain again",
                why=str(error),
            )
            self.damaged()
        return failure
