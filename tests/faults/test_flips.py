"""Flipped bits in the files of a stopped node: nobody gets a wrong answer from them.

The node is started on them, and everything that it says is compared with what it says without the damage: the answers
of all routes and pages, the events that it delivers, the blocks that it makes. The output has the seed of the flips.
`SVCD_FLIPS_SEED=7` makes the flips of that seed, `SVCD_FLIP=chain.sqlite:4711:3` the one of bit 3 of byte 4711.
"""

import gc
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import pytest

from tests.faults.flips import DATABASES, Flip, Inquiry, Verdict, aimed_flips, any_flip, loaded_once, random_flips
from tests.faults.merchant_data import MerchantData

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("SVCD_FLIPS_SEED") or secrets.randbelow(2**32))
ONE = os.environ.get("SVCD_FLIP", "")
Judge = Callable[[list[Flip]], None]


@pytest.fixture(scope="module")
def inquiry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inquiry]:
    folder = tmp_path_factory.mktemp("flips")
    with loaded_once():
        inquiry = Inquiry(MerchantData.build(folder / "data"), folder / "copy")
        # Each flip ends with a collection, which need not look at what is there by now.
        gc.collect()
        gc.freeze()
        yield inquiry


@pytest.fixture
def judge(inquiry: Inquiry, capsys: pytest.CaptureFixture[str], expected_errors: Callable[..., object]) -> Judge:
    """Fails for flips after which somebody is told something wrong, and says the seed in any case."""

    def judged(flips: list[Flip]) -> None:
        flips = [Flip.parse(ONE)] if ONE else flips
        outcomes = {flip: inquiry.judge(flip) for flip in flips}
        counts = Counter(outcome.verdict for outcome in outcomes.values())
        told = "; ".join(f"{count} times {verdict}" for verdict, count in counts.most_common())
        with capsys.disabled():
            print(f"\n{len(flips)} flips with SVCD_FLIPS_SEED={SEED}: {told}")
        # The alarms of the nodes that stopped.
        if Verdict.TOLD in counts:
            expected_errors()
        wrong = [f"{flip}: {each.verdict}: {each.why}" for flip, each in outcomes.items() if not each.is_allowed]
        assert not wrong, f"{len(wrong)} of {len(flips)} with SVCD_FLIPS_SEED={SEED}:\n" + "\n".join(wrong)

    return judged


def test_random_flips_of_the_databases(inquiry: Inquiry, judge: Judge) -> None:
    judge(random_flips(inquiry.data.folder, DATABASES, 300, Random(SEED)))


def test_aimed_flips_of_the_databases(inquiry: Inquiry, judge: Judge) -> None:
    judge(aimed_flips(inquiry.data, DATABASES, 100, Random(SEED)))


def test_random_flips_of_every_other_file(inquiry: Inquiry, judge: Judge) -> None:
    """Keys, known peers, the state tree, waiting transfers, snapshots."""
    random, files = Random(SEED), sorted(inquiry.data.folder.iterdir())
    judge([any_flip(file, random) for file in files if file.name not in (*DATABASES, "lock") for _ in range(10)])
