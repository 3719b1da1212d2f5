"""What waits for a transport comes in order, piece by piece."""

from hypothesis import given
from hypothesis import strategies as st

from svcd.web.unsent import PIECE_BYTES, UnsentQueue

SIZES = st.one_of(st.integers(0, 3), st.integers(PIECE_BYTES - 1, PIECE_BYTES + 1), st.just(3 * PIECE_BYTES + 1))


def test_large_answer_comes_in_pieces_of_one_size() -> None:
    queue = UnsentQueue()
    queue.append(b"x" * (2 * PIECE_BYTES + 1))

    assert [len(queue.take()) for _ in range(4)] == [PIECE_BYTES, PIECE_BYTES, 1, 0]
    assert not queue


def test_cleared_queue_begins_anew() -> None:
    queue = UnsentQueue()
    queue.append(b"x" * (PIECE_BYTES + 5))
    queue.take()

    queue.clear()
    assert (len(queue), queue.take()) == (0, b"")

    queue.append(b"new")
    assert queue.take() == b"new"


@given(st.lists(st.one_of(SIZES, st.none()), max_size=12))
def test_order_and_size_are_kept(steps: list[int | None]) -> None:
    """A number appends so many bytes, None takes a piece."""
    queue, given_to, taken = UnsentQueue(), b"", b""
    for number, step in enumerate(steps):
        if step is None:
            taken += queue.take()
        else:
            data = bytes([number]) * step
            queue.append(data)
            given_to += data
        assert len(queue) == len(given_to) - len(taken)
    while queue:
        taken += queue.take()
    assert taken == given_to
