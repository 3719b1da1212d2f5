"""Nodes with different changes of the producers: who is told, and who is not banned (docs/peers.md)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

from svcd.chain.block import Block
from svcd.p2p.bans import posts_name
from svcd.p2p.peers import FIRST_CLAIM_BACKOFF
from tests.chains import ChainBuilder, with_producers
from tests.p2p.bench import Node, Setting, late_transport, place
from tests.p2p.conftest import MakeNode
from tests.p2p.following import followed
from tests.p2p.test_routes import client_of

NEW = with_producers("abc", (5, "cde"))
OLD = evolve(NEW, changes=())
ALARM = "producer-changes"


@pytest.fixture
def chain() -> ChainBuilder:
    return ChainBuilder(NEW)


@pytest.fixture
def node(tmp_path: Path, chain: ChainBuilder) -> Iterator[Node]:
    """A node that lacks the change at height 5."""
    node = Node(tmp_path, late_transport(), Setting(params=OLD), chain)
    yield node
    node.close()


@pytest.fixture
def new_node(tmp_path: Path, chain: ChainBuilder) -> Iterator[Node]:
    """A node that has it."""
    node = Node(tmp_path, late_transport(), Setting(params=NEW), chain)
    yield node
    node.close()


def made_by(chain: ChainBuilder, letters: str, on: Block | None = None) -> list[Block]:
    """Blocks by these producers, one on the other."""
    made: list[Block] = []
    for letter in letters:
        made.append(chain.block(made[-1] if made else on, producer=letter))
    return made


def alarm(node: Node) -> str:
    return node.status.alarms()[ALARM]


def bans(node: Node) -> list[str]:
    return [ban.name for ban in node.peers.bans.listed(node.local.now())]


# What a node tells


def test_a_node_of_a_network_with_a_list_tells_the_hash_of_its_changes(node: Node, new_node: Node) -> None:
    for each in (node, new_node):
        told = client_of(each).ok("/p2p/status")["status"]
        assert told["changesHash"] == each.setting.params.changes_hash.hex()


def test_where_everybody_may_make_blocks_there_is_no_hash(make_node: MakeNode) -> None:
    assert "changesHash" not in client_of(make_node()).ok("/p2p/status")["status"]


def test_there_a_hash_means_nothing(make_node: MakeNode) -> None:
    node = make_node()
    remote = node.remote(changes_hash=b"7" * 32)
    node.meet(remote)
    assert node.peers.has_other_changes(remote.endpoint) is None
    assert alarm(node) == ""


# The alarm


def test_a_peer_with_the_same_changes_or_without_a_word_raises_no_alarm(node: Node) -> None:
    same, silent = node.remote(1, changes_hash=OLD.changes_hash), node.remote(2)
    node.meet(same, silent)
    assert alarm(node) == ""
    assert [node.peers.has_other_changes(each.endpoint) for each in (same, silent)] == [False, None]


def test_the_alarm_says_who_has_others_and_how_many_peers_say_what_they_have(node: Node) -> None:
    others = [node.remote(number, changes_hash=NEW.changes_hash) for number in (1, 2, 3, 4)]
    node.meet(others[0])
    assert alarm(node) == (
        f"1 of 1 peer ({place(1)}) has other changes of the producers than this node: compare the files of the "
        "network, all nodes need the newest one"
    )
    node.meet(*others[1:], node.remote(5, changes_hash=OLD.changes_hash), node.remote(6))
    assert alarm(node).startswith(
        f"4 of 5 peers ({place(1)}, {place(2)}, {place(3)} and 1 more) have other changes of the producers than this"
    )
    assert node.peers.has_other_changes(others[0].endpoint) is True


def test_the_alarm_names_the_height_of_the_next_change_here(new_node: Node, chain: ChainBuilder) -> None:
    remote = new_node.remote(changes_hash=OLD.changes_hash)
    new_node.meet(remote)
    assert alarm(new_node).endswith("all nodes need the newest one before height 5, the next change here")
    new_node.take(*made_by(chain, "abcbc"))
    assert alarm(new_node).endswith("all nodes need the newest one")


def test_an_alarm_is_no_reason_not_to_be_ready(node: Node) -> None:
    node.meet(node.remote(changes_hash=NEW.changes_hash))
    node.run(30)
    assert alarm(node)
    assert node.status.unready() == ""
    assert node.status.line().endswith(f"ready; alarm: {alarm(node)}")


def test_the_alarm_ends_when_the_peer_has_the_same_or_has_left(node: Node) -> None:
    first, second = (node.remote(number, changes_hash=NEW.changes_hash) for number in (1, 2))
    node.meet(first, second)
    first.changes_hash = OLD.changes_hash
    node.run(10)
    assert alarm(node).startswith(f"1 of 2 peers ({place(2)})")
    node.peers.drop(node.peer(second))
    assert alarm(node) == ""


@pytest.mark.parametrize("value", ["", "00", 7, None, "AB" * 32])
def test_a_hash_of_another_form_is_no_answer(node: Node, value: object) -> None:
    remote = node.remote(changes_hash=NEW.changes_hash)

    def answer(called: object) -> object:
        reply = remote.honest(called)  # type: ignore[arg-type]
        told = json.loads(reply.body)  # type: ignore[union-attr]
        told["status"]["changesHash"] = value
        return evolve(reply, body=json.dumps(told).encode())  # type: ignore[type-var]

    remote.scripts["/p2p/status"] = answer  # type: ignore[assignment]
    node.meet(remote)
    assert node.peer(remote).status is None
    assert alarm(node) == ""


# Blocks of producers that the list here does not allow


def test_a_node_without_the_change_stands_still_rather_than_follow(node: Node, chain: ChainBuilder) -> None:
    blocks = made_by(chain, "abcadecdec")
    remote = node.remote(blocks=blocks, changes_hash=NEW.changes_hash)
    node.meet(remote)
    assert followed(node, blocks[:4])
    node.run(FIRST_CLAIM_BACKOFF * 4)
    assert node.tip.height == 4
    assert bans(node) == []
    assert node.knows(remote)
    assert alarm(node) == (
        f"1 of 1 peer ({remote.endpoint}) has other changes of the producers than this node, and the chain of "
        f"{remote.endpoint} is not followed: the producer {chain.address('d')} is not one of the 3 that may make the "
        "block at height 5. If the others are right, get the network's newest file and restart this node with it"
    )
    assert "has been at height 4" not in node.status.alarms()["standstill"]
    node.run(600)
    assert "has been at height 4" in node.status.alarms()["standstill"]


def test_a_node_with_the_change_does_not_follow_the_chain_of_those_without(new_node: Node, chain: ChainBuilder) -> None:
    trunk = made_by(chain, "abca")
    new_node.take(*trunk, *made_by(chain, "d", trunk[-1]))
    tip = new_node.tip
    remote = new_node.remote(blocks=[*trunk, *made_by(chain, "bcabcabca", trunk[-1])], changes_hash=OLD.changes_hash)
    new_node.meet(remote)
    new_node.run(FIRST_CLAIM_BACKOFF * 3)
    assert new_node.tip == tip
    assert bans(new_node) == []
    assert "is not followed" in alarm(new_node)


def test_a_peer_with_the_same_changes_is_banned(node: Node, chain: ChainBuilder) -> None:
    remote = node.remote(blocks=made_by(chain, "abcadec"), changes_hash=OLD.changes_hash)
    node.begin(node.peers.connect(remote.endpoint, outbound=True))
    node.run(1)
    assert f"endpoint:{remote.endpoint}" in bans(node)
    assert alarm(node) == ""


def test_a_peer_of_a_network_with_a_list_is_banned_for_breaking_any_other_rule(node: Node, chain: ChainBuilder) -> None:
    trunk = made_by(chain, "abc")
    wrong = chain.block(trunk[-1], producer="a", slot=chain.point_after(trunk[-1]).slot)
    remote = node.remote(blocks=[*trunk, wrong], work=2**200, changes_hash=NEW.changes_hash)
    node.begin(node.peers.connect(remote.endpoint, outbound=True))
    node.run(1)
    assert f"endpoint:{remote.endpoint}" in bans(node)


def test_when_the_peer_has_got_the_newest_file_its_chain_is_followed_at_once(
    new_node: Node, chain: ChainBuilder
) -> None:
    trunk = made_by(chain, "abca")
    remote = new_node.remote(blocks=[*trunk, *made_by(chain, "bca", trunk[-1])], changes_hash=OLD.changes_hash)
    new_node.meet(remote)
    new_node.run(600)
    assert new_node.tip.height == 4
    remote.blocks, remote.changes_hash = [*trunk, *made_by(chain, "decde", trunk[-1])], NEW.changes_hash
    assert followed(new_node, remote.blocks, within=10)
    assert alarm(new_node) == ""


def test_after_a_restart_with_the_newest_file_the_chain_is_followed(tmp_path: Path, chain: ChainBuilder) -> None:
    """What a node remembers of the dispute ends with the process: neither a ban nor an invalid block stays."""
    blocks, transport = made_by(chain, "abcadec"), late_transport()
    node = Node(tmp_path, transport, Setting(params=OLD), chain)
    remote = node.remote(blocks=blocks, changes_hash=NEW.changes_hash)
    node.meet(remote)
    assert followed(node, blocks[:4])
    assert node.post("/p2p/block", b'{"block":' + blocks[4].wire() + b"}", remote.host).status == 400
    node.run(30)
    node.close()
    again = Node(tmp_path, transport, Setting(params=NEW), chain)
    again.meet(remote)
    assert followed(again, blocks)
    again.close()


def test_a_post_of_such_a_block_or_of_one_on_top_costs_tokens_and_no_ban(node: Node, chain: ChainBuilder) -> None:
    blocks = made_by(chain, "abcade")
    node.take(*blocks[:4])
    for path, block in [("header", blocks[4]), ("block", blocks[4]), ("block", blocks[5]), ("block", blocks[4])]:
        body = block.wire() if path == "block" else block.header.wire()
        response = node.post(f"/p2p/{path}", b'{"%s":' % path.encode() + body + b"}", "198.51.100.7")
        assert response.status == 400, response.body
    branch = json.dumps({"headers": [json.loads(block.header.wire()) for block in blocks[4:]]}).encode()
    assert node.post("/p2p/branch", branch, "198.51.100.7").status == 400
    assert posts_name("198.51.100.7") not in bans(node)
