"""A snapshot is accepted exactly if it is the cut of the accounts that a state root commits to (docs/peers.md)."""

import re
from collections.abc import Sequence
from hashlib import sha256
from itertools import pairwise

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.accounts import KEY_BITS, Account
from svcd.chain.encoding import parse_json
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.snapshot import (
    CHUNK_ACCOUNTS,
    RECORD_BYTES,
    Chunk,
    Manifest,
    check_chunk,
    check_manifest,
    cut,
    join,
    leaves,
    pack_account,
    parse_manifest,
)
from svcd.chain.state_root import state_root, subtree_root
from tests.chain.refusing import refuses

State = list[tuple[bytes, Account]]

HASH = bytes([7]) * 32


def spread_key(number: int) -> bytes:
    return sha256(number.to_bytes(4, "big")).digest()[:20]


def crowded_key(number: int) -> bytes:
    """Keys that share 150 bits, as somebody may choose them who wants a chunk to become too large."""
    return (int.from_bytes(spread_key(0), "big") >> 10 << 10 | number).to_bytes(20, "big")


KEYS = st.integers(0, 300).map(spread_key) | st.integers(0, 50).map(crowded_key)
ACCOUNTS = st.builds(Account, st.integers(0, 2**53 - 1), st.integers(0, 9), st.none() | st.integers(0, 2**53 - 1))
STATES = st.dictionaries(KEYS, ACCOUNTS, max_size=60).map(lambda state: sorted(state.items()))
MOST = st.integers(2, 12)


def packed(state: State) -> bytes:
    return b"".join([pack_account(key, *_fields(account)) for key, account in state])


def _fields(account: Account) -> tuple[int, int, int | None]:
    return account.balance, account.nonce, account.held_since


def manifest_of(state: State, most: int = CHUNK_ACCOUNTS) -> Manifest:
    pieces = cut([key for key, _ in state], most)
    chunks = [
        Chunk(depth, end - first, subtree_root(leaves(packed(state[first:end])), depth)) for depth, first, end in pieces
    ]
    return Manifest(1_440, HASH, tuple(chunks))


def chunks_of(manifest: Manifest, state: State) -> list[bytes]:
    return [packed(state[first:end]) for first, end in pairwise(manifest.starts)]


def many(number: int) -> State:
    return sorted((spread_key(n), Account(n, n % 3, None if n % 2 else n)) for n in range(number))


@given(STATES, MOST)
def test_a_snapshot_of_any_accounts_is_accepted_and_gives_them(state: State, most: int) -> None:
    manifest = manifest_of(state, most)
    assert manifest.accounts == len(state)
    check_manifest(manifest, state_root(state), most)
    found = [each for n, chunk in enumerate(chunks_of(manifest, state)) for each in check_chunk(manifest, n, chunk)]
    assert found == state
    assert parse_manifest(parse_json(manifest.wire())) == manifest


@given(STATES, MOST)
def test_a_cut_fills_the_keys_in_order_and_has_no_chunk_too_many(state: State, most: int) -> None:
    keys = [key for key, _ in state]
    pieces = list(cut(keys, most))
    manifest = manifest_of(state, most)
    assert [first for _, first, _ in pieces] == [0, *[end for _, _, end in pieces][:-1]]
    assert pieces[-1][2] == len(keys)
    assert manifest.firsts[-1] == 1 << KEY_BITS
    for index, (depth, first, end) in enumerate(pieces):
        assert end - first <= most
        if depth:
            # Its parent has more accounts than fit into one chunk.
            parent = manifest.firsts[index] >> KEY_BITS - depth + 1
            assert sum(int.from_bytes(key, "big") >> KEY_BITS - depth + 1 == parent for key in keys) > most


@given(STATES, MOST, st.integers(2, 5))
def test_a_chunk_can_be_hashed_in_pieces(state: State, most: int, less: int) -> None:
    manifest = manifest_of(state, most)
    for index, (first, end) in enumerate(pairwise(manifest.starts)):
        chunk, keys = manifest.chunks[index], [key for key, _ in state[first:end]]
        pieces = [
            (depth, right - left, subtree_root(leaves(packed(state[first + left : first + right])), depth))
            for depth, left, right in cut(keys, less, chunk.depth)
        ]
        whole = join(pieces, less, depth=chunk.depth, first=manifest.firsts[index])
        assert whole == (chunk.accounts, chunk.root)


@given(STATES, MOST, st.data())
def test_a_changed_chunk_is_refused(state: State, most: int, data: st.DataObject) -> None:
    manifest = manifest_of(state, most)
    index = data.draw(st.integers(0, len(manifest.chunks) - 1))
    right = chunks_of(manifest, state)[index]
    changed = bytearray(right)
    if right:
        at = data.draw(st.integers(0, len(right) - 1))
        changed[at] ^= data.draw(st.integers(1, 255))
    else:
        changed += pack_account(spread_key(1), 1, 0, None)
    with pytest.raises(RuleViolation):
        check_chunk(manifest, index, bytes(changed))


@given(STATES, MOST, st.data())
def test_a_changed_manifest_is_refused_at_once_or_by_a_chunk(state: State, most: int, data: st.DataObject) -> None:
    manifest = manifest_of(state, most)
    index = data.draw(st.integers(0, len(manifest.chunks) - 1))
    chunk = manifest.chunks[index]
    other = data.draw(
        st.one_of(
            st.builds(evolve, st.just(chunk), depth=st.integers(0, KEY_BITS)),
            st.builds(evolve, st.just(chunk), accounts=st.integers(0, 2 * most)),
            st.builds(evolve, st.just(chunk), root=st.binary(min_size=32, max_size=32)),
        ).filter(lambda each: each != chunk)
    )
    chunks = list(manifest.chunks)
    chunks[index] = other
    changed = Manifest(manifest.height, manifest.hash, tuple(chunks))
    try:
        check_manifest(changed, state_root(state), most)
    except RuleViolation:
        return
    with pytest.raises(RuleViolation):
        check_chunk(changed, index, chunks_of(manifest, state)[index])


def test_of_no_account_and_of_one() -> None:
    for state in ([], many(1)):
        manifest = manifest_of(state)
        assert len(manifest.chunks) == 1
        check_manifest(manifest, state_root(state))
        assert check_chunk(manifest, 0, packed(state)) == state


def test_crowded_key_hashes_make_no_chunk_larger() -> None:
    state = sorted({**dict(many(100)), **{crowded_key(n): Account(n) for n in range(100)}}.items())
    manifest = manifest_of(state, 16)
    check_manifest(manifest, state_root(state), 16)
    assert max(chunk.accounts for chunk in manifest.chunks) <= 16
    assert max(chunk.depth for chunk in manifest.chunks) > 150


def test_the_bytes_of_a_manifest_and_of_an_account() -> None:
    manifest = manifest_of(many(3), 2)
    assert re.fullmatch(
        rb'\{"chunks":\["1:1:[0-9a-f]{64}","1:2:[0-9a-f]{64}"\],"hash":"(07){32}","height":"1440"\}', manifest.wire()
    )
    assert manifest.digest == sha256(manifest.wire()).digest()
    assert RECORD_BYTES == 44
    assert pack_account(bytes(20), 1, 2, None) == bytes(20) + b"".join(
        number.to_bytes(8, "big") for number in (1, 2, 2**64 - 1)
    )


def tree(*chunks: tuple[int, int, bytes]) -> Sequence[tuple[int, int, bytes]]:
    return chunks


A, B, NONE = bytes([1]) * 32, bytes([2]) * 32, bytes(32)


@pytest.mark.parametrize(
    ("chunks", "sentence"),
    [
        (tree(), "do not fill"),
        (tree((1, 3, A)), "do not fill"),
        (tree((1, 3, A), (2, 3, B)), "do not fill"),
        (tree((2, 3, A), (1, 3, B)), "cannot follow"),
        (tree((1, 3, A), (1, 3, B), (1, 1, A)), "cannot follow"),
        (tree((0, 3, A), (0, 3, A)), "cannot follow"),
        (tree((161, 3, A), (161, 3, A)), "cannot follow"),
        (tree((0, 5, A)), "at most 4 accounts, not 5"),
        (tree((0, 0, A)), "exactly if it has no account"),
        (tree((1, 3, NONE), (1, 3, B)), "exactly if it has no account"),
        (tree((1, 2, A), (1, 2, B)), "4 accounts together must be one chunk"),
        (tree((1, 3, A), (2, 1, A), (2, 1, B)), "2 accounts together must be one chunk"),
    ],
)
def test_chunks_that_are_no_cut(chunks: Sequence[tuple[int, int, bytes]], sentence: str) -> None:
    with refuses(Refusal.FORMAT, sentence):
        join(chunks, 4)


def test_chunks_that_are_a_cut() -> None:
    assert join(tree((1, 3, A), (1, 2, B)), 4) == (5, sha256(b"\1" + A + B).digest())
    assert join(tree((1, 4, A), (2, 1, A), (2, 4, B)), 4)[0] == 9


def test_a_manifest_of_another_state_is_refused() -> None:
    manifest = manifest_of(many(40), 8)
    with refuses(Refusal.STATE_ROOT, "do not give the state root of block 1440"):
        check_manifest(manifest, state_root(many(41)), 8)


@pytest.mark.parametrize(
    ("value", "code", "sentence"),
    [
        ([], Refusal.FIELDS, "exactly the members"),
        ({"hash": A.hex(), "height": "1"}, Refusal.FIELDS, "exactly the members"),
        ({"chunks": [], "hash": A.hex(), "height": "1"}, Refusal.FORMAT, "1 to 32768 chunks"),
        ({"chunks": "0:0:" + NONE.hex(), "hash": A.hex(), "height": "1"}, Refusal.FORMAT, "1 to 32768 chunks"),
        ({"chunks": ["0:0:" + NONE.hex()], "hash": "aa", "height": "1"}, Refusal.FORMAT, "hash"),
        ({"chunks": ["0:0:" + NONE.hex()], "hash": A.hex(), "height": 1}, Refusal.FORMAT, "height"),
    ],
)
def test_invalid_manifests(value: object, code: Refusal, sentence: str) -> None:
    with refuses(code, sentence):
        parse_manifest(value)


@pytest.mark.parametrize(
    "chunk", [7, "", "0:0", "00:1:", "0:01:", "161:1:", "0:-1:", "0:1:", " 0:1:", "0:1:\n", "0:99999999999:"]
)
def test_invalid_chunks(chunk: object) -> None:
    spelled = chunk + A.hex()[: 64 if chunk != "0:1:" else 62] if isinstance(chunk, str) else chunk
    with refuses(Refusal.FORMAT, "a chunk must be a depth up to 160"):
        parse_manifest({"chunks": [spelled], "hash": A.hex(), "height": "1"})


def test_records_that_are_no_chunk() -> None:
    state = many(40)
    manifest = manifest_of(state, 8)
    first, second, *_ = chunks_of(manifest, state)
    swapped = first[RECORD_BYTES : 2 * RECORD_BYTES] + first[:RECORD_BYTES] + first[2 * RECORD_BYTES :]
    twice = first[:RECORD_BYTES] * (len(first) // RECORD_BYTES)
    foreign = first[:-RECORD_BYTES] + second[:RECORD_BYTES]
    for records, code, sentence in (
        (first[:-1], Refusal.FORMAT, f"must have {len(first)} bytes, not {len(first) - 1}"),
        (b"", Refusal.FORMAT, "not 0"),
        (swapped, Refusal.FORMAT, "do not ascend"),
        (twice, Refusal.FORMAT, "do not ascend"),
        (foreign, Refusal.FORMAT, "does not belong to chunk 0"),
        (first[:-RECORD_BYTES] + first[-RECORD_BYTES:-1] + b"\7", Refusal.STATE_ROOT, "do not give its root"),
    ):
        with refuses(code, sentence):
            check_chunk(manifest, 0, records)


@pytest.mark.parametrize("fields", [(2**53, 0, None), (0, 2**53, None), (0, 0, 2**53)])
def test_numbers_that_no_account_can_have(fields: tuple[int, int, int | None]) -> None:
    records = pack_account(spread_key(1), *fields)
    manifest = Manifest(1_440, HASH, (Chunk(0, 1, subtree_root(leaves(records), 0)),))
    with refuses(Refusal.FORMAT, "larger than 2"):
        check_chunk(manifest, 0, records)
