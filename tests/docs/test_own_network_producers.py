"""docs/own-network.md: what it says of producers who are away, and of the confirmations that a payment needs."""

import re
from pathlib import Path

from svcd.chain.difficulty import next_clock, next_target
from svcd.chain.params import MAINNET
from svcd.chain.work import block_work

TEXT = (Path(__file__).parents[2] / "docs" / "own-network.md").read_text(encoding="utf-8")
RULES = MAINNET
"""With its slots and targets, which `svc network new` proposes for every network."""


def work(blocks: int, gap: int) -> int:
    """The work of blocks that are so many slots apart."""
    total = clock = 0
    for height in range(2, blocks + 2):
        total += block_work(next_target(RULES, height=height, clock=clock))
        clock = next_clock(RULES, parent_height=height - 1, parent_clock=clock, gap=gap)
    return total


def test_the_table_of_absent_producers_is_calculated() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", TEXT, re.MULTILINE)
    assert len(rows) == 7
    for count, needed, away, undo in (map(int, row) for row in rows):
        assert (needed, away, undo) == (count // 2 + 1, count - needed, needed)


def test_the_confirmations_outweigh_every_branch_of_a_minority() -> None:
    """A minority makes n // 2 blocks in a row at most, and with the most work if they are in slots side by side."""
    text = " ".join(TEXT.split())
    assert "enough with up to nine producers, however slowly blocks come" in text
    for count in range(1, 10):
        most = work(count // 2, gap=1)
        assert all(work(count // 2 + 1, gap) > most for gap in range(1, RULES.gap_cap_slots + 1))
    assert work(5 + 1, RULES.gap_cap_slots) < work(5, gap=1)
    assert "With more producers ask for twice as many" in text
    for count in range(10, 102):
        assert work(2 * (count // 2 + 1), 2 * RULES.slots_per_block) > work(count // 2, gap=1)
