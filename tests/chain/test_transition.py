"""How a block changes the state (docs/protocol.md 8, 9)."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.accounts import Account
from svcd.chain.block import EMPTY_ROOT, Block
from svcd.chain.difficulty import next_target
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.history import History, pack_node
from svcd.chain.params import DEVNET, MAINNET
from svcd.chain.transaction import Transfer
from svcd.chain.transition import (
    ChainPoint,
    Effect,
    Workspace,
    apply_block,
    check_header,
    check_place,
    check_state_root,
    consensus_root,
    genesis_accounts,
    genesis_head,
    genesis_point,
    head_after,
    point_after,
    touched,
)
from tests.chain.refusing import refuses
from tests.chains import COIN, TEST_PARAMS, ChainBuilder, address_of, key_of
from tests.validity import Accounts

FEE = TEST_PARAMS.minimum_fee
SLOT = 500
TIME = TEST_PARAMS.slot_time(SLOT)
PEOPLE = "alice bob carol dave erin".split()


def send(sender: str, recipient: str, amount: int, *, nonce: int = 0, fee: int = FEE, time: int = TIME) -> Transfer:
    """A transfer of which only the numbers matter here."""
    return Transfer(
        txid=bytes(32),
        sender_key=key_of(sender).public,
        sender=key_of(sender).hash,
        recipient=key_of(recipient).hash,
        amount=amount,
        fee=fee,
        nonce=nonce,
        timestamp=time,
        reference=None,
        signature=bytes(64),
        wire=b"",
    )


def workspace(**before: Account) -> Workspace:
    accounts = {key_of(name).hash: account for name, account in before.items()}
    return Workspace(TEST_PARAMS, slot=SLOT, before=accounts)


def after(effect: Effect, name: str) -> Account:
    return effect.after[key_of(name).hash]


# One transfer


def test_a_transfer_moves_amount_and_fee() -> None:
    space = workspace(alice=Account(1000 * COIN, 3), bob=Account(7, 9))
    space.transfer(send("alice", "bob", 5 * COIN, nonce=3, fee=FEE + 1))
    effect = space.finish(key_of("p").hash, 20)
    assert after(effect, "alice") == Account(995 * COIN - FEE - 1, 4, SLOT)
    assert after(effect, "bob") == Account(5 * COIN + 7, 9, None)
    assert after(effect, "p") == Account(20 + FEE + 1, 0, None)
    assert effect.fees == FEE + 1


def test_received_coins_can_be_spent_in_the_same_block() -> None:
    space = workspace(alice=Account(1000 * COIN))
    space.transfer(send("alice", "dave", FEE + 6))
    space.transfer(send("dave", "erin", 5))
    effect = space.finish(key_of("p").hash, 0)
    assert after(effect, "dave") == Account(1, 1, None)
    assert after(effect, "erin") == Account(5, 0, None)


def test_a_transfer_to_oneself_costs_the_fee() -> None:
    space = workspace(alice=Account(FEE + 5))
    space.transfer(send("alice", "alice", 5))
    assert after(space.finish(key_of("p").hash, 0), "alice") == Account(5, 1, None)


LEAST = 1_000_000
STRICT = evolve(TEST_PARAMS, account_minimum=LEAST)


def strict_workspace(**before: int) -> Workspace:
    """Accounts with these balances on a network whose accounts must keep a million base units."""
    accounts = {key_of(name).hash: Account(balance) for name, balance in before.items()}
    return Workspace(STRICT, slot=SLOT, before=accounts)


def test_sender_and_recipient_may_be_left_with_exactly_the_account_minimum() -> None:
    space = strict_workspace(alice=2 * LEAST + FEE)
    space.transfer(send("alice", "dave", LEAST))
    effect = space.finish(key_of("p").hash, 0)
    assert (after(effect, "alice").balance, after(effect, "dave").balance) == (LEAST, LEAST)


def test_an_account_that_has_the_minimum_may_receive_a_single_unit() -> None:
    strict_workspace(alice=3 * LEAST, bob=LEAST).transfer(send("alice", "bob", 1))


@pytest.mark.parametrize(("balance", "most"), [(2 * LEAST + FEE - 1, LEAST - 1), (LEAST + FEE + 5, 5)])
def test_a_sender_must_keep_the_account_minimum(balance: int, most: int) -> None:
    remains = balance - LEAST - FEE
    reason = f"the sender must keep {LEAST} base units, and {remains} would remain"
    with refuses(Refusal.SENDER_MINIMUM, f"{reason}; the amount can be at most {most} base units"):
        strict_workspace(alice=balance, bob=LEAST).transfer(send("alice", "bob", LEAST))


def test_a_sender_that_has_no_more_than_minimum_and_fee_can_send_nothing() -> None:
    reason = f"the sender must keep {LEAST} base units, and {LEAST - 1} would remain"
    with refuses(Refusal.SENDER_MINIMUM, f"{reason}; the balance is 1 base units short"):
        strict_workspace(alice=LEAST + FEE, bob=LEAST).transfer(send("alice", "bob", 1))


@pytest.mark.parametrize(("has", "least"), [(0, LEAST), (LEAST - 7, 7)])
def test_a_recipient_must_have_the_account_minimum_afterwards(has: int, least: int) -> None:
    reason = f"the recipient must have {LEAST} base units after the transfer"
    with refuses(Refusal.RECIPIENT_MINIMUM, f"{reason}; the amount must be at least {least} base units"):
        strict_workspace(alice=9 * LEAST, dave=has).transfer(send("alice", "dave", least - 1))
    strict_workspace(alice=9 * LEAST, dave=has).transfer(send("alice", "dave", least))


def test_later_income_does_not_cover_an_earlier_transfer() -> None:
    space = strict_workspace(alice=2 * LEAST, bob=9 * LEAST)
    with refuses(Refusal.SENDER_MINIMUM):
        space.transfer(send("alice", "bob", LEAST))
    space.transfer(send("bob", "alice", LEAST))
    space.transfer(send("alice", "bob", LEAST))


def test_a_transfer_to_oneself_must_leave_the_account_minimum_and_nothing_in_between() -> None:
    strict_workspace(alice=LEAST + FEE).transfer(send("alice", "alice", LEAST))
    reason = f"the sender must keep {LEAST} base units, and {LEAST - 1} would remain"
    with refuses(Refusal.SENDER_MINIMUM, f"{reason}; the balance is 1 base units short"):
        strict_workspace(alice=LEAST + FEE - 1).transfer(send("alice", "alice", 5))
    with refuses(Refusal.BALANCE, "the balance is 1 base units short"):
        strict_workspace(alice=LEAST + FEE).transfer(send("alice", "alice", LEAST + 1))


def test_rewards_and_fees_ask_for_no_minimum() -> None:
    assert after(strict_workspace().finish(key_of("p").hash, 1), "p") == Account(1, 0, None)


@pytest.mark.parametrize("recipient", ["bob", "alice"])
def test_a_unit_more_than_the_balance_is_refused(recipient: str) -> None:
    with refuses(Refusal.BALANCE, "the balance is 1 base units short"):
        workspace(alice=Account(FEE + 5)).transfer(send("alice", recipient, 6))


def test_an_account_that_is_not_there_has_nothing() -> None:
    with refuses(Refusal.BALANCE, f"the balance is {FEE + 1} base units short"):
        workspace().transfer(send("dave", "bob", 1))


def test_largest_amount_and_fee_are_added_without_bounds() -> None:
    with refuses(Refusal.BALANCE, f"the balance is {2**54 - 2 - 7} base units short"):
        workspace(alice=Account(7)).transfer(send("alice", "bob", 2**53 - 1, fee=2**53 - 1))


@pytest.mark.parametrize("nonce", [0, 2, 4, 2**53 - 1])
def test_only_the_next_nonce_is_right(nonce: int) -> None:
    with refuses(Refusal.NONCE, f"nonce must be 3, not {nonce}"):
        workspace(alice=Account(1000 * COIN, 3)).transfer(send("alice", "bob", 1, nonce=nonce))


def test_nonces_go_on_within_a_block() -> None:
    space = workspace(alice=Account(1000 * COIN, 3))
    space.transfer(send("alice", "bob", 1, nonce=3))
    space.transfer(send("alice", "bob", 1, nonce=4))
    with refuses(Refusal.NONCE, "nonce must be 5, not 4"):
        space.transfer(send("alice", "bob", 1, nonce=4))
    assert after(space.finish(key_of("p").hash, 0), "alice").nonce == 5


OLDEST = TIME - 1000 * TEST_PARAMS.transaction_past_seconds
NEWEST = TIME + 1000 * TEST_PARAMS.transaction_future_seconds


@pytest.mark.parametrize("time", [OLDEST, TIME, NEWEST])
def test_timestamp_in_its_window(time: int) -> None:
    workspace(alice=Account(1000 * COIN)).transfer(send("alice", "bob", 1, time=time))


@pytest.mark.parametrize("time", [OLDEST - 1, NEWEST + 1, 0, 2**53 - 1])
def test_timestamp_a_millisecond_outside_its_window(time: int) -> None:
    with refuses(Refusal.TIMESTAMP, f"timestamp must be from {OLDEST} to {NEWEST} in this block, not {time}"):
        workspace(alice=Account(1000 * COIN)).transfer(send("alice", "bob", 1, time=time))


@pytest.mark.parametrize(
    "bad", [send("alice", "bob", 1, nonce=1), send("alice", "bob", 1, time=0), send("alice", "bob", 2000 * COIN)]
)
def test_a_refused_transfer_changes_nothing(bad: Transfer) -> None:
    space, untouched = workspace(alice=Account(1000 * COIN)), workspace(alice=Account(1000 * COIN))
    with pytest.raises(RuleViolation):
        space.transfer(bad)
    assert space.finish(key_of("p").hash, 7) == untouched.finish(key_of("p").hash, 7)


# The producer, and who holds the minimum since when

MINIMUM = TEST_PARAMS.holding_minimum


def test_the_producer_gets_reward_and_fees_and_is_created() -> None:
    effect = workspace().finish(key_of("p").hash, 20)
    assert effect == Effect({key_of("p").hash: None}, {key_of("p").hash: Account(20, 0, None)}, 0)


def test_a_producer_that_sends_pays_itself_the_fee() -> None:
    space = workspace(p=Account(1000 * COIN, 0, 3))
    space.transfer(send("p", "bob", 5))
    assert after(space.finish(key_of("p").hash, 20), "p") == Account(1000 * COIN - 5 + 20, 1, SLOT)


@pytest.mark.parametrize(("balance", "held"), [(MINIMUM, SLOT), (MINIMUM - 1, None)])
def test_holding_begins_at_the_exact_minimum(balance: int, held: int | None) -> None:
    effect = workspace(p=Account(balance - 20)).finish(key_of("p").hash, 20)
    assert after(effect, "p").held_since == held


def test_receiving_does_not_reset_the_holding_time() -> None:
    space = workspace(alice=Account(1000 * COIN), bob=Account(MINIMUM, 0, 17))
    space.transfer(send("alice", "bob", 1))
    assert after(space.finish(key_of("p").hash, 0), "bob") == Account(MINIMUM + 1, 0, 17)


def test_sending_resets_the_holding_time() -> None:
    space = workspace(bob=Account(MINIMUM + FEE + 1, 0, 17))
    space.transfer(send("bob", "alice", 1))
    assert after(space.finish(key_of("p").hash, 0), "bob") == Account(MINIMUM, 1, SLOT)


def test_a_balance_below_the_minimum_ends_the_holding_time() -> None:
    space = workspace(bob=Account(MINIMUM + FEE, 0, 17))
    space.transfer(send("bob", "alice", 1))
    assert after(space.finish(key_of("p").hash, 0), "bob") == Account(MINIMUM - 1, 1, None)


def test_only_the_balance_after_the_block_counts_for_holding() -> None:
    """Dave is over the minimum only between two transfers; bob, below it in between, sent and so begins anew."""
    space = workspace(alice=Account(1000 * COIN), bob=Account(MINIMUM, 0, 17))
    space.transfer(send("alice", "dave", MINIMUM + FEE + 1))
    space.transfer(send("dave", "erin", MINIMUM))
    space.transfer(send("bob", "erin", 5))
    space.transfer(send("alice", "bob", MINIMUM, nonce=1))
    effect = space.finish(key_of("p").hash, 0)
    assert after(effect, "dave").held_since is None
    assert after(effect, "erin").held_since == SLOT
    assert after(effect, "bob").held_since == SLOT


def test_slot_0_is_a_slot_to_hold_since() -> None:
    effect = workspace(p=Account(MINIMUM, 0, 0)).finish(key_of("p").hash, 1)
    assert after(effect, "p") == Account(MINIMUM + 1, 0, 0)


# Blocks


def test_touched_accounts() -> None:
    keys = touched([send("alice", "bob", 1), send("alice", "alice", 1)], key_of("p").hash)
    assert keys == {key_of(name).hash for name in ("alice", "bob", "p")}


def test_genesis() -> None:
    assert genesis_accounts(MAINNET) == {}
    assert list(genesis_accounts(DEVNET).values()) == [Account(10**14, 0, None)]
    assert genesis_point(DEVNET) == ChainPoint(
        hash=DEVNET.genesis_hash, height=0, slot=0, difficulty_clock=0, work=0, issued=10**14
    )
    assert genesis_point(MAINNET).issued == 0


def test_effect_of_a_block_and_its_undo() -> None:
    chain = ChainBuilder()
    blocks = chain.chain("genesis: b[1..3]\nb2 pays 7 from alice to dave\nb3 pays 9 from bob to alice")
    parent: Block | None = None
    for block in blocks.values():
        before = chain.accounts_after(parent)
        effect = apply_block(TEST_PARAMS, block, Accounts(before))
        state = before | effect.after
        assert state == chain.accounts_after(block)
        assert effect.before.keys() == effect.after.keys() == touched(block.transfers, key_of("b").hash)
        assert undone(state, effect) == before
        parent = block


def undone(state: dict[bytes, Account], effect: Effect) -> dict[bytes, Account]:
    restored = {key: account for key, account in effect.before.items() if account is not None}
    return {key: account for key, account in state.items() if key not in effect.before} | restored


TRANSFERS = st.lists(
    st.builds(
        send,
        st.sampled_from(PEOPLE),
        st.sampled_from(PEOPLE),
        st.integers(1, 50) | st.integers(1, 2000 * COIN),
        nonce=st.integers(0, 3),
        fee=st.integers(FEE, FEE + 5),
    ),
    max_size=12,
)


@given(st.lists(st.tuples(TRANSFERS, st.sampled_from(PEOPLE)), max_size=8))
def test_all_balances_are_what_was_issued_and_undo_restores_them(blocks: list[tuple[list[Transfer], str]]) -> None:
    state = genesis_accounts(TEST_PARAMS)
    issued = genesis_point(TEST_PARAMS).issued
    history = [dict(state)]
    effects = []
    for height, (transfers, producer) in enumerate(blocks, 1):
        space = Workspace(TEST_PARAMS, slot=SLOT, before=state)
        for transfer in transfers:
            try:
                space.transfer(transfer)
            except RuleViolation as refusal:
                assert refusal.code in (Refusal.NONCE, Refusal.BALANCE, Refusal.SENDER_MINIMUM)  # noqa: PT017
        effect = space.finish(key_of(producer).hash, TEST_PARAMS.reward(height))
        state = state | effect.after
        issued += TEST_PARAMS.reward(height)
        assert sum(account.balance for account in state.values()) == issued
        assert min(account.balance for account in state.values()) >= 0
        assert all((one.held_since is None) or one.balance >= MINIMUM for one in effect.after.values())
        history.append(dict(state))
        effects.append(effect)
    for effect in reversed(effects):
        assert state == history.pop()
        state = undone(state, effect)
    assert state == history.pop()


def test_multiplier_must_be_what_the_producer_has_earned() -> None:
    chain = ChainBuilder()
    b1 = chain.block(producer="alice")
    held_since = chain.account_after(b1, "alice").held_since
    assert held_since is not None
    for slots, points in [(9, 10_000), (10, 10_200), (19, 10_200), (20, 10_400), (100, 11_000)]:
        block = chain.block(b1, producer="alice", slot=held_since + slots)
        assert block.header.multiplier == points
        for other in {10_000, 10_200, 10_400, 10_700, 11_000, 10_900} - {points}:
            lie = Block(evolve(block.header, multiplier=other), ())
            with refuses(Refusal.MULTIPLIER, f"multiplier must be {points}, what the producer has earned"):
                apply_block(TEST_PARAMS, lie, Accounts(chain.accounts_after(b1)))


def test_reward_of_a_block_halves_at_its_height() -> None:
    chain = ChainBuilder(evolve(TEST_PARAMS, halving_blocks=2))
    blocks = chain.chain("genesis: b[1..5]")
    balances = [chain.account_after(block, "b").balance for block in blocks.values()]
    assert balances == [20 * COIN, 40 * COIN, 50 * COIN, 60 * COIN, 65 * COIN]
    issued = [chain.point_after(block).issued - 3000 * COIN for block in blocks.values()]
    assert issued == balances


def test_reward_without_halving_ends_with_the_last_block_that_the_supply_has_room_for() -> None:
    room = evolve(TEST_PARAMS, halving_blocks=0, allocations=((address_of("alice", "svct"), MAX_INTEGER - 59 * COIN),))
    chain = ChainBuilder(room)
    blocks = chain.chain("genesis: b[1..4]")
    balances = [chain.account_after(block, "b").balance for block in blocks.values()]
    assert balances == [20 * COIN, 40 * COIN, 40 * COIN, 40 * COIN]
    assert [chain.point_after(block).issued for block in blocks.values()] == [
        MAX_INTEGER - 59 * COIN + balance for balance in balances
    ]


# Chain variables

PARENT = ChainPoint(hash=b"\1" * 32, height=9, slot=100, difficulty_clock=40, work=1000, issued=77)
HISTORY_ROOT = b"\2" * 32


def test_chain_variables_after_a_block() -> None:
    header = evolve(ChainBuilder().block().header, height=10, slot=103, base_target=2**254)
    assert point_after(TEST_PARAMS, PARENT, header) == ChainPoint(
        hash=header.hash, height=10, slot=103, difficulty_clock=43, work=1004, issued=77 + 20 * COIN
    )
    late = evolve(header, slot=100 + 10**6)
    assert point_after(TEST_PARAMS, PARENT, late).difficulty_clock == 40 + TEST_PARAMS.gap_cap_slots
    first = point_after(TEST_PARAMS, genesis_point(TEST_PARAMS), evolve(header, slot=50))
    assert (first.height, first.difficulty_clock, first.slot) == (1, 0, 50)


def test_consensus_root_commits_to_rules_and_chain_variables() -> None:
    point = evolve(PARENT, height=2, slot=3, difficulty_clock=0, work=5, issued=6)
    target = next_target(TEST_PARAMS, height=3, clock=0)
    assert target < TEST_PARAMS.initial_target
    numbers = [(2, 8), (3, 8), (0, 8), (5, 32), (target, 32), (6, 8)]
    data = b"".join(number.to_bytes(size, "big") for number, size in numbers)
    tagged = b"svc/consensus/v1\0" + TEST_PARAMS.rules_hash + TEST_PARAMS.genesis_hash + data + HISTORY_ROOT
    assert consensus_root(TEST_PARAMS, point, HISTORY_ROOT) == sha256(tagged).digest()


@pytest.mark.parametrize("name", ["height", "slot", "difficulty_clock", "work", "issued"])
def test_any_chain_variable_changes_the_consensus_root(name: str) -> None:
    change = {name: getattr(PARENT, name) + 1}
    changed_point = evolve(PARENT, **change)
    assert consensus_root(TEST_PARAMS, changed_point, HISTORY_ROOT) != consensus_root(TEST_PARAMS, PARENT, HISTORY_ROOT)


def test_rules_and_genesis_are_in_the_consensus_root() -> None:
    other = evolve(TEST_PARAMS, chain_id="SVC-OTHER")
    assert consensus_root(other, PARENT, HISTORY_ROOT) != consensus_root(TEST_PARAMS, PARENT, HISTORY_ROOT)


def test_the_history_of_a_block_to_build_on_has_a_leaf_for_each_block_up_to_it() -> None:
    chain = ChainBuilder()
    b1 = chain.block(slot=7)
    head = head_after(TEST_PARAMS, genesis_head(TEST_PARAMS), b1.header)
    leaf = pack_node(b1.header.hash, work=2**256 // b1.header.base_target, slot=7, clock=0)
    genesis = pack_node(TEST_PARAMS.genesis_hash, work=0, slot=0, clock=0)
    assert head.history == History().append(genesis).append(leaf)
    assert head.point == chain.point_after(b1)


def place(change: Callable[[Block], Block] = lambda block: block) -> None:
    chain = ChainBuilder()
    b1 = chain.block()
    b2 = change(chain.block(b1, slot=9))
    check_place(TEST_PARAMS, chain.head_after(b1), b2.header)


def changed(**fields: int) -> Callable[[Block], Block]:
    def change(block: Block) -> Block:
        different: dict[str, int] = {name: getattr(block.header, name) + by for name, by in fields.items()}
        return Block(evolve(block.header, **different), block.transfers)  # type: ignore[arg-type]

    return change


def test_place_behind_the_parent() -> None:
    place()
    place(changed(slot=-6))
    place(changed(slot=10**9))
    place(changed(multiplier=200))


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        (changed(height=1), Refusal.HEIGHT, "height must be 2 here, not 3"),
        (changed(height=-1), Refusal.HEIGHT, "height must be 2 here, not 1"),
        (changed(slot=-7), Refusal.SLOT, "slot must be greater than the parent's 2, not 2"),
        (changed(slot=-8), Refusal.SLOT, "slot must be greater than the parent's 2, not 1"),
        (changed(base_target=1), Refusal.BASE_TARGET, "baseTarget is not the target due at height 2"),
        (changed(base_target=-1), Refusal.BASE_TARGET, "baseTarget is not the target due at height 2"),
        (changed(multiplier=1), Refusal.MULTIPLIER, "multiplier 10001 is not in the schedule"),
        (changed(multiplier=-10_000), Refusal.MULTIPLIER, "multiplier 0 is not in the schedule"),
    ],
)
def test_no_place_behind_the_parent(change: Callable[[Block], Block], code: Refusal, reason: str) -> None:
    with refuses(code, reason):
        place(change)


def test_a_header_behind_its_parent() -> None:
    chain = ChainBuilder()
    b1 = chain.block(transfers=[chain.transfer("alice", "bob", 5)])
    b2 = chain.block(b1, slot=9)
    assert check_header(TEST_PARAMS, chain.head_after(None), b1.header) == chain.head_after(b1)
    assert check_header(TEST_PARAMS, chain.head_after(b1), b2.header) == chain.head_after(b2)


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"parent_hash": bytes(32)}, Refusal.ANCESTOR, "parentHash must be "),
        ({"height": 3}, Refusal.HEIGHT, "height must be 2 here, not 3"),
        ({"slot": 2}, Refusal.SLOT, "slot must be greater than the parent's 2, not 2"),
        ({"base_target": 1}, Refusal.BASE_TARGET, "baseTarget is not the target due at height 2"),
        ({"multiplier": 7}, Refusal.MULTIPLIER, "multiplier 7 is not in the schedule"),
        ({"transaction_count": 2_001}, Refusal.SIZE, "a block has at most 2000 transactions, not 2001"),
        ({"transaction_count": 0}, Refusal.TRANSACTIONS_ROOT, "transactionsRoot is not that of so many transactions"),
        ({"transactions_root": EMPTY_ROOT}, Refusal.TRANSACTIONS_ROOT, "transactionsRoot is not that of so many"),
        ({"consensus_root": bytes(32)}, Refusal.CONSENSUS_ROOT, "consensusRoot is not that of the chain after"),
    ],
)
def test_a_header_that_shows_that_it_breaks_a_rule(fields: dict[str, Any], code: Refusal, reason: str) -> None:
    chain = ChainBuilder()
    b1 = chain.block()
    b2 = chain.block(b1, slot=9, transfers=[chain.transfer("alice", "bob", 5)])
    with pytest.raises(RuleViolation) as caught:
        check_header(TEST_PARAMS, chain.head_after(b1), evolve(b2.header, **fields))
    assert caught.value.code is code
    assert caught.value.detail.startswith(reason)


def test_a_block_may_have_as_many_transactions_as_the_rules_allow() -> None:
    chain = ChainBuilder()
    b1 = chain.block()
    b2 = chain.block(b1, transfers=[chain.transfer("alice", "bob", 5)])
    full = evolve(b2.header, transaction_count=TEST_PARAMS.max_block_transactions)
    assert check_header(TEST_PARAMS, chain.head_after(b1), full).point == evolve(chain.point_after(b2), hash=full.hash)


def test_state_root_of_a_block() -> None:
    header = ChainBuilder().block().header
    check_state_root(header, header.state_root)
    with refuses(Refusal.STATE_ROOT, f"stateRoot must be {bytes(32).hex()} after this block"):
        check_state_root(header, bytes(32))
