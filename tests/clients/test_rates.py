"""The rates of the Python client; tests/clients/js/rates.test.mjs asks the same of the other one."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest
import svc_pay.rates
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from svc_pay import InvalidInput, Quote, Rate, RateRefused, RateSource, order_amount

from tests.process_level.running import free_port

CASES: dict[str, list[Any]] = json.loads((Path(__file__).parent / "rates.json").read_text(encoding="utf-8"))
NOW = 1_000.0


@pytest.mark.parametrize("case", CASES["amounts"])
def test_amounts_are_rounded_up_and_kept_with_their_rate(case: dict[str, Any]) -> None:
    rate = RateSource.fixed("EUR", case["rate"]).rate(now=NOW)
    if case["amount"] is None:
        with pytest.raises(InvalidInput, match=r"is more than 90071992\.54740991 coins"):
            order_amount(case["price"], "EUR", rate)
    else:
        kept = Quote(int(case["amount"]), case["price"], "EUR", case["rate"], 1_000_000)
        assert order_amount(case["price"], "EUR", rate) == kept


@given(st.decimals("0.01", "1000000", places=2), st.decimals("0.02", "100000", places=8))
def test_an_amount_is_the_least_that_is_worth_the_price(price: Decimal, rate: Decimal) -> None:
    amount = order_amount(price, "EUR", RateSource.fixed("EUR", rate).rate()).amount
    assert amount * rate >= price * 10**8 > (amount - 1) * rate


NO_NUMBERS: list[Any] = [*CASES["refused"], 0, -1, 0.5, True, None, Decimal("nan"), Decimal("inf"), Decimal("1e999999")]


@pytest.mark.parametrize("price", NO_NUMBERS)
def test_rates_and_prices_must_be_decimals_above_0(price: Any) -> None:
    with pytest.raises(RateRefused, match="is not a rate"):
        RateSource.fixed("EUR", price)
    with pytest.raises(RateRefused, match="is not a rate"):
        RateSource.function("EUR", lambda: price, max_age=60).rate()
    with pytest.raises(InvalidInput, match="is not a price"):
        order_amount(price, "EUR", RateSource.fixed("EUR", "0.5").rate())


def test_a_rate_of_another_currency_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the price is in USD and the rate in EUR"):
        order_amount("1", "USD", RateSource.fixed("EUR", 1).rate())


@pytest.mark.parametrize("age", [None, 0, -1, 1.5, True, "60"])
def test_every_rate_but_a_fixed_one_has_a_maximum_age(age: Any) -> None:
    with pytest.raises(InvalidInput, match="max_age must be a whole number of seconds"):
        RateSource.function("EUR", lambda: 1, max_age=age)
    with pytest.raises(InvalidInput, match="max_age must be a whole number of seconds"):
        RateSource.url("EUR", "https://rates.example/", "EUR", max_age=age)


def test_a_currency_is_a_code() -> None:
    with pytest.raises(InvalidInput, match="'euro' is not a currency; give a code such as EUR"):
        RateSource.fixed("euro", 1)


def read_from(*told: Any) -> Callable[[], Any]:
    """A function that returns these, one after the other, and then raises LookupError."""
    left = list(told)

    def read() -> Any:
        if not left:
            raise LookupError("the exchange is closed")
        return left.pop(0)

    return read


def test_a_rate_is_used_until_it_is_stale_and_then_read_again() -> None:
    source = RateSource.function("EUR", read_from("2", "3"), max_age=60)
    rate = source.rate(now=NOW)
    assert rate == Rate("EUR", "2", 1_000_000, 60)
    assert source.rate(now=NOW + 60) is rate
    assert order_amount("1", "EUR", rate, now=NOW + 60).rate_at == 1_000_000
    with pytest.raises(RateRefused, match="the rate of EUR is 61 seconds old, and may be used for 60"):
        order_amount("1", "EUR", rate, now=NOW + 60.001)
    assert source.rate(now=NOW + 60.001).price == "3"


def test_a_refused_rate_is_never_replaced_by_an_earlier_one() -> None:
    stale, zero = ("3", 1_000_000), "0"
    source = RateSource.function("EUR", read_from("2", stale, zero, ("4", 1_061_000)), max_age=60)
    assert source.rate(now=NOW).price == "2"
    with pytest.raises(RateRefused, match="is 61 seconds old"):
        source.rate(now=NOW + 61)
    with pytest.raises(RateRefused, match="'0' is not a rate"):
        source.rate(now=NOW + 61)
    assert source.rate(now=NOW + 61) == Rate("EUR", "4", 1_061_000, 60)
    with pytest.raises(LookupError, match="the exchange is closed"):
        source.rate(now=NOW + 122)


def test_a_rate_of_the_future_is_refused_and_a_clock_that_was_set_back_does_not_stop_the_shop() -> None:
    with pytest.raises(RateRefused, match="the time of the rate of EUR is in the future"):
        RateSource.function("EUR", lambda: ("2", 1_060_001), max_age=60).rate(now=NOW)
    source = RateSource.function("EUR", read_from("2", "3"), max_age=3600)
    rate = source.rate(now=NOW)
    with pytest.raises(RateRefused, match="in the future"):
        order_amount("1", "EUR", rate, now=NOW - 61)
    assert source.rate(now=NOW - 61).price == "3"


def test_the_time_of_a_rate_is_an_integer() -> None:
    with pytest.raises(RateRefused, match="must be an integer in Unix milliseconds"):
        RateSource.function("EUR", read_from(("2", 1e6)), max_age=60).rate(now=NOW)


def test_a_fixed_rate_has_the_time_of_its_order() -> None:
    source = RateSource.fixed("EUR", "0.5")
    assert [source.rate(now=now).at for now in (NOW, NOW + 10**6)] == [1_000_000, 1_001_000_000]
    assert order_amount("1", "EUR", replace(source.rate(now=NOW), at=0), now=NOW).rate_at == 0


# URLs


@pytest.mark.parametrize("url", CASES["allowedUrls"])
def test_a_rate_is_asked_for_by_https_or_on_this_computer(url: str) -> None:
    assert RateSource.url("EUR", url, "EUR", max_age=60).currency == "EUR"


@pytest.mark.parametrize("url", [*CASES["refusedUrls"], "https://rates.example:port/"])
def test_a_url_that_is_not_safe_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInput, match="the URL of the rate ") as refused:
        RateSource.url("EUR", url, "EUR", max_age=60)
    assert "secret" not in str(refused.value)


@define
class Server:
    """A server of rates."""

    answer: bytes | int = b""
    """A body, or a status."""
    requests: list[dict[str, str]] = field(factory=list)
    """The headers of each request, and its path."""
    hold_before: int | None = None
    """Before which byte of the body it stops until ``release`` is set."""
    release: Event = field(factory=Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/rates?key=secret"


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of rates on a real socket."""
    rates = Server()

    class Rates(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            rates.requests.append({"path": self.path, **{name.lower(): value for name, value in self.headers.items()}})
            self.send_response(rates.answer if isinstance(rates.answer, int) else 200)
            self.send_header("Location", rates.url)
            self.end_headers()
            body = b"" if isinstance(rates.answer, int) else rates.answer
            if rates.hold_before is not None:
                self.wfile.write(body[: rates.hold_before])
                rates.release.wait()
            else:
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Rates) as http:
        rates.port = http.server_port
        thread = Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield rates
        rates.release.set()
        http.shutdown()
        thread.join()


def source_of(server: Server, path: Any = "EUR") -> RateSource:
    return RateSource.url("EUR", server.url, path, max_age=60)


@pytest.mark.socket
@pytest.mark.parametrize("case", CASES["json"])
def test_the_rate_at_a_path(server: Server, case: dict[str, Any]) -> None:
    server.answer = case["body"].encode()
    source = source_of(server, case["path"])
    if case["rate"] is None:
        with pytest.raises(RateRefused):
            source.rate()
    else:
        assert source.rate().price == case["rate"]


def test_a_rate_is_asked_for_through_the_transport_that_is_opened() -> None:
    asked = []

    def reply(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(200, stream=httpx.ByteStream(b'{"EUR": 0.5}'))

    source = RateSource.url(
        "EUR", "https://rates.example/", "EUR", max_age=60, open_transport=lambda: httpx.MockTransport(reply)
    )
    assert [source.rate(now=now).price for now in (NOW, NOW + 61)] == ["0.5", "0.5"]
    assert asked == ["https://rates.example/"] * 2


@pytest.mark.socket
def test_a_server_is_asked_once_while_its_rate_may_be_used(server: Server) -> None:
    server.answer = b'{"EUR": 0.5}'
    source = source_of(server)
    assert [source.rate(now=now).at for now in (NOW, NOW + 60, NOW + 61)] == [1_000_000, 1_000_000, 1_061_000]
    assert len(server.requests) == 2
    assert server.requests[0]["path"] == "/rates?key=secret"
    assert (server.requests[0]["accept"], server.requests[0]["accept-encoding"]) == ("application/json", "identity")


@pytest.mark.socket
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (302, "the answer is a redirect, which no call follows"),
        (404, "answers with status 404"),
        (500, "answers with status 500"),
        (204, "answers with status 204"),
        (b" " * (1 << 20) + b"1", "has more than 1048576 bytes"),
        (b"[" * 100_000, "is not JSON"),
        (b"\xff", "is not JSON"),
    ],
)
def test_an_answer_that_gives_no_rate(server: Server, answer: bytes | int, sentence: str) -> None:
    server.answer = b'{"EUR": 0.5}'
    source = source_of(server)
    source.rate(now=NOW)
    server.answer = answer
    with pytest.raises(RateRefused, match=sentence) as refused:
        source.rate(now=NOW + 61)
    assert "secret" not in str(refused.value)
    assert len(server.requests) == 2, "not repeated, and no redirect followed"


@pytest.mark.socket
@pytest.mark.parametrize("held", [0, 5])
def test_a_server_that_does_not_answer_in_time(server: Server, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svc_pay.rates, "TIMEOUT", 0.1)
    server.answer, server.hold_before = b'{"EUR": 0.5}', held
    with pytest.raises(RateRefused, match="does not answer"):
        source_of(server).rate()


@pytest.mark.socket
def test_a_server_that_is_away_gives_no_rate() -> None:
    with pytest.raises(RateRefused, match=r"the server of the rate does not answer: .*refused"):
        RateSource.url("EUR", f"http://127.0.0.1:{free_port()}/", "EUR", max_age=60).rate()
