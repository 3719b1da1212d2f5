"""docs/payment-proof.md names the members and the numbers that the code has."""

import re
from pathlib import Path

import pytest

from svcd.chain.params import BASIS_POINTS, MAINNET
from svcd.chain.work import effective_target
from tests.light.proofs import answer_of

PAGE = (Path(__file__).parents[2] / "docs" / "payment-proof.md").read_text(encoding="utf-8")
HIGHEST = MAINNET.multiplier_schedule[-1][1]


def test_the_table_has_the_members_of_a_proof() -> None:
    rows = re.findall(r"^\| (`[^|]+) \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(answer_of()["proof"])


@pytest.mark.parametrize(
    ("sentence", "number"),
    [
        (r"first target costs ([\d,]+) evaluations", 2**256 // MAINNET.initial_target),
        (r"the easiest target ([\d,]+),", 2**256 // effective_target(MAINNET.max_target, BASIS_POINTS)),
        (r"or ([\d,]+) with the highest multiplier", 2**256 // effective_target(MAINNET.max_target, HIGHEST)),
    ],
)
def test_numbers(sentence: str, number: int) -> None:
    assert [int(found.replace(",", "")) for found in re.findall(sentence, PAGE)] == [number]
