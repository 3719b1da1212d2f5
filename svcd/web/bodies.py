"""How much of request bodies a site holds, and which incomplete body gives way when that is too much (docs/http.md)."""

from math import inf
from typing import Final, Protocol

from twisted.logger import Logger

from svcd.ports import Clock
from svcd.web.budget import Budget
from svcd.web.errors import HttpError, crowded_out
from svcd.web.limits import SiteLimits

LOG_SECONDS: Final = 60.0
"""Between two lines of the log about bodies that gave way."""
RETRY_SECONDS: Final = 5
"""After how many seconds a client whose body gave way may try again."""

MODEST_BODIES: Final = 2
"""How many of the largest bodies a client may hold until it counts as greedy: a peer sends two blocks at once."""
OF_ONE_CLIENT: Final = "the bodies of one client's requests may have {most} bytes at once; try again later"
OF_ALL_CLIENTS: Final = "too many large requests are under way; try again later"


class Receiver(Protocol):
    """A connection on which the body of a request arrives."""

    def refuse(self, error: HttpError) -> None:
        """Answer the request with ``error``, let go of its body and close the connection."""


class Bodies:
    """The bodies of all requests to one site, from their first byte until the request is answered.

    ``limits`` say how many bytes are held at most, in all and for one client group. An incomplete body gives way to
    further bytes; a complete one counts, but is never given up.
    """

    _log = Logger()

    def __init__(self, limits: SiteLimits, clock: Clock) -> None:
        self._total = limits.bodies_bytes
        self._per_client = limits.bodies_bytes_per_client
        self._modest = MODEST_BODIES * limits.body_caps.largest
        self._clock = clock
        self._budget: Budget[Receiver] = Budget()
        self.gave_way = 0
        """How many incomplete bodies were given up to make room for others."""
        self._reported = 0
        self._report_at = -inf

    @property
    def bytes(self) -> int:
        """How many bytes are held."""
        return self._budget.bytes

    def arrives(self, receiver: Receiver, client: str | None, size: int) -> bool:
        """Whether ``size`` more bytes of the body of ``receiver`` may be stored; if not, its request has been refused.

        To make room the oldest incomplete body of the client that holds most gives way, or the oldest one of
        ``client`` (None for one under no limit of its own) if that client would hold more than its share. Where no
        client holds more than a few bodies need, the oldest one of all gives way: one address in each of many networks
        holds as little as anybody likes, but those who send what they have begun are done before it is their turn.
        """
        budget = self._budget
        budget.add(receiver, client, 0)
        while client is not None and budget.of_client(client) + size > self._per_client:
            sentence = OF_ONE_CLIENT.format(most=self._per_client)
            if self._give_way(budget.oldest_of(client), sentence) is receiver:
                return False
        while budget.bytes + size > self._total:
            if self._give_way(budget.oldest_of_greediest(self._modest), OF_ALL_CLIENTS) is receiver:
                return False
        budget.add(receiver, client, size)
        return True

    def has_room(self, client: str | None, size: int) -> bool:
        """Whether ``size`` bytes more of ``client`` can be held without another body's giving way."""
        budget = self._budget
        fits = client is None or budget.of_client(client) + size <= self._per_client
        return fits and budget.bytes + size <= self._total

    def is_complete(self, receiver: Receiver) -> None:
        """The whole body has arrived: it does not give way."""
        self._budget.keep(receiver)

    def forget(self, receiver: Receiver) -> None:
        """The body is needed no more; nothing happens if there is none."""
        self._budget.release(receiver)

    def _give_way(self, receiver: Receiver, sentence: str) -> Receiver:
        client = self._budget.release(receiver)
        self.gave_way += 1
        receiver.refuse(crowded_out(sentence, RETRY_SECONDS))
        now = self._clock.seconds()
        if now >= self._report_at:
            # A client that has its bodies cut off all day must not fill the log.
            self._log.warn(
                "{count} incomplete request bodies gave way to others, the last one of {client}: {why}",
                count=self.gave_way - self._reported,
                client=client or "a client under no limit",
                why=sentence,
            )
            self._reported, self._report_at = self.gave_way, now + LOG_SECONDS
        return receiver
