"""A merchant's node on a disk, a clock, a resolver and threads that fail; root is needed for some of them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import define

from tests.process_level import running
from tests.process_level.conftest import Nodes
from tests.process_level.running import RunningNode
from tests.process_level.test_webhook_story import Shop, authority, certificate, receiver, shop
from tests.programs import program

__all__ = ["authority", "certificate", "receiver", "shop"]

ROOT = Path(__file__).parents[2]
TWISTD = Path(sys.executable).parent / "twistd"


def loud(node: RunningNode) -> list[str]:
    """What the log says at level error or critical, without repetitions."""
    told = [event["message"] for event in node.events if event["level"] in ("error", "critical")]
    return list(dict.fromkeys(told))


class FaultyNodes(Nodes):
    """Nodes whose logs may have errors: each test says which."""

    def stop(self) -> None:
        """Stop those that still run."""
        for node in self._started:
            if node.process.poll() is None:
                node.terminate()
                assert node.wait_ended() == 0, node.output


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Starts nodes in the test's folder."""
    nodes = FaultyNodes(tmp_path)
    try:
        yield nodes
        nodes.stop()
    finally:
        for node in nodes._started:
            node.kill()


def confirm(shop: Shop, *told: str) -> None:
    """Make the blocks that the shop's only order still needs; after what was told, each event comes once."""
    for name in ("confirming: confirming 1", "confirming: confirming 2", "confirmed: confirmed 3"):
        shop.node.mine(1)
        told = (*told, name)
        shop.hears(*told)
    shop.receiver.check()


@pytest.fixture
def instead_of_twistd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`instead_of_twistd(script)`: nodes are started by a shell script, in which `$TWISTD` is the real thing."""

    def put(script: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        twistd = folder / "twistd"
        twistd.write_text(f"#!/bin/sh\nTWISTD={TWISTD}\n{script}\n")
        twistd.chmod(0o755)
        monkeypatch.setattr(running, "BIN", folder)

    return put


def _can_mount() -> bool:
    """Whether this process may mount file systems, those in files among them."""
    return os.geteuid() == 0 and Path("/dev/loop-control").exists()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, visibly, what needs a file system of its own where none can be mounted."""
    if not _can_mount():
        left_out = [item for item in items if {"disk", "silent_dns"} & set(getattr(item, "fixturenames", ()))]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator["Disk"]:
    """A small disk of its own where the shop's data directory will be."""
    disk = Disk(tmp_path / "disk.ext4", tmp_path / "shop")
    disk.mount()
    yield disk
    disk.unmount()


@define
class Disk:
    """An ext4 file system of 16 MiB in a file."""

    image: Path
    path: Path

    def __attrs_post_init__(self) -> None:
        with self.image.open("wb") as image:
            image.truncate(2**24)
        self._run(program("mkfs.ext4"), "-q", self.image)
        self.path.mkdir()

    def mount(self) -> None:
        """Begin to use it."""
        self._run("mount", "-o", "loop", self.image, self.path)
        self.path.chmod(0o700)

    def unmount(self) -> None:
        """Take it away."""
        self._run("umount", self.path)

    def replace(self) -> None:
        """Go on with a copy: a mount namespace elsewhere, as of a browser's sandbox, may still have the failed one."""
        self.unmount()
        copy = self.image.with_name(f"copy-of-{self.image.name}")
        shutil.copyfile(self.image, copy)
        self.image = copy
        self.mount()

    def fail(self) -> None:
        """Become read-only from one moment to the next, as after an error of the device: ext4's own way to try that."""
        self._run("sync", "--file-system", self.path)
        self._run("mount", "-o", "remount,abort", self.path)

    def fill(self) -> None:
        """Use up all space that is left."""
        with (self.path / "ballast").open("wb", buffering=0) as ballast:
            for size in (65536, 4096, 1):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError:
                    continue

    def free(self) -> None:
        """Give the space back."""
        (self.path / "ballast").unlink()

    def _run(self, *command: str | Path) -> None:
        subprocess.run(command, check=True)
