"""When an event that could not be delivered is tried again (docs/webhooks.md "Attempts"). Milliseconds throughout."""

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
STEPS: Final = (
    *(5 * _SECOND, 30 * _SECOND, 2 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE),
    *(1 * _HOUR, 2 * _HOUR, 4 * _HOUR, 8 * _HOUR, 12 * _HOUR, 24 * _HOUR, 24 * _HOUR),
)
"""The pauses between one attempt and the next."""
MAX_ATTEMPTS: Final = len(STEPS) + 1
_SPREAD_PERCENT: Final = 20
LONGEST: Final = sum(STEPS) * (100 + _SPREAD_PERCENT) // 100
"""From the first attempt to the last, if every pause is as long as chance can make it."""
LONGEST_PAUSE: Final = 2 * max(STEPS)
"""The longest that a receiver may ask for; no attempt is due later than that."""
_LONGEST_PROBE_PAUSE: Final = 30 * _MINUTE
_LONGEST_DATE: Final = 64
"""Characters; the longest form of RFC 9110, section 5.6.7, has 33."""


def next_attempt(attempts: int, now: int, *, chance: float, retry_after: str | None = None) -> int | None:
    """When to try again after ``attempts`` attempts; None if that was the last.

    Args:
        attempts: how many have been made, with the one that has just failed.
        now: when it failed.
        chance: from 0 to 1, spreads the pause by 20 % to either side, so that what failed together is not tried
            together again.
        retry_after: what the receiver said, if it said when to come again; believed from one step to two.
    """
    if attempts >= MAX_ATTEMPTS:
        return None
    step = STEPS[attempts - 1]
    asked = None if retry_after is None else read_retry_after(retry_after, now)
    if asked is not None:
        return now + min(max(asked, step), 2 * step)
    return now + step + int(step * _SPREAD_PERCENT * (2 * chance - 1)) // 100


def probe_pause(probes: int) -> int:
    """How long a host that fails is left in peace after so many failed probes.

    No longer than 30 minutes, for what is new waits for the next probe.
    """
    return min(STEPS[min(probes, len(STEPS) - 1)], _LONGEST_PROBE_PAUSE)


def read_retry_after(text: str, now: int) -> int | None:
    """How long from now, by seconds or a date (RFC 9110, section 10.2.3); None for what is neither."""
    text = text.strip(" \t")
    if re.fullmatch(r"[0-9]+", text):
        # The first ten digits of a longer number are more than anybody waits for, too.
        return int(text.lstrip("0")[:10] or "0") * _SECOND
    if len(text) > _LONGEST_DATE:
        return None
    try:
        date = parsedate_to_datetime(text)
        return int((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()) * _SECOND - now
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
