"""The measurement of what restarts give an attacker, in small, and the commands of docs/peers.md."""

import re
import subprocess
import sys

import pytest

from tests.chains import ChainBuilder
from tests.process_level.pages import ROOT
from tests.programs import needs
from tests.simulation.eclipse import CASES, HEADINGS, Case, measure, row


def test_many_endpoints_in_few_groups_get_few_places_after_restarts() -> None:
    """Three quarters of the endpoints are in a third of the groups; by endpoints, three quarters of the places are."""
    _, outcomes = measure(Case(8, 48, 16, 16), 3, ChainBuilder())
    restarts = [outcome for each in outcomes for outcome in each[1:]]
    places = sum(each.places for each in restarts) / sum(each.outbound for each in restarts)
    assert places < 0.45
    assert sum(each.anchors == 2 for each in restarts) < len(restarts) / 2, "though the attacker's nodes answer first"


def test_a_seed_that_answers_late_has_a_place_after_each_restart() -> None:
    """All other endpoints but one are the attacker's, and nine in ten groups; the seed has a ninth place."""
    _, outcomes = measure(Case(9, 40, 1, 1, seed=True), 1, ChainBuilder())
    assert [each.places < each.outbound == 9 for each in outcomes[0]] == [True] * len(outcomes[0])


def test_a_row_has_a_cell_for_each_heading() -> None:
    share, outcomes = measure(CASES[0], 1, ChainBuilder())
    assert row(CASES[0], share, outcomes).count("|") == HEADINGS.count("|") + 2


# The page

PAGE = (ROOT / "docs" / "peers.md").read_text(encoding="utf-8")


def printed(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_the_command_of_the_page_measures_every_case() -> None:
    """With one node for each case, twice in a row."""
    ((module, option),) = re.findall(r"`\.venv/bin/python -m (tests\.simulation\.\w+) (--runs) 40`", PAGE)
    lines = printed(sys.executable, "-m", module, option, "1").splitlines()
    assert len(lines) == 2 + len(CASES)
    (shown,) = (line for line in lines if line.startswith("| 20 of 97 | 320 of 397 | none |"))
    assert shown.count("|") == HEADINGS.count("|") + 2
    assert printed(sys.executable, "-m", module, option, "1").splitlines() == lines


@needs("make")
def test_the_target_of_the_page_runs_the_simulation() -> None:
    ((command, nodes, seeds),) = re.findall(r"`(make simulate NODES=(\d+) SEEDS=([\d,]+))`", PAGE)
    for _ in range(2):
        told = printed(*command.split(), "--dry-run")
        started = rf"SVCD_SIMULATION_SEEDS={seeds} SVCD_SIMULATION_NODES={nodes} \.venv/bin/pytest .*tests/simulation$"
        assert re.search(started, told, re.MULTILINE)
