"""The book-keeping of a download: whatever arrives, fails or comes short, blocks go on once each and in order."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.p2p.client import BLOCKS_BYTES
from svcd.p2p.download import WINDOW_BLOCKS, WINDOW_BYTES, Arrived, Download, Range
from svcd.p2p.fields import MAX_BLOCKS

PEER = "http://peer.example"
MOST = {"max_blocks": 64, "max_bytes": 4 << 20}


def blocks(wanted: Range, size: int = 8) -> list[bytes]:
    """Blocks that say which they are."""
    return [
        b"%d" % height + b" " * (size - len(str(height))) for height in range(wanted.first, wanted.first + wanted.count)
    ]


def heights(taken: list[Arrived]) -> list[int]:
    found = [int(block) for part in taken for block in part.blocks]
    assert [part.first for part in taken] == [int(part.blocks[0]) for part in taken]
    return found


def all_ranges(download: Download) -> list[Range]:
    """Everything that may be asked for now."""
    found = []
    while (wanted := download.next_range()) is not None:
        found.append(wanted)
    return found


def test_ranges_of_sixteen_up_to_the_last() -> None:
    download = Download(5, 40)
    assert all_ranges(download) == [Range(5, 16), Range(21, 16), Range(37, 4)]
    assert not download.finished


def test_nothing_to_fetch() -> None:
    download = Download(5, 4)
    assert download.finished
    assert download.next_range() is None


def behind_a_gap(download: Download, size: int = 8) -> list[Range]:
    """Everything that may be asked for while the first range does not come and all others do."""
    ranges = all_ranges(download)
    for wanted in ranges[1:]:
        download.arrived(wanted, blocks(wanted, size), PEER)
    more = all_ranges(download)
    while more:
        ranges += more
        for wanted in more:
            download.arrived(wanted, blocks(wanted, size), PEER)
        more = all_ranges(download)
    return ranges


def test_a_window_of_1024_blocks() -> None:
    download = Download(1, 10**15)
    ranges = behind_a_gap(download)
    assert len(ranges) == WINDOW_BLOCKS // MAX_BLOCKS == 64
    assert download.take(**MOST) == []
    download.arrived(ranges[0], blocks(ranges[0]), PEER)
    assert len(heights(download.take(**MOST))) == 64
    assert all_ranges(download) == [Range(1025 + 16 * number, 16) for number in range(4)]


def test_a_window_of_64_mib() -> None:
    download = Download(1, 10**15)
    ranges = [download.next_range() for _ in range(5)]
    for wanted in ranges[1:]:
        assert wanted is not None
        download.arrived(wanted, blocks(wanted, WINDOW_BYTES // 64), PEER)
    assert download.next_range() is None
    assert ranges[0] is not None
    download.arrived(ranges[0], blocks(ranges[0]), PEER)
    assert len(heights(download.take(**MOST))) == 16
    assert download.next_range() is None, "what has arrived and waits is still 64 MiB"
    while download.take(**MOST):
        pass
    assert download.next_range() == Range(81, 16)


@pytest.mark.parametrize("size", [8, 20_000, BLOCKS_BYTES // MAX_BLOCKS])
def test_the_window_has_room_for_every_answer_that_is_under_way(size: int) -> None:
    """Whatever those before were like: the next may all be the largest there can be."""
    download = Download(1, 10**15)
    assert len(all_ranges(download)) * BLOCKS_BYTES == WINDOW_BYTES
    download = Download(1, 10**15)
    behind = behind_a_gap(download, size)[1:]
    assert (len(behind) * MAX_BLOCKS * size) + BLOCKS_BYTES <= WINDOW_BYTES


def test_short_answers_do_not_fill_more_than_the_window() -> None:
    """Of sixteen full blocks two fit into an answer; what is missing is no reason to hold more."""
    download, size = Download(1, 10**15), BLOCKS_BYTES // 3
    arrived, waiting = 0, all_ranges(download)[1:]
    while waiting:
        wanted = waiting.pop()
        came = blocks(wanted, size)[:2]
        download.arrived(wanted, came, PEER)
        arrived += sum(map(len, came))
        waiting += all_ranges(download)
    assert arrived + BLOCKS_BYTES <= WINDOW_BYTES


def test_what_waits_is_asked_for_again_even_if_the_window_is_full() -> None:
    download = Download(1, 10**15)
    ranges = behind_a_gap(download, WINDOW_BYTES // 1_008)
    download.failed(ranges[0])
    assert all_ranges(download) == [ranges[0]]


def test_a_failed_range_is_asked_for_once_more() -> None:
    download = Download(1, 32)
    first, second = all_ranges(download)
    download.failed(first)
    download.failed(first)
    assert all_ranges(download) == [first]
    download.arrived(first, blocks(first), PEER)
    download.arrived(second, blocks(second), PEER)
    assert heights(download.take(**MOST)) == list(range(1, 33))
    assert download.finished


def test_a_late_reply_to_a_range_that_failed_is_left_out() -> None:
    download = Download(1, 16)
    (wanted,) = all_ranges(download)
    download.failed(wanted)
    download.arrived(wanted, blocks(wanted), PEER)
    assert download.take(**MOST) == []
    assert all_ranges(download) == [wanted]


def test_of_two_replies_to_one_range_the_first_counts() -> None:
    download = Download(1, 16)
    (wanted,) = all_ranges(download)
    download.failed(wanted)
    all_ranges(download)
    download.arrived(wanted, blocks(wanted), "http://quick.example")
    download.arrived(wanted, blocks(wanted), "http://slow.example")
    (taken,) = download.take(**MOST)
    assert taken.sender == "http://quick.example"
    assert download.take(**MOST) == []


def test_the_rest_of_a_short_reply_comes_next() -> None:
    download = Download(1, 48)
    first, second, third = all_ranges(download)
    download.failed(third)
    download.arrived(first, blocks(first)[:5], PEER)
    assert heights(download.take(**MOST)) == [1, 2, 3, 4, 5]
    assert all_ranges(download) == [Range(6, 11), third]
    download.arrived(second, blocks(second), PEER)
    assert download.take(**MOST) == []


def test_more_than_was_asked_for_is_left_out() -> None:
    download = Download(1, 20)
    first, last = all_ranges(download)
    download.arrived(first, blocks(Range(1, 17)), PEER)
    download.arrived(last, blocks(last), PEER)
    assert heights(download.take(**MOST)) == list(range(1, 21))


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        ({"max_blocks": 64, "max_bytes": 10**6}, [64, 36]),
        ({"max_blocks": 32, "max_bytes": 10**6}, [32, 32, 32, 4]),
        ({"max_blocks": 40, "max_bytes": 10**6}, [32, 32, 36]),
        ({"max_blocks": 64, "max_bytes": 16 * 8}, [16] * 6 + [4]),
        ({"max_blocks": 1, "max_bytes": 1}, [16] * 6 + [4]),
    ],
)
def test_batches_are_whole_ranges_within_bounds(most: dict[str, int], expected: list[int]) -> None:
    download = Download(1, 100)
    for wanted in all_ranges(download):
        download.arrived(wanted, blocks(wanted), PEER)
    batches = []
    while taken := download.take(**most):
        batches.append(len(heights(taken)))
    assert batches == expected


@given(st.integers(1, 300), st.randoms(use_true_random=False))
def test_any_order_of_arrival(last: int, chance: Random) -> None:
    download = Download(1, last)
    ranges = all_ranges(download)
    found: list[int] = []
    while ranges:
        wanted = ranges.pop(chance.randrange(len(ranges)))
        download.arrived(wanted, blocks(wanted), PEER)
        found += heights(download.take(**MOST))
        ranges += all_ranges(download)
    while taken := download.take(**MOST):
        found += heights(taken)
    assert found == list(range(1, last + 1))
    assert download.finished


class Weather:
    """Requests that are answered in any order, late, twice, short or not at all."""

    def __init__(self, download: Download, chance: Random) -> None:
        self.download = download
        self.chance = chance
        self.first, self.last = download.next_height, download.last
        self.open: list[Range] = []
        self.given_up: list[Range] = []
        self.out: list[int] = []

    def pick(self, among: list[Range]) -> Range:
        return among.pop(self.chance.randrange(len(among)))

    def ask(self) -> None:
        wanted = self.download.next_range()
        if wanted is not None:
            assert 1 <= wanted.count <= MAX_BLOCKS
            assert self.download.next_height <= wanted.first
            assert wanted.first + wanted.count <= min(self.last + 1, self.download.next_height + WINDOW_BLOCKS)
            assert wanted.first not in [other.first for other in self.open]
            self.open.append(wanted)

    def answer(self) -> None:
        wanted = self.pick(self.open)
        came = blocks(wanted)
        if self.chance.random() < 0.3:
            came = came[: self.chance.randint(1, len(came))]
        self.download.arrived(wanted, came, PEER)

    def fail(self) -> None:
        self.download.failed(self.pick(self.open))

    def give_up(self) -> None:
        wanted = self.pick(self.open)
        self.download.failed(wanted)
        self.given_up.append(wanted)

    def answer_late(self) -> None:
        """A late reply stands for its range if that has been asked for again, whose reply is then the late one."""
        wanted = self.pick(self.given_up)
        again = [other for other in self.open if other.first == wanted.first]
        self.open = [other for other in self.open if other not in again]
        self.given_up += again
        self.download.arrived(wanted, blocks(wanted), PEER)

    def fail_late(self) -> None:
        wanted = self.pick(self.given_up)
        self.open = [other for other in self.open if other.first != wanted.first]
        self.download.failed(wanted)

    def take(self) -> None:
        self.out += heights(self.download.take(**MOST))

    def happen(self) -> None:
        events = [self.ask, self.ask, self.ask, self.take]
        events += [self.answer, self.answer, self.fail, self.give_up] if self.open else []
        events += [self.answer_late, self.fail_late] if self.given_up else []
        self.chance.choice(events)()
        assert self.out == list(range(self.first, self.first + len(self.out)))
        assert self.download.next_height == self.first + len(self.out)
        assert self.download.finished is (len(self.out) == self.last - self.first + 1)

    def clear_up(self) -> None:
        """Everybody answers."""
        while self.open:
            self.fail()
        while not self.download.finished:
            self.ask()
            while self.open:
                self.answer()
            self.take()


@given(st.integers(0, 2**32), st.integers(1, 1_000), st.sampled_from([0, 1, 15, 16, 17, 100, 1_500, 3_000]))
def test_whatever_happens_blocks_come_out_once_each_and_in_order(seed: int, first: int, count: int) -> None:
    weather = Weather(Download(first, first + count - 1), Random(seed))
    for _ in range(400):
        weather.happen()
    weather.clear_up()
    assert weather.out == list(range(first, first + count))
