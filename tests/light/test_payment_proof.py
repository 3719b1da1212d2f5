"""Payment proofs: valid ones, and every way to forge one (docs/payment-proof.md)."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.block import transactions_root
from svcd.chain.errors import RuleViolation
from svcd.chain.merkle import inclusion_path, leaf_hash, node_hash
from svcd.chain.params import DEVNET
from svcd.chain.signature import sign
from svcd.chain.transaction import Draft, Transfer, block_entry, parse_transfer, sign_transfer
from svcd.chain.work import check_work
from svcd.commerce.payment_request import PaymentTerms
from svcd.light.chain_proof import ChainProof
from svcd.light.payment_proof import Proof, Unproved, check, check_depth, check_payment, proof_in
from tests.chains import TEST_PARAMS, ChainBuilder, address_of, key_of
from tests.light.proofs import PAID, PLACE, answer_of, parsed, rebuilt, rendered

BOB = address_of("bob", "svct")
TERMS = PaymentTerms("order-1", BOB, 5000, 4)
CHAIN = ChainBuilder()
BLOCKS = list(CHAIN.chain(PAID).values())
ANSWER = json.dumps(json.loads(rendered(CHAIN, BLOCKS, 3, PLACE)))
ELSEWHERE = "the path does not lead from the transfer to the transactionsRoot of the header"


def proof_object() -> dict[str, Any]:
    """The answer, for the test to change."""
    answer: dict[str, Any] = json.loads(ANSWER)
    return answer


def good() -> Proof:
    """A valid proof."""
    return parsed(proof_object())


def verdict(proof: Proof, terms: PaymentTerms = TERMS) -> str | None:
    """The sentence of the first check that refuses a proof; None if it is valid."""
    try:
        check_payment(terms, proof)
        proven = check(proof)
        check_depth(terms.required, proven.confirmations)
        for header in proven.chain.headers.values():
            check_work(header, proof.params)
    except (Unproved, RuleViolation) as refused:
        return str(refused)
    return None


def flaw(proof: Proof) -> str | None:
    """The same without terms."""
    transfer = proof.transfer
    recipient = next(name for name in ("bob", "carol") if key_of(name).hash == transfer.recipient)
    return verdict(proof, PaymentTerms(str(transfer.reference), address_of(recipient, "svct"), transfer.amount, 1))


def mutated(change: Callable[[dict[str, Any]], object]) -> Proof:
    """The proof after ``change`` of its JSON object."""
    answer = proof_object()
    change(answer["proof"])
    return parsed(answer)


# Good proofs


@pytest.mark.parametrize("position", range(5))
def test_every_transfer_of_a_block_has_a_proof(position: int) -> None:
    proof = proof_in(rendered(CHAIN, BLOCKS, 3, position), [DEVNET, TEST_PARAMS])
    proven = check(proof)
    assert proof.transfer.wire == BLOCKS[2].transfers[position].wire
    assert (proven.chain.tip.hash, proven.chain.headers[3].hash) == (BLOCKS[-1].header.hash, BLOCKS[2].header.hash)
    assert (proven.confirmations, proof.height, proof.position) == (4, 3, position)


def test_a_proof_of_the_first_block_and_one_of_the_tip() -> None:
    text = "genesis: b[1..2]\nb1 pays 5 from alice to bob for first\nb2 pays 6 from alice to bob for last"
    first, last = parsed(answer_of(text, 1, 0)), parsed(answer_of(text, 2, 0))
    assert verdict(first, PaymentTerms("first", BOB, 5, 2)) is None
    assert verdict(last, PaymentTerms("last", BOB, 6, 1)) is None


def test_a_proof_meets_its_terms() -> None:
    assert verdict(good()) is None


def test_proofs_hold_across_multipliers_halvings_and_gaps() -> None:
    text = "genesis: b[1..120]\nb20 pays 5 from alice to bob for early\nb40 is at slot 150\nb70 is at slot 211"
    proof = parsed(answer_of(text, 20, 0))
    assert verdict(proof, PaymentTerms("early", BOB, 5, 101)) is None
    headers = check(proof).chain.headers.values()
    assert len({header.multiplier for header in headers}) > 1
    assert len({header.base_target for header in headers}) > 2


def test_a_proof_may_have_more_values_than_what_peers_send() -> None:
    """One of a chain of millions of blocks has thousands of small ones; here they are too many for a path only."""
    with pytest.raises(Unproved, match="path"):
        mutated(lambda proof: proof["path"].extend([""] * 100_000))


def test_white_space_and_order_of_members_do_not_matter() -> None:
    assert verdict(proof_in(json.dumps(proof_object(), indent=3, sort_keys=True).encode(), [TEST_PARAMS])) is None


# Forgeries: the transfer


def test_another_amount_is_refused() -> None:
    assert verdict(good(), evolve_terms(amount=5001)) == "the transfer in the proof pays 5000 base units, not 5001"


def test_another_reference_is_refused() -> None:
    sentence = "the transfer in the proof has the reference order-1, not order-2"
    assert verdict(good(), evolve_terms(reference="order-2")) == sentence


def test_a_transfer_without_a_reference_pays_no_order() -> None:
    proof = parsed(answer_of(PAID, 3, 0))
    assert verdict(proof, PaymentTerms("order-1", address_of("carol", "svct"), 1, 1)) == (
        "the transfer in the proof has no reference, not order-1"
    )


def test_another_recipient_is_refused() -> None:
    carol = address_of("carol", "svct")
    assert verdict(good(), evolve_terms(recipient=carol)) == f"the transfer in the proof pays {BOB}, not {carol}"


def test_the_same_key_on_another_network_is_another_recipient() -> None:
    mainnet = address_of("bob", "svc")
    assert verdict(good(), evolve_terms(recipient=mainnet)) == f"the transfer in the proof pays {BOB}, not {mainnet}"


def evolve_terms(**changes: Any) -> PaymentTerms:
    """The terms with changes."""
    fields = {"reference": "order-1", "recipient": BOB, "amount": 5000, "required": 4, "since_height": None}
    return PaymentTerms(**{**fields, **changes})


def test_a_payment_from_before_the_order_does_not_count() -> None:
    assert verdict(good(), evolve_terms(since_height=3)) is None
    refused = verdict(good(), evolve_terms(since_height=4))
    assert refused == "the payment is in block 3; only block 4 and later ones count"


def test_confirmations_are_counted_to_the_tip() -> None:
    refused = verdict(good(), evolve_terms(required=5))
    assert refused == "the proof shows 4 confirmations and 5 are required; fetch a new one after more blocks"


@pytest.mark.parametrize(
    ("name", "value"),
    [("amount", "5001"), ("paymentReference", "order-2"), ("recipient", address_of("mallory", "svct"))],
)
def test_a_changed_transfer_has_an_invalid_signature(name: str, value: str) -> None:
    proof = mutated(lambda proof: proof["transaction"]["payload"].update({name: value}))
    with pytest.raises(Unproved, match="is not its sender's"):
        check(proof)


def test_a_signature_by_another_key_is_not_the_senders() -> None:
    transfer = good().transfer
    fields = json.loads(transfer.wire)
    fields["signature"] = sign(key_of("mallory").seed, transfer.txid).hex()
    proof = holding(parse_transfer(fields, TEST_PARAMS))
    assert str(flaw(proof)).endswith("is not its sender's")


def test_a_transfer_that_is_not_in_the_block() -> None:
    draft = Draft(recipient=BOB, amount=5000, fee=10_000, nonce=1, timestamp=TEST_PARAMS.genesis_time, reference="x")
    forged = sign_transfer(draft, seed=key_of("carol").seed, params=TEST_PARAMS)
    assert flaw(mutated(lambda proof: proof.update(transaction=json.loads(forged.wire)))) == ELSEWHERE


def test_a_transfer_that_is_too_old_for_its_block() -> None:
    """A block with such a transfer is invalid."""
    draft = Draft(recipient=BOB, amount=5000, fee=10_000, nonce=0, timestamp=0, reference="order-1")
    proof = holding(sign_transfer(draft, seed=key_of("carol").seed, params=TEST_PARAMS))
    assert str(flaw(proof)).startswith("timestamp must be from")


def holding(transfer: Transfer, **changes: object) -> Proof:
    """A proof of ``transfer`` alone in a block that was mined again, like those on top."""
    fields = {"transactions_root": transactions_root((transfer,)), "transaction_count": 1, **changes}
    below, above = [[block.header for block in blocks] for blocks in (BLOCKS[:2], BLOCKS[2:])]
    headers = rebuilt(CHAIN.head_after(BLOCKS[1]), above, **fields)
    chain = ChainProof(tip=headers[-1].hash, headers=(*below, *headers), nodes=())
    return evolve(good(), transfer=transfer, position=0, path=(), chain=chain)


def test_a_forger_with_hashing_power_makes_a_chain_of_that_work_and_no_more() -> None:
    """Such a proof is consistent: only another tip, or the work of another chain, gives it away."""
    draft = Draft(
        recipient=BOB, amount=5000, fee=10_000, nonce=9, timestamp=TEST_PARAMS.genesis_time, reference="order-1"
    )
    proof = holding(sign_transfer(draft, seed=key_of("nobody").seed, params=TEST_PARAMS))
    assert verdict(proof) is None
    tip = check(proof).chain.tip
    assert tip.hash != BLOCKS[-1].header.hash
    with pytest.raises(Unproved, match="less than the required"):
        check(proof, minimum_work=tip.work + 1)


# Forgeries: the path


def test_the_path_of_another_leaf() -> None:
    other = answer_of(PAID, 3, 1)["proof"]
    assert flaw(mutated(lambda proof: proof.update(index=other["index"], path=other["path"]))) == ELSEWHERE


@pytest.mark.parametrize("index", [0, 1, 3])
def test_another_index(index: int) -> None:
    assert flaw(mutated(lambda proof: proof.update(index=index))) == ELSEWHERE


@pytest.mark.parametrize("index", [5, 2**53 - 1])
def test_an_index_beyond_the_block(index: int) -> None:
    proof = mutated(lambda proof: proof.update(index=index))
    assert flaw(proof) == f"no path of 3 hashes belongs to transaction {index} of 5"


@pytest.mark.parametrize("change", [lambda path: path.pop(), lambda path: path.append("00" * 32)])
def test_a_path_of_another_length(change: Callable[[list[str]], object]) -> None:
    proof = mutated(lambda proof: change(proof["path"]))
    assert str(flaw(proof)).startswith("no path of ")


def test_an_inner_node_is_no_leaf() -> None:
    """Without the tag of leaves, the bytes of an inner node could pass for a transfer."""
    transfer = good().transfer
    entry = block_entry(transfer)
    # What a checker that did not tell them apart would accept: the transfer as an inner node of the tree.
    root = node_hash(entry[:32], entry[32:])
    assert root != leaf_hash(entry)
    proof = holding(transfer, transactions_root=root)
    assert flaw(proof) == ELSEWHERE
    assert flaw(evolve(proof, path=(root,))) == "no path of 1 hashes belongs to transaction 0 of 1"


def test_a_block_that_claims_more_transfers_than_allowed() -> None:
    transfer = good().transfer
    others = [bytes([number % 256, number // 256]) for number in range(2000)]
    entries = [block_entry(transfer), *others]
    proof = holding(transfer, transaction_count=len(entries))
    proof = evolve(proof, path=tuple(inclusion_path(entries, 0)))
    assert flaw(proof) == "a block has at most 2000 transactions, not 2001"


# Forgeries: the chain (tests/light has the others)


def test_the_block_of_another_height_is_another_block() -> None:
    assert flaw(mutated(lambda proof: proof.update(height="4"))) == "no path of 3 hashes belongs to transaction 2 of 0"
    for height in ("0", "7"):
        refused = flaw(mutated(lambda proof, height=height: proof.update(height=height)))
        assert refused == f"the chain section does not show the block at height {height}"


@pytest.mark.parametrize("number", range(6))
def test_a_missing_header(number: int) -> None:
    refused = flaw(mutated(lambda proof: proof["chain"]["headers"].pop(number)))
    assert refused is not None
    assert refused.endswith("are missing" if number < 5 else f"and not its tip {BLOCKS[-1].header.hash.hex()}")


def test_a_chain_without_work() -> None:
    chain = ChainBuilder()
    blocks = list(chain.chain(f"{PAID}b5 has an invalid work\n").values())
    proof = proof_in(rendered(chain, blocks, 3, PLACE), [TEST_PARAMS])
    assert flaw(proof) == f"the work of block {blocks[4].header.hash.hex()} does not reach its target"


# Forgeries: the network


def test_a_proof_for_another_network() -> None:
    with pytest.raises(Unproved, match="for another network; without the network's file it must be for SVC-DEVNET"):
        proof_in(ANSWER.encode(), [DEVNET])
    with pytest.raises(Unproved, match="for another network that calls itself SVC-TEST"):
        proof_in(ANSWER.encode(), [evolve(TEST_PARAMS, minimum_fee=9_999)])


def test_a_chain_with_other_rules_under_the_same_name() -> None:
    """The hash of each header follows from our rules and genesis, so the next one does not name it."""
    other = ChainBuilder(evolve(TEST_PARAMS, minimum_fee=9_999))
    answer = json.loads(rendered(other, list(other.chain(PAID).values()), 3, PLACE))
    genesis_hash = proof_object()["proof"]["genesisHash"]
    answer["proof"] |= {"genesisHash": genesis_hash, "transaction": proof_object()["proof"]["transaction"]}
    assert flaw(parsed(answer)) == "the header at height 1 does not build on the block before it"
    answer["proof"]["chain"]["headers"][0]["parentHash"] = genesis_hash
    assert flaw(parsed(answer)) == "the header at height 2 does not build on the block before it"


# One accepted form


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda a: a.update(extra=1), 'the answer has an unknown field "extra"'),
        (lambda a: a.pop("next"), "the answer lacks the field next"),
        (lambda a: a.update(ok=1), "ok must be true, and next null"),
        (lambda a: a.update(next="6"), "ok must be true, and next null"),
        (lambda a: a.update(proof=[]), "proof must be a JSON object"),
        (lambda a: a["proof"].update(tip="00"), 'proof has an unknown field "tip"'),
        (lambda a: a["proof"].pop("path"), "proof lacks the field path"),
        (lambda a: a["proof"].update(index="2"), "index must be a whole JSON number"),
        (lambda a: a["proof"].update(index=True), "index must be a whole JSON number"),
        (lambda a: a["proof"].update(path={}), "path must be an array of at most 64 hashes"),
        (lambda a: a["proof"].update(path=["00" * 32] * 65), "path must be an array of at most 64 hashes"),
        (lambda a: a["proof"].update(path=["AB" * 32]), r"path\[0\] must be 64 lower-case hex characters"),
        (lambda a: a["proof"].update(height=3), "height must be a decimal string"),
        (lambda a: a["proof"].update(height="03"), "height must be a decimal string without"),
        (lambda a: a["proof"].update(chain=[]), "chain must be a JSON object"),
        (lambda a: a["proof"]["chain"].update(headers={}), "headers and nodes must be arrays"),
        (lambda a: a["proof"]["chain"]["headers"][1].update(slot="010"), r"slot of headers\[1\] must be a decimal"),
        (lambda a: a["proof"]["chain"]["headers"][0].update(hash="00"), r"headers\[0\] has an unknown field"),
        (lambda a: a["proof"]["transaction"].update(fee="010000"), "fee must be a decimal string without"),
        (lambda a: a["proof"]["transaction"].update(txid="00"), 'transaction has an unknown field "txid"'),
        (lambda a: a["proof"].update(chainId=["SVC-TEST"]), "without the network's file it must be for SVC-TEST"),
        (lambda a: a["proof"].update(genesisHash="00"), "genesisHash must be 64 lower-case hex"),
    ],
)
def test_another_form_is_refused(change: Callable[[dict[str, Any]], object], sentence: str) -> None:
    answer = proof_object()
    change(answer)
    with pytest.raises(Unproved, match=sentence):
        parsed(answer)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "not JSON"),
        (b"[]", "the answer must be a JSON object"),
        (b'{"ok":false,"error":"no"}', 'the answer has an unknown field "error"'),
        (b"\xff", "byte 0 is not UTF-8"),
        (ANSWER.replace('"index": 2', '"index": 2, "index": 2').encode(), 'the key "index" occurs twice'),
        (ANSWER.replace('"index": 2', '"index": 2.0').encode(), "2.0 is not accepted"),
        ((ANSWER + "x").encode(), "not JSON: extra data"),
    ],
)
def test_other_text_is_refused(text: bytes, sentence: str) -> None:
    with pytest.raises(Unproved, match=sentence):
        proof_in(text, [TEST_PARAMS])


# Laws


@given(st.data())
def test_a_change_of_any_character_is_refused(data: st.DataObject) -> None:
    """Every character of a proof counts: with any other it does not prove the same payment."""
    text = ANSWER.encode()
    place = data.draw(st.integers(0, len(text) - 1))
    if not chr(text[place]).isalnum():
        return
    other = data.draw(st.sampled_from([c for c in b"0123456789abcdefxyz" if c != text[place]]))
    changed = text[:place] + bytes([other]) + text[place + 1 :]
    try:
        proof = proof_in(changed, [TEST_PARAMS])
    except Unproved:
        return
    assert verdict(proof) is not None
