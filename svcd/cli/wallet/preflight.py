"""The checks before a transfer is signed: pure functions of the request and the node's responses."""

from collections.abc import Collection
from functools import partial
from typing import Final

from attrs import frozen

from svcd.chain.address import decode_address
from svcd.chain.params import NetworkParams, known_networks
from svcd.chain.transaction import Draft, Transfer
from svcd.chain.units import format_coins
from svcd.cli.answers import ResponseObject
from svcd.cli.chain_commands import account
from svcd.cli.errors import CommandError
from svcd.cli.http_client import NodeClient
from svcd.cli.rendering import Rows
from svcd.keyfile import Keyfile
from svcd.quantities import counted

MAX_CLOCK_DIFFERENCE: Final = 5 * 60 * 1000
"""Milliseconds. A transfer signed with a wrong clock may be refused later, or stay valid longer than intended."""

MAX_TIP_AGE: Final = 3 * 60 * 60 * 1000
"""Milliseconds. A chain whose newest block is older has stopped, or the node does not know the present one."""

MAX_FEE_FACTOR: Final = 100
"""A suggested fee may be so many times the minimum that svc knows: a node cannot make a wallet pay any fee."""


@frozen(kw_only=True)
class SendRequest:
    """The transfer that the user asks for; money in base units. None is filled in from the node."""

    recipient: str
    amount: int
    reference: str | None = None
    fee: int | None = None
    nonce: int | None = None
    again: bool = False
    """Whether a second payment is wanted if this wallet has made one with the same terms."""


@frozen(kw_only=True)
class AccountView:
    """The node's view of its network and of the sender's account."""

    params: NetworkParams
    balance: int
    nonce: int
    """The account's next nonce on the chain."""
    pending_nonce: int
    """The account's next nonce after its transfers in the mempool."""
    pending_balance: int
    """The balance left after these transfers."""
    tip_time: int
    """When the slot of the tip began, in Unix milliseconds."""
    catching_up: bool
    replaced: Transfer | None = None
    """The waiting transfer that a new one is to replace, if this wallet has signed it."""


def fetch_account_view(node: NodeClient, keyfile: Keyfile) -> AccountView:
    """The node's view of the wallet's account; raises CommandError if network or clock is wrong."""
    status = node.get("/rpc/status").object("status")
    check_clock(node.clock.milliseconds(), status.number("time"))
    consensus = node.get("/rpc/consensus").object("consensus")
    params = network_params(status, consensus, known_networks(keyfile.params))
    check_wallet(keyfile, params)
    return account_view(params, status, account(node, keyfile.address))


def suggested_fee(node: NodeClient, params: NetworkParams) -> int:
    """The fee that the node suggests, the network's minimum at least; raises CommandError if it is unreasonable."""
    fees = node.get("/rpc/fees").object("fees")
    fee = max(fees.number("suggestedFee"), params.minimum_fee)
    maximum = MAX_FEE_FACTOR * params.minimum_fee
    if fee > maximum:
        raise CommandError(
            f"the node suggests a fee of {format_coins(fee, params.unit)}, more than the"
            f" {format_coins(maximum, params.unit)} that svc pays without asking; give the fee with --fee"
        )
    return fee


def network_params(
    status: ResponseObject, consensus: ResponseObject, networks: Collection[NetworkParams]
) -> NetworkParams:
    """The network of a node; raises CommandError if svc does not know it, or if genesis or minimums are others."""
    chain_id = status.text("chainId")
    params = next((known for known in networks if known.chain_id == chain_id), None)
    if params is None:
        known = ", ".join(known.chain_id for known in networks)
        raise CommandError(
            f"the node is on the network {chain_id}, which svc does not know; it knows {known}, and another from its"
            " file (--network)"
        )
    for response in (status, consensus):
        genesis, network_id = response.text("genesisHash"), response.count("networkId")
        if genesis != params.genesis_hash.hex() or network_id != params.network_id:
            raise CommandError(f"the node claims to be on {chain_id}, but has another genesis block: do not trust it")
    for name, field, known_minimum in (
        ("minimum fee", "minimumFee", params.minimum_fee),
        ("account minimum", "accountMinimum", params.account_minimum),
    ):
        claimed = consensus.number(field)
        if claimed != known_minimum:
            raise CommandError(
                f"the node claims to be on {chain_id}, but its {name} is {format_coins(claimed, params.unit)} and not"
                f" {format_coins(known_minimum, params.unit)}: do not trust it"
            )
    return params


def recipient_balance(node: NodeClient, request: SendRequest, params: NetworkParams) -> int | None:
    """The recipient's balance in base units; None if the amount alone is enough for the account minimum."""
    if request.amount >= params.account_minimum:
        return None
    decode_address(request.recipient, params.address_prefix, "recipient")
    return account(node, request.recipient).number("balance")


def account_view(params: NetworkParams, status: ResponseObject, shown: ResponseObject) -> AccountView:
    """The view in two responses of a node; raises CommandError."""
    return AccountView(
        params=params,
        balance=shown.number("balance"),
        nonce=shown.number("nonce"),
        pending_nonce=shown.number("pendingNonce"),
        pending_balance=shown.number("pendingBalance"),
        tip_time=params.slot_time(status.number("slot")),
        catching_up=status.text("syncState") != "synced",
    )


def check_wallet(keyfile: Keyfile, params: NetworkParams) -> None:
    """Raise CommandError unless ``keyfile`` is for the node's network."""
    if keyfile.params.genesis_hash != params.genesis_hash:
        raise CommandError(
            f"the wallet is for {keyfile.params.name} and the node is on {params.name}; choose another wallet with"
            " --keyfile, or another node with --url"
        )


def check_clock(now: int, node_time: int) -> None:
    """Raise CommandError if the clocks, both in Unix milliseconds, differ by more than ``MAX_CLOCK_DIFFERENCE``."""
    difference = abs(now - node_time)
    if difference > MAX_CLOCK_DIFFERENCE:
        raise CommandError(
            f"the clocks of this computer and of the node differ by {difference // 1000} s; correct the wrong one:"
            f" up to {MAX_CLOCK_DIFFERENCE // 1000} s are accepted"
        )


def check_present(now: int, view: AccountView) -> None:
    """Raise CommandError unless the node's newest block fits the time ``now`` of this computer in Unix milliseconds.

    A node that claims another present could make a wallet sign what the network includes at another time. On devnet,
    where blocks are made on demand, the newest block may have any age.
    """
    ahead = view.tip_time - now
    if ahead > MAX_CLOCK_DIFFERENCE:
        raise CommandError(
            f"the node's newest block is {ahead // 1000} s ahead of this computer's clock, more than the"
            f" {MAX_CLOCK_DIFFERENCE // 1000} s that are accepted: correct the clock, or use another node"
        )
    on_demand = view.params.transaction_future_seconds > view.params.transaction_past_seconds
    if -ahead > MAX_TIP_AGE and not on_demand:
        raise CommandError(
            f"the node's newest block is {-ahead // 60_000} minutes old, more than the {MAX_TIP_AGE // 60_000} that are"
            " accepted: wait until the node has caught up, or use another node"
        )


def build_draft(request: SendRequest, view: AccountView, now: int, *, received: int | None = None) -> Draft:
    """The transfer to sign at the time ``now`` in Unix milliseconds.

    ``received`` is the result of :func:`recipient_balance`, None where the amount alone is enough.
    Raises CommandError, or RuleViolation for a recipient that is not an address of the network.
    """
    decode_address(request.recipient, view.params.address_prefix, "recipient")
    minimum, unit = view.params.minimum_fee, view.params.unit
    fee = minimum if request.fee is None else request.fee
    if fee < minimum:
        raise CommandError(
            f"a fee of {format_coins(fee, unit)} is too low; the network requires at least"
            f" {format_coins(minimum, unit)}"
        )
    nonce = view.pending_nonce if request.nonce is None else request.nonce
    if nonce < view.nonce:
        raise CommandError(f"nonce {nonce} is already used; the next one is {view.nonce}")
    _check_minimums(request.amount, fee, nonce, view, received)
    return Draft(
        recipient=request.recipient,
        amount=request.amount,
        fee=fee,
        nonce=nonce,
        timestamp=now,
        reference=request.reference,
    )


def _check_minimums(amount: int, fee: int, nonce: int, view: AccountView, received: int | None) -> None:
    """Raise CommandError unless sender and recipient are left with the account minimum (docs/protocol.md 4)."""
    minimum, available = view.params.account_minimum, _available(view, nonce)
    coins = partial(format_coins, unit=view.params.unit)
    missing = amount + fee + minimum - available
    if missing > 0:
        waiting = coins(view.balance - available)
        after = f", of which {waiting} are spent by transfers that wait," if available < view.balance else ""
        maximum = amount - missing
        advice = f"; you can send at most {coins(maximum)}" if maximum > 0 and not _is_unsure(view, nonce) else ""
        raise CommandError(
            f"the balance of {coins(view.balance)}{after} is {coins(missing)} too low: the amount is"
            f" {coins(amount)}, the fee {coins(fee)}, and {coins(minimum)} must remain{advice}"
        )
    if received is not None and received + amount < minimum:
        raise CommandError(
            f"the recipient has {coins(received)} and must have {coins(minimum)} after the transfer:"
            f" send at least {coins(minimum - received)}"
        )


def _available(view: AccountView, nonce: int) -> int:
    """What a transfer with ``nonce`` may spend at most; a replacement may spend what the replaced transfer does.

    If that one was signed elsewhere, this is the balance, and only the node knows what the other waiting ones spend.
    """
    if nonce >= view.pending_nonce:
        return view.pending_balance
    if view.replaced is None:
        return view.balance
    return view.pending_balance + view.replaced.amount + view.replaced.fee


def _is_unsure(view: AccountView, nonce: int) -> bool:
    """Whether :func:`_available` is only a bound."""
    return nonce < view.pending_nonce and view.replaced is None


def review(draft: Draft, view: AccountView, sender: str) -> Rows:
    """The summary that the user must see before signing."""
    coins = partial(format_coins, unit=view.params.unit)
    spent = draft.fee if draft.recipient == sender else draft.amount + draft.fee
    return [
        ("network", f"{view.params.chain_id} ({view.params.name})"),
        ("from", sender),
        ("recipient", draft.recipient),
        ("amount", coins(draft.amount)),
        ("reference", draft.reference or "none"),
        ("fee", coins(draft.fee)),
        ("total", coins(draft.amount + draft.fee)),
        ("balance after", coins(_available(view, draft.nonce) - spent)),
        ("nonce", str(draft.nonce)),
    ]


def warnings(draft: Draft, view: AccountView, sender: str, *, resent: bool = False) -> list[str]:
    """Warnings about a transfer that is valid but perhaps not intended, one sentence each.

    The nonce of one that is sent again (``resent``) was judged when it was signed.
    """
    found = []
    if view.catching_up:
        found.append("the node is still catching up: its balance and nonce may be out of date")
    if draft.recipient == sender:
        found.append("the recipient is the sender: only the fee will be spent")
    if resent:
        return found
    pending = view.pending_nonce - view.nonce
    if draft.nonce < view.pending_nonce:
        balance = "counts no pending transfer" if _is_unsure(view, draft.nonce) else "counts what the others spend"
        found.append(
            f"a transfer with nonce {draft.nonce} is pending; this one can only replace it, and the balance after"
            f" {balance}"
        )
    elif pending:
        found.append(f"{counted(pending, 'transfer')} pending: the balance after counts what they spend")
    if draft.nonce > view.pending_nonce:
        found.append(f"the next nonce is {view.pending_nonce}; until that is used, this transfer stays pending")
    return found
