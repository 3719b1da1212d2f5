"""When a failed delivery is tried again (docs/webhook-reference.md). Times and delays are in milliseconds."""

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from svcd.limits import DEAD_RECEIVER, limit

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
RETRY_DELAYS: Final = (
    *(1 * _SECOND, 2 * _SECOND, 4 * _SECOND, 8 * _SECOND, 30 * _SECOND, 2 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE),
    *(1 * _HOUR, 2 * _HOUR, 4 * _HOUR, 8 * _HOUR, 12 * _HOUR, 24 * _HOUR, 24 * _HOUR),
)
"""The delays between attempts; short at first, because most outages are restarts."""
MAX_ATTEMPTS: Final = limit(len(RETRY_DELAYS) + 1, "attempts for an event", "attempts", DEAD_RECEIVER)
REFUSAL_DELAYS: Final = (5 * _MINUTE, 1 * _HOUR)
"""The delays between refusals of an event: a wrong clock or secret is usually corrected soon."""
BARRED_DELAY: Final = 5 * _MINUTE
"""The least delay after an answer that may come from a firewall or proxy: people remove its cause, within hours."""
HURRIED_REFUSAL_DELAY: Final = _SECOND // 2
"""The same while another event of the watch is waiting."""
MAX_REFUSALS: Final = limit(len(REFUSAL_DELAYS) + 1, "refusals of an event", "refusals", DEAD_RECEIVER)

_JITTER_PERCENT: Final = 20
RETRY_PERIOD: Final = sum(max(delay, BARRED_DELAY) for delay in RETRY_DELAYS) * (100 + _JITTER_PERCENT) // 100
"""From the first attempt to the last, with the most jitter."""
MAX_RETRY_DELAY: Final = 2 * max(RETRY_DELAYS)
"""The longest delay that a receiver may ask for; no attempt is due later than that."""
MAX_PROBE_DELAY: Final = 5 * _MINUTE
"""The longest delay between two probes: new events wait for the next one too."""
HURRIED_PROBE_DELAY: Final = 15 * _SECOND
"""The least time between two probes that are brought forward."""
_MAX_DATE_CHARACTERS: Final = 64
"""The longest form in RFC 9110, section 5.6.7, has 33."""


def next_attempt(
    attempts: int, now: int, *, chance: float, retry_after: str | None = None, barred: bool = False
) -> int | None:
    """The time of the next attempt after ``attempts`` attempts; None if that was the last.

    Args:
        attempts: made so far, including the one that has just failed.
        now: the time of the failure.
        chance: from 0 to 1; adds up to 20 % jitter either way, so that what failed together is not retried together.
        retry_after: the receiver's Retry-After; honoured between one and two times the regular delay.
        barred: whether the answer may come from a firewall or proxy; then the delay is at least BARRED_DELAY.
    """
    if attempts >= MAX_ATTEMPTS:
        return None
    delay = max(RETRY_DELAYS[attempts - 1], BARRED_DELAY if barred else 0)
    requested = None if retry_after is None else parse_retry_after(retry_after, now)
    if requested is not None:
        return now + min(max(requested, delay), 2 * delay)
    return now + _jittered(delay, chance)


def next_attempt_after_refusal(refusals: int, now: int, *, chance: float, followed: bool) -> int | None:
    """The time of the next attempt after ``refusals`` refusals; None if that was the last.

    ``followed`` says whether another event of the watch waits, which must not wait long.
    """
    if refusals >= MAX_REFUSALS:
        return None
    return now + _jittered(HURRIED_REFUSAL_DELAY if followed else REFUSAL_DELAYS[refusals - 1], chance)


def attempts_left(attempts: int, refusals: int) -> int:
    """How many attempts a waiting event still has if it fails on in the way in which it has failed so far."""
    remaining = MAX_ATTEMPTS - attempts
    return max(min(remaining, MAX_REFUSALS - refusals) if refusals else remaining, 1)


def _jittered(delay: int, chance: float) -> int:
    return delay + int(delay * _JITTER_PERCENT * (2 * chance - 1)) // 100


def probe_delay(probes: int) -> int:
    """The delay before the next probe of a failing host, after ``probes`` failed ones."""
    return min(RETRY_DELAYS[min(probes, len(RETRY_DELAYS) - 1)], MAX_PROBE_DELAY)


def parse_retry_after(text: str, now: int) -> int | None:
    """The delay in a Retry-After of seconds or a date (RFC 9110, section 10.2.3); None if it is neither."""
    text = text.strip(" \t")
    if re.fullmatch(r"[0-9]+", text):
        # Ten digits are long enough for any delay, and short enough for a quick conversion.
        return int(text.lstrip("0")[:10] or "0") * _SECOND
    if len(text) > _MAX_DATE_CHARACTERS:
        return None
    try:
        date = parsedate_to_datetime(text)
        return int((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()) * _SECOND - now
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
