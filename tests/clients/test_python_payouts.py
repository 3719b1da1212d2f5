"""Payouts of one key, case by case: nonces, refusals, the day of a transfer, fees, conflicts and their decision."""

import asyncio
import inspect
import json
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import svc_pay
from svc_pay import DEVNET, AsyncClient, AsyncPayouts, Client, Payouts, PayoutState, SqliteJournal
from svc_pay.calls import Answer, Call
from svc_pay.errors import NodeUnreachable

from tests.clients.payout_world import (
    DAY,
    FUNDS,
    KEY,
    LOST,
    OWN,
    SHOP,
    START,
    MemoryJournal,
    Worker,
    World,
    account,
    answer,
    refusal,
    steps_of,
)

Node = Callable[[Call], Answer | NodeUnreachable]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def worker(world: World, journal: MemoryJournal) -> Worker:
    return Worker(steps_of(world, journal))


def pay(worker: Worker, node: Node, payout_id: str = "a", *, amount: int = 10**8) -> svc_pay.Payout:
    payout = worker.do(worker.payouts.pay(payout_id, recipient=SHOP, amount=amount, reference=payout_id), node)
    assert isinstance(payout, svc_pay.Payout)
    return payout


def advance(worker: Worker, node: Node) -> list[svc_pay.Payout]:
    found: list[svc_pay.Payout] = worker.do(worker.payouts.advance(), node)
    return found


def instead(world: World, path: str, came: Any) -> Node:
    """An honest node, but for one route."""
    return lambda call: came if call.path.startswith(path) else world.answer(call)


def by_another_program(world: World, nonce: int, *, amount: int = 5) -> str:
    """A transfer that somebody else has signed with the key, in the mempool."""
    given = {"recipient": SHOP, "amount": amount, "nonce": nonce, "fee": 20_000, "timestamp": int(world.now * 1000)}
    transfer = svc_pay.sign_transfer(KEY, DEVNET, **given)  # type: ignore[arg-type]
    world.known[transfer.txid] = json.loads(transfer.text)
    world.pool.add(transfer.txid)
    return transfer.txid


def test_a_payout_is_stored_before_it_is_sent_and_followed_until_it_is_deep(
    world: World, journal: MemoryJournal, worker: Worker
) -> None:
    def node(call: Call) -> Answer:
        if call.path == "/rpc/broadcast":
            assert len(journal.entries) == 1
        return world.answer(call)

    payout = pay(worker, node)
    assert (payout.state, payout.nonce, payout.problem, payout.reference) == (PayoutState.WAITING, 0, None, "a")
    world.mine_pool()
    assert [(each.state, each.confirmations) for each in advance(worker, node)] == [(PayoutState.CONFIRMING, 1)]
    world.mine_pool()
    assert [each.state for each in advance(worker, node)] == [PayoutState.PAID]
    assert advance(worker, node) == []
    again = pay(worker, node)
    assert (again.state, again.txid, len(world.known)) == (PayoutState.PAID, payout.txid, 1)


def test_other_terms_under_the_same_id_are_refused(world: World, worker: Worker) -> None:
    pay(worker, world.answer)
    with pytest.raises(svc_pay.PayoutRefused) as refused:
        pay(worker, world.answer, amount=10**8 + 1)
    assert str(refused.value) == (
        f"payout a pays 100000000 base units to {SHOP} with the reference a; to pay 100000001 base units to {SHOP} "
        "with the reference a, give it another id"
    )
    assert len(world.known) == 1


@pytest.mark.parametrize("came", [refusal("no"), refusal("not now", 503), LOST, answer({"txid": "ab", "state": "x"})])
def test_a_refused_payout_is_kept_and_sent_again(world: World, worker: Worker, came: Any) -> None:
    """The node may have relayed it: then the same bytes can be paid, and no others."""
    payout = pay(worker, instead(world, "/rpc/broadcast", came))
    assert (payout.state, world.known) == (PayoutState.WAITING, {})
    assert payout.problem is not None
    assert [each.problem for each in advance(worker, world.answer)] == [None]
    assert list(world.known) == [payout.txid]


def test_without_an_answer_before_the_signature_nothing_is_stored(
    world: World, journal: MemoryJournal, worker: Worker
) -> None:
    with pytest.raises(NodeUnreachable):
        pay(worker, lambda _: LOST)
    with pytest.raises(svc_pay.ImpossibleAmount):
        pay(worker, world.answer, amount=FUNDS)
    assert journal.entries == []
    assert pay(worker, world.answer).nonce == 0


def test_coins_of_payouts_that_the_node_has_forgotten_are_not_spent_twice(world: World, worker: Worker) -> None:
    pay(worker, instead(world, "/rpc/broadcast", refusal("no")), amount=FUNDS - 10**8)
    with pytest.raises(svc_pay.ImpossibleAmount):
        pay(worker, world.answer, "b")


def test_nonces_follow_the_journal_and_not_only_the_node(world: World, journal: MemoryJournal, worker: Worker) -> None:
    for payout_id in "abc":
        pay(worker, instead(world, "/rpc/broadcast", refusal("no")), payout_id)
    assert pay(Worker(steps_of(world, journal)), world.answer, "d").nonce == 3
    assert [each.nonce for each in advance(worker, world.answer)] == [0, 1, 2, 3]
    world.mine_pool()
    world.mine_pool()
    assert [each.state for each in advance(worker, world.answer)] == [PayoutState.PAID] * 4
    # A node whose chain has ended earlier says that used nonces are free.
    assert pay(worker, instead(world, "/rpc/balance/", account(1, 1)), "e").nonce == 4


def test_a_nonce_that_the_node_cannot_show_makes_no_gap(world: World, worker: Worker) -> None:
    for shown in (account(7, 7), account(0, 7)):
        with pytest.raises(svc_pay.InvalidAnswer, match="the next nonce is 7, and shows no transfer of this key"):
            pay(worker, instead(world, "/rpc/balance/", shown))
    for nonce in range(3):
        by_another_program(world, nonce)
    assert pay(worker, world.answer).nonce == 3
    world.mine_pool()
    by_another_program(world, 4)
    world.mine_pool()
    assert pay(worker, world.answer, "b").nonce == 5
    forged = {**world.known[world.included[-1]], "nonce": "9", "txid": "ab" * 32, "confirmations": 1}

    def node(call: Call) -> Answer:
        if call.path.startswith("/rpc/address/"):
            return answer({"transactions": [forged, {}, {"signature": 7}], "next": None})
        return account(10, 10) if call.path.startswith("/rpc/balance/") else world.answer(call)

    with pytest.raises(svc_pay.InvalidAnswer, match="shows no transfer of this key with nonce 9"):
        pay(worker, node, "c")


def test_a_node_that_is_behind_gives_no_nonce_that_others_have_used(world: World, worker: Worker) -> None:
    for nonce in range(3):
        by_another_program(world, nonce)
    assert pay(worker, world.answer).nonce == 3
    for _ in range(2):
        world.mine_pool()
    advance(worker, world.answer)
    assert pay(worker, instead(world, "/rpc/balance/", account(1, 1)), "b").nonce == 4


def test_a_gap_is_filled_by_the_next_payout(world: World, worker: Worker) -> None:
    lost = by_another_program(world, 0)
    assert pay(worker, world.answer).nonce == 1
    world.pool.remove(lost)
    assert pay(worker, world.answer, "b").nonce == 0
    world.mine_pool()
    assert len(world.included) == 2


def test_only_the_nonces_that_a_mempool_holds_are_sent(world: World, worker: Worker) -> None:
    for place in range(18):
        pay(worker, instead(world, "/rpc/broadcast", refusal("no")), f"p{place}")
    assert len(advance(worker, world.answer)) == 18
    assert len(world.pool) == len(world.known) == 16


def test_after_its_day_a_payout_is_signed_again_under_its_nonce(world: World, worker: Worker) -> None:
    first = pay(worker, world.answer)
    world.now += DAY - 1
    assert len(advance(worker, world.answer)[0].transfers) == 1
    world.now += 1
    (again,) = advance(worker, world.answer)
    assert (again.nonce, len(again.transfers), again.problem) == (0, 2, None)
    assert again.txid != first.txid
    # The first one, which somebody has kept, is on the chain after all: it is this payout.
    world.chain.append([first.txid])
    world.mine_pool()
    assert [(each.state, each.txid) for each in advance(worker, world.answer)] == [(PayoutState.PAID, first.txid)]


def test_a_transfer_of_a_clock_that_was_a_year_ahead_is_signed_again(world: World, worker: Worker) -> None:
    world.now += 365 * DAY
    pay(worker, instead(world, "/rpc/broadcast", refusal("timestamp lies in the future")))
    world.now = START
    (again,) = advance(worker, world.answer)
    assert (again.nonce, len(again.transfers)) == (0, 2)
    assert svc_pay.ledger.void_at(again.transfers[-1], DEVNET) == (START + DAY) * 1000


def fees(suggested: int) -> Answer:
    return answer({"fees": {"suggestedFee": str(suggested)}})


def test_a_fee_that_has_become_too_low_is_raised_under_the_same_nonce(world: World, worker: Worker) -> None:
    pay(worker, world.answer)
    for suggested, wanted in ((10_999, ["10000"]), (11_000, ["10000", "11000"]), (2_000_000, ["10000", "11000"])):
        (payout,) = advance(worker, instead(world, "/rpc/fees", fees(suggested)))
        assert [each.transaction["fee"] for each in payout.transfers] == wanted
    assert {(each["nonce"], each["payload"]["amount"]) for each in world.known.values()} == {("0", "100000000")}
    assert [world.known[txid]["fee"] for txid in world.pool] == ["11000"]


def test_if_the_dearer_transfer_is_refused_the_earlier_one_is_sent(world: World, worker: Worker) -> None:
    first = pay(worker, world.answer)
    world.pool.clear()

    def node(call: Call) -> Answer:
        if call.path == "/rpc/fees":
            return fees(50_000)
        dear = call.body is not None and b'"fee": "50000"' in call.body.replace(b'":"', b'": "')
        return refusal("the balance is 1 base units short") if dear else world.answer(call)

    assert [each.problem for each in advance(worker, node)] == [None]
    assert world.pool == {first.txid}


def test_a_payout_that_a_reorganisation_undoes_is_sent_again(world: World, worker: Worker) -> None:
    first = pay(worker, world.answer)
    for _ in range(2):
        world.mine_pool()
    assert [each.state for each in advance(worker, world.answer)] == [PayoutState.PAID]
    world.reorganise(2)
    world.pool.clear()
    (undone,) = advance(worker, instead(world, "/rpc/broadcast", refusal("later", 503)))
    assert (undone.state, undone.problem) == (PayoutState.WAITING, "later")
    assert [(each.state, each.txid) for each in advance(worker, world.answer)] == [(PayoutState.WAITING, first.txid)]
    assert world.pool == {first.txid}


def test_a_payout_that_a_liar_called_paid_is_sent_by_an_honest_node(world: World, worker: Worker) -> None:
    pay(worker, instead(world, "/rpc/broadcast", refusal("no")))

    def liar(call: Call) -> Answer:
        if call.path.startswith("/rpc/transaction/"):
            return answer({"transaction": {"txid": call.path.rsplit("/", 1)[1], "confirmations": 9}})
        return account(1, 1) if call.path.startswith("/rpc/balance/") else world.answer(call)

    assert [each.state for each in advance(worker, liar)] == [PayoutState.PAID]
    assert [each.state for each in advance(worker, world.answer)] == [PayoutState.WAITING]
    assert len(world.pool) == 1


def test_a_nonce_that_another_program_has_used_is_for_a_person_to_decide(world: World, worker: Worker) -> None:
    def reassigned(node: Node = world.answer) -> Any:
        return worker.do(worker.payouts.reassign("a"), node)

    def refused(sentence: str, node: Node = world.answer) -> None:
        with pytest.raises(svc_pay.PayoutRefused, match=sentence):
            reassigned(node)

    refused("there is no payout a")
    first = pay(worker, instead(world, "/rpc/broadcast", refusal("no")))
    refused("nonce 0 of payout a is not used")
    by_another_program(world, 0)
    world.mine_pool()
    (payout,) = advance(worker, world.answer)
    assert (payout.state, payout.nonce, world.pool) == (PayoutState.CONFLICTED, 0, set())
    assert payout.problem == "the node says that another transfer of this key has used nonce 0: decide"
    world.now += DAY + 3599
    refused("until 1795260000000 ms .* a block can include a transfer of payout a")
    world.now += 1
    assert len(advance(worker, world.answer)[0].transfers) == 1
    refused("has 1 of 2 confirmations")
    world.mine_pool()
    refused("shows no other transfer", instead(world, "/rpc/address/", answer({"transactions": [], "next": None})))
    own = {**json.loads(payout.transfers[0].text), "confirmations": 9}
    refused("shows no other transfer", instead(world, "/rpc/address/", answer({"transactions": [own], "next": None})))
    second = reassigned()
    assert (second.state, second.nonce, second.transfers[0].txid) == (
        PayoutState.WAITING,
        1,
        first.txid,
    )
    refused("nonce 1 of payout a is not used")
    for _ in range(2):
        world.mine_pool()
    assert [each.state for each in advance(worker, world.answer)] == [PayoutState.PAID]
    refused("payout a is on the chain")


def test_pages_without_end_are_an_error(world: World, worker: Worker) -> None:
    numbers = count()

    def node(call: Call) -> Answer:
        if call.path.startswith("/rpc/address/"):
            return answer({"transactions": [], "next": f"{next(numbers)}"})
        return account(1, 1) if call.path.startswith("/rpc/balance/") else world.answer(call)

    with pytest.raises(svc_pay.InvalidAnswer, match="more than 1000 pages"):
        pay(worker, node)


@pytest.mark.parametrize("payout_id", ["", "a\n", "a" * 201, 7, None])
def test_an_id_that_is_none_is_refused(world: World, worker: Worker, payout_id: Any) -> None:
    with pytest.raises(svc_pay.InvalidInput, match="the id of a payout is 1 to 200 printable characters"):
        worker.do(worker.payouts.pay(payout_id, recipient=SHOP, amount=1, reference=None), world.answer)


def test_a_damaged_journal_is_refused(world: World, journal: MemoryJournal, worker: Worker) -> None:
    pay(worker, world.answer)
    (good,) = journal.entries
    entry = json.loads(good)
    changed = {**entry, "transaction": {**entry["transaction"], "nonce": "1"}}
    for damaged in ("", "[]", '{"id":"b","paid":"ab"}', '{"id":"a","paid":"ab"}', json.dumps(changed)):
        journal.entries[:] = [good, damaged]
        with pytest.raises(svc_pay.JournalError, match="entry 2 of the journal is damaged"):
            advance(Worker(steps_of(world, journal)), world.answer)
    journal.entries[:] = [good]
    other = svc_pay.payouts.PayoutSteps(
        journal, svc_pay.Key(bytes(32)), DEVNET, confirmations=1, maximum_fee=10**6, clock=lambda: START
    )
    with pytest.raises(svc_pay.JournalError, match="of another key"):
        worker.do(other.advance(), world.answer)


# The file


@pytest.mark.socket
def test_of_all_who_append_one_gets_the_place(tmp_path: Path) -> None:
    path, barrier = tmp_path / "payouts.sqlite", threading.Barrier(8)
    won: list[tuple[int, int]] = []

    def append(thread: int) -> None:
        journal = SqliteJournal(path)
        for sequence in range(1, 11):
            barrier.wait()
            if journal.append(sequence, f"{thread}"):
                won.append((sequence, thread))

    threads = [threading.Thread(target=append, args=(each,)) for each in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [sequence for sequence, _ in won] == list(range(1, 11))
    assert SqliteJournal(path).read(0) == [f"{thread}" for _, thread in won]
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o660)
    SqliteJournal(path)
    assert path.stat().st_mode & 0o777 == 0o660, "it was there"
    assert SqliteJournal(path).read(9) == [f"{won[9][1]}"]


def test_a_file_that_is_no_journal_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "payouts.sqlite"
    journal = SqliteJournal(path)
    assert journal.append(1, "a")
    assert journal.append(3, "c")
    with pytest.raises(svc_pay.JournalError, match="are damaged: an entry after number 0 is missing"):
        journal.read(0)
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(svc_pay.JournalError, match=r"payouts.sqlite cannot be read or written: file is not a database"):
        journal.read(0)
    with pytest.raises(svc_pay.JournalError):
        SqliteJournal(tmp_path / "missing" / "payouts.sqlite")


def test_each_entry_is_synced_to_the_disk(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "payouts.sqlite")._connection() as connection:
        assert isinstance(connection, sqlite3.Connection)
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


# Both clients


def transport(world: World) -> httpx.MockTransport:
    one_at_a_time = threading.Lock()

    def respond(request: httpx.Request) -> httpx.Response:
        call = svc_pay.calls.Call(
            request.method, request.url.path, {}, request.content, authorized=False, repeatable=True, seconds=0
        )
        with one_at_a_time:
            came = world.answer(call)
        return httpx.Response(came.status, content=came.body)

    return httpx.MockTransport(respond)


def test_both_clients_pay_from_one_file(world: World, tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "payouts.sqlite")
    terms = {"recipient": SHOP, "amount": 10**8}
    with Client("http://node") as node:
        node._http = httpx.Client(transport=transport(world))
        payouts = Payouts(node, journal, KEY, DEVNET, confirmations=1, clock=lambda: world.now)
        first = payouts.pay("a", **terms)  # type: ignore[arg-type]

        async def story() -> None:
            async with AsyncClient("http://node") as other:
                other._http = httpx.AsyncClient(transport=transport(world))
                asynchronous = AsyncPayouts(other, journal, KEY, DEVNET, confirmations=1, clock=lambda: world.now)
                assert (await asynchronous.pay("a", **terms)).txid == first.txid  # type: ignore[arg-type]
                second = await asynchronous.pay("b", **terms)  # type: ignore[arg-type]
                assert (first.nonce, second.nonce, first.reference) == (0, 1, None)
                world.mine_pool()
                assert [each.state for each in await asynchronous.advance()] == [PayoutState.PAID] * 2
                assert (await asynchronous.check("a")).confirmations == 1
                with pytest.raises(svc_pay.PayoutRefused):
                    await asynchronous.reassign("a")
                assert len(await asynchronous.stored()) == 2

        asyncio.run(story())
        assert [each.id for each in payouts.stored()] == ["a", "b"]
        assert payouts.check("b").state is PayoutState.PAID
        with pytest.raises(svc_pay.PayoutRefused):
            payouts.reassign("b")


@pytest.mark.socket
def test_threads_and_coroutines_share_an_object(world: World, tmp_path: Path) -> None:
    journal, names = SqliteJournal(tmp_path / "payouts.sqlite"), [f"p{place}" for place in range(12)]
    with Client("http://node") as node:
        node._http = httpx.Client(transport=transport(world))
        payouts = Payouts(node, journal, KEY, DEVNET, clock=lambda: world.now)
        with ThreadPoolExecutor(8) as threads:
            made = list(threads.map(lambda name: payouts.pay(name, recipient=SHOP, amount=10**8), names * 2))
    assert {(each.id, each.nonce) for each in made} == {(each.id, each.nonce) for each in payouts.stored()}
    assert sorted(each.nonce for each in payouts.stored()) == list(range(12))

    async def story() -> None:
        async with AsyncClient("http://node") as other:
            other._http = httpx.AsyncClient(transport=transport(world))
            shared = AsyncPayouts(other, journal, KEY, DEVNET, clock=lambda: world.now)
            again = [shared.pay(name, recipient=SHOP, amount=10**8) for name in [*names, "q0", "q1", "q2"] * 2]
            assert {each.nonce for each in await asyncio.gather(*again)} == set(range(15))

    asyncio.run(story())
    assert len(world.pool) == 15


def test_both_classes_have_the_same_methods() -> None:
    def methods(payouts: type) -> dict[str, inspect.Signature]:
        found = inspect.getmembers(payouts, inspect.isfunction)
        return {name: inspect.signature(each) for name, each in found if not name.startswith("_")}

    assert methods(Payouts) == methods(AsyncPayouts)
    assert list(methods(Payouts)) == ["advance", "check", "pay", "reassign", "stored"]
    assert KEY.address(DEVNET) == OWN
