"""Asking a node over HTTP: one deadline for each request, bounded answers, every failure a sentence."""

import json
import os
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from treq import collect
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError, ConnectionClosed, DNSLookupError
from twisted.python.failure import Failure
from twisted.web.client import RequestTransmissionFailed, ResponseFailed, ResponseNeverReceived

from svcd.ports import Clock
from svcd.wallet.agents import WholeBody
from svcd.wallet.answer import Answer, parse_object
from svcd.wallet.failed import Failed, Refused, Unanswered
from svcd.wallet.places import Place

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""More than three full blocks."""

_SUCCESSES: Final = (200, 201)
_JSON_HEADERS: Final[dict[bytes | str, bytes | str]] = {"Content-Type": "application/json"}


class Node:
    """One HTTP interface of one node. Every method raises Failed, or its kinds Refused and Unanswered."""

    def __init__(self, agent: Any, place: Place, *, clock: Clock, token: str | None = None) -> None:
        """``agent`` is an IAgent that finds its way to ``place``; a bearer ``token`` goes with every request."""
        self._place = place
        # Any: mypy does not see that a class provides a zope interface.
        producer: Any = WholeBody
        self._client = HTTPClient(agent, data_to_body_producer=producer)
        self._clock: Any = clock
        self._headers: Mapping[bytes | str, bytes | str] = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def get(self, path: str) -> Answer:
        """What the node answers to GET ``path``."""
        return await self._within_deadline(self._exchange("GET", path, None))

    async def post(self, path: str, body: Mapping[str, object]) -> Answer:
        """What the node answers to POST ``path`` with the JSON of ``body``."""
        return await self._within_deadline(self._exchange("POST", path, json.dumps(body).encode("ascii")))

    async def _within_deadline(self, exchange: Coroutine[Any, Any, Answer]) -> Answer:
        def late(result: Answer | Failure, seconds: float) -> Answer | Failure:
            if isinstance(result, Failure):
                return Failure(Unanswered(f"{self._place.name} did not answer within {seconds:g} s"))  # type: ignore[no-untyped-call]
            return result

        return await Deferred.fromCoroutine(exchange).addTimeout(self._place.seconds, self._clock, late)

    async def _exchange(self, method: str, path: str, body: bytes | None) -> Answer:
        received = _Bounded(self._place.name)
        try:
            response = await self._client.request(
                method,
                self._place.base + path,
                data=body,
                headers={**self._headers, **({} if body is None else _JSON_HEADERS)},
                allow_redirects=False,
                unbuffered=True,
                reactor=self._clock,
            )
            await collect(response, received.take)
        except (ConnectError, DNSLookupError) as error:
            raise Failed(f"no node answers at {self._place.name}: {_reason(error)}; {self._place.advice}") from None
        except (RequestTransmissionFailed, ResponseFailed, ResponseNeverReceived, ConnectionClosed) as error:
            raise Unanswered(f"{self._place.name} gave no whole answer: {_causes(error)}") from None
        return self._read(response.code, received.whole())

    def _read(self, status: int, body: bytes) -> Answer:
        answer = parse_object(body, "the answer")
        if answer is not None and status in _SUCCESSES and answer.members.get("ok") is True:
            return answer
        if answer is not None and isinstance(answer.members.get("error"), str):
            raise Refused(status, answer.text("error"))
        raise Unanswered(f"{self._place.name} does not answer as an svcd node does (HTTP status {status})")


class _Bounded:
    """The body of an answer as it arrives."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pieces: list[bytes] = []
        self._size = 0

    def take(self, piece: bytes) -> None:
        """Keep one more piece; raises Unanswered when it is one too many."""
        self._size += len(piece)
        if self._size > MAX_ANSWER_BYTES:
            raise Unanswered(f"{self._name} answers with more than {MAX_ANSWER_BYTES} bytes; no svcd node does that")
        self._pieces.append(piece)

    def whole(self) -> bytes:
        """All pieces."""
        return b"".join(self._pieces)


def _reason(error: ConnectError | DNSLookupError) -> str:
    if isinstance(error, DNSLookupError):
        return "there is no host of that name"
    number = getattr(error, "osError", None)
    return os.strerror(number).lower() if isinstance(number, int) else "no connection came about"


def _causes(error: Exception) -> str:
    failures = getattr(error, "reasons", [])
    causes = [str(failure.value) for failure in failures] or [str(error)]
    return "; ".join(causes).rstrip(".")
