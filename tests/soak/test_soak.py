"""Two nodes at full speed for a while: nothing grows, nothing is lost, and both have the same chain in the end."""

import os
import time
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from tests.net.certificates import make_authority, sign
from tests.process_level.conftest import Nodes
from tests.process_level.conftest import nodes as nodes
from tests.process_level.pages import run
from tests.soak.flat import FEWEST, Sample, courses
from tests.soak.nodes import ManagedNode, Shop, start_nodes
from tests.soak.traffic import Traffic

pytestmark = [pytest.mark.socket, pytest.mark.slow, pytest.mark.long]

MINUTES = float(os.environ.get("SVCD_SOAK_MINUTES") or 0.5)
RESTART_SECONDS = 10.0
"""A node that is not measured is ended so often."""


class Ended:
    """Ends a node now and then, by turns as its operator does and with `kill -9`, and starts it again."""

    def __init__(self, node: ManagedNode) -> None:
        self.node = node
        self.times = 0
        self._chance = Random(20261120)
        self._next = time.monotonic() + RESTART_SECONDS
        self._failed: list[BaseException] = []

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def begin(self) -> Thread:
        """Do it in the middle of what goes on."""
        thread = Thread(target=self._run, args=(self._chance.uniform(0.0, 1.0),))
        thread.start()
        return thread

    def end(self, thread: Thread) -> None:
        """Wait until it answers again."""
        thread.join()
        if self._failed:
            raise self._failed[0]
        self.times += 1
        self._next = time.monotonic() + RESTART_SECONDS

    def _run(self, seconds: float) -> None:
        try:
            time.sleep(seconds)
            self.node.end(kill=self.times % 2 == 1)
            self.node.start()
        except BaseException as failed:
            self._failed.append(failed)


def measured(traffic: Traffic, steady: ManagedNode, ended: Ended, seconds: float) -> list[Sample]:
    """What one node held at the end of each round, while the other one was ended again and again."""
    samples: list[Sample] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(samples) < FEWEST:
        if ended.is_due:
            thread = ended.begin()
            try:
                traffic.round(quiet=False)
            finally:
                ended.end(thread)
        else:
            traffic.round(quiet=True)
        samples.append(steady.sample())
    return samples


def test_nothing_grows_and_nothing_is_lost(nodes: Nodes, tmp_path: Path) -> None:
    """Each node is measured through half of the time, and ended and started again through the other half."""
    authority = make_authority("The merchant's own authority")
    shop = Shop()
    with shop.serving(sign("localhost", by=authority), tmp_path):
        maker, follower = start_nodes(nodes, authority.pem)
        traffic = Traffic(maker, follower, shop)
        grown = []
        for steady, other in ((maker, follower), (follower, maker)):
            ended = Ended(other)
            samples = measured(traffic, steady, ended, 30 * MINUTES)
            assert ended.times > 0
            print(f"\n{steady.name}: {len(samples)} rounds, the {other.name} was ended {ended.times} times")
            for course in courses(samples):
                print(f"  {course}")
                grown += [f"{steady.name}: {course}"] if course.grown else []
        print(
            f"{traffic.payments} payments, {traffic.reorganisations} reorganisations, {shop.arrived} events, "
            f"{traffic.expired} watches expired; height {maker.tip()['height']}"
        )
        tip = maker.tip()
        assert follower.tip() == tip
        for node in (maker, follower):
            node.end(kill=False)
            assert "is sound" in run(f"svc db check {node.name}", tmp_path)
        maker.start()
        assert maker.tip() == tip
        assert grown == []
