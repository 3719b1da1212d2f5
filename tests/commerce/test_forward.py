"""The time of deliveries never goes back."""

from twisted.internet.task import Clock

from svcd.commerce.forward import ForwardTime


class Settable(Clock):
    """An even clock, and one that can be set."""

    ahead = 0.0

    def unix_seconds(self) -> float:
        return float(self.seconds()) + self.ahead


def test_it_follows_forward_and_not_back() -> None:
    clock = Settable()
    clock.advance(1000)
    time = ForwardTime(clock)
    assert time.now() == 1_000_000
    clock.ahead = -3600
    clock.advance(1)
    assert time.now() == 1_001_000, "set back: it goes on evenly"
    clock.ahead = 3600
    assert time.now() == 4_601_000, "set forward: it follows"
    clock.ahead = 0
    clock.advance(1)
    assert time.now() == 4_602_000
