"""Two things that Twisted has no public names for: a shield from cancellation, and the body of a request in memory."""

# mypy: allow-untyped-calls
# ruff: noqa: N802

from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IBodyProducer
from zope.interface import implementer  # type: ignore[import-untyped]

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


@implementer(IBodyProducer)
class WholeBody:
    """A request body in memory, which is written at once.

    Twisted's client does not read while it writes a body in pieces, and would lose an early response (413, 503). The
    producer of treq needs the global reactor.
    """

    def __init__(self, body: bytes) -> None:
        self.length = len(body)
        self._body = body

    def startProducing(self, consumer: Any) -> Deferred[None]:
        """Write everything."""
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Do nothing: everything is written."""

    def resumeProducing(self) -> None:
        """Do nothing: everything is written."""

    def stopProducing(self) -> None:
        """Do nothing: everything is written."""
