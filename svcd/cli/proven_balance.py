"""`svc balance --trustless`: an account against the chain that nodes prove (docs/protocol.md 13)."""

from typing import Final

from attrs import frozen

from svcd.chain.accounts import Account
from svcd.chain.address import decode_address
from svcd.chain.params import NetworkParams
from svcd.chain.state_root import state_root
from svcd.chain.transition import genesis_accounts
from svcd.chain.units import format_coins
from svcd.cli.errors import ErrorResponse
from svcd.cli.http_client import NodeClient
from svcd.cli.rendering import property_table
from svcd.cli.session import Session
from svcd.cli.trustless import Claim, Questions, Verified, network_of
from svcd.light.account_proof import AccountProof, check_account, parse_account_proof
from svcd.light.chain_proof import ProvenChain, Unproved
from svcd.quantities import counted

NOT_SHOWN: Final = (
    "whether a heavier chain is hidden by all these nodes; the state after the newest block is the word of its producer"
    " until others build on it"
)
_ATTEMPTS: Final = 3


@frozen
class ProvenAccount:
    """An account, and the block after which it is as shown."""

    account: Account | None
    """None if there is none."""
    height: int
    confirmations: int
    """Blocks from that block to the tip, including both."""


def show_proven_balance(session: Session, address: str, minimum_work: int) -> None:
    """Print the balance of an address that is proved on the chain with the most work; raises CommandError.

    A chain with less than ``minimum_work``, in hashes, is refused.
    """
    params = network_of(address, session.meant)
    questions = Questions(session, params, minimum_work)
    verified = questions.most_work(
        lambda node: _claim(questions, node, address),
        lambda proof, chain: _check(proof, chain, address, params),
        "the balance",
    )
    session.print_result(_members(address, verified), _text(address, verified, params.unit))


def _claim(questions: Questions, node: NodeClient, address: str) -> Claim[AccountProof]:
    """The account that a node shows, and the chain up to its block; raises CommandError or Unproved."""
    for attempt in range(1, _ATTEMPTS + 1):
        shown = questions.proof(node, f"/rpc/proof/account/{address}")
        proof = parse_account_proof(shown, questions.params)
        try:
            return Claim(questions.chain(node, proof.block), proof)
        except ErrorResponse as error:
            # The block may have been undone between the two requests.
            if error.status != 404 or attempt == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _check(proof: AccountProof, chain: ProvenChain, address: str, params: NetworkParams) -> ProvenAccount:
    if proof.key != decode_address(address, params.address_prefix):
        raise Unproved("the proof is for another address than the one that was asked for")
    header = next((header for header in chain.headers.values() if header.hash == proof.block), None)
    # No proof shows the header of the genesis, whose accounts are in the rules.
    root = state_root(genesis_accounts(params).items()) if header is None else header.state_root
    height = 0 if header is None else header.height
    account = check_account(proof, block=proof.block, height=height, state_root=root)
    return ProvenAccount(account, height, chain.tip.height - height + 1)


def _members(address: str, verified: Verified[ProvenAccount]) -> dict[str, object]:
    proven, account = verified.result, verified.result.account or Account(0)
    return {
        "address": address,
        "exists": proven.account is not None,
        "balance": str(account.balance),
        "nonce": str(account.nonce),
        "heldSince": None if account.held_since is None else str(account.held_since),
        "blockHeight": str(proven.height),
        "confirmations": proven.confirmations,
        **verified.members(NOT_SHOWN),
    }


def _text(address: str, verified: Verified[ProvenAccount], unit: str) -> str:
    proven, account = verified.result, verified.result.account or Account(0)
    return property_table(
        [
            ("address", address),
            ("balance", f"{format_coins(account.balance, unit)}, proved"),
            ("base units", str(account.balance)),
            ("next nonce", str(account.nonce)),
            ("held since", "none" if account.held_since is None else f"slot {account.held_since}"),
            ("block", f"{proven.height}, {counted(proven.confirmations, 'confirmation')}"),
            *verified.rows(NOT_SHOWN),
        ]
    )
