"""What the operator is told of the node's rooms."""

from svcd.node.threads import Load
from svcd.rpc.details import Details
from tests.chains import key_of
from tests.rpc.node import Node


def test_the_details_are_those_of_the_moment(node: Node) -> None:
    writer, enabled = Load(node.clock), [True]
    details = Details(node.living, writer, key_of("operator").seed, lambda: enabled[0], lambda: {"verified": 2}, dict)
    before = details.record()
    assert before == {
        "participation": {"enabled": True, "address": node.address("operator")},
        "mempool": {"transactions": 0, "bytes": 0},
        "verifierQueue": 0,
        "writerQueue": 0,
        "webhooks": {},
        "peers": {"verified": 2},
    }
    writer.job(int)
    assert details.record() == {**before, "writerQueue": 1}
    enabled[0] = False
    assert details.record()["participation"] == {"enabled": False, "address": node.address("operator")}


def test_a_node_without_peers_and_webhooks_has_none_to_tell_of(node: Node) -> None:
    details = Details(node.living, Load(node.clock), key_of("operator").seed, lambda: False, None, None)
    assert (details.record()["peers"], details.record()["webhooks"]) == (None, None)
