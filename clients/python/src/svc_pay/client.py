"""The two clients: the same methods, synchronous and asynchronous."""

import asyncio
import re
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

import httpx

from svc_pay import calls
from svc_pay.calls import MAXIMUM_FEE, Answer, Blocking, Call, Pause, Steps
from svc_pay.chain import Network, is_loopback
from svc_pay.errors import InvalidInput, NodeUnreachable, SvcPayError
from svc_pay.model import (
    DEFAULT_CONFIRMATIONS,
    Account,
    CallbackTest,
    Delivery,
    Order,
    Payment,
    PaymentRequest,
    ReceivedTransfer,
    State,
    Watch,
    WatchPage,
)
from svc_pay.wallet import Key, SignedTransfer
from svc_pay.webhooks import EventName

T = TypeVar("T")

TIMEOUT = 15.0
"""Seconds to wait for a connection and for each part of an answer, in addition to the time of a long poll."""
RETRY_SECONDS = 5.0
"""Seconds that a request may wait in all before it is repeated."""

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
                " insecure_http=True sends it all the same"
            )
        self.url = url.rstrip("/")
        self._token = token
        self._timeout = timeout
        self._retry_seconds = retry_seconds

    def refusal(self, pause: Pause) -> SvcPayError | None:
        """The error to raise instead of a pause that is too long; None for any other pause."""
        return pause.error if pause.in_all > self._retry_seconds else None

    def request(self, http: httpx.Client | httpx.AsyncClient, call: Call) -> httpx.Request:
        """The request of a call; raises InvalidInput if it needs a token and there is none."""
        headers = {"Accept": "application/json"}
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        if call.authorized:
            if self._token is None:
                raise InvalidInput("this call needs the management token of the node; give it as token=")
            headers["Authorization"] = f"Bearer {self._token}"
        timeout = self._timeout + call.seconds
        return http.build_request(
            call.method,
            self.url + call.path,
            params=call.query,
            content=call.body,
            headers=headers,
            timeout=timeout if call.limit is None else min(timeout, call.limit),
        )


def _answer(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.headers.get("retry-after"), response.content)


def _unreachable(error: httpx.HTTPError) -> NodeUnreachable:
    return NodeUnreachable(f"the node does not answer: {error or type(error).__name__}")


class Client:
    """A synchronous client of one node.

    ``url`` is that of the node, ``token`` its management token, needed only for watches; with a token and ``http://``
    the URL must name this computer, unless ``insecure_http`` is true. Calls that may be repeated safely are repeated up
    to three times, as long as the pauses of a request take at most ``retry_seconds``; then the refusal of the node is
    raised, with its ``retry_after``. Every method raises a subclass of SvcPayError.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = TIMEOUT,
        retry_seconds: float = RETRY_SECONDS,
        insecure_http: bool = False,
    ) -> None:
        self._settings = _Settings(url, token, timeout, retry_seconds, insecure_http=insecure_http)
        self._http = httpx.Client()

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
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    refused = self._settings.refusal(step)
                    if refused is None:
                        time.sleep(step.seconds)
                    step = steps.send(None) if refused is None else steps.throw(refused)
                    continue
                if isinstance(step, Blocking):
                    step.run()
                    step = steps.send(None)
                    continue
                request = self._settings.request(self._http, step)
                try:
                    response = self._http.send(request)
                except httpx.HTTPError as error:
                    step = steps.throw(_unreachable(error))
                else:
                    step = steps.send(_answer(response))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def payment_request(
        self,
        recipient: str,
        amount: int,
        *,
        reference: str | None = None,
        label: str | None = None,
        confirmations: int = DEFAULT_CONFIRMATIONS,
    ) -> PaymentRequest:
        """A payment request for an order; without a reference the node generates one. The node stores nothing."""
        return self._run(
            calls.payment_request(recipient, amount, reference=reference, label=label, confirmations=confirmations)
        )

    def payment(self, order: Order, *, wait: int = 0, state: State | None = None) -> Payment:
        """What the node knows about the payment of an order now: verifies it.

        With ``wait`` seconds, 1 to 30, and the last known ``state`` the answer comes when it changes.
        """
        return self._run(calls.payment(order, wait=wait, state=state))

    def wait_for(self, order: Order, state: State = State.CONFIRMED, *, timeout: float | None = None) -> Payment:
        """Wait by long polling until the payment is in ``state`` or further.

        Raises WaitTimeout after about ``timeout`` seconds.

        A confirmed payment counts only once the node is synced, so that the shop may deliver. With a ``timeout`` the
        wait goes on while the node cannot be reached; without one it raises NodeUnreachable.
        """
        return self._run(calls.wait_for(order, state, timeout=timeout))

    def payments(
        self,
        recipient: str,
        *,
        reference: str | None = None,
        amount: int | None = None,
        since_height: int | None = None,
    ) -> list[ReceivedTransfer]:
        """Every transfer to an address, paying an order or not; with ``amount``, whether each pays that order."""
        return self._run(calls.payments(recipient, reference=reference, amount=amount, since_height=since_height))

    def proof(self, order: Order) -> list[bytes]:
        """A proof of the payment for :func:`svc_pay.check_proof`: one answer for each 1,000 headers."""
        return self._run(calls.proof(order))

    def block_hash(self, height: int) -> str:
        """The hash of the block at a height: the tip of a proof, if this node is trusted."""
        return self._run(calls.block_hash(height))

    def register(
        self,
        order: Order,
        callback_url: str,
        *,
        events: Sequence[EventName] | None = None,
        pay_within_seconds: int | None = None,
        ttl_seconds: int | None = None,
    ) -> Watch:
        """Register a watch; store the order before that. The same registration again returns the same watch.

        ``pay_within_seconds`` is the buyer's deadline: until when the payment must have been seen, in the mempool or in
        a block. ``ttl_seconds`` is the lifetime of the watch, after which no event follows a payment that is not
        confirmed; with a deadline it is the node's maximum by default, and need not be given.
        """
        return self._run(
            calls.register(
                order, callback_url, events=events, pay_within_seconds=pay_within_seconds, ttl_seconds=ttl_seconds
            )
        )

    def watch(self, watch_id: str) -> Watch:
        """A watch with its newest events."""
        return self._run(calls.watch(watch_id))

    def watches(
        self,
        *,
        reference: str | None = None,
        state: str | None = None,
        host: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> WatchPage:
        """A page of at most ``limit`` watches with their newest events, the newest watch first; 50 is the most.

        ``reference``, ``state`` and ``host`` choose those of this order, with this ``last_state``, or with a callback
        at this host. Ask again with ``after=page.next`` until that is None: a page may have fewer watches, or none,
        even if more follow.
        """
        return self._run(calls.watches(reference=reference, state=state, host=host, after=after, limit=limit))

    def cancel(self, watch_id: str) -> Watch:
        """Cancel a watch; its undelivered events are dropped."""
        return self._run(calls.cancel(watch_id))

    def redeliver(self, watch_id: str, event_id: str) -> Delivery:
        """Send an event again. This call is never repeated by itself."""
        return self._run(calls.redeliver(watch_id, event_id))

    def test_callback(self, callback_url: str) -> CallbackTest:
        """Send a `webhook.test` and wait for its outcome. This call is never repeated by itself."""
        return self._run(calls.test_callback(callback_url))

    def account(self, address: str) -> Account:
        """The account of an address."""
        return self._run(calls.account(address))

    def sign(
        self,
        key: Key,
        network: Network,
        *,
        recipient: str,
        amount: int,
        reference: str | None = None,
        maximum_fee: int = MAXIMUM_FEE,
        nonce: int | None = None,
    ) -> SignedTransfer:
        """A transfer signed with the suggested fee and ``nonce``, by default the account's next one from the node.

        Store it, then broadcast it. Two workers that sign at the same time get the same nonce from the node, and one
        transfer replaces the other: use :class:`svc_pay.Payouts`, or nonces that no two workers share. Raises
        ImpossibleAmount if either account would then have less than the network's account minimum.
        """
        return self._run(
            calls.sign(
                key,
                network,
                recipient=recipient,
                amount=amount,
                reference=reference,
                maximum_fee=maximum_fee,
                nonce=nonce,
            )
        )

    def broadcast(self, transfer: SignedTransfer) -> str:
        """Hand a signed transfer to the network; ``accepted``, or ``known`` if the node had it. Safe to repeat."""
        return self._run(calls.broadcast(transfer))


class AsyncClient:
    """An asynchronous client of one node.

    ``url`` is that of the node, ``token`` its management token, needed only for watches; with a token and ``http://``
    the URL must name this computer, unless ``insecure_http`` is true. Calls that may be repeated safely are repeated up
    to three times, as long as the pauses of a request take at most ``retry_seconds``; then the refusal of the node is
    raised, with its ``retry_after``. Every method raises a subclass of SvcPayError.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = TIMEOUT,
        retry_seconds: float = RETRY_SECONDS,
        insecure_http: bool = False,
    ) -> None:
        self._settings = _Settings(url, token, timeout, retry_seconds, insecure_http=insecure_http)
        self._http = httpx.AsyncClient()

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
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    refused = self._settings.refusal(step)
                    if refused is None:
                        await asyncio.sleep(step.seconds)
                    step = steps.send(None) if refused is None else steps.throw(refused)
                    continue
                if isinstance(step, Blocking):
                    await asyncio.to_thread(step.run)
                    step = steps.send(None)
                    continue
                request = self._settings.request(self._http, step)
                try:
                    response = await self._http.send(request)
                except httpx.HTTPError as error:
                    step = steps.throw(_unreachable(error))
                else:
                    step = steps.send(_answer(response))
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def payment_request(
        self,
        recipient: str,
        amount: int,
        *,
        reference: str | None = None,
        label: str | None = None,
        confirmations: int = DEFAULT_CONFIRMATIONS,
    ) -> PaymentRequest:
        """A payment request for an order; without a reference the node generates one. The node stores nothing."""
        return await self._run(
            calls.payment_request(recipient, amount, reference=reference, label=label, confirmations=confirmations)
        )

    async def payment(self, order: Order, *, wait: int = 0, state: State | None = None) -> Payment:
        """What the node knows about the payment of an order now: verifies it.

        With ``wait`` seconds, 1 to 30, and the last known ``state`` the answer comes when it changes.
        """
        return await self._run(calls.payment(order, wait=wait, state=state))

    async def wait_for(self, order: Order, state: State = State.CONFIRMED, *, timeout: float | None = None) -> Payment:
        """Wait by long polling until the payment is in ``state`` or further.

        Raises WaitTimeout after about ``timeout`` seconds.

        A confirmed payment counts only once the node is synced, so that the shop may deliver. With a ``timeout`` the
        wait goes on while the node cannot be reached; without one it raises NodeUnreachable.
        """
        return await self._run(calls.wait_for(order, state, timeout=timeout))

    async def payments(
        self,
        recipient: str,
        *,
        reference: str | None = None,
        amount: int | None = None,
        since_height: int | None = None,
    ) -> list[ReceivedTransfer]:
        """Every transfer to an address, paying an order or not; with ``amount``, whether each pays that order."""
        return await self._run(calls.payments(recipient, reference=reference, amount=amount, since_height=since_height))

    async def proof(self, order: Order) -> list[bytes]:
        """A proof of the payment for :func:`svc_pay.check_proof`: one answer for each 1,000 headers."""
        return await self._run(calls.proof(order))

    async def block_hash(self, height: int) -> str:
        """The hash of the block at a height: the tip of a proof, if this node is trusted."""
        return await self._run(calls.block_hash(height))

    async def register(
        self,
        order: Order,
        callback_url: str,
        *,
        events: Sequence[EventName] | None = None,
        pay_within_seconds: int | None = None,
        ttl_seconds: int | None = None,
    ) -> Watch:
        """Register a watch; store the order before that. The same registration again returns the same watch.

        ``pay_within_seconds`` is the buyer's deadline: until when the payment must have been seen, in the mempool or in
        a block. ``ttl_seconds`` is the lifetime of the watch, after which no event follows a payment that is not
        confirmed; with a deadline it is the node's maximum by default, and need not be given.
        """
        return await self._run(
            calls.register(
                order, callback_url, events=events, pay_within_seconds=pay_within_seconds, ttl_seconds=ttl_seconds
            )
        )

    async def watch(self, watch_id: str) -> Watch:
        """A watch with its newest events."""
        return await self._run(calls.watch(watch_id))

    async def watches(
        self,
        *,
        reference: str | None = None,
        state: str | None = None,
        host: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> WatchPage:
        """A page of at most ``limit`` watches with their newest events, the newest watch first; 50 is the most.

        ``reference``, ``state`` and ``host`` choose those of this order, with this ``last_state``, or with a callback
        at this host. Ask again with ``after=page.next`` until that is None: a page may have fewer watches, or none,
        even if more follow.
        """
        return await self._run(calls.watches(reference=reference, state=state, host=host, after=after, limit=limit))

    async def cancel(self, watch_id: str) -> Watch:
        """Cancel a watch; its undelivered events are dropped."""
        return await self._run(calls.cancel(watch_id))

    async def redeliver(self, watch_id: str, event_id: str) -> Delivery:
        """Send an event again. This call is never repeated by itself."""
        return await self._run(calls.redeliver(watch_id, event_id))

    async def test_callback(self, callback_url: str) -> CallbackTest:
        """Send a `webhook.test` and wait for its outcome. This call is never repeated by itself."""
        return await self._run(calls.test_callback(callback_url))

    async def account(self, address: str) -> Account:
        """The account of an address."""
        return await self._run(calls.account(address))

    async def sign(
        self,
        key: Key,
        network: Network,
        *,
        recipient: str,
        amount: int,
        reference: str | None = None,
        maximum_fee: int = MAXIMUM_FEE,
        nonce: int | None = None,
    ) -> SignedTransfer:
        """A transfer signed with the suggested fee and ``nonce``, by default the account's next one from the node.

        Store it, then broadcast it. Two workers that sign at the same time get the same nonce from the node, and one
        transfer replaces the other: use :class:`svc_pay.Payouts`, or nonces that no two workers share. Raises
        ImpossibleAmount if either account would then have less than the network's account minimum.
        """
        return await self._run(
            calls.sign(
                key,
                network,
                recipient=recipient,
                amount=amount,
                reference=reference,
                maximum_fee=maximum_fee,
                nonce=nonce,
            )
        )

    async def broadcast(self, transfer: SignedTransfer) -> str:
        """Hand a signed transfer to the network; ``accepted``, or ``known`` if the node had it. Safe to repeat."""
        return await self._run(calls.broadcast(transfer))
