"""A shield from cancellation, for which Twisted has no public name."""

from collections.abc import Callable
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

T = TypeVar("T")
_LOG = Logger()


def shielded(work: Deferred[T], unheard: Callable[[Failure], object]) -> Deferred[T]:
    """A Deferred of the result of ``work``, which can be cancelled without cancelling ``work``.

    If ``work`` fails after that, ``unheard`` is called with the failure; what it raises is logged.
    """
    outcome: Deferred[T] = Deferred()

    def ended(result: T | Failure) -> None:
        if not outcome.called:
            outcome.callback(result)
        elif isinstance(result, Failure):
            unheard(result)

    work.addBoth(ended).addErrback(_log_failure)
    return outcome


def _log_failure(failure: Failure) -> None:
    _LOG.failure("the end of cancelled work failed", failure)
