"""kill -9 at any instant: the next start finds a chain that was committed, and nothing to repair."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random

import pytest
from attrs import define
from twisted.internet.defer import Deferred

from tests.chains import TEST_PARAMS
from tests.node.bench import running
from tests.support import result_of
from tests.torture.audit import audit
from tests.torture.race import Moment, Race, run_race

ROOT = Path(__file__).parent.parent.parent
HEIGHT = 100
DEADLINE = 180.0


@pytest.fixture(scope="module")
def race() -> Race:
    return run_race(HEIGHT, seed=1)


@pytest.fixture(scope="module")
def batches(race: Race, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("race") / "batches"
    path.write_bytes(race.file())
    return path


@define
class Importer:
    """The program in a process of its own."""

    process: subprocess.Popen[bytes]
    heard: bytes = b""

    def listen(self, until: bytes | None = None) -> None:
        """Return when it has said the word ``until``, or has ended."""
        assert self.process.stdout is not None
        give_up_at = time.monotonic() + DEADLINE
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while until not in self.heard.split():
                assert selector.select(give_up_at - time.monotonic()), f"nothing within {DEADLINE} s but {self.heard!r}"
                more = os.read(self.process.stdout.fileno(), 65536)
                if not more:
                    return
                self.heard += more

    def finish(self) -> None:
        """Return when it has ended."""
        self.listen()
        self.process.wait(DEADLINE)

    def committed(self) -> int:
        """How many batches it had said were committed when it ended."""
        return sum(word.isdigit() for word in self.heard.split())


@contextmanager
def importing(batches: Path, folder: Path, *statement: str) -> Iterator[Importer]:
    command = [sys.executable, "-m", "tests.torture.importer", str(batches), str(folder / "chain.sqlite"), *statement]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            yield Importer(process)
        finally:
            process.kill()


def examine(folder: Path, race: Race) -> int:
    """How many batches are on disk: they, and nothing but they, and everything adds up."""
    with running(folder) as node:
        result_of(Deferred.fromCoroutine(node.transaction_pool.load()))
        node.check()
        stored = frozenset(block_hash for (block_hash,) in node.store._db.execute("SELECT hash FROM block"))
        found = Moment(stored, node.tip)
    assert found in race.moments, "what is on disk was never committed"
    assert audit(folder / "chain.sqlite", TEST_PARAMS.rules).tip == found.tip
    return race.moments.index(found)


def torment(race: Race, tmp_path: Path, *, kills: int, attack: Callable[[Path, Random], Importer]) -> None:
    """Kill the importer again and again, on one database until it is complete, then on a new one."""
    random, folders = Random(kills), map(str, count())
    folder, before, done = tmp_path / next(folders), 0, 0
    while done < kills:
        folder.mkdir(exist_ok=True)
        importer = attack(folder, random)
        committed = importer.committed()
        now = examine(folder, race)
        assert max(before, committed) <= now <= max(before, committed + 1)
        before = now
        if importer.process.returncode == 0:
            assert now == len(race.batches)
            folder, before = tmp_path / next(folders), 0
        else:
            assert importer.process.returncode == -signal.SIGKILL
            done += 1


@pytest.mark.slow
@pytest.mark.socket
def test_an_import_that_nobody_kills(race: Race, batches: Path, tmp_path: Path) -> None:
    """Twice, so that the second one finds every block known."""
    for _ in range(2):
        with importing(batches, tmp_path) as importer:
            importer.finish()
        assert importer.process.returncode == 0
        assert importer.committed() == len(race.batches)
        assert examine(tmp_path, race) == len(race.batches)


@pytest.mark.story
@pytest.mark.slow
@pytest.mark.socket
def test_a_kill_at_any_instant(race: Race, batches: Path, tmp_path: Path, torture: bool) -> None:
    """From outside, while the file is made, during imports, and in the middle of reorganisations."""

    def attack(folder: Path, random: Random) -> Importer:
        with importing(batches, folder) as importer:
            importer.listen(until=b"open")
            time.sleep(random.uniform(0, random.choice([0.05, 0.5, 1.0])))
            importer.process.send_signal(signal.SIGKILL)
            importer.finish()
            return importer

    torment(race, tmp_path, kills=200 if torture else 10, attack=attack)


@pytest.mark.slow
@pytest.mark.socket
def test_a_kill_between_any_two_statements(race: Race, batches: Path, tmp_path: Path, torture: bool) -> None:
    """By its own hand, most often in the middle of a reorganisation, for they are most of the statements."""

    def attack(folder: Path, random: Random) -> Importer:
        with importing(batches, folder, str(random.randint(1, 20_000))) as importer:
            importer.finish()
            return importer

    torment(race, tmp_path, kills=200 if torture else 5, attack=attack)
