"""How many connections clients get where few files may be open."""

import resource

import pytest
from attrs import evolve
from twisted.logger import capturedLogs, formatEvent

from svcd.composition.file_descriptors import (
    HEALTH_CONNECTIONS,
    OPEN_FILES,
    fit_connections,
    max_connections,
    raise_open_files_limit,
)
from svcd.config.loader import load

CONFIG = load()


def test_the_default_limits_fit_the_descriptors_that_systemd_grants() -> None:
    assert fit_connections(CONFIG, OPEN_FILES) is CONFIG


def test_few_descriptors_mean_few_connections_and_the_log_says_so() -> None:
    with capturedLogs() as logged:
        config = fit_connections(CONFIG, 1_024)

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
        assert fit_connections(unlimited, OPEN_FILES).limits.connections == max_connections(OPEN_FILES, CONFIG)
    assert logged == []


@pytest.mark.parametrize(("granted", "connections"), [(256, 64), (64, 16), (2, 1)])
def test_clients_get_a_quarter_at_least(granted: int, connections: int) -> None:
    assert max_connections(granted, CONFIG) == connections


def test_two_public_sites_share_what_there_is() -> None:
    apart = evolve(CONFIG, p2p=evolve(CONFIG.p2p, enabled=True, listen="tcp:8646"))
    together = evolve(CONFIG, p2p=evolve(CONFIG.p2p, enabled=True))
    assert 2 * max_connections(4_096, apart) < max_connections(4_096, together)
    assert max_connections(256, apart) == 32


def test_health_checks_have_connections_of_their_own() -> None:
    checked = evolve(CONFIG, operator=evolve(CONFIG.operator, health_listen="tcp:8647"))
    assert max_connections(4_096, CONFIG) - max_connections(4_096, checked) == HEALTH_CONNECTIONS


# How many files may be open, whatever the shell grants at first

WITHOUT_END = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("granted", "taken", "may_open"),
    [
        ((1_024, 1_048_576), (OPEN_FILES, 1_048_576), OPEN_FILES),
        ((1_024, 4_096), (4_096, 4_096), 4_096),
        ((1_024, WITHOUT_END), (OPEN_FILES, WITHOUT_END), OPEN_FILES),
        ((1_024, 1_024), None, 1_024),
        ((20_000, 30_000), None, 20_000),
        ((WITHOUT_END, WITHOUT_END), None, OPEN_FILES),
    ],
)
def test_as_many_as_are_wanted_or_may_be(
    monkeypatch: pytest.MonkeyPatch, granted: tuple[int, int], taken: tuple[int, int] | None, may_open: int
) -> None:
    asked: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: granted)
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: asked.append((which, limits)))
    assert raise_open_files_limit() == may_open
    assert asked == ([] if taken is None else [(resource.RLIMIT_NOFILE, taken)])
