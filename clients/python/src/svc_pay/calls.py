"""The calls to a node as generators, which do no input and output: both clients have them as their methods.

A generator yields a :class:`Call`, and is sent its :class:`Answer`, or thrown NodeUnreachable; or it yields a
:class:`Pause`, and is resumed after it; or a :class:`Blocking`, and is resumed once that has run. What it returns is
the result.
"""

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from random import random
from secrets import token_bytes
from time import monotonic
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit

from svc_pay._svcd.chain.transaction import new_reference
from svc_pay._svcd.visible_text import shown
from svc_pay.chain import (
    Network,
    check_address,
    check_amount,
    check_number,
    check_reference,
    network_of,
)
from svc_pay.errors import (
    ApiError,
    InvalidAnswer,
    InvalidInput,
    NodeUnreachable,
    NotFound,
    SvcPayError,
    TooManyRequests,
    Unavailable,
    WaitTimeout,
    api_error,
)
from svc_pay.members import Members
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
from svc_pay.order_book import FeedAnswer, Place, parse_answer
from svc_pay.wallet import Key, SignedTransfer, check_minimum, sign_transfer
from svc_pay.webhooks import EventName

MAXIMUM_FEE: Final = 1_000_000
"""The greatest fee in base units that is paid on mainnet and devnet because a node suggests it."""
LONGEST_WAIT: Final = 30
"""Seconds of one long poll."""
_FEES: Final = 100
"""How many times the least fee of a network is paid because a node suggests it, unless a caller says how much."""

_ATTEMPTS: Final = 4
_UNSYNCED_WAIT: Final = 2
_RETRY_WAIT: Final = 2
_MAX_PAGES: Final = 1000
_MAX_LIST: Final = 64 * 1024 * 1024
"""Bytes of a list that comes in pages."""
_SECONDS: Final = re.compile("[0-9]{1,6}")
_SAFE: Final = frozenset((502, 503, 504, 429))

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes | None
    authorized: bool
    """Whether it needs the management token."""
    repeatable: bool
    """Whether a repetition has no further effect."""
    seconds: float
    """How long the answer may take beyond the client's timeout."""
    limit: float | None = None
    """Seconds after which it is given up at the latest; None if only the client's timeout counts."""
    pages: "Pages | None" = None
    """The list of which a page is asked for: the client's timeout is for all of it; None for any other call."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request."""

    status: int
    retry_after: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait before the next attempt."""

    seconds: float
    in_all: float = 0
    """Of this request, with the pauses before."""
    error: SvcPayError | None = None
    """Raised in place of a pause that is too long for the caller; None if the caller has said how long to wait."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """A piece of work that waits for a disk or a database; the asynchronous client runs it in a thread."""

    run: Callable[[], None]


@dataclass(frozen=True, slots=True)
class OwnNetwork:
    """A question for the network that the client was given; None if it was given none."""


Steps = Generator[Call | Pause | Blocking | OwnNetwork, Answer | Network | None, T]


def get(
    path: str,
    query: Mapping[str, str] | None = None,
    *,
    authorized: bool = False,
    seconds: float = 0,
    limit: float | None = None,
    pages: "Pages | None" = None,
) -> Call:
    """A request that changes nothing; ``pages`` if it is for one of a list."""
    asked = query or {}
    return Call("GET", path, asked, None, authorized, repeatable=True, seconds=seconds, limit=limit, pages=pages)


def post(path: str, body: object, *, repeatable: bool, authorized: bool = True, seconds: float = 0) -> Call:
    """A request with a JSON object."""
    text = json.dumps(body).encode()
    return Call("POST", path, {}, text, authorized, repeatable=repeatable, seconds=seconds)


# One request


def ask(call: Call) -> Steps[bytes]:
    """The body of a successful answer; raises ApiError, NodeUnreachable or InvalidAnswer.

    A repeatable call is repeated if no answer came, and after 429, 502, 503 and 504; `Retry-After` is respected, unless
    the pauses of the request would take longer than the client's caller wants. A call with a limit is not repeated: its
    caller has a deadline.
    """
    attempts, paused = _ATTEMPTS if call.repeatable and call.limit is None else 1, 0.0
    for attempt in range(attempts):
        last = attempt == attempts - 1
        try:
            answer = yield call
        except NodeUnreachable as lost:
            if last:
                raise
            pause = _pause(attempt)
            paused += pause
            yield Pause(pause, paused, lost)
            continue
        if not isinstance(answer, Answer):
            raise TypeError("a call must be sent its answer")
        if 200 <= answer.status < 300:
            return answer.body
        error = _error(answer)
        pause = _pause(attempt) if error.retry_after is None else float(error.retry_after)
        if last or answer.status not in _SAFE:
            raise error
        paused += pause
        yield Pause(pause, paused, error)
    raise AssertionError("the last attempt returns or raises")


def _pause(attempt: int) -> float:
    """0.25 to 0.5 s after the first attempt, twice as long after each further one."""
    return float((0.25 + 0.25 * random()) * 2**attempt)  # noqa: S311


def _error(answer: Answer) -> ApiError:
    given = answer.retry_after or ""
    retry_after = int(given) if _SECONDS.fullmatch(given) else None
    try:
        # The methods of the calls are those of a node's paths: where another is wanted, there is something else.
        sentence = None if answer.status == 405 else Members.of(answer.body, "the answer").sentence("error")
    except InvalidAnswer:
        sentence = None
    if sentence is None and answer.status in _SAFE:
        sentence = f"the URL answers with status {answer.status}; a proxy before the node may do that"
    elif sentence is None:
        sentence = f"the URL does not answer like a svcd node (status {answer.status}): check the URL"
    return api_error(answer.status, sentence, retry_after)


def _object(call: Call, name: str, parse: Callable[[Members], T]) -> Steps[T]:
    answer = Members.of((yield from ask(call)), "the answer")
    try:
        return parse(answer.object(name))
    except InvalidInput as error:
        raise InvalidAnswer(f"the answer has an impossible value: {error}") from None


def network_for(address: str) -> Steps[Network]:
    """The network of an address: that of the client, or else mainnet or devnet; raises InvalidInput."""
    own = yield OwnNetwork()
    if not isinstance(own, Network):
        return network_of(address)
    check_address(address, own)
    return own


# Payments


def payment_request(
    recipient: str,
    amount: int,
    *,
    reference: str | None = None,
    label: str | None = None,
    confirmations: int = DEFAULT_CONFIRMATIONS,
) -> Steps[PaymentRequest]:
    """A payment request for an order, with a random reference if none is given. The node stores nothing.

    A node that chose the reference could choose that of an order which is paid.
    """
    network = yield from network_for(recipient)
    own = new_reference(token_bytes) if reference is None else check_reference(reference)
    body: dict[str, object] = {
        "reference": own,
        "recipient": recipient,
        "amountBaseUnits": str(check_amount(amount)),
        "confirmations": confirmations,
    }
    if label is not None:
        body["label"] = label
    call = post("/rpc/commerce/payment-request", body, repeatable=True, authorized=False)

    def made(members: Members) -> PaymentRequest:
        order = Order(own, recipient, amount, confirmations, members.number("sinceHeight"), network)
        request = PaymentRequest.of(order, label or None, members.sentence_or_none("warning"))
        expected = {
            **_terms(order),
            "networkId": network.network_id,
            "label": request.label,
            "paymentUri": request.payment_uri,
            "checkoutPath": request.checkout_path,
            "walletPath": request.wallet_path,
        }
        _check_same(members, expected, "payment request")
        return request

    return (yield from _object(call, "payment", made))


def _check_same(members: Members, expected: Mapping[str, object], what: str) -> None:
    """Raise InvalidAnswer unless a record has these members: it would be about something else than was asked for."""
    for name, value in expected.items():
        found = members.raw.get(name)
        if type(found) is not type(value) or found != value:
            raise InvalidAnswer(
                f"the node's answer is about another {what} than the one that was asked for: {name} differs"
            )


def _same(call: Call, name: str, expected: Mapping[str, object], what: str, parse: Callable[[Members], T]) -> Steps[T]:
    """What the member ``name`` of the answer is about, if that is what was asked for."""

    def checked(members: Members) -> T:
        _check_same(members, expected, what)
        return parse(members)

    return _object(call, name, checked)


class Pages:
    """Where the next page of a list begins. A node decides how many there are; here it does not."""

    def __init__(self, narrowed: str = "") -> None:
        """``narrowed`` says how a caller makes the list shorter, as the beginning of a sentence."""
        self.since = monotonic()
        """When the list began: the client's timeout is for all of it."""
        self._narrowed = narrowed
        self._seen: set[str] = set()
        self._left = _MAX_LIST

    @property
    def remedy(self) -> str | None:
        """What helps if the timeout ends now; None until the first page has come: the node may not answer at all."""
        return f"{self._narrowed}give a greater timeout" if self._seen else None

    def follow(self, following: str | None, body: bytes) -> str | None:
        """``following`` of a page; raises InvalidAnswer if the list begins again, or is too long."""
        self._left -= len(body)
        if following is None:
            return None
        if following in self._seen:
            raise InvalidAnswer("the list of the node begins again")
        if len(self._seen) == _MAX_PAGES or self._left < 0:
            raise InvalidAnswer(f"the list of the node has more than {_MAX_PAGES} pages or {_MAX_LIST} bytes")
        self._seen.add(following)
        return following


def payment(order: Order, *, wait: int = 0, state: State | None = None) -> Steps[Payment]:
    """What the node knows about the payment of an order now: verifies it.

    With ``wait`` seconds, 1 to 30, and the last known ``state`` the answer comes when it changes.
    """
    return _payment(order, wait=wait, state=state)


def _payment(order: Order, *, wait: int, state: State | None, limit: float | None = None) -> Steps[Payment]:
    query = order.query()
    if wait:
        if state is None:
            raise InvalidInput("with wait, give the last known state: the answer comes when it changes")
        query |= {"wait": str(wait), "state": state.value}
    call = get(f"/rpc/commerce/payment/{order.reference}", query, seconds=wait, limit=limit)
    return (yield from _same(call, "payment", _terms(order), "payment", Payment.parse))


def _terms(order: Order) -> Mapping[str, object]:
    """The members of a record about an order that say which one it is."""
    return {
        "reference": order.reference,
        "recipient": order.recipient,
        "amount": str(order.amount),
        "requiredConfirmations": order.confirmations,
        "sinceHeight": None if order.since_height is None else str(order.since_height),
    }


def wait_for(order: Order, state: State = State.CONFIRMED, *, timeout: float | None = None) -> Steps[Payment]:
    """Wait by long polling until the payment is in ``state`` or further.

    Raises WaitTimeout after about ``timeout`` seconds.

    A confirmed payment counts only once the node is synced, so that the shop may deliver. With a ``timeout`` the
    wait goes on while the node cannot be reached; without one it raises NodeUnreachable.
    """
    if state.rank == 0:
        raise InvalidInput("state must be pending, confirming or confirmed")
    give_up_at = None if timeout is None else monotonic() + timeout
    found: Payment | None = None
    left, wait = float(LONGEST_WAIT) if timeout is None else timeout, 0
    while True:
        told = None if found is None else found.state
        # The answer of a long poll takes as long as the wait, and needs a moment to arrive.
        limit = None if give_up_at is None else max(left, 0) + 1
        failure: SvcPayError | None = None
        # A cache, or a node that does not wait, would otherwise be asked again and again.
        soonest = monotonic() + 1 if wait else 0
        try:
            found = yield from _payment(order, wait=wait, state=told, limit=limit)
        except (NodeUnreachable, TooManyRequests, Unavailable) as error:
            # Without a deadline only the long poll may fail: too many verifications may be waiting.
            if give_up_at is None and (not wait or isinstance(error, NodeUnreachable)):
                raise
            failure = error
        else:
            if _reached(found, state):
                return found
        time = monotonic()
        left = float(LONGEST_WAIT) if give_up_at is None else give_up_at - time
        if left < 1:
            raise WaitTimeout(_late(order, state, found, failure))
        if failure is not None:
            asked = failure.retry_after if isinstance(failure, ApiError) else None
            yield Pause(min(float(asked or _RETRY_WAIT), left))
            left, wait = left if give_up_at is None else give_up_at - monotonic(), 0
        elif found is not None:
            if found.state is told and time < soonest:
                yield Pause(min(float(_RETRY_WAIT), left))
                left = left if give_up_at is None else give_up_at - monotonic()
            # Whether the node is synced does not end a wait, so it is asked again soon.
            longest = _UNSYNCED_WAIT if found.state is State.CONFIRMED else LONGEST_WAIT
            wait = max(int(min(left, longest)), 0)


def _late(order: Order, state: State, found: Payment | None, failure: SvcPayError | None) -> str:
    known = "is not known" if found is None else f"is {found.state.value}, not yet {state.value}"
    why = "" if failure is None else f"; the last question failed: {failure}"
    return f"the payment of {order.reference} {known}{why}"


def _reached(found: Payment, state: State) -> bool:
    return found.settled if state is State.CONFIRMED else found.state.rank >= state.rank


def payments(
    recipient: str, *, reference: str | None = None, amount: int | None = None, since_height: int | None = None
) -> Steps[list[ReceivedTransfer]]:
    """Every transfer to an address, paying an order or not; with ``amount``, whether each pays that order.

    The timeout of the client is for the whole list.
    """
    yield from network_for(recipient)
    query = {"recipient": recipient, "limit": "100"}
    if reference is not None:
        query["reference"] = check_reference(reference)
    if amount is not None:
        query["amountBaseUnits"] = str(check_amount(amount))
    if since_height is not None:
        query["sinceHeight"] = str(check_number(since_height, "since_height"))
    found: dict[str, ReceivedTransfer] = {}
    after: str | None = None
    pages = Pages("narrow it by since_height, or ")
    while True:
        page = query if after is None else {**query, "after": after}
        body = yield from ask(get("/rpc/commerce/payments", page, pages=pages))
        answer = Members.of(body, "the answer")
        for each in [ReceivedTransfer.parse(each, recipient) for each in answer.objects("payments")]:
            _check_listed("transfer", "reference", each.reference, reference)
            if amount is not None:
                told = each.mismatch if each.mismatch in ("too-little", "too-much") else "none"
                right = "too-little" if each.amount < amount else "too-much" if each.amount > amount else "none"
                _check_listed("transfer", "mismatch", told, right)
            if since_height is not None and each.block_height is not None:
                _check_listed("transfer", "block height", max(each.block_height, since_height), each.block_height)
            found[each.txid] = each
        after = pages.follow(answer.text_or_none("next"), body)
        if after is None:
            return list(found.values())


def _check_listed(what: str, name: str, found: object, asked: object) -> None:
    """Raise InvalidAnswer unless a record of a list has the value that was asked for; None was not."""
    if asked is not None and found != asked:
        raise InvalidAnswer(
            f"the node's list has a {what} that was not asked for: its {name} is {shown(repr(found))}, not {asked!r}"
        )


def feed(place: Place, *, wait: int = 0) -> Steps[FeedAnswer]:
    """What the feed of an address tells after ``place``; :func:`svc_pay.order_book.moved` gives the place behind it.

    With ``wait`` seconds, 1 to 30, the answer comes when there is something to tell. Raises BadRequest if the cursor of
    the place is none, and ApiError with status 410 if the node has pruned blocks that it would have to read.
    """
    call = get(f"/rpc/commerce/feed/{place.recipient}", place.query(wait), seconds=wait)
    return parse_answer((yield from ask(call)), place)


def proof(order: Order) -> Steps[bytes]:
    """A proof of the payment, for :func:`svc_pay.light.check_payment_proof`."""
    return (yield from ask(get(f"/rpc/commerce/payment/{order.reference}/proof", {**order.query(), "chain": "1"})))


# Watches


def register(
    order: Order,
    callback_url: str,
    *,
    events: Sequence[EventName] | None = None,
    pay_within_seconds: int | None = None,
    ttl_seconds: int | None = None,
) -> Steps[Watch]:
    """Register a watch; store the order before that. The same registration again returns the same watch.

    ``pay_within_seconds`` is the buyer's deadline: until when the payment must have been seen, in the mempool or in
    a block. ``ttl_seconds`` is the lifetime of the watch, after which no event follows a payment that is not
    confirmed; with a deadline it is the node's maximum by default, and need not be given.
    """
    body: dict[str, object] = {
        "reference": order.reference,
        "recipient": order.recipient,
        "amountBaseUnits": str(order.amount),
        "confirmations": order.confirmations,
        "callbackUrl": callback_url,
    }
    if order.since_height is not None:
        body["sinceHeight"] = str(order.since_height)
    if events is not None:
        body["events"] = list(events)
    if pay_within_seconds is not None:
        body["payWithinSeconds"] = pay_within_seconds
    if ttl_seconds is not None:
        body["ttlSeconds"] = ttl_seconds
    call = post("/rpc/commerce/webhooks", body, repeatable=True)
    return _same(call, "subscription", _terms(order), "watch", Watch.parse)


def watch(watch_id: str) -> Steps[Watch]:
    """A watch with its newest events."""
    return _same(get(_watch_path(watch_id), authorized=True), "subscription", {"id": watch_id}, "watch", Watch.parse)


def watches(
    *,
    reference: str | None = None,
    state: str | None = None,
    host: str | None = None,
    after: str | None = None,
    limit: int = 50,
) -> Steps[WatchPage]:
    """A page of at most ``limit`` watches with their newest events, the newest watch first; 50 is the most.

    ``reference``, ``state`` and ``host`` choose those of this order, with this ``last_state``, or with a callback
    at this host. Ask again with ``after=page.next`` until that is None: a page may have fewer watches, or none,
    even if more follow.
    """
    chosen = {"reference": reference, "state": state, "host": host}
    given = {**chosen, "after": after, "limit": str(check_number(limit, "limit"))}
    query = {name: value for name, value in given.items() if value is not None}
    answer = Members.of((yield from ask(get("/rpc/commerce/webhooks", query, authorized=True))), "the answer")
    found = tuple(map(Watch.parse, answer.objects("subscriptions")))
    for each in found:
        _check_listed("watch", "reference", each.reference, reference)
        _check_listed("watch", "state", each.last_state, state)
        _check_listed("watch", "host", _host_of(each.callback_url), host)
    return WatchPage(found, answer.text_or_none("next"))


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def cancel(watch_id: str) -> Steps[Watch]:
    """Cancel a watch; its undelivered events are dropped."""
    call = post(f"{_watch_path(watch_id)}/cancel", {}, repeatable=True)
    return _same(call, "subscription", {"id": watch_id}, "watch", Watch.parse)


def redeliver(watch_id: str, event_id: str) -> Steps[Delivery]:
    """Send an event again. This call is never repeated by itself."""
    path = f"{_watch_path(watch_id)}/events/{quote(event_id, safe='')}/redeliver"
    return _same(post(path, {}, repeatable=False), "event", {"id": event_id}, "event", Delivery.parse)


def test_callback(callback_url: str) -> Steps[CallbackTest]:
    """Send a `webhook.test` and wait for its outcome. This call is never repeated by itself."""
    call = post("/rpc/commerce/webhooks/test", {"callbackUrl": callback_url}, repeatable=False, seconds=15)
    return _object(call, "test", CallbackTest.parse)


def _watch_path(watch_id: str) -> str:
    return f"/rpc/commerce/webhooks/{quote(watch_id, safe='')}"


# Transfers


def account(address: str) -> Steps[Account]:
    """The account of an address."""
    yield from network_for(address)
    return (yield from account_of(address))


def account_of(address: str) -> Steps[Account]:
    """The account of an address whose network was checked before."""
    return _same(get(f"/rpc/balance/{address}"), "account", {"address": address}, "account", Account.parse)


def sign(
    key: Key,
    network: Network,
    *,
    recipient: str,
    amount: int,
    reference: str | None = None,
    maximum_fee: int | None = None,
    nonce: int | None = None,
) -> Steps[SignedTransfer]:
    """A transfer signed with the suggested fee and ``nonce``, by default the account's next one from the node.

    ``maximum_fee`` is by default a hundred times the least fee of the network.
    Store it, then broadcast it. Two workers that sign at the same time get the same nonce from the node, and one
    transfer replaces the other: use :class:`svc_pay.Payouts`, or nonces that no two workers share. Raises
    ImpossibleAmount if either account would then have less than the network's account minimum.
    """
    check_address(recipient, network)
    check_amount(amount)
    if nonce is not None:
        check_number(nonce, "nonce")
    rules = yield from rules_of(network)
    fee = yield from suggested_fee(network, maximum_fee)
    sender = yield from account_of(key.address(network))
    if nonce is not None and nonce < sender.nonce:
        raise InvalidInput(f"nonce {nonce} is already used; the next one is {sender.nonce}")
    # A transfer with an earlier nonce replaces one that waits, whose amount it can spend.
    replaces = nonce is not None and nonce < sender.pending_nonce
    available = sender.balance if replaces else sender.pending_balance
    yield from check_recipient(sender, recipient, amount, minimum=rules, fee=fee, available=available)
    nonce = sender.pending_nonce if nonce is None else nonce
    return sign_transfer(key, network, recipient=recipient, amount=amount, nonce=nonce, fee=fee, reference=reference)


def rules_of(network: Network) -> Steps[int]:
    """The account minimum of ``network``; raises InvalidAnswer if the node is on another one."""
    rules = consensus_in((yield from ask(consensus())), network)
    return rules.number("accountMinimum")


def consensus(limit: float | None = None) -> Call:
    """The request for the rules of a node's network."""
    return get("/rpc/consensus", limit=limit)


def consensus_in(body: bytes, network: Network) -> Members:
    """The rules in an answer; raises InvalidAnswer if the node is on another network."""
    rules = Members.of(body, "the answer").object("consensus")
    found = rules.text("genesisHash")
    if found != network.genesis_hash:
        raise InvalidAnswer(
            f"the node is not on {network.name}: its genesis hash is {found[:64]!r}, and that of {network.name}"
            f" {network.genesis_hash}"
        )
    return rules


def suggested_fee(network: Network, maximum_fee: int | None) -> Steps[int]:
    """The fee that the node suggests, at least the minimum; raises InvalidAnswer if it is above ``maximum_fee``."""
    fee = yield from _object(get("/rpc/fees"), "fees", lambda fees: fees.number("suggestedFee"))
    least = network.rules.minimum_fee
    most = _FEES * least if maximum_fee is None else maximum_fee
    if fee > most:
        raise InvalidAnswer(f"the node suggests a fee of {fee} base units, more than maximum_fee {most}")
    return max(fee, least)


def check_recipient(
    sender: Account, recipient: str, amount: int, *, minimum: int, fee: int, available: int
) -> Steps[None]:
    """Raise ImpossibleAmount unless both accounts keep the minimum; ``available`` is what the sender can spend."""
    received = minimum
    if recipient == sender.address:
        received = sender.balance
    elif not minimum <= amount <= available - fee - minimum:
        # Otherwise the amount alone gives the recipient enough.
        received = (yield from account_of(recipient)).balance
    check_minimum(amount, minimum=minimum, fee=fee, available=available, received=received)


def confirmations(txid: str) -> Steps[int | None]:
    """How many confirmations a transfer has, at least 1; None if no block of the chain has it."""
    call = get(f"/rpc/transaction/{txid}")
    try:
        count = yield from _same(
            call, "transaction", {"txid": txid}, "transfer", lambda one: one.count("confirmations")
        )
    except NotFound:
        return None
    return max(count, 1)


def transfers_of(
    address: str, *, waiting: bool, before: str | None, pages: Pages
) -> Steps[tuple[list[Members], str | None]]:
    """A page of the transfers from or to an address, in the mempool or on the chain, the newest first."""
    path = f"/rpc/mempool/{address}" if waiting else f"/rpc/address/{address}/transactions"
    query = {"limit": "100"} if before is None else {"limit": "100", "before": before}
    body = yield from ask(get(path, query, pages=pages))
    answer = Members.of(body, "the answer")
    return answer.objects("transactions"), pages.follow(answer.text_or_none("next"), body)


def broadcast(transfer: SignedTransfer) -> Steps[str]:
    """Hand a signed transfer to the network; ``accepted``, or ``known`` if the node had it. Safe to repeat."""
    call = post("/rpc/broadcast", {"transaction": transfer.transaction}, repeatable=True, authorized=False)
    answer = Members.of((yield from ask(call)), "the answer")
    _check_same(answer, {"txid": transfer.txid}, "transfer")
    return answer.text("state")


def block_hash(height: int) -> Steps[str]:
    """The hash of the block at a height: the tip of a proof, if this node is trusted."""
    call = get(f"/rpc/block/{check_number(height, 'height')}")
    return _same(call, "block", {"height": str(height)}, "block", lambda block: block.hash("hash"))
