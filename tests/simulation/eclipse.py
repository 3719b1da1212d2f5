"""What share of a node's outbound places an attacker has after restarts, by its share of groups and of endpoints.

    python -m tests.simulation.eclipse [--runs COUNT]

prints one line of a table for each case; docs/peers.md shows what came out.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from statistics import mean

from attrs import frozen

from svcd.net.targets import Endpoint
from svcd.node.threads import InlineWorker
from svcd.p2p.address_book import AddressBook, group_of_endpoint
from svcd.p2p.service import FORMAT, PeersFile, PeersService, read_peers_file, write_peers_file
from tests.chains import ChainBuilder
from tests.p2p.bench import Node, Setting, late_transport
from tests.p2p.memory_transport import run
from tests.p2p.remote_node import RemoteNode
from tests.support import result_of

RESTARTS = 5
RUN_SECONDS = 300.0
"""How long the node runs each time."""
REST_SECONDS = 60.0
"""How long it is down."""
AWAY = 0.2
"""The part of the honest nodes that are down during a run; the attacker's never are."""
LATE_SECONDS = 60.0
"""How long after each start of the node its seed begins to answer."""
LATENCY = (0.02, 0.2)
"""Of honest nodes, in seconds; the attacker's answer ten times as fast as the fastest."""
HEADINGS = (
    "groups|endpoints|seed|verified in the book|"
    + "|".join(f"places after restart {number}" for number in range(1, RESTARTS + 1))
    + "|all places|both anchors"
)


@frozen
class Case:
    """How many endpoints, in how many network groups, the attacker has, and the honest nodes have."""

    hostile_groups: int
    hostile: int
    honest_groups: int
    honest: int
    seed: bool = False
    """Whether the operator has configured an honest seed, which does not answer yet when the node starts."""

    def endpoints(self) -> tuple[list[Endpoint], list[Endpoint]]:
        """Those of the attacker, and those of honest nodes."""
        hostile = [_endpoint(number % self.hostile_groups, number) for number in range(self.hostile)]
        first = self.hostile_groups
        return hostile, [_endpoint(first + number % self.honest_groups, number) for number in range(self.honest)]


CASES = (
    Case(10, 147, 77, 77),
    Case(20, 147, 77, 77),
    Case(20, 320, 77, 77),
    Case(10, 147, 20, 77),
    Case(22, 22, 202, 202),
    Case(112, 112, 112, 112),
    Case(147, 147, 77, 77),
    Case(147, 147, 77, 77, seed=True),
)


@frozen
class Outcome:
    """What an attacker has after a restart."""

    places: int
    """Of the outbound ones."""
    outbound: int
    anchors: int
    """Of those in ``peers.json``, which are two."""


def _endpoint(group: int, number: int) -> Endpoint:
    """An endpoint of a network group; different numbers are different hosts."""
    return Endpoint(f"http://{20 + group // 200}.{1 + group % 200}.{number // 250}.{1 + number % 250}:8645")


SEED = _endpoint(10_000, 0)


def fill(case: Case, random: Random, now: float) -> AddressBook:
    """A book in which all endpoints of a case have answered, in a random order."""
    book = AddressBook(random.randbytes(32), random.random)
    hostile, honest = case.endpoints()
    for endpoint in random.sample([*hostile, *honest], case.hostile + case.honest):
        group = group_of_endpoint(endpoint)
        book.succeeded(endpoint, node_id=endpoint, height=0, now=now, group=group, address=endpoint.host)
    return book


class Victim:
    """A node whose book has endpoints of an attacker, and whoever answers its calls."""

    def __init__(self, case: Case, name: str, folder: Path, builder: ChainBuilder) -> None:
        self.case = case
        self._name = name
        self._folder = folder
        self._builder = builder
        self._random = Random(name)
        self._transport = late_transport()
        self._clock = self._transport.clock
        self._hostile, self._honest = case.endpoints()
        self._remotes = {
            endpoint: RemoteNode(transport=self._transport, endpoint=endpoint, builder=builder)
            for endpoint in (*self._hostile, *self._honest, SEED)
        }
        for endpoint in self._hostile:
            self._remotes[endpoint].acquaintances = list(self._hostile[:32])
            self._transport.latency[endpoint] = LATENCY[0] / 10
        for endpoint in self._honest:
            self._transport.latency[endpoint] = self._random.uniform(*LATENCY)
        self._path = folder / "peers.json"
        book = fill(case, self._random, self._clock.seconds())
        verified = {entry.endpoint for entry in book.verified()}
        self.share = len(verified.intersection(self._hostile)) / len(verified)
        """The attacker's part of the verified endpoints."""
        write_peers_file(self._path, PeersFile(FORMAT, book.secret.hex(), book.entries(), [], []))

    def outcomes(self) -> Iterator[Outcome]:
        """What the attacker has after the first start, and after each restart."""
        for number in range(RESTARTS + 1):
            yield self._run_once(number)
            run(self._clock, REST_SECONDS)

    def _run_once(self, number: int) -> Outcome:
        folder = self._folder / f"{number}"
        folder.mkdir()
        up = [endpoint for endpoint in self._honest if self._random.random() >= AWAY]
        self._transport.responders = {endpoint: self._remotes[endpoint] for endpoint in (*self._hostile, *up)}
        setting = Setting(name=f"{self._name}, start {number}")
        with closing(Node(folder, self._transport, setting, self._builder)) as node:
            seeds = [SEED] if self.case.seed else []
            service = PeersService(node.network, self._path, seeds, InlineWorker())
            service.startService()
            node.run(LATE_SECONDS)
            self._transport.responders[SEED] = self._remotes[SEED]
            node.run(RUN_SECONDS - LATE_SECONDS)
            outbound = [peer.endpoint for peer in node.peers.outbound()]
            stopped = service.stopService()
            node.run(1)
            result_of(stopped)
        notes = read_peers_file(self._path)
        assert notes is not None
        return Outcome(self._count(outbound), len(outbound), self._count(notes.anchors))

    def _count(self, endpoints: Sequence[str]) -> int:
        return len(set(endpoints).intersection(self._hostile))


def measure(case: Case, runs: int, builder: ChainBuilder) -> tuple[float, list[list[Outcome]]]:
    """The attacker's part of the verified endpoints, and the outcomes of each of so many nodes after each start."""
    shares, outcomes = [], []
    for number in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            victim = Victim(case, f"victim {number} of {case}", Path(folder), builder)
            outcomes.append(list(victim.outcomes()))
            shares.append(victim.share)
    return mean(shares), outcomes


def row(case: Case, share: float, outcomes: Sequence[Sequence[Outcome]]) -> str:
    """One row of the table, whose headings are HEADINGS."""
    restarts = list(zip(*outcomes, strict=True))[1:]
    places = [f"{mean(each.places for each in outcome):.1f}" for outcome in restarts]
    flat = [each for outcome in restarts for each in outcome]
    groups, endpoints = case.hostile_groups + case.honest_groups, case.hostile + case.honest
    return _line(
        [
            f"{case.hostile_groups} of {groups}",
            f"{case.hostile} of {endpoints}",
            "late" if case.seed else "none",
            f"{share:.0%}",
            *places,
            f"{mean(each.places == each.outbound for each in flat):.0%}",
            f"{mean(each.anchors == 2 for each in flat):.0%}",
        ]
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.eclipse", description=__doc__)
    parser.add_argument("--runs", type=int, default=40, metavar="COUNT", help="how many nodes for each case")
    arguments = parser.parse_args()
    headings = HEADINGS.split("|")
    print(_line(headings))
    print(_line(["---"] * len(headings)))
    builder = ChainBuilder()
    for case in CASES:
        share, outcomes = measure(case, arguments.runs, builder)
        print(row(case, share, outcomes), flush=True)


if __name__ == "__main__":
    main()
