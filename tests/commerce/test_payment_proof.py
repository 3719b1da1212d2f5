"""Payment proofs: valid ones, and every way to forge one (docs/payment-proof.md)."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.block import parse_header, transactions_root
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.merkle import inclusion_path, leaf_hash, node_hash
from svcd.chain.params import DEVNET
from svcd.chain.signature import sign
from svcd.chain.transaction import Draft, Transfer, block_entry, parse_transfer, sign_transfer
from svcd.chain.work import check_work, effective_target
from svcd.commerce.payment_proof import (
    Proof,
    Unproved,
    check,
    check_terms,
    check_tip,
    expected_evaluations,
    parse_proof,
    render_proof,
)
from svcd.commerce.payment_request import PaymentTerms
from tests.chains import TEST_PARAMS, ChainBuilder, address_of, key_of
from tests.commerce.proofs import PAID, PLACE, answer_of, excerpt_of, parsed, rebuilt, sealed

BOB = address_of("bob", "svct")
TERMS = PaymentTerms("order-1", BOB, 5000, 4)
ANSWER = json.dumps(answer_of())


def proof_object() -> dict[str, Any]:
    """The answer, for the test to change."""
    answer: dict[str, Any] = json.loads(ANSWER)
    return answer


def good() -> Proof:
    """A valid proof."""
    return parsed(proof_object())


def verdict(proof: Proof, terms: PaymentTerms = TERMS, tip: bytes | None = None) -> str | None:
    """The sentence of the first check that refuses a proof; None if it is valid."""
    try:
        check_terms(terms, proof)
        check_tip(good().last.hash if tip is None else tip, proof)
        check(proof)
        for header in proof.headers:
            check_work(header, proof.params)
    except (Unproved, RuleViolation) as refused:
        return str(refused)
    return None


def flaw(proof: Proof) -> str | None:
    """The same without terms and tip."""
    transfer = proof.transfer
    recipient = next(name for name in ("bob", "carol") if key_of(name).hash == transfer.recipient)
    terms = PaymentTerms(str(transfer.reference), address_of(recipient, "svct"), transfer.amount, 1)
    return verdict(proof, terms, proof.last.hash)


def mutated(change: Callable[[dict[str, Any]], object]) -> Proof:
    """The proof after ``change`` of its JSON object."""
    answer = proof_object()
    change(answer["proof"])
    return parsed(answer)


# Good proofs


@pytest.mark.parametrize("position", range(5))
def test_every_transfer_of_a_block_has_a_proof(position: int) -> None:
    chain = ChainBuilder()
    blocks = list(chain.chain(PAID).values())
    proof = parse_proof([render_proof(TEST_PARAMS, excerpt_of(chain, blocks, 3, position))], [DEVNET, TEST_PARAMS])
    check(proof)
    check_tip(blocks[-1].header.hash, proof)
    assert proof.transfer.wire == blocks[2].transfers[position].wire
    assert (proof.confirmations, proof.block.hash, proof.position) == (4, blocks[2].header.hash, position)


def test_a_proof_of_the_first_block_and_one_of_the_tip() -> None:
    text = "genesis: b[1..2]\nb1 pays 5 from alice to bob for first\nb2 pays 6 from alice to bob for last"
    first, last = parsed(answer_of(text, 1, 0)), parsed(answer_of(text, 2, 0))
    assert verdict(first, PaymentTerms("first", BOB, 5, 2), last.last.hash) is None
    assert verdict(last, PaymentTerms("last", BOB, 6, 1), first.last.hash) is None
    assert (first.confirmations, last.confirmations) == (2, 1)


def test_a_proof_meets_its_terms() -> None:
    assert verdict(good()) is None


def test_proofs_hold_across_multipliers_halvings_and_gaps() -> None:
    text = "genesis: b[1..120]\nb20 pays 5 from alice to bob for early\nb40 is at slot 150\nb70 is at slot 211"
    proof = parsed(answer_of(text, 20, 0))
    assert verdict(proof, PaymentTerms("early", BOB, 5, 101), proof.last.hash) is None
    assert len({header.multiplier for header in proof.headers}) > 1
    assert len({header.base_target for header in proof.headers}) > 2


def test_an_answer_and_its_continuations_are_one_proof() -> None:
    chain = ChainBuilder()
    blocks = list(chain.chain(PAID).values())
    whole = excerpt_of(chain, blocks, 3, PLACE)
    first = excerpt_of(chain, blocks, 3, PLACE, on_top=2)
    rest = evolve(whole, headers=whole.headers[2:])
    texts = [render_proof(TEST_PARAMS, excerpt) for excerpt in (first, rest)]
    assert json.loads(texts[0])["next"] == "6"
    proof = parse_proof(texts, [TEST_PARAMS])
    assert verdict(proof) is None
    assert [header.hash for header in proof.headers] == [header.hash for header in good().headers]


def test_white_space_and_order_of_members_do_not_matter() -> None:
    assert verdict(parse_proof([json.dumps(proof_object(), indent=3, sort_keys=True).encode()], [TEST_PARAMS])) is None


# Forgeries: the transfer


def test_another_amount_is_refused() -> None:
    assert verdict(good(), evolve_terms(amount=5001)) == "the transfer in the proof pays 5000 base units, not 5001"


def test_another_reference_is_refused() -> None:
    sentence = "the transfer in the proof has the reference the reference order-1, not order-2"
    assert verdict(good(), evolve_terms(reference="order-2")) == sentence


def test_a_transfer_without_a_reference_pays_no_order() -> None:
    proof = parsed(answer_of(PAID, 3, 0))
    assert verdict(proof, PaymentTerms("order-1", address_of("carol", "svct"), 1, 1)) == (
        "the transfer in the proof has the reference no reference, not order-1"
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
    proof = mutated(lambda proof: proof.update(transaction=json.loads(forged.wire)))
    assert flaw(proof) == "the path does not lead from the transfer to the transactionsRoot of the header"


def test_a_transfer_that_is_too_old_for_its_block() -> None:
    """A block with such a transfer is invalid."""
    draft = Draft(recipient=BOB, amount=5000, fee=10_000, nonce=0, timestamp=0, reference="order-1")
    proof = holding(sign_transfer(draft, seed=key_of("carol").seed, params=TEST_PARAMS))
    assert str(flaw(proof)).startswith("timestamp must be from")


def holding(transfer: Transfer, **changes: object) -> Proof:
    """A proof of ``transfer`` alone in a block that was mined again, like those on top."""
    proof = good()
    fields = {"transactions_root": transactions_root((transfer,)), "transaction_count": 1, **changes}
    headers = rebuilt(proof.parent, proof.headers, **fields)
    return evolve(proof, transfer=transfer, position=0, path=(), headers=tuple(headers))


def test_a_forger_with_hashing_power_cannot_forge_the_trusted_tip() -> None:
    """Such a proof is consistent: only the tip, or the cost of its work, gives it away."""
    draft = Draft(
        recipient=BOB, amount=5000, fee=10_000, nonce=9, timestamp=TEST_PARAMS.genesis_time, reference="order-1"
    )
    proof = holding(sign_transfer(draft, seed=key_of("nobody").seed, params=TEST_PARAMS))
    assert flaw(proof) is None
    assert str(verdict(proof)).startswith(f"the proof ends in block {proof.last.hash.hex()} at height 6, not in ")


# Forgeries: the path


def test_the_path_of_another_leaf() -> None:
    other = answer_of(PAID, 3, 1)["proof"]
    proof = mutated(lambda proof: proof.update(index=other["index"], path=other["path"]))
    assert flaw(proof) == "the path does not lead from the transfer to the transactionsRoot of the header"


@pytest.mark.parametrize("index", [0, 1, 3])
def test_another_index(index: int) -> None:
    proof = mutated(lambda proof: proof.update(index=index))
    assert flaw(proof) == "the path does not lead from the transfer to the transactionsRoot of the header"


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
    assert flaw(proof) == "the path does not lead from the transfer to the transactionsRoot of the header"
    shorter = evolve(proof, position=0, path=(root,))
    assert flaw(shorter) == "no path of 1 hashes belongs to transaction 0 of 1"


def test_a_block_that_claims_more_transfers_than_allowed() -> None:
    transfer = good().transfer
    others = [bytes([number % 256, number // 256]) for number in range(2000)]
    entries = [block_entry(transfer), *others]
    root = transactions_root((transfer,))
    proof = holding(transfer, transaction_count=len(entries), transactions_root=root)
    proof = evolve(proof, path=tuple(inclusion_path(entries, 0)))
    assert flaw(proof) == "transactionCount is 2001, more than a block holds"


# Forgeries: the headers


@pytest.mark.parametrize("kept", range(3))
def test_missing_headers_at_the_end(kept: int) -> None:
    proof = mutated(lambda proof: proof["headers"].__delitem__(slice(kept, None)))
    assert verdict(proof) == (
        f"the proof shows {kept + 1} confirmations and 4 are required; fetch a new one after more blocks"
    )
    assert str(verdict(proof, evolve_terms(required=1))).startswith("the proof ends in block ")


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_header(number: int) -> None:
    proof = mutated(lambda proof: proof["headers"].pop(number))
    assert flaw(proof) == f"the header at height {number + 5} does not build on the one before it"


def test_reordered_and_repeated_headers() -> None:
    reversed_ = mutated(lambda proof: proof["headers"].reverse())
    assert flaw(reversed_) == "the header at height 6 does not build on the one before it"
    twice = mutated(lambda proof: proof["headers"].insert(0, proof["headers"][0]))
    assert flaw(twice) == "the header at height 4 does not build on the one before it"


def test_the_header_of_another_block_below_the_same_headers() -> None:
    other = answer_of(PAID.replace("5000 from", "5001 from"))["proof"]
    proof = mutated(lambda proof: proof.update(other, headers=proof["headers"]))
    assert flaw(proof) == "the header at height 4 does not build on the one before it"


def breaking(rule: Refusal) -> Proof:
    """A proof whose second header breaks one rule and no other."""
    return parsed(answer_of(f"{PAID}b4 has an invalid {rule.value.replace('-', ' ')}\n"))


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (Refusal.WORK, "does not reach its target"),
        (Refusal.BLOCK_SIGNATURE, "is not signed by its producer's key"),
        (Refusal.HEIGHT, "height must be 4 here, not 5"),
        (Refusal.SLOT, "slot must be greater than the parent's 6, not 6"),
        (Refusal.BASE_TARGET, "baseTarget is not the target due at height 4"),
        (Refusal.CONSENSUS_ROOT, "consensusRoot is not that of the chain after this block"),
    ],
)
def test_a_header_that_breaks_a_rule(rule: Refusal, sentence: str) -> None:
    assert sentence in str(flaw(breaking(rule)))


def test_a_multiplier_that_does_not_exist() -> None:
    proof = good()
    headers = list(proof.headers)
    headers[-1] = sealed(evolve(headers[-1], multiplier=20_000, producer_key=key_of("p").public))
    assert flaw(evolve(proof, headers=tuple(headers))) == (
        "the header at height 6 is not valid: multiplier 20000 is not in the schedule"
    )


def test_an_easier_target_than_the_clock_gives() -> None:
    """Every consensusRoot commits to the clock, and the target follows from that."""
    proof = good()
    first = proof.headers[0]
    easier = min(first.base_target * 2, TEST_PARAMS.max_target)
    headers = rebuilt(proof.parent, proof.headers, base_target=easier)
    assert flaw(evolve(proof, headers=tuple(headers))) == (
        "the header at height 3 is not valid: baseTarget is not the target due at height 3"
    )


@pytest.mark.parametrize("name", ["slot", "clock"])
def test_a_parent_that_the_block_does_not_commit_to(name: str) -> None:
    def change(proof: dict[str, Any]) -> None:
        proof["parent"][name] = str(int(proof["parent"][name]) - 1)

    assert flaw(mutated(change)) == "parent.history does not have the work, the slot and the clock that parent states"


@pytest.mark.parametrize("part", range(4))
def test_a_history_that_the_block_does_not_commit_to(part: int) -> None:
    """Three blocks before it are two mountains, of which parent states the sum and the end."""

    def change(proof: dict[str, Any]) -> None:
        first, last = proof["parent"]["history"]
        if part == 0:
            first[0] = "0" * 64
        elif part == 1:
            first[1], last[1] = f"{int(first[1], 16) - 1:x}", f"{int(last[1], 16) + 1:x}"
        else:
            first[part] = str(int(first[part]) + 1)

    refused = "the header at height 3 is not valid: consensusRoot is not that of the chain after this block"
    assert flaw(mutated(change)) == refused


def test_a_history_that_ends_in_another_block_than_the_parent() -> None:
    """A digest can be made up with the rest of the history; the header's parentHash cannot follow it."""

    def change(proof: dict[str, Any]) -> None:
        proof["parent"]["history"][-1][0] = "0" * 64

    assert flaw(mutated(change)) == "parent.history ends in another block than the parentHash of the header"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_history_with_too_few_or_too_many_nodes(count: int) -> None:
    def change(proof: dict[str, Any]) -> None:
        proof["parent"]["history"] = (proof["parent"]["history"] * 2)[:count]

    with pytest.raises(Unproved, match=r"parent\.history must be an array of 2 nodes at this height"):
        mutated(change)


def test_cumulative_work_that_the_block_does_not_commit_to() -> None:
    def change(proof: dict[str, Any]) -> None:
        proof["parent"]["cumulativeWork"] = f"{int(proof['parent']['cumulativeWork'], 16) + 1:064x}"

    assert flaw(mutated(change)) == "parent.history does not have the work, the slot and the clock that parent states"


@pytest.mark.parametrize(
    "parent",
    [
        {"slot": "1"},
        {"clock": "0"},
        {"clock": "41"},
        {"slot": "30", "clock": "30"},
        {"slot": "60", "clock": "41"},
        {"cumulativeWork": "f" * 64},
        {"cumulativeWork": "0" * 64},
    ],
)
def test_an_impossible_parent(parent: dict[str, str]) -> None:
    proof = mutated(lambda proof: proof["parent"].update(parent))
    assert flaw(proof) == "no chain of 2 blocks has the slot, the clock and the work that parent states"


def test_the_first_block_builds_on_the_genesis() -> None:
    text = "genesis: b[1..2]\nb1 pays 5 from alice to bob for first"
    for change in ({"slot": "1"}, {"clock": "1"}, {"cumulativeWork": "0" * 63 + "1"}):
        answer = answer_of(text, 1, 0)
        answer["proof"]["parent"].update(change)
        assert flaw(parsed(answer)) == "the block of height 1 must build on the genesis"
    proof = parsed(answer_of(text, 1, 0))
    elsewhere = evolve(proof, parent=evolve(proof.parent, point=evolve(proof.parent.point, hash=bytes(32))))
    assert flaw(elsewhere) == "the block of height 1 must build on the genesis"


# Forgeries: the tip and the network


def test_a_tip_that_is_not_the_last_header() -> None:
    proof = good()
    sentence = str(verdict(proof, tip=proof.headers[2].hash))
    assert sentence.startswith(f"the tip {proof.headers[2].hash.hex()} is in the proof but is not its last block, ")
    assert str(verdict(proof, tip=bytes(32))).startswith("the proof ends in block ")


def test_a_proof_for_another_network() -> None:
    with pytest.raises(Unproved, match="for another network; without the network's file it must be for SVC-DEVNET"):
        parse_proof([ANSWER.encode()], [DEVNET])
    with pytest.raises(Unproved, match="for another network that calls itself SVC-TEST"):
        parse_proof([ANSWER.encode()], [evolve(TEST_PARAMS, minimum_fee=9_999)])


def test_a_chain_with_other_rules_under_the_same_name() -> None:
    """Headers have no genesis hash, but their consensusRoot commits to it."""
    chain = ChainBuilder(evolve(TEST_PARAMS, minimum_fee=9_999))
    blocks = list(chain.chain(PAID).values())
    answer = json.loads(render_proof(chain.params, excerpt_of(chain, blocks, 3, PLACE)))["proof"]
    other = parse_header(answer["header"], TEST_PARAMS)
    transfer = good().transfer
    forged = evolve(
        other, transactions_root=transactions_root((transfer,)), transaction_count=1, producer_key=key_of("p").public
    )
    parent = good().parent
    *earlier, last = parent.history.mountains
    mountains = (*earlier, other.parent_hash + last[32:])
    proof = evolve(
        good(),
        position=0,
        path=(),
        parent=evolve(
            parent,
            point=evolve(parent.point, hash=other.parent_hash),
            history=evolve(parent.history, mountains=mountains),
        ),
        headers=(sealed(evolve(forged, multiplier=10_000)),),
    )
    assert flaw(proof) == "the header at height 3 is not valid: consensusRoot is not that of the chain after this block"


# One accepted form


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda a: a.update(extra=1), 'the answer has an unknown field "extra"'),
        (lambda a: a.pop("next"), "the answer lacks the field next"),
        (lambda a: a.update(ok=1), "ok must be true"),
        (lambda a: a.update(next=6), "next must be a decimal string"),
        (lambda a: a.update(proof=[]), "proof must be a JSON object"),
        (lambda a: a["proof"].update(tip="00"), 'proof has an unknown field "tip"'),
        (lambda a: a["proof"].pop("path"), "proof lacks the field path"),
        (lambda a: a["proof"].update(index="2"), "index must be a whole JSON number"),
        (lambda a: a["proof"].update(index=True), "index must be a whole JSON number"),
        (lambda a: a["proof"].update(path={}), "path must be an array of at most 64 hashes"),
        (lambda a: a["proof"].update(path=["00" * 32] * 65), "path must be an array of at most 64 hashes"),
        (lambda a: a["proof"].update(path=["AB" * 32]), r"path\[0\] must be 64 lower-case hex characters"),
        (lambda a: a["proof"].update(headers={}), "headers must be an array"),
        (lambda a: a["proof"].update(header=[]), "header: header must be a JSON object"),
        (lambda a: a["proof"]["header"].update(height="0"), "the block of a payment has a height of at least 1"),
        (lambda a: a["proof"]["header"].update(height="03"), "header: height must be a decimal string without"),
        (lambda a: a["proof"]["headers"][1].update(slot="010"), r"headers\[1\]: slot must be a decimal string without"),
        (lambda a: a["proof"]["headers"][0].update(hash="00"), r'headers\[0\]: header has an unknown field "hash"'),
        (lambda a: a["proof"]["headers"][0].update(networkId=1), r"headers\[0\]: networkId must be 3"),
        (lambda a: a["proof"]["parent"].update(slot="04"), "parent.slot must be a decimal string without"),
        (lambda a: a["proof"]["parent"].update(height="2"), 'parent has an unknown field "height"'),
        (lambda a: a["proof"]["parent"].update(cumulativeWork="1"), "parent.cumulativeWork must be 64 lower-case hex"),
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
        parse_proof([text], [TEST_PARAMS])


def test_answers_of_two_proofs_are_refused() -> None:
    other = answer_of(PAID, 3, 1)
    with pytest.raises(Unproved, match="the answers belong to different proofs"):
        parsed(proof_object(), other)


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
        proof = parse_proof([changed], [TEST_PARAMS])
    except Unproved:
        return
    assert verdict(proof) is not None


# Cost


def test_the_cost_follows_from_targets_and_claimed_multipliers() -> None:
    proof = good()
    wanted = [2**256 // effective_target(header.base_target, header.multiplier) for header in proof.headers]
    assert expected_evaluations(proof) == sum(wanted)
    dearer = [evolve(header, base_target=2**240, multiplier=10_000) for header in proof.headers]
    assert expected_evaluations(evolve(proof, headers=tuple(dearer))) == 4 * 2**16
    claimed = [evolve(header, base_target=2**240, multiplier=11_000) for header in proof.headers]
    assert expected_evaluations(evolve(proof, headers=tuple(claimed))) == 4 * (2**256 // (2**240 * 11 // 10))
