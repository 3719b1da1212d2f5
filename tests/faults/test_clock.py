"""The computer's clock is set while the node runs: deadlines do not care, the chain and the merchants' times do."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from svcd.chain.params import DEVNET
from svcd.commerce.webhook_service import POLL_SECONDS
from svcd.node.status import STILL_SECONDS
from tests.chains import ChainBuilder
from tests.faults.conftest import confirm
from tests.process_level import running
from tests.process_level.conftest import DEVNET as ON_DEMAND
from tests.process_level.conftest import Nodes
from tests.process_level.receiver import Behaviour
from tests.process_level.running import RunningNode, free_port, wait_until
from tests.process_level.test_webhook_story import Shop, hand_in
from tests.programs import program

pytestmark = [pytest.mark.slow, pytest.mark.socket, pytest.mark.deadline(300)]

HOUR = 3600
PAID = "pending: pending 0"
LIBRARY = "libfaketime.so.1"


@pytest.fixture
def set_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`set_clock(3600)`: for processes started from now on it is an hour later than it is, from that moment."""
    put = _faked(tmp_path, monkeypatch)
    for name in ("FAKETIME_DONT_FAKE_MONOTONIC", "DONT_FAKE_MONOTONIC"):
        # The kernel's even clock goes on evenly when somebody sets the other one.
        monkeypatch.setitem(running.ENVIRONMENT, name, "1")
    return put


@pytest.fixture
def skip_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """The same, but also the kernel's even clock: the time passes for these processes in one moment."""
    return _faked(tmp_path, monkeypatch)


def _faked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    program("faketime")
    (library,) = Path("/usr/lib").glob(f"*/faketime/{LIBRARY}")
    offset = tmp_path / "offset"

    def put(seconds: int) -> None:
        # The receiver's clock goes with the node's: it does not believe what was signed more than five minutes off.
        there = SimpleNamespace(time=lambda: time.time() + seconds, sleep=time.sleep)
        monkeypatch.setattr("tests.process_level.receiver.time", there)
        offset.with_name("new").write_text(f"{seconds:+d}\n")
        offset.with_name("new").replace(offset)

    put(0)
    for name, value in {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
    }.items():
        monkeypatch.setitem(running.ENVIRONMENT, name, value)
    return put


def warnings(node: RunningNode) -> list[str]:
    """The lines about the clock, without those of the alarm that it raises."""
    found = [event["message"] for event in node.events if event["level"] == "warn"]
    return [each for each in found if not each.startswith("alarm clock:")]


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_an_hour_while_a_payment_is_under_way(set_clock: Callable[[int], None], shop: Shop, jump: int) -> None:
    shop.fund("customer")
    order = shop.order("order-1")
    shop.pay("customer", order["request"])
    shop.hears(PAID)
    before = int(shop.node.status()["time"])
    set_clock(jump)
    shift = int(shop.node.status()["time"]) - before - jump * 1000
    assert 0 <= shift < 60_000, "the node tells the time of the computer"
    way = "forward" if jump > 0 else "back"
    wait_until(lambda: len(warnings(shop.node)) > 0, "a line")
    (line,) = warnings(shop.node)
    assert line.startswith(f"the computer's clock was set {way} by 3")
    confirm(shop, PAID)
    set_clock(0)
    wait_until(lambda: len(warnings(shop.node)) > 1, "another line")
    # Everything that is due later was done all the while, such as counting the webhooks every ten seconds.
    shop.fund("another")
    assert shop.node.status()["syncState"] == "synced"
    assert len(warnings(shop.node)) == 2
    shop.node.stop()


def clock_alarm(node: RunningNode) -> str:
    """The reason why the node is not ready, or its alarm, if that is about the clock; "" if there is none."""
    answer = node.operator("/ready")
    said = answer.json["alarms"] if answer.status == 200 else [answer.json["error"]]
    return next((each for each in said if "clock" in each), "")


def test_a_clock_that_is_wrong_for_a_second_ends_no_watch(set_clock: Callable[[int], None], shop: Shop) -> None:
    shop.fund("customer")
    orders = [shop.order(f"order-{number}", payWithinSeconds=HOUR) for number in range(1, 4)]
    set_clock(48 * HOUR)
    wait_until(lambda: bool(clock_alarm(shop.node)), "the alarm")
    # Two evaluations of the watches.
    time.sleep(2 * POLL_SECONDS)
    set_clock(0)
    wait_until(lambda: "set back" in clock_alarm(shop.node), "another alarm")
    shop.pay("customer", orders[0]["request"])
    shop.hears(PAID)
    assert [shop.watch(each["watch"])["active"] for each in orders] == [True] * 3
    shop.node.ok(shop.node.operator("/operator/reload", {}))
    assert clock_alarm(shop.node) != "", "a reload alone confirms nothing"
    shop.node.ok(shop.node.operator("/operator/reload", {"trustClock": True}))
    assert clock_alarm(shop.node) == ""
    confirm(shop, PAID)


def test_no_block_is_made_by_a_clock_that_has_jumped(set_clock: Callable[[int], None], nodes: Nodes) -> None:
    node = nodes.start("--network=devnet", "--set=participation.enabled=true", "--set=participation.alone=true")
    wait_until(lambda: int(node.status()["height"]) > 0, "a block")
    set_clock(25 * HOUR)
    wait_until(lambda: bool(clock_alarm(node)), "the alarm")
    time.sleep(3 * DEVNET.slot_seconds)
    set_clock(0)
    wait_until(lambda: "set back" in clock_alarm(node), "another alarm")
    assert node.operator("/ready").status == 200
    assert DEVNET.slot_time(int(node.status()["slot"])) < (time.time() + HOUR) * 1000


def test_a_node_with_a_tip_in_the_future_is_not_ready(set_clock: Callable[[int], None], nodes: Nodes) -> None:
    """It was started with a wrong clock, which nothing contradicted."""
    set_clock(25 * HOUR)
    node = nodes.start("--network=devnet", "--set=participation.enabled=true", "--set=participation.alone=true")
    wait_until(lambda: int(node.status()["height"]) > 0, "a block")
    set_clock(0)
    wait_until(lambda: node.operator("/ready").status == 503, "a node that is not ready")
    assert "ahead of this computer's clock" in clock_alarm(node)
    set_clock(26 * HOUR)
    wait_until(lambda: node.operator("/ready").status == 200, "a node that is ready, as its time has come")


def test_an_hour_while_an_event_waits_for_its_next_attempt(set_clock: Callable[[int], None], shop: Shop) -> None:
    shop.fund("customer")
    order = shop.order("order-1")
    shop.receiver.behaviour = Behaviour("fail", "take")
    shop.pay("customer", order["request"])
    assert shop.first_failure(order["watch"])
    set_clock(-HOUR)
    shop.hears(PAID)
    confirm(shop, PAID)


@pytest.mark.parametrize("wrong", [5 * HOUR, -5 * HOUR])
def test_bans_of_a_node_that_starts_with_a_wrong_time(
    set_clock: Callable[[int], None], nodes: Nodes, wrong: int
) -> None:
    def ban(node: RunningNode, address: str) -> int:
        """Ban an address for an hour; the Unix second at which that ends by the right clock."""
        node.ok(node.operator("/operator/peers/ban", {"address": address, "seconds": HOUR}))
        return int(time.time()) + HOUR

    def ends(node: RunningNode) -> dict[str, int]:
        bans = node.ok(node.operator("/operator/peers"))["bans"]
        return {each["name"]: int(each["until"]) // 1000 for each in bans}

    began = time.monotonic()

    def right(ends: dict[str, int]) -> bool:
        """Whether the bans end when they should, but for the seconds in which the node was off."""
        return ends == pytest.approx(expected, abs=time.monotonic() - began + 5)

    node = nodes.start()
    expected = {"192.0.2.1": ban(node, "192.0.2.1")}
    node.stop()
    set_clock(wrong)
    node = nodes.start()
    expected["192.0.2.2"] = ban(node, "192.0.2.2")
    set_clock(0)
    assert right(ends(node))
    node.stop()
    node = nodes.start()
    assert right(ends(node))


def test_a_shop_hears_that_its_node_stands_still(skip_time: Callable[[int], None], shop: Shop) -> None:
    """Its peers have more blocks, but with less work, so there is none to fetch."""
    heights = {"a": (12, 1), "b": (14, DEVNET.gap_cap_slots)}
    lines = [f"genesis: {name}[1..{height}]" for name, (height, _) in heights.items()]
    for name, (height, distance) in heights.items():
        lines += [f"{name}{number} is at slot {number * distance}" for number in range(1, height + 1)]
    blocks = list(ChainBuilder(DEVNET).chain("\n".join(lines)).values())
    hand_in(shop.node, *blocks[:12])
    others = list[RunningNode]()
    for name in ("one", "other"):
        port = free_port()
        options = "--set=participation.alone=true", f"--set=http.publicUrl=http://127.0.0.1:{port}"
        others.append(shop.nodes.start(*ON_DEMAND, *options, name=name, port=port))
        hand_in(others[-1], *blocks[12:])
    warned = shop.order("order-1", events=["node.alarm"])

    # The others know no way to the shop's node, so they keep their branch.
    for other in others:
        shop.node.ok(shop.node.operator("/operator/peers/add", {"endpoint": other.url}))
    wait_until(
        lambda: [peer["height"] for peer in shop.node.operator("/operator/peers").json["peers"]] == ["14", "14"],
        "the heights of the peers",
    )
    wait_until(lambda: shop.node.operator("/ready").status == 200, "a node that is ready")
    skip_time(int(STILL_SECONDS) + 100)
    wait_until(lambda: len(shop.alarms()) > 0, "the alarm")
    assert set(shop.alarms()) == {(warned["watch"], "standstill")}

    def is_not_ready() -> bool:
        # After so much time the node has lost both, and calls them again one after the other, later and later.
        for other in others:
            shop.node.operator("/operator/peers/add", {"endpoint": other.url})
        return shop.node.operator("/ready").status == 503

    wait_until(is_not_ready, "a node that says that it is not ready")
    shop.receiver.check()
