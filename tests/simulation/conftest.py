"""Worlds for tests, and the line that repeats what went wrong in one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.network import Conditions
from tests.simulation.world import World

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    """``make_world(seed, count, …)``: a world that is stopped after the test; a failure shows how to repeat it."""
    worlds: list[World] = []

    def make(seed: int, count: int, conditions: Conditions | None = None, **settings: Any) -> World:
        folder = tmp_path / f"{len(worlds)}"
        folder.mkdir()
        worlds.append(World(seed, count, folder, conditions=conditions or Conditions(), **settings))
        # pytest shows it with a failure, whatever fails.
        print(f"seed {seed}; to repeat: {worlds[-1].repeat}")
        return worlds[-1]

    yield make
    for world in worlds:
        world.stop()
