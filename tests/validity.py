"""The checks of a block in the order of docs/protocol.md 10, over accounts in a dictionary."""

from collections.abc import Collection, Mapping

from attrs import frozen

from svcd.chain.accounts import Account
from svcd.chain.block import parse_block
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.state_root import state_root
from svcd.chain.transition import ChainHead, apply_block, check_header, check_state_root
from svcd.chain.work import check_work


@frozen
class Accounts:
    """A `StateView` over a dictionary."""

    state: Mapping[bytes, Account]

    def accounts(self, keys: Collection[bytes]) -> dict[bytes, Account]:
        return {key: self.state[key] for key in keys if key in self.state}


@frozen
class Verdict:
    """Which rule a block breaks, and at which stage that is found."""

    stage: str
    rule: Refusal


def judge(params: NetworkParams, data: bytes, *, parent: ChainHead, before: Mapping[bytes, Account]) -> Verdict | None:
    """The verdict on the block in ``data`` behind ``parent`` and its accounts ``before``; None if it is valid."""
    stage = "fields"
    try:
        block = parse_block(data, params)
        stage = "signature"
        block.header.check_signature()
        stage = "body"
        block.check_body()
        stage = "place"
        check_header(params, parent, block.header)
        stage = "work"
        check_work(block.header, params)
        stage = "transactions"
        for transfer in block.transfers:
            transfer.check_signature()
        stage = "state"
        root = state_root((dict(before) | apply_block(params, block, Accounts(before)).after).items())
        check_state_root(block.header, root)
    except RuleViolation as refusal:
        return Verdict(stage, refusal.code)
    return None
