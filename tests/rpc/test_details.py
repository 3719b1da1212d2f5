"""What the operator is told of the node's rooms."""

from svcd.node.threads import Load
from svcd.rpc.details import Details
from tests.chains import key_of
from tests.rpc.node import Node


def test_the_details_are_those_of_the_moment(node: Node) -> None:
    writer = Load(node.clock)
    details = Details(node.living, writer, key_of("operator").seed, True, lambda: {"verified": 2})
    before = details.record()
    assert before == {
        "participation": {"enabled": True, "address": node.address("operator")},
        "mempool": {"transactions": 0, "bytes": 0},
        "verifierQueue": 0,
        "writerQueue": 0,
        "peers": {"verified": 2},
    }
    writer.job(int)
    assert details.record() == {**before, "writerQueue": 1}


def test_a_node_without_peers_has_none_to_tell_of(node: Node) -> None:
    details = Details(node.living, Load(node.clock), key_of("operator").seed, False, None)
    assert details.record()["peers"] is None
