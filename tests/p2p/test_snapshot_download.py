"""Downloading a snapshot: from every peer that serves it, checked chunk by chunk, and only the liar pays."""

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred, fail, succeed

from svcd.chain.accounts import Account
from svcd.chain.block import Block
from svcd.chain.encoding import canonical
from svcd.chain.snapshot import CHUNK_ACCOUNTS, RECORD_BYTES, Manifest, check_manifest
from svcd.p2p import client as client_module
from svcd.p2p import snapshot_download
from svcd.p2p.block_download import DownloadFailed
from svcd.p2p.client import PeerStatus, SnapshotClaim
from svcd.p2p.schedule import ABSENT_BACKOFF, MAX_REQUESTS, SLOW_SECONDS
from svcd.p2p.snapshot_download import CHUNK_SECONDS, STALL_SECONDS, WINDOW_BYTES, SnapshotDownload, choose_snapshot
from svcd.p2p.transport import FailureKind, PeerReply
from tests.chains import ChainBuilder
from tests.p2p.bench import Node
from tests.p2p.memory_transport import Called
from tests.p2p.remote_node import RemoteNode, refused, silent
from tests.support import has_result, result_of

MOST = 4
HEIGHT = 40
PATH = f"/p2p/snapshot/{HEIGHT}"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of four accounts."""
    monkeypatch.setattr(client_module, "check_manifest", partial(check_manifest, most=MOST))


@pytest.fixture(scope="module")
def chain(builder: ChainBuilder) -> list[Block]:
    """Forty blocks, each with a transfer to somebody new."""
    blocks: list[Block] = []
    for number in range(HEIGHT):
        last = blocks[-1] if blocks else None
        transfer = builder.transfer("alice", f"s{number}", 7, nonce=builder.account_after(last, "alice").nonce)
        slot = builder.point_after(last).slot + 2
        blocks.append(builder.block(last, slot=slot, producer="s", transfers=[transfer]))
    return blocks


class Bench:
    """A node, peers that serve the same snapshot, and what the download of it has brought."""

    def __init__(self, node: Node, chain: Sequence[Block], peers: int = 1) -> None:
        self.node, self.chain = node, chain
        self.block = chain[-1]
        self.remotes = [node.remote(number) for number in range(1, peers + 1)]
        for remote in self.remotes:
            self.manifest = remote.serve_snapshot(self.block, MOST)
        self.accepted: dict[int, Sequence[tuple[bytes, Account]]] = {}
        self.accept: Callable[[int, Any], Deferred[None]] = self._accept
        self.idle: set[str] = set()

    def _accept(self, index: int, accounts: Sequence[tuple[bytes, Account]]) -> Deferred[None]:
        assert index not in self.accepted
        self.accepted[index] = accounts
        return succeed(None)

    def begin(self, missing: Sequence[int] | None = None) -> "Deferred[Manifest]":
        """Meet the peers and begin."""
        self.node.meet(*self.remotes)
        self.node.run(1.0)
        self.node.transport.calls.clear()
        self.download = SnapshotDownload(
            self.node.peers, self.claim(), self.block.header.state_root, liars=set(), idle=self.idle
        )
        return Deferred.fromCoroutine(self._run(missing))

    def claim(self) -> SnapshotClaim:
        """The claim of the first peer."""
        manifest = self.remotes[0].snapshots[HEIGHT][0]
        return SnapshotClaim(manifest.height, manifest.hash, manifest.digest)

    async def _run(self, missing: Sequence[int] | None) -> Manifest:
        manifest = await self.download.manifest()
        await self.download.chunks(manifest, range(len(manifest.chunks)) if missing is None else missing, self.accept)
        return manifest

    def succeeds(self, work: "Deferred[Manifest]", within: float = 10.0) -> None:
        """The download ends, and has brought the accounts after the block."""
        assert self.node.until(lambda: has_result(work), within=within)
        assert result_of(work).digest == self.manifest.digest
        accounts = dict(each for index in sorted(self.accepted) for each in self.accepted[index])
        assert accounts == self.node.builder.accounts_after(self.block)

    def fails(self, work: "Deferred[Manifest]", within: float) -> str:
        """The download ends with an error; gives its text."""
        caught: list[Any] = []
        work.addErrback(caught.append)
        assert self.node.until(lambda: caught, within=within)
        assert caught[0].check(DownloadFailed)
        return str(caught[0].value)

    def chunk_calls(self, remote: RemoteNode) -> list[int]:
        """The chunks that a peer was asked for."""
        prefix = f"{PATH}/"
        return [
            int(path.removeprefix(prefix))
            for path in self.node.transport.paths(remote.endpoint)
            if path.startswith(prefix)
        ]


def banned(node: Node, remote: RemoteNode) -> bool:
    return node.peers.is_banned(remote.key.node_id)


def bent(records: bytes) -> bytes:
    """The same accounts, one of which is richer by 256 base units."""
    return records[:26] + bytes([records[26] ^ 1]) + records[27:]


def sends_bent_chunks(remote: RemoteNode) -> None:
    manifest, chunks = remote.snapshots[HEIGHT]
    remote.snapshots[HEIGHT] = manifest, [bent(chunk) for chunk in chunks]


# Fetching


def test_from_one_peer(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain)
    bench.succeeds(bench.begin())
    count = len(bench.manifest.chunks)
    assert count > MAX_REQUESTS
    assert sorted(bench.chunk_calls(bench.remotes[0])) == list(range(count))
    requests = [called.request for called in node.transport.calls if called.path.startswith(f"{PATH}/")]
    assert [request.max_bytes for request in requests] == [4_096 + chunk.size for chunk in bench.manifest.chunks]


def test_only_the_missing_chunks_are_asked_for(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain)
    work = bench.begin(missing=[1, 3])
    assert node.until(lambda: has_result(work))
    assert sorted(bench.accepted) == sorted(bench.chunk_calls(bench.remotes[0])) == [1, 3]


def test_nothing_is_asked_where_nothing_is_missing(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain)
    work = bench.begin(missing=[])
    assert node.until(lambda: has_result(work))
    assert bench.chunk_calls(bench.remotes[0]) == []


def test_all_that_serve_it_share_the_chunks(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain, peers=3)
    bench.succeeds(bench.begin())
    calls = [bench.chunk_calls(remote) for remote in bench.remotes]
    assert all(calls)
    assert sorted(index for asked in calls for index in asked) == list(range(len(bench.manifest.chunks)))


def test_a_peer_that_does_not_serve_it_is_asked_for_none(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain, peers=2)
    bench.remotes[1].snapshots.clear()
    bench.succeeds(bench.begin())
    assert not any(path.startswith(PATH) for path in node.transport.paths(bench.remotes[1].endpoint))


def test_few_chunks_wait_for_the_disk(node: Node, chain: list[Block], monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes its time holds the download up, and memory stays small."""
    assert WINDOW_BYTES == 8 * CHUNK_ACCOUNTS * RECORD_BYTES
    most = 3 * MOST * RECORD_BYTES
    monkeypatch.setattr(snapshot_download, "WINDOW_BYTES", most)
    bench = Bench(node, chain, peers=8)
    waiting: list[Deferred[None]] = []

    def accept(index: int, accounts: Any) -> Deferred[None]:
        bench.accepted[index] = accounts
        waiting.append(Deferred())
        return waiting[-1]

    bench.accept = accept
    work = bench.begin()
    node.run(5.0)
    asked = [index for remote in bench.remotes for index in bench.chunk_calls(remote)]
    assert len(waiting) == len(asked) >= 3
    assert sum(bench.manifest.chunks[index].size for index in asked) <= most
    while not has_result(work):
        for written in waiting:
            if not written.called:
                written.callback(None)
        node.run(1.1)
    bench.succeeds(work)


def test_a_disk_that_takes_long_is_no_fault_of_the_peers(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain)
    written: list[Deferred[None]] = []

    def accept(index: int, accounts: Any) -> Deferred[None]:
        bench.accepted[index] = accounts
        written.append(Deferred())
        return written[-1]

    bench.accept = accept
    work = bench.begin()
    node.run(3 * STALL_SECONDS)
    assert not has_result(work)
    while not has_result(work):
        for each in written:
            if not each.called:
                each.callback(None)
        node.run(1.1)
    bench.succeeds(work)
    assert bench.idle == set()


def test_few_requests_to_a_peer_at_a_time(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain)
    bench.remotes[0].scripts = {f"{PATH}/{index}": silent for index in range(40)}
    bench.begin()
    node.run(5.0)
    assert len(bench.chunk_calls(bench.remotes[0])) == MAX_REQUESTS


def test_an_error_of_this_node_ends_it(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain)
    bench.accept = lambda index, accounts: fail(OSError("the disk is full"))
    work, caught = bench.begin(), list[Any]()
    work.addErrback(caught.append)
    assert node.until(lambda: caught)
    assert caught[0].check(OSError)


def test_stop_ends_it_and_every_request(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain)
    bench.remotes[0].scripts = {f"{PATH}/{index}": silent for index in range(40)}
    work = bench.begin()
    node.run(1.0)
    bench.download.stop(DownloadFailed("the node is stopping"))
    assert bench.fails(work, within=1.0) == "the node is stopping"
    assert node.peer(bench.remotes[0]).failures == 0


def test_stop_ends_it_while_the_manifest_trickles(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain)
    (remote,) = bench.remotes
    remote.scripts = {PATH: silent}
    node.transport.dripping.add(remote.endpoint)
    work = bench.begin()
    node.run(20.0)
    assert node.transport.waiting_for(remote.endpoint, PATH) == [PATH]
    bench.download.stop(DownloadFailed("the node is stopping"))
    assert bench.fails(work, within=0.1) == "the node is stopping"
    assert node.transport.waiting_for(remote.endpoint, PATH) == []


# Who does not answer, or is slow


def test_a_peer_that_fails_rests_and_another_is_asked(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain, peers=2)
    bench.remotes[0].scripts = {f"{PATH}/{index}": lambda _: refused(404) for index in range(40)}
    bench.succeeds(bench.begin(), within=ABSENT_BACKOFF)
    assert len(bench.chunk_calls(bench.remotes[0])) <= MAX_REQUESTS
    assert not banned(node, bench.remotes[0])


def test_an_idle_peer_takes_a_chunk_over_that_does_not_come(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain, peers=2)
    node.transport.patient = True
    bench.remotes[0].scripts = {f"{PATH}/{index}": silent for index in range(40)}
    bench.succeeds(bench.begin(), within=SLOW_SECONDS + 5.0)
    assert set(bench.chunk_calls(bench.remotes[0])) < set(bench.chunk_calls(bench.remotes[1]))


def test_it_ends_when_nobody_delivers(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain)
    bench.remotes[0].scripts = {PATH: lambda _: FailureKind.TIMEOUT}
    text = bench.fails(bench.begin(), within=STALL_SECONDS + 5.0)
    assert text == f"no peer has sent the manifest for {STALL_SECONDS:g} s"


def test_it_ends_when_the_manifest_trickles(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain)
    (remote,) = bench.remotes
    remote.scripts = {PATH: silent}
    node.transport.dripping.add(remote.endpoint)
    work = bench.begin()
    node.run(STALL_SECONDS - 5.0)
    assert not has_result(work)
    assert node.transport.waiting_for(remote.endpoint, PATH) == [PATH]
    assert bench.fails(work, within=10.0) == f"no peer has sent the manifest for {STALL_SECONDS:g} s"
    assert node.transport.waiting_for(remote.endpoint, PATH) == []


def test_it_ends_when_the_chunks_trickle(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain)
    (remote,) = bench.remotes
    remote.scripts = {f"{PATH}/{index}": silent for index in range(40)}
    node.transport.dripping.add(remote.endpoint)
    text = bench.fails(bench.begin(), within=STALL_SECONDS + 5.0)
    assert text == f"no peer has sent a chunk for {STALL_SECONDS:g} s"
    assert node.transport.waiting_for(remote.endpoint, PATH) == []


def test_it_ends_when_bytes_come_that_never_become_a_chunk(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain, peers=2)

    def moves(called: Called) -> None:
        def more() -> None:
            if called.request.on_bytes is not None:
                called.request.on_bytes(1)
            node.clock.callLater(5.0, more)

        more()

    for remote in bench.remotes:
        remote.scripts = {f"{PATH}/{index}": moves for index in range(40)}
        node.transport.dripping.add(remote.endpoint)
    text = bench.fails(bench.begin(), within=CHUNK_SECONDS + 10.0)
    assert text == f"no peer has sent a chunk for {CHUNK_SECONDS:g} s"
    assert bench.idle == {remote.endpoint for remote in bench.remotes}


def test_another_peer_sends_the_manifest_that_trickles_from_the_first(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain, peers=3)
    for remote in bench.remotes[:2]:
        remote.scripts = {PATH: silent}
        node.transport.dripping.add(remote.endpoint)
    bench.succeeds(bench.begin(), within=2 * SLOW_SECONDS + 10.0)
    asked = [remote for remote in bench.remotes if PATH in node.transport.paths(remote.endpoint)]
    assert bench.remotes[2] in asked
    assert all(node.transport.paths(remote.endpoint).count(PATH) == 1 for remote in asked)
    assert all(node.knows(remote) and not node.peer(remote).failures for remote in bench.remotes)


def test_a_manifest_that_comes_at_once_is_asked_of_one_peer(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain, peers=3)
    bench.succeeds(bench.begin())
    assert sum(node.transport.paths(remote.endpoint).count(PATH) for remote in bench.remotes) == 1


def test_a_pause_is_obeyed_and_is_no_failure(node: Node, chain: list[Block]) -> None:
    bench, busy = Bench(node, chain), [PeerReply(429, b"{}", 5.0)]
    honest = bench.remotes[0].honest
    bench.remotes[0].scripts = {f"{PATH}/2": lambda called: busy.pop() if busy else honest(called)}
    bench.succeeds(bench.begin(), within=10.0)
    assert node.peer(bench.remotes[0]).failures == 0


# Liars


def test_a_peer_that_sends_a_false_chunk_is_banned_and_another_sends_the_chunk(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain, peers=3)
    liar, *others = bench.remotes
    sends_bent_chunks(liar)
    bench.succeeds(bench.begin())
    assert banned(node, liar)
    assert not any(banned(node, remote) for remote in others)
    (ban,) = [ban for ban in node.peers.bans.active(node.local.now()) if ban.name == f"node:{liar.key.node_id}"]
    assert ban.why.startswith("it sent a false chunk: the accounts of chunk ")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda chunk: chunk[:-1], "must have"),
        (lambda chunk: chunk[44:88] + chunk[:44] + chunk[88:], "do not ascend"),
        (lambda chunk: bytes(20) + chunk[20:], "does not belong"),
        (bent, "do not give its root"),
    ],
)
def test_every_false_chunk_is_known_at_once(
    node: Node, chain: list[Block], spoil: Callable[[bytes], bytes], why: str
) -> None:
    bench = Bench(node, chain, peers=2)
    liar = bench.remotes[0]
    manifest, chunks = liar.snapshots[HEIGHT]
    liar.snapshots[HEIGHT] = manifest, [spoil(chunk) if len(chunk) > 88 else bent(chunk) for chunk in chunks]
    chunk = next(index for index in reversed(range(len(chunks))) if len(chunks[index]) > 88)
    bench.begin(missing=[chunk])
    assert node.until(lambda: bench.accepted, within=20.0)
    asked = bench.chunk_calls(liar)
    assert banned(node, liar) == bool(asked)
    if asked:
        assert any(why in ban.why for ban in node.peers.bans.active(node.local.now()))


def test_a_liar_that_may_not_be_banned_is_asked_no_more(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain, peers=2)
    for remote in bench.remotes:
        sends_bent_chunks(remote)
    text = bench.fails(bench.begin(), within=10.0)
    assert text == "each peer that served it has sent something false"
    assert bench.accepted == {}
    assert all(len(bench.chunk_calls(remote)) <= MAX_REQUESTS for remote in bench.remotes)


def test_a_lie_does_not_end_it_where_another_has_delivered_who_is_away(node: Node, chain: list[Block]) -> None:
    """All peers are away in an outage."""
    bench = Bench(node, chain, peers=2)
    liar, honest = bench.remotes
    sends_bent_chunks(liar)
    liar.scripts = {PATH: silent}
    last = len(bench.manifest.chunks) - 1
    honest.scripts = {f"{PATH}/{last}": silent}
    work = bench.begin()
    assert node.until(lambda: banned(node, liar) and len(bench.accepted) == last, within=60.0)
    del node.transport.responders[honest.endpoint]
    node.peers.drop(node.peer(honest))
    node.run(5.0)
    assert not has_result(work)
    honest.scripts = {}
    node.transport.responders[honest.endpoint] = honest
    node.meet(honest)
    bench.succeeds(work, within=30.0)


def test_peers_that_deliver_nothing_are_noted(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain, peers=3)
    for remote in bench.remotes:
        remote.scripts = {f"{PATH}/5": silent}
    bench.remotes[2].snapshots.clear()
    bench.fails(bench.begin(), within=STALL_SECONDS + 10.0)
    assert bench.idle == {remote.endpoint for remote in bench.remotes[:2]}


def test_peers_that_deliver_nothing_are_noted_where_the_manifest_does_not_come(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain, peers=2)
    for remote in bench.remotes:
        remote.scripts = {PATH: silent}
    bench.fails(bench.begin(), within=STALL_SECONDS + 10.0)
    assert bench.idle == {remote.endpoint for remote in bench.remotes}


def test_nobody_is_noted_where_all_comes(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain, peers=2)
    bench.succeeds(bench.begin())
    assert bench.idle == set()


def test_a_peer_that_delivered_nothing_before_is_not_asked(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain, peers=2)
    bench.idle.add(bench.remotes[0].endpoint)
    bench.succeeds(bench.begin())
    assert not any(path.startswith(PATH) for path in node.transport.paths(bench.remotes[0].endpoint))


@pytest.mark.parametrize("path", [PATH, f"{PATH}/5"])
def test_an_outage_does_not_end_it(node: Node, chain: list[Block], path: str) -> None:
    bench = Bench(node, chain)
    (remote,) = bench.remotes
    remote.scripts = {path: silent}
    work = bench.begin()
    node.run(5.0)
    del node.transport.responders[remote.endpoint]
    node.run(10 * STALL_SECONDS)
    assert not has_result(work)
    node.transport.responders[remote.endpoint] = remote
    remote.scripts = {}
    bench.succeeds(work, within=40.0)


def false_manifest(manifest: Manifest) -> Manifest:
    """One whose chunks do not join to the state root."""
    first = manifest.chunks[0]
    return evolve(manifest, chunks=(evolve(first, root=sha256(first.root).digest()), *manifest.chunks[1:]))


def test_a_peer_that_claims_a_false_manifest_is_banned(node: Node, chain: list[Block]) -> None:
    bench = Bench(node, chain)
    (liar,) = bench.remotes
    manifest, chunks = liar.snapshots[HEIGHT]
    liar.snapshots[HEIGHT] = false_manifest(manifest), chunks
    bench.fails(bench.begin(), within=10.0)
    assert banned(node, liar)


def test_a_manifest_with_a_false_number_of_accounts_is_a_lie_of_those_who_claim_it(
    node: Node, chain: list[Block]
) -> None:
    bench = Bench(node, chain, peers=2)
    liar, honest = bench.remotes
    manifest, chunks = liar.snapshots[HEIGHT]
    index = next(at for at, chunk in enumerate(manifest.chunks) if chunk.accounts == MOST)
    fewer = evolve(manifest.chunks[index], accounts=MOST - 1)
    changed = (*manifest.chunks[:index], fewer, *manifest.chunks[index + 1 :])
    liar.snapshots[HEIGHT] = evolve(manifest, chunks=changed), chunks
    bench.fails(bench.begin(), within=10.0)
    assert banned(node, liar)
    assert not banned(node, honest)
    assert bench.chunk_calls(honest) == []


def test_another_manifest_than_claimed_is_a_failure_and_no_lie(node: Node, chain: list[Block]) -> None:
    """The block may have been undone since."""
    bench = Bench(node, chain)
    (remote,) = bench.remotes
    other = canonical({"ok": True})
    remote.scripts = {PATH: lambda called: PeerReply(200, other)}
    bench.begin()
    node.run(5.0)
    assert not banned(node, remote)
    assert node.transport.paths(remote.endpoint).count(PATH) == 1


# Choosing


def hash_of(height: int) -> bytes:
    return sha256(b"%d" % height).digest()


def claim(height: int, digest: int = 1, block: bytes = b"") -> SnapshotClaim:
    return SnapshotClaim(height, block or hash_of(height), bytes([digest]) * 32)


def status(*claims: SnapshotClaim) -> PeerStatus:
    return PeerStatus(100, bytes(32), 100, 0, claims)


def choice(*statuses: PeerStatus, newest: int = 50, every: int = 10) -> SnapshotClaim | None:
    return choose_snapshot(statuses, hash_of, newest=newest, every=every)


def test_the_highest_that_is_not_too_new_is_chosen() -> None:
    assert choice() is None
    assert choice(status(), status()) is None
    assert choice(status(claim(50), claim(20)), status(claim(20))) == claim(50)
    assert choice(status(claim(60), claim(20)), status(claim(20))) == claim(20)
    assert choice(status(claim(60))) is None


def test_of_one_block_the_one_with_most_sources_is_chosen() -> None:
    assert choice(status(claim(40, 9)), status(claim(40, 1)), status(claim(40, 1))) == claim(40, 1)
    assert choice(status(claim(40, 9), claim(40, 9)), status(claim(40, 1)), status(claim(40, 1))) == claim(40, 1)


def test_one_of_another_block_is_not_chosen() -> None:
    assert choice(status(claim(40, block=bytes(32))), status(claim(30))) == claim(30)
    assert choose_snapshot([status(claim(40))], lambda _: None, newest=50, every=10) is None


def test_only_blocks_of_which_honest_nodes_make_snapshots_are_chosen() -> None:
    """The genesis is none of them."""
    assert choice(status(claim(49), claim(41)), status(claim(40), claim(0))) == claim(40)
    assert choice(status(claim(49), claim(1)), status(claim(0))) is None
    assert choice(status(claim(49)), every=7) == claim(49)
