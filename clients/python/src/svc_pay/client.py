"""The two clients: the same methods, synchronous and asynchronous, made from the calls in :mod:`svc_pay.calls`."""

import asyncio
import inspect
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from math import inf
from time import monotonic
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, get_args

import httpx

from svc_pay import calls
from svc_pay._svcd.visible_text import shown
from svc_pay.calls import Answer, Blocking, Call, OwnNetwork, Pause, Steps
from svc_pay.chain import Network, is_loopback
from svc_pay.errors import InvalidAnswer, InvalidInput, NodeUnreachable, SvcPayError
from svc_pay.exchange import PLAIN, async_connections, async_exchange, connections, exchange, left

P = ParamSpec("P")
T = TypeVar("T")
Http = TypeVar("Http", httpx.Client, httpx.AsyncClient)
Transport = TypeVar("Transport", httpx.BaseTransport, httpx.AsyncBaseTransport)

TIMEOUT = 15.0
"""Seconds for a request with all its repetitions and pauses, in addition to the time of a long poll."""
RETRY_SECONDS = 5.0
"""Seconds that a request may wait in all before it is repeated."""

_OK: Final = 200
_Outcome = Answer | Network | SvcPayError | None
_TOKEN: Final = re.compile("[!-~]+")


class _Settings:
    """What both clients are given."""

    def __init__(
        self, url: str, token: str | None, timeout: float, retry_seconds: float, *, insecure_http: bool = False
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInput("the URL of a node begins with http:// or https://")
        try:
            host = httpx.URL(url).host
        except httpx.InvalidURL as error:
            raise InvalidInput(f"the URL of the node is not valid: {error}") from None
        if not host:
            raise InvalidInput("the URL of the node names no host")
        if token is not None and not _TOKEN.fullmatch(token):
            # The sentence does not repeat the token: it may be logged, or shown to a buyer.
            raise InvalidInput("a management token consists of visible ASCII characters, without a newline at its end")
        if token is not None and url.startswith("http://") and not is_loopback(host) and not insecure_http:
            raise InvalidInput(
                f"the token would cross the network unencrypted to {host}: use https://, or a tunnel to this computer;"
                " insecure_http=True sends it anyway"
            )
        self.url = url.rstrip("/")
        self._token = token
        self.timeout = timeout
        self._retry_seconds = retry_seconds

    def until(self, call: Call) -> float:
        """When a request is given up, by the monotonic clock."""
        seconds = self.timeout + call.seconds
        began = monotonic() if call.pages is None else call.pages.since
        return began + (seconds if call.limit is None else min(seconds, call.limit))

    def refusal(self, pause: Pause, until: float) -> SvcPayError | None:
        """The error to raise instead of a pause that is too long; None for any other pause."""
        too_long = pause.in_all > self._retry_seconds or monotonic() + pause.seconds > until
        return pause.error if too_long else None

    def request(self, http: httpx.Client | httpx.AsyncClient, call: Call, until: float) -> httpx.Request:
        """The request of a call; raises InvalidInput if it needs a token and there is none."""
        headers = dict(PLAIN)
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        if call.authorized:
            if self._token is None:
                raise InvalidInput("this call needs the management token of the node; give it as token=")
            headers["Authorization"] = f"Bearer {self._token}"
        return http.build_request(
            call.method,
            self.url + call.path,
            params=call.query,
            content=call.body,
            headers=headers,
            timeout=left(until),
        )


def _unreachable(error: httpx.HTTPError, call: Call, settings: _Settings) -> NodeUnreachable:
    remedy = None if call.pages is None else call.pages.remedy
    if remedy is not None and isinstance(error, httpx.TimeoutException):
        return NodeUnreachable(f"the list has taken longer than {settings.timeout:g} s: {remedy}")
    return NodeUnreachable(f"the node does not answer: {shown(str(error)) or type(error).__name__}")


def _next(steps: Steps[T], outcome: _Outcome) -> Call | Pause | Blocking | OwnNetwork:
    """The next step of a generator after the ``outcome`` of the last one; raises StopIteration with the result."""
    return steps.throw(outcome) if isinstance(outcome, SvcPayError) else steps.send(outcome)


def _blocking(made: Callable[P, Steps[T]]) -> "Callable[Concatenate[Client, P], T]":
    """A method of the synchronous client that runs a generator of calls."""

    def method(client: "Client", /, *args: P.args, **given: P.kwargs) -> T:
        return client._run(made(*args, **given))

    return _described(method, made)


def _coroutine(made: Callable[P, Steps[T]]) -> "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]":
    """A method of the asynchronous client that runs a generator of calls."""

    async def method(client: "AsyncClient", /, *args: P.args, **given: P.kwargs) -> T:
        return await client._run(made(*args, **given))

    return _described(method, made)


Method = TypeVar("Method", bound=Callable[..., Any])


def _described(method: Method, made: Callable[..., Steps[Any]]) -> Method:
    """``method`` with the name, the parameters, the result and the description of the calls that it makes."""
    signature = inspect.signature(made)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [itself, *signature.parameters.values()]
    # The last argument of Generator is the type of what is returned.
    result = get_args(signature.return_annotation)[-1]
    method.__name__, method.__doc__, method.__module__ = made.__name__, made.__doc__, __name__
    method.__qualname__ = made.__name__
    described: Any = method
    described.__signature__ = signature.replace(parameters=parameters, return_annotation=result)
    return method


class _Node(ABC, Generic[Http, Transport]):
    """One node, as both clients ask it."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = TIMEOUT,
        retry_seconds: float = RETRY_SECONDS,
        insecure_http: bool = False,
        network: Network | None = None,
        transport: Transport | None = None,
    ) -> None:
        """``url`` is that of the node, ``token`` its management token, needed only for watches.

        ``network`` is that of the node, and must be given unless it is mainnet or devnet. With it, the first call asks
        the node for its genesis hash, and every call raises InvalidAnswer if the node is on another network.

        With a token and ``http://`` the URL must name this computer, unless ``insecure_http`` is true. Calls that may
        be repeated safely are repeated up to three times, as long as the pauses of a request take at most
        ``retry_seconds``; then the refusal of the node is raised, with its ``retry_after``.

        ``transport`` is one of httpx, for programs that decide which addresses are called, or how; it is closed with
        the client. Of the synchronous client it must be a :class:`svc_pay.BoundedTransport`, or else ``timeout`` bounds
        only single steps of a request.
        """
        self._settings = _Settings(url, token, timeout, retry_seconds, insecure_http=insecure_http)
        self.network: Final = network
        """The network that was given; None if any of mainnet and devnet will do."""
        self._on_network = network is None
        self._http: Http = self._open(transport)

    @property
    def url(self) -> str:
        """The URL of the node, without a slash at its end."""
        return self._settings.url

    def _first(self, call: Call) -> Call | None:
        """The call to make before ``call``, to learn which network the node is on; None if that is known."""
        return None if self._on_network else calls.consensus(call.limit)

    def _knows(self, answer: Answer) -> bool:
        """Whether the answer to that call says that the node is on the network; raises InvalidAnswer if on another."""
        if self.network is not None and answer.status == _OK:
            calls.consensus_in(answer.body, self.network)
            self._on_network = True
        return self._on_network

    @abstractmethod
    def _open(self, transport: Transport | None) -> Http:
        """The connections."""


class Client(_Node[httpx.Client, httpx.BaseTransport]):
    """A synchronous client of one node. Every method raises a subclass of SvcPayError."""

    def _open(self, transport: httpx.BaseTransport | None) -> httpx.Client:
        return connections(transport)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        """The result of a generator of calls."""
        outcome: _Outcome = None
        asked, until = None, inf
        try:
            while True:
                step, outcome = _next(steps, outcome), None
                if isinstance(step, Call):
                    # The same one again is a repetition.
                    asked, until = step, until if step is asked else self._settings.until(step)
                    outcome = self._ask(step, until)
                elif isinstance(step, OwnNetwork):
                    outcome = self.network
                elif isinstance(step, Blocking):
                    step.run()
                else:
                    outcome = self._settings.refusal(step, until)
                    if outcome is None:
                        time.sleep(step.seconds)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _ask(self, call: Call, until: float) -> Answer | SvcPayError:
        first = self._first(call)
        if first is not None:
            # What goes wrong with it goes wrong with the call, which may be repeated.
            told = self._send(first, until)
            if not isinstance(told, Answer) or not self._knows(told):
                return told
        return self._send(call, until)

    def _send(self, call: Call, until: float) -> Answer | SvcPayError:
        try:
            request = self._settings.request(self._http, call, until)
            return exchange(self._http, request, until)
        except httpx.HTTPError as error:
            return _unreachable(error, call, self._settings)
        except InvalidAnswer as error:
            return error

    payment_request = _blocking(calls.payment_request)
    payment = _blocking(calls.payment)
    wait_for = _blocking(calls.wait_for)
    payments = _blocking(calls.payments)
    feed = _blocking(calls.feed)
    proof = _blocking(calls.proof)
    block_hash = _blocking(calls.block_hash)
    register = _blocking(calls.register)
    watch = _blocking(calls.watch)
    watches = _blocking(calls.watches)
    cancel = _blocking(calls.cancel)
    redeliver = _blocking(calls.redeliver)
    test_callback = _blocking(calls.test_callback)
    account = _blocking(calls.account)
    sign = _blocking(calls.sign)
    broadcast = _blocking(calls.broadcast)


class AsyncClient(_Node[httpx.AsyncClient, httpx.AsyncBaseTransport]):
    """An asynchronous client of one node. Every method raises a subclass of SvcPayError."""

    def _open(self, transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
        return async_connections(transport)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, steps: Steps[T]) -> T:
        """The result of a generator of calls."""
        outcome: _Outcome = None
        asked, until = None, inf
        try:
            while True:
                step, outcome = _next(steps, outcome), None
                if isinstance(step, Call):
                    # The same one again is a repetition.
                    asked, until = step, until if step is asked else self._settings.until(step)
                    outcome = await self._ask(step, until)
                elif isinstance(step, OwnNetwork):
                    outcome = self.network
                elif isinstance(step, Blocking):
                    await asyncio.to_thread(step.run)
                else:
                    outcome = self._settings.refusal(step, until)
                    if outcome is None:
                        await asyncio.sleep(step.seconds)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _ask(self, call: Call, until: float) -> Answer | SvcPayError:
        first = self._first(call)
        if first is not None:
            told = await self._send(first, until)
            if not isinstance(told, Answer) or not self._knows(told):
                return told
        return await self._send(call, until)

    async def _send(self, call: Call, until: float) -> Answer | SvcPayError:
        try:
            request = self._settings.request(self._http, call, until)
            return await async_exchange(self._http, request, until)
        except httpx.HTTPError as error:
            return _unreachable(error, call, self._settings)
        except InvalidAnswer as error:
            return error

    payment_request = _coroutine(calls.payment_request)
    payment = _coroutine(calls.payment)
    wait_for = _coroutine(calls.wait_for)
    payments = _coroutine(calls.payments)
    feed = _coroutine(calls.feed)
    proof = _coroutine(calls.proof)
    block_hash = _coroutine(calls.block_hash)
    register = _coroutine(calls.register)
    watch = _coroutine(calls.watch)
    watches = _coroutine(calls.watches)
    cancel = _coroutine(calls.cancel)
    redeliver = _coroutine(calls.redeliver)
    test_callback = _coroutine(calls.test_callback)
    account = _coroutine(calls.account)
    sign = _coroutine(calls.sign)
    broadcast = _coroutine(calls.broadcast)
