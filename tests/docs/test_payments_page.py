"""The confirmations that docs/payments.md advises are those that the node calculates."""

import re
from pathlib import Path

from svcd.chain.params import MAINNET
from svcd.chain.units import BASE_UNITS_PER_COIN, format_amount
from svcd.commerce.payment import HASHES_PER_CORE_SECOND
from svcd.commerce.reorg_cost import (
    DEFAULT_COIN_PRICE,
    DEFAULT_HASH_PRICE,
    advised_confirmations,
    expected_hashes,
)

TEXT = (Path(__file__).parents[2] / "docs" / "payments.md").read_text(encoding="utf-8")


def test_the_table_of_confirmations_is_calculated() -> None:
    table = TEXT.split("\n## Confirmations\n")[1].split("\n| 2 |")[1].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in f"| 2 |{table}".splitlines()]
    seconds = MAINNET.slot_seconds * MAINNET.slots_per_block
    for cores, rate, cost, *needed in rows:
        count = int(cores.replace(",", ""))
        assert rate == f"{count * HASHES_PER_CORE_SECOND:,}"
        block = expected_hashes(MAINNET, count * HASHES_PER_CORE_SECOND * seconds)
        least = advised_confirmations(1, DEFAULT_COIN_PRICE, DEFAULT_HASH_PRICE, block)
        assert (least.confirmations, format_amount(least.cost)) == (12, cost)
        for worth, told in zip((1, 10, 250), needed, strict=True):
            amount = worth * BASE_UNITS_PER_COIN
            advice = advised_confirmations(amount, DEFAULT_COIN_PRICE, DEFAULT_HASH_PRICE, block)
            assert told == ("more than 1000" if advice.capped else str(advice.confirmations))
    assert [row[0] for row in rows] == ["2", "100", "10,000"]


def test_the_answer_of_svc_confirmations_is_calculated() -> None:
    [hashes] = re.findall(r"^    block +([0-9,]+) hashes, the median", TEXT, re.MULTILINE)
    block, price = int(hashes.replace(",", "")), BASE_UNITS_PER_COIN // 2
    advice = advised_confirmations(250 * BASE_UNITS_PER_COIN, price, DEFAULT_HASH_PRICE, block)
    assert advice.capped
    assert f"\n    confirmations  {advice.confirmations} (the most;" in TEXT
    assert f"\n    cost to undo   {format_amount(advice.cost)} at 0.01 for an hour of one core\n" in TEXT
    seconds = MAINNET.slot_seconds * MAINNET.slots_per_block
    assert f"\n    network        {block // seconds} hashes a second\n" in TEXT
