"""Prices in money: a shop's own rate of a coin turns a price into an amount, which is kept with the rate.

Nodes know no prices. A rate that is zero, negative, not a number or too old is refused, and never replaced by another.
"""

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any, Final

import httpx

from svc_pay._svcd.chain.encoding import MAX_INTEGER
from svc_pay._svcd.visible_text import shown
from svc_pay.chain import COIN, format_amount, is_loopback
from svc_pay.errors import InvalidAnswer, InvalidInput, RateRefused
from svc_pay.exchange import PLAIN, connections, exchange

Price = str | Decimal | int
"""A decimal above 0 such as ``"12.50"``; a float is refused, because it is rounded."""

TIMEOUT: Final = 5.0
"""Seconds for a connection to a server of rates and its whole answer."""
MAX_BYTES: Final = 1 << 20
"""How long the body may be."""
MAX_AHEAD: Final = 60
"""By how many seconds the clock that dates a rate may be ahead."""
_CURRENCY: Final = re.compile(r"[A-Z0-9]{2,10}")
_DECIMAL: Final = re.compile(r"(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,40})?")
_EXPONENTIAL: Final = re.compile(r"[0-9](?:\.[0-9]{1,40})?[eE][+-]?[0-9]{1,2}")
_PLACE: Final = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Rate:
    """What one coin costs in a currency, at a moment."""

    currency: str
    price: str
    """A decimal."""
    at: int
    """When, in Unix milliseconds."""
    max_age: int | None
    """For how many seconds it may be used; None for a fixed rate."""


@dataclass(frozen=True, slots=True)
class Quote:
    """The amount of an order and how it was calculated: store it with the order."""

    amount: int
    """Base units to be paid."""
    price: str
    """The price of the goods in the currency, a decimal."""
    currency: str
    rate: str
    """What one coin cost in the currency, a decimal."""
    rate_at: int
    """When, in Unix milliseconds."""


class RateSource:
    """Where a shop's rate of one currency comes from: made by ``fixed``, ``function`` or ``url``.

    ``rate`` may block: in an asynchronous program call it as ``await asyncio.to_thread(source.rate)``.
    """

    def __init__(self, currency: str, read: Callable[[], object], max_age: int | None) -> None:
        if not _CURRENCY.fullmatch(currency):
            raise InvalidInput(f"{currency!r} is not a currency; give a code such as EUR")
        self.currency = currency
        self._read = read
        self._max_age = max_age
        self._known: Rate | None = None

    @classmethod
    def fixed(cls, currency: str, price: Price) -> "RateSource":
        """The same rate at any time."""
        digits = _rate(price)
        return cls(currency, lambda: digits, None)

    @classmethod
    def function(cls, currency: str, read: Callable[[], Price | tuple[Price, int]], *, max_age: int) -> "RateSource":
        """What ``read`` returns: the price of a coin, or a pair of it and its time in Unix milliseconds.

        It is called again when its last rate is older than ``max_age`` seconds.
        """
        return cls(currency, read, _checked_age(max_age))

    @classmethod
    def url(
        cls,
        currency: str,
        url: str,
        path: str | Sequence[str | int],
        *,
        max_age: int,
        open_transport: Callable[[], httpx.BaseTransport] | None = None,
    ) -> "RateSource":
        """The number at ``path`` in the JSON at ``url``: names and places with dots between them, or a list of them.

        The server is asked again when its last rate is older than ``max_age`` seconds. The URL must begin with
        https://, or with http:// and a loopback address, and no redirect is followed.

        ``open_transport`` makes the transport of httpx for a call, in programs that decide which addresses are called:
        a :class:`svc_pay.BoundedTransport`, or else the deadline bounds only single steps of a request.
        """
        _check_url(url)
        steps = [str(step) for step in (path.split(".") if isinstance(path, str) else path)]
        return cls(currency, lambda: _fetched(url, steps, open_transport), _checked_age(max_age))

    def rate(self, *, now: float | None = None) -> Rate:
        """The rate; ``now`` is the Unix time in seconds.

        Raises RateRefused if there is none that may be used now, and what a function raises.
        """
        moment = _milliseconds(now)
        if self._known is not None and _fault(self._known, moment) is None:
            return self._known
        read = self._read()
        price, at = read if isinstance(read, tuple) and len(read) == 2 else (read, moment)
        if type(at) is not int:
            raise RateRefused(f"the time of the rate of {self.currency} must be an integer in Unix milliseconds")
        rate = Rate(self.currency, _rate(price), at, self._max_age)
        _check_time(rate, moment)
        if self._max_age is not None:
            self._known = rate
        return rate


def order_amount(price: Price, currency: str, rate: Rate, *, now: float | None = None) -> Quote:
    """The amount of an order for goods of a price, rounded up to 8 decimals of a coin.

    ``now`` is the Unix time in seconds. Raises RateRefused for a rate that may not be used, and InvalidInput for a
    price that is not one, is in another currency, or is more than a payment can be.
    """
    if currency != rate.currency:
        raise InvalidInput(f"the price is in {currency} and the rate in {rate.currency}")
    coin, asked = _rate(rate.price), _positive(price)
    _check_time(rate, _milliseconds(now))
    if asked is None:
        raise InvalidInput(f"{_shown(price)} is not a price; give a decimal above 0 as a string, such as '12.50'")
    amount = ceil(Fraction(asked) * COIN / Fraction(coin))
    if amount > MAX_INTEGER:
        most = format_amount(MAX_INTEGER)
        raise InvalidInput(f"at {coin} {currency} for a coin, {asked} {currency} is more than {most} coins, the most")
    return Quote(amount, asked, currency, coin, rate.at)


# Time


def _milliseconds(now: float | None) -> int:
    return int((time.time() if now is None else now) * 1000)


def _fault(rate: Rate, now: int) -> str | None:
    """Why a rate may not be used at a time in milliseconds; None if it may."""
    if rate.max_age is not None and now - rate.at > rate.max_age * 1000:
        age = -((rate.at - now) // 1000)
        return f"the rate of {rate.currency} is {age} seconds old, and may be used for {rate.max_age}"
    if rate.at - now > MAX_AHEAD * 1000:
        return f"the time of the rate of {rate.currency} is in the future; correct the clock of its source, or this one"
    return None


def _check_time(rate: Rate, now: int) -> None:
    if fault := _fault(rate, now):
        raise RateRefused(fault)


def _checked_age(max_age: object) -> int:
    if type(max_age) is not int or max_age < 1:
        raise InvalidInput("max_age must be a whole number of seconds, at least 1")
    return max_age


# Numbers


def _rate(value: object) -> str:
    """The digits of the price of a coin; raises RateRefused."""
    digits = _positive(value)
    if digits is None:
        if isinstance(value, float) and value > 0:
            raise RateRefused(f'{value!r} is not a rate; a float is rounded: give it as a string, such as "0.48"')
        raise RateRefused(f"{_shown(value)} is not a rate; give a number above 0 with a point, such as 0.48")
    return digits


def _positive(value: object) -> str | None:
    """The digits of a decimal above 0 in a string, an integer or a Decimal; None for everything else."""
    if isinstance(value, Decimal):
        text = f"{value:f}" if value.is_finite() and abs(value.adjusted()) < 60 else ""
    else:
        text = str(value) if isinstance(value, str) or type(value) is int else ""
    return text if _DECIMAL.fullmatch(text) and text.strip("0.") else None


def _shown(value: object) -> str:
    return f"{str(value)[:64]!r}"


# URLs


def _check_url(url: str) -> None:
    """Raise InvalidInput without repeating the URL, which may contain a key."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        raise InvalidInput("the URL of the rate is not valid") from None
    if not (parsed.scheme == "https" and parsed.host) and not (parsed.scheme == "http" and is_loopback(parsed.host)):
        raise InvalidInput("the URL of the rate must begin with https://, or with http:// and a loopback address")
    if parsed.userinfo:
        raise InvalidInput("the URL of the rate must have no user name and password; use a function that sends them")


def _fetched(url: str, path: Sequence[str], open_transport: Callable[[], httpx.BaseTransport] | None) -> str:
    """The digits of the number at a path of the JSON at a URL; raises RateRefused."""
    try:
        # Numbers stay as they are written, because a float is rounded.
        value: Any = json.loads(_downloaded(url, open_transport), parse_int=str, parse_float=str, parse_constant=str)
    except httpx.HTTPError as error:
        raise RateRefused(
            f"the server of the rate does not answer: {shown(str(error)) or type(error).__name__}"
        ) from None
    except (ValueError, RecursionError):
        raise RateRefused("the answer of the server of the rate is not JSON") from None
    where = ".".join(path)
    for step in path:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and _PLACE.fullmatch(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            raise RateRefused(f"the answer of the server of the rate has no {step!r} of {where!r}")
    exponential = isinstance(value, str) and _EXPONENTIAL.fullmatch(value)
    digits = _positive(Decimal(value) if exponential else value)
    if digits is None:
        raise RateRefused(
            f"{where!r} in the answer of the server of the rate is not a decimal above 0: {_shown(value)}"
        )
    return digits


def _downloaded(url: str, open_transport: Callable[[], httpx.BaseTransport] | None) -> bytes:
    """The body of the answer; raises RateRefused and httpx.HTTPError."""
    with connections(open_transport and open_transport()) as http:
        try:
            request = http.build_request("GET", url, headers=PLAIN, timeout=TIMEOUT)
            answer = exchange(http, request, time.monotonic() + TIMEOUT, most=MAX_BYTES)
        except InvalidAnswer as error:
            raise RateRefused(f"the server of the rate: {error}") from None
    if answer.status != 200:
        raise RateRefused(f"the server of the rate answers with status {answer.status}")
    return answer.body
