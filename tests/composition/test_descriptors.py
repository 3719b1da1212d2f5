"""How many connections clients get where few files may be open."""

import pytest
from attrs import evolve
from twisted.logger import capturedLogs, formatEvent

from svcd.composition.descriptors import connections_within, fitted
from svcd.config.loading import load
from svcd.process.descriptors import WANTED

CONFIG = load()


def test_what_systemd_grants_is_enough_for_the_default() -> None:
    assert fitted(CONFIG, WANTED) is CONFIG


def test_few_descriptors_mean_few_connections_and_the_log_says_so() -> None:
    with capturedLogs() as logged:
        config = fitted(CONFIG, 1_024)

    assert 600 < config.limits.connections < 800
    assert config == evolve(CONFIG, limits=evolve(CONFIG.limits, connections=config.limits.connections))
    (event,) = logged
    assert formatEvent(event) == (
        f"clients get {config.limits.connections} connections at once, not the 1000 of [limits] connections: the "
        "system lets the node open 1024 files only, and some are kept for databases, peers and the operator"
    )


def test_no_number_of_connections_is_as_many_as_fit() -> None:
    unlimited = evolve(CONFIG, limits=evolve(CONFIG.limits, connections=0))
    with capturedLogs() as logged:
        assert fitted(unlimited, WANTED).limits.connections == connections_within(WANTED, CONFIG)
    assert logged == []


@pytest.mark.parametrize(("granted", "connections"), [(256, 64), (64, 16), (2, 1)])
def test_clients_get_a_quarter_at_least(granted: int, connections: int) -> None:
    assert connections_within(granted, CONFIG) == connections


def test_two_public_sites_share_what_there_is() -> None:
    apart = evolve(CONFIG, p2p=evolve(CONFIG.p2p, enabled=True, listen="tcp:8646"))
    together = evolve(CONFIG, p2p=evolve(CONFIG.p2p, enabled=True))
    assert 2 * connections_within(4_096, apart) < connections_within(4_096, together)
    assert connections_within(256, apart) == 32
