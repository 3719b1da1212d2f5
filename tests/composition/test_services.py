"""What the configuration and the databases make of the services of a node."""

from types import SimpleNamespace
from typing import Any

import pytest

from svcd.composition.services import start_mode
from svcd.p2p.snapshot_start import StartMode


def resources(mode: StartMode, webhooks: Any) -> Any:
    return SimpleNamespace(
        config=SimpleNamespace(chain=SimpleNamespace(start=mode.value)),
        databases=SimpleNamespace(webhooks=webhooks),
        node_context=SimpleNamespace(chain_manager=SimpleNamespace(tip=SimpleNamespace(height=0))),
    )


@pytest.mark.parametrize("mode", StartMode)
@pytest.mark.parametrize("webhooks", [None, SimpleNamespace(had_watches=False)])
def test_a_node_without_active_watches_starts_as_configured(mode: StartMode, webhooks: Any) -> None:
    assert start_mode(resources(mode, webhooks)) is mode


@pytest.mark.parametrize(
    ("mode", "begins"),
    [
        (StartMode.AUTOMATIC, StartMode.BLOCKS),
        (StartMode.BLOCKS, StartMode.BLOCKS),
        (StartMode.SNAPSHOT, StartMode.SNAPSHOT),
    ],
)
def test_active_watches_need_all_blocks_unless_a_snapshot_is_configured(mode: StartMode, begins: StartMode) -> None:
    assert start_mode(resources(mode, SimpleNamespace(had_watches=True))) is begins
