"""Worlds for tests, and the line that repeats what went wrong in one."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.network import Conditions
from tests.simulation.world import World

MakeWorld = Callable[..., World]
WORLDLY = (200_000, 50, 100)
"""When the garbage collector looks at the youngest, the younger and all objects."""


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    """``make_world(seed, count, …)``: a world that is stopped after the test; a failure shows how to repeat it.

    ``prepare`` is called with the folder of its nodes before these begin.
    """
    worlds: list[World] = []

    def make(
        seed: int,
        count: int,
        conditions: Conditions | None = None,
        prepare: Callable[[Path], None] = lambda folder: None,
        **settings: Any,
    ) -> World:
        folder = tmp_path / f"{len(worlds)}"
        folder.mkdir()
        prepare(folder)
        worlds.append(World(seed, count, folder, conditions=conditions or Conditions(), **settings))
        # pytest shows it with a failure, whatever fails.
        print(f"seed {seed}; to repeat: {worlds[-1].repeat}")
        return worlds[-1]

    thresholds = gc.get_threshold()
    # A world is millions of objects that live as long as it does: to look through them often finds nothing.
    gc.set_threshold(*WORLDLY)
    yield make
    for world in worlds:
        world.stop()
    gc.set_threshold(*thresholds)
