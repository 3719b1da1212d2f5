"""A transfer from the wish of a user to what is signed: functions of values, tested without a node or a key."""

from typing import Final

from attrs import frozen

from svcd.chain.address import decode_address
from svcd.chain.params import NETWORKS, NetworkParams
from svcd.chain.transaction import Draft
from svcd.wallet.answer import Answer
from svcd.wallet.failed import Failed
from svcd.wallet.keyfile import Keyfile
from svcd.wallet.show import Rows, coins, counted

MAX_CLOCK_DIFFERENCE: Final = 5 * 60 * 1000
"""Milliseconds. A transfer signed by a wrong clock may be refused later, or stay valid longer than meant."""


@frozen(kw_only=True)
class Wish:
    """What the user asks for; money in base units. What is None is for the node to say."""

    recipient: str
    amount: int
    reference: str | None = None
    fee: int | None = None
    nonce: int | None = None


@frozen(kw_only=True)
class View:
    """What the node says of its network and of the sender's account."""

    params: NetworkParams
    minimum_fee: int
    balance: int
    nonce: int
    """The next one to use on the chain."""
    pending_nonce: int
    """The next one to use after the transfers that wait."""
    tip_time: int
    """When the slot of the newest block began, in Unix milliseconds."""
    catching_up: bool


def network_of(status: Answer, consensus: Answer) -> NetworkParams:
    """The network that a node is on, by its status and consensus answers; raises Failed if it is none we know."""
    chain_id = status.text("chainId")
    params = next((known for known in NETWORKS.values() if known.chain_id == chain_id), None)
    if params is None:
        known = ", ".join(known.chain_id for known in NETWORKS.values())
        raise Failed(f"the node is on the network {chain_id}, which svc does not know; it knows {known}")
    for answer in (status, consensus):
        if answer.text("genesisHash") != params.genesis_hash.hex() or answer.count("networkId") != params.network_id:
            raise Failed(f"the node says that it is on {chain_id}, but its genesis is another one: do not trust it")
    return params


def view_of(status: Answer, consensus: Answer, account: Answer) -> View:
    """What the three answers say; raises Failed."""
    params = network_of(status, consensus)
    return View(
        params=params,
        minimum_fee=consensus.number("minimumFee"),
        balance=account.number("balance"),
        nonce=account.number("nonce"),
        pending_nonce=account.number("pendingNonce"),
        tip_time=params.slot_time(status.number("slot")),
        catching_up=status.text("syncState") != "synced",
    )


def check_wallet(keyfile: Keyfile, params: NetworkParams) -> None:
    """Raise Failed unless ``keyfile`` is of the node's network."""
    if keyfile.params.name != params.name:
        raise Failed(
            f"the wallet is of {keyfile.params.name} and the node is on {params.name}; choose another with --keyfile,"
            " or another node with --url"
        )


def check_clock(now: int, node_time: int) -> None:
    """Raise Failed if the clocks, both in Unix milliseconds, are more than five minutes apart."""
    difference = abs(now - node_time)
    if difference > MAX_CLOCK_DIFFERENCE:
        raise Failed(
            f"this computer's clock and the node's are {difference // 1000} s apart; set the clock that is wrong:"
            f" up to {MAX_CLOCK_DIFFERENCE // 1000} s are accepted"
        )


def draft_of(wish: Wish, view: View, now: int) -> Draft:
    """The transfer that is asked for, at the time ``now`` in Unix milliseconds.

    Raises Failed, or RuleViolation for a recipient that is no address of the network.
    """
    decode_address(wish.recipient, view.params.address_prefix, "recipient")
    fee = view.minimum_fee if wish.fee is None else wish.fee
    if fee < view.minimum_fee:
        raise Failed(f"a fee of {coins(fee)} is too small; the network asks for at least {coins(view.minimum_fee)}")
    nonce = view.pending_nonce if wish.nonce is None else wish.nonce
    if nonce < view.nonce:
        raise Failed(f"nonce {nonce} is used already; the next one is {view.nonce}")
    missing = wish.amount + fee - view.balance
    if missing > 0:
        raise Failed(
            f"the balance of {coins(view.balance)} is short by {coins(missing)}: the amount is {coins(wish.amount)},"
            f" the fee {coins(fee)}"
        )
    return Draft(
        recipient=wish.recipient, amount=wish.amount, fee=fee, nonce=nonce, timestamp=now, reference=wish.reference
    )


def review(draft: Draft, view: View, sender: str) -> Rows:
    """What the user must see before anything is signed."""
    spent = draft.fee if draft.recipient == sender else draft.amount + draft.fee
    return [
        ("network", f"{view.params.chain_id} ({view.params.name})"),
        ("from", sender),
        ("recipient", draft.recipient),
        ("amount", coins(draft.amount)),
        ("reference", draft.reference or "none"),
        ("fee", coins(draft.fee)),
        ("total", coins(draft.amount + draft.fee)),
        ("balance after", coins(view.balance - spent)),
        ("nonce", str(draft.nonce)),
    ]


def warnings(draft: Draft, view: View, sender: str) -> list[str]:
    """What is allowed and perhaps not meant, a sentence each."""
    found = []
    if view.catching_up:
        found.append("the node is still catching up: what it says of the balance and the nonce may be old")
    if draft.recipient == sender:
        found.append("the recipient is the sender: only the fee will be spent")
    waiting = view.pending_nonce - view.nonce
    if draft.nonce < view.pending_nonce:
        found.append(f"a transfer with nonce {draft.nonce} waits already; this one can only take its place")
    elif waiting:
        found.append(f"{counted(waiting, 'earlier transfer')} in no block yet: the balance does not count that")
    if draft.nonce > view.pending_nonce:
        found.append(f"the nonce after the last one is {view.pending_nonce}; until it is used this transfer must wait")
    return found
