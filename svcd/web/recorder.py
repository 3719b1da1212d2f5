"""Where a site tells what it does, for whoever counts it."""

from typing import Protocol


class Recorder(Protocol):
    """Counts what a site does; called in the reactor's thread, for every request, so it must be quick."""

    def answered(self, route: str, method: bytes, status: int, seconds: float | None) -> None:
        """An answer was given, ``seconds`` after the last byte of the request.

        ``route`` is the declared path with its placeholders, "" where the request met none; ``method`` is what the
        client wrote; ``seconds`` is None for what never became a request.
        """

    def throttled(self, bucket: str) -> None:
        """A request was refused since its client asks too often."""


class Unrecorded:
    """Counts nothing."""

    def answered(self, route: str, method: bytes, status: int, seconds: float | None) -> None:
        """See :class:`Recorder`."""

    def throttled(self, bucket: str) -> None:
        """See :class:`Recorder`."""
