"""What every caller of a node survives: answers of a hostile one, or of a proxy that stands before an honest one.

Each caller of ``CALLERS`` is a subject of each case, with all of its calls.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from socket import socket
from time import monotonic
from typing import Final

import pytest
from svc_pay import DEVNET, Client, Key, Order, State, parse_amount, sign_transfer

from svcd.visible_text import visible
from tests.browser.chain import FAUCET, SHOP, Account, Chain
from tests.clients.callers import CALLERS, SOON, Caller, Outcome, Shop
from tests.clients.hostile_node import (
    LATE,
    MAX_ANSWER,
    MAX_LIST,
    MAX_PAGES,
    REFUSED,
    TEXTS,
    Answer,
    HostileNode,
    Serve,
    another,
    hostile_node,
    instead,
    mutations,
    of_json,
    plain,
    with_headers,
)
from tests.clients.test_python_live import secret_of
from tests.process_level.running import DEADLINE, RunningNode, free_port, wait_until

pytestmark = [pytest.mark.socket, pytest.mark.slow]

IDENTITY: Final[Mapping[str, tuple[str, ...]]] = {
    "payment_request": (
        *("reference", "recipient", "amount", "requiredConfirmations", "networkId", "label"),
        *("paymentUri", "checkoutPath", "walletPath"),
    ),
    "payment": ("reference", "recipient", "amount", "requiredConfirmations"),
    "wait_for": ("reference", "recipient", "amount", "requiredConfirmations"),
    "payments": ("reference",),
    "block_hash": ("height",),
    "register": ("reference", "recipient", "amount", "requiredConfirmations"),
    "watch": ("id",),
    "watches": ("reference",),
    "cancel": ("id",),
    "redeliver": ("id",),
    "account": ("address",),
    "sign": ("address", "genesisHash"),
    "transaction": ("txid",),
    "view": ("chainId", "genesisHash", "networkId"),
    "network": ("chainId", "genesisHash", "networkId"),
    "broadcast": ("txid",),
    **dict.fromkeys(("transfers", "waiting", "statement"), ("address",)),
    "status": ("chainId", "genesisHash", "networkId"),
    "balance": ("address",),
    "block": ("height",),
    "tx": ("txid",),
    "pay-request": (
        *("reference", "recipient", "amount", "requiredConfirmations", "networkId", "label"),
        *("paymentUri", "checkoutPath", "walletPath"),
    ),
    "verify": ("reference", "recipient", "amount", "requiredConfirmations"),
    "webhook register": ("reference", "recipient", "amount", "requiredConfirmations"),
    "webhook show": ("reference",),
    "webhook show id": ("id",),
    "webhook events": ("reference",),
    "webhook redeliver": ("id",),
    "webhook cancel": ("id",),
}
"""By call, the members of its answer that say what it is about."""
FORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "payments": ("amountSvc", "blockHash", "sender", "blockHeight"),
    "orders": ("amountSvc", "hash", "sender"),
    "account": ("balance",),
    "balance": ("balance",),
}
"""By call, members that it must not take in another form, beside an amount that is not theirs, or of an early block."""
LISTED: Final[Mapping[str, str]] = {
    "payments": "payments",
    "orders": "entries",
    "watches": "subscriptions",
    "transfers": "transactions",
    "waiting": "transactions",
}
"""By call, the list in its answer."""
NO_IDENTITY: Final = {
    *("proof", "test_callback", "fee", "first_block", "orders"),
    *("verify_chain", "proven_balance", "proven_payment"),
    *("trustless balance", "trustless verify", "confirmations", "export", "webhook list", "webhook test"),
    *("wallet history", "wallet send", "wallet refund"),
}
"""Calls whose answers say nothing of what was asked for, or are checked by their proofs."""
OTHERS: Final[Mapping[str, object]] = {
    "recipient": FAUCET.address,
    "address": FAUCET.address,
    "amount": "1",
    "amountSvc": "1",
    "height": "7",
    "blockHeight": "0",
    "requiredConfirmations": 1,
    "networkId": 1,
    "chainId": "SVC-MAINNET",
    "paymentUri": f"svc:{FAUCET.address}?amount=1&ref=order-1&confirmations=2",
    "checkoutPath": f"/pay/?reference=order-1&recipient={FAUCET.address}&amount=1&confirmations=2",
    "walletPath": f"/wallet/?pay=svc%3A{FAUCET.address}",
    "genesisHash": "0" * 64,
    "txid": "0" * 64,
}
"""What a member has in an answer about something else, by its name; "another" for all others."""
LONG: Final = {"test_callback", "webhook test"}
"""Calls that wait for the receiver of events, too, for 15 seconds: with one way of coming late."""
UNREAD: Final = {"proof"}
"""Calls whose answer is given to the caller as bytes, to be checked by the light client."""
CONSEQUENCES: Final = {
    "sign": {"ImpossibleAmount", "InvalidInput"},
    "fee": {"fee"},
    "broadcast": {"rejected"},
    "wait_for": {"WaitTimeout"},
    # The payment of no order, or a cursor that the node has not given.
    "orders": {"NothingTold", "NotFound", "ApiError"},
}
"""By call, errors that are no refusals of an answer, but say what follows from it."""
MOST_MUTATED: Final = 50_000
"""Bytes of an answer that is changed member by member; proofs of the chain have more."""
WALLET: Final = {"wallet send", "wallet refund"}
"""Calls that take a second to open the key."""
LISTS: Final = {"payments": "payments", "statement": "entries"}
"""Calls that read a list to its end, and its member."""
FEE: Final = 1_000_001
"""Base units: more than any caller pays on devnet unless a person says how much."""
LONGEST: Final = 2_000
"""Characters of a sentence with a node's text in it."""
REFUSAL: Final = {"ok": False, "error": "\x1b[2J\u202e\u2028" + "x" * 1_000_000}


@pytest.fixture(scope="module")
def hostile(shop_node: RunningNode) -> Iterator[HostileNode]:
    with hostile_node(shop_node) as given:
        yield given


@pytest.fixture(scope="module")
def shop(shop_node: RunningNode) -> Shop:
    """An order that was paid, with a watch whose receiver does not answer."""
    token, callback = secret_of(shop_node, "manage-token"), f"https://localhost:{free_port()}/paid"
    with Client(shop_node.url, token=token) as client:
        order = Order("order-1", SHOP, parse_amount("5"), 2)
        watch = client.register(order, callback)
        buyer, chain = Account.random(), Chain(shop_node)
        chain.fund(buyer.address, "2")
        (received,) = chain.transfers(buyer.address)
        chain.fund(buyer.address)
        key = Key(buyer.seed)
        paid = client.sign(key, DEVNET, recipient=SHOP, amount=order.amount, reference=order.reference)
        client.broadcast(paid)
        shop_node.mine(3)
        wait_until(lambda: client.watch(watch.id).last_state == State.CONFIRMED, "the event of the confirmed payment")
        (event,) = [each for each in client.watch(watch.id).events if each.event == "payment.confirmed"]
        sent = client.account(buyer.address)
        transfer = sign_transfer(key, DEVNET, recipient=SHOP, amount=order.amount, nonce=sent.pending_nonce, fee=20_000)
    return Shop(order, token, paid.txid, transfer, watch.id, event.id, callback, buyer.seed, received["txid"])


@pytest.fixture(scope="module", params=CALLERS)
def caller(request: pytest.FixtureRequest, hostile: HostileNode, shop: Shop) -> Iterator[Caller]:
    """A caller, whose calls the node has answered rightly once."""
    with closing(CALLERS[request.param](hostile.url, shop, SOON)) as caller:
        hostile.begin(None)
        # One after the other, each with all the time that it needs on a busy machine.
        told = {name: _patiently(caller, name) for name in caller.calls}
        # The receiver does not answer, and the recorded answer is about the transfer that was sent first.
        for name in {"webhook test", *WALLET}:
            told.pop(name, None)
        assert {name: outcome for name, outcome in told.items() if outcome.kind != "answered"} == {}
        yield caller


@pytest.fixture(scope="module", params=CALLERS)
def patient(request: pytest.FixtureRequest, hostile: HostileNode, shop: Shop) -> Iterator[Caller]:
    """A caller with all the time that a call needs on a busy machine: for answers that come at once."""
    with closing(CALLERS[request.param](hostile.url, shop, DEADLINE)) as caller:
        hostile.begin(None)
        for name in caller.calls:
            if snake(name) not in LONG:
                _patiently(caller, name)
        yield caller


def _patiently(caller: Caller, name: str) -> Outcome:
    for _ in range(20):
        outcome = caller.ask([name])[name]
        if outcome.kind == "answered":
            break
    return outcome


def snake(name: str) -> str:
    """A name in the style of Python."""
    return re.sub("[A-Z]", lambda each: f"_{each[0].lower()}", name)


def taken(outcomes: Mapping[str, Outcome], caller: Caller) -> Mapping[str, Outcome]:
    """The calls that did not refuse their answers."""
    return {name: outcome for name, outcome in outcomes.items() if outcome.kind not in caller.refusals}


@pytest.mark.parametrize("case", LATE)
def test_a_call_ends_in_time(hostile: HostileNode, caller: Caller, case: str) -> None:
    hostile.begin(LATE[case])
    began = monotonic()
    outcomes = caller.ask([name for name in caller.calls if snake(name) not in LONG or case == "says nothing"])
    assert monotonic() - began < DEADLINE / 4
    late = {"Unavailable", "ApiError", "WaitTimeout"} if "year" in case else {"WaitTimeout"}
    assert {name: told for name, told in taken(outcomes, caller).items() if told.kind not in late} == {}


@pytest.mark.parametrize("case", REFUSED)
def test_an_answer_that_nobody_takes(hostile: HostileNode, caller: Caller, case: str) -> None:
    hostile.begin(REFUSED[case])
    outcomes = caller.ask(name for name in caller.calls if case not in TEXTS or snake(name) not in UNREAD)
    late = {name for name, told in outcomes.items() if snake(name) == "wait_for" and told.kind == "WaitTimeout"}
    assert {*taken(outcomes, caller)} - late == set(), outcomes
    # What the sockets hold comes on top; each call is repeated up to three times.
    assert hostile.sent < 16 * MAX_ANSWER * len(caller.calls)
    assert not any("/elsewhere" in asked for asked in hostile.asked), "no redirect is followed"
    assert all(b"accept-encoding: identity\r\n" in head + b"\r\n" for head in hostile.heads)


def test_the_greatest_answer(hostile: HostileNode, patient: Caller) -> None:
    for name in [each for each in patient.calls if snake(each) not in LONG]:
        hostile.begin(of_json(lambda body: body.ljust(MAX_ANSWER + 1)))
        outcome = patient.ask([name])[name]
        assert outcome.kind in patient.refusals, (name, outcome)
        assert re.search(f"has more than {MAX_ANSWER} bytes|node-odd", outcome.sentence), (name, outcome)
        if snake(name) in {"account", "balance"}:
            hostile.begin(of_json(lambda body: body.ljust(MAX_ANSWER)))
            assert patient.ask([name])[name].kind == "answered"


def test_an_answer_about_something_else(hostile: HostileNode, patient: Caller) -> None:
    assert {snake(name) for name in patient.calls} <= {*IDENTITY, *NO_IDENTITY}
    for name in patient.calls:
        for member in (*IDENTITY.get(snake(name), ()), *FORMS.get(snake(name), ())):
            value = OTHERS.get(member, "another")
            hostile.begin(of_json(lambda body, member=member, value=value: another(body, member, value)))  # type: ignore[misc]
            outcome = patient.ask([name])[name]
            assert outcome.kind in {*patient.refusals, "rejected"}, (name, member, outcome)
            assert not outcome.late, (name, member, outcome)


def test_no_cookie_is_kept(hostile: HostileNode, patient: Caller) -> None:
    hostile.begin(with_headers("Set-Cookie: each=makes-the-next-request-longer; Path=/\r\n"))
    for name in [each for each in patient.calls if snake(each) not in LONG][:2]:
        assert patient.ask([name])[name].kind == "answered"
    assert len(hostile.heads) > 1
    assert not any(b"\r\ncookie:" in head for head in hostile.heads)


def test_a_list_with_nothing_in_it(hostile: HostileNode, patient: Caller) -> None:
    for name in {*LISTED} & {*patient.calls}:
        hostile.begin(of_json(lambda body, name=name: another(body, LISTED[name], [None])))  # type: ignore[misc]
        outcome = patient.ask([name])[name]
        assert outcome.kind in patient.refusals, (name, outcome)


def test_a_refusal_is_told_in_a_sentence(hostile: HostileNode, caller: Caller) -> None:
    hostile.begin(instead(plain(json.dumps(REFUSAL).encode(), 400)))
    for name, outcome in caller.ask(caller.calls).items():
        assert outcome.kind != "answered", name
        sentence = outcome.sentence.removesuffix("\n")
        assert (visible(sentence), len(sentence) < LONGEST) == (sentence, True), (name, sentence[:200])


def test_a_fee_that_nobody_pays_because_a_node_suggests_it(hostile: HostileNode, patient: Caller) -> None:
    for name in {"sign", "fee", "wallet send"} & {*patient.calls}:
        hostile.begin(of_json(lambda body: another(body, "suggestedFee", str(FEE))))
        outcome = patient.ask([name])[name]
        assert outcome.kind in {*patient.refusals, "fee"}, (name, outcome)
        assert "fee" in outcome.sentence, (name, outcome)


@pytest.mark.parametrize("name", CALLERS)
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("begins again", "begins again|comes again|node-odd"),
        ("has always another page", "more than [0-9]+ pages|node-odd"),
        ("has always a page of megabytes", "more than [0-9]+ pages or [0-9]+ (bytes|characters)|node-odd"),
    ],
)
def test_lists_end(hostile: HostileNode, shop: Shop, name: str, case: str, words: str) -> None:
    with closing(CALLERS[name](hostile.url, shop, DEADLINE)) as caller:
        for call in {*caller.calls} & {*LISTS}:

            def serve(node: HostileNode, connection: socket, _: Answer, member: str = LISTS[call]) -> None:
                following = 1 if case == "begins again" else len(node.asked)
                about = (SHOP.encode(), member.encode(), following)
                page = b'{"ok":true,"address":"%s","%s":[],"next":"%d"}' % about
                connection.sendall(plain(page.ljust(MAX_ANSWER) if "megabytes" in case else page))

            hostile.begin(serve)
            outcome = caller.ask([call])[call]
            assert outcome.kind in caller.refusals, (call, outcome)
            assert re.search(words, outcome.sentence), (call, outcome)
            assert len(hostile.asked) <= (MAX_LIST // MAX_ANSWER if "megabytes" in case else MAX_PAGES) + 1, call


@pytest.mark.parametrize("patient", [name for name in CALLERS if name != "svc"], indirect=True)
def test_any_member_of_any_kind(hostile: HostileNode, patient: Caller) -> None:
    """Each call takes the answer, since it does not need the member, or refuses it in a sentence that can be shown.

    tests/cli/test_hostile_node.py does this with all commands of `svc`, in memory.
    """
    for name in {*patient.calls} - WALLET:
        fit = {*patient.refusals, "answered", *CONSEQUENCES.get(snake(name), ())}
        hostile.begin(of_json(lambda body: body))
        patient.ask([name])
        for right in {id(answer): answer for answer in map(hostile.right, hostile.asked)}.values():
            if len(right.body) > MOST_MUTATED:
                continue
            for place, body in mutations(right.body):
                hostile.begin(_in_place_of(right, body))
                # A call that waits for a payment ends soon, on a busy machine before it has asked.
                for _ in range(20):
                    outcome = patient.ask([name])[name]
                    if hostile.served:
                        break
                assert hostile.served, (name, place)
                assert outcome.kind in fit, (name, place, outcome)
                assert visible(outcome.sentence) == outcome.sentence, (name, place, outcome)


def _in_place_of(right: Answer, body: bytes) -> Serve:
    def serve(node: HostileNode, connection: socket, given: Answer) -> None:
        node.served |= given is right
        connection.sendall(plain(body if given is right else given.body, given.status))

    return serve
