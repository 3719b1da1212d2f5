"""Three nodes with one PostgreSQL under load and reorganisations: whatever dies, merchants hear one story."""

import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from svcd.store.database import WEBHOOKS, migrations
from tests import postgresql
from tests.cluster.auditor import PROMOTED
from tests.cluster.cluster import REQUIRED, SHOP, TOKEN, Cluster, Member, Sold, TimedReceiver, seconds_to_next_event
from tests.cluster.line import Line
from tests.conftest import PROFILE
from tests.net.certificates import Signed, make_authority, sign
from tests.postgresql import Server
from tests.process_level.pages import ROOT
from tests.process_level.running import HTTPConnection, exchange, free_port, wait_until
from tests.programs import program

pytestmark = [pytest.mark.slow, pytest.mark.socket, pytest.mark.deadline(3_600 if PROFILE == "torture" else 300)]

SOON = 60.0
"""Seconds within which the next event or registration must succeed after a fault: 15 on an idle machine."""


@pytest.fixture(scope="module")
def authority() -> Signed:
    return make_authority("The merchants' own authority")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A PostgreSQL whose commits are on the disk."""
    with postgresql.running(durable=True) as server:
        yield server


@contextmanager
def cluster_on(folder: Path, authority: Signed, addresses: list[str]) -> Iterator[Cluster]:
    receiver = TimedReceiver()
    with receiver.serving(sign("localhost", by=authority), folder):
        cluster = Cluster(folder, receiver, authority.pem, addresses)
        try:
            yield cluster
        finally:
            cluster.stop()


@pytest.fixture(scope="module")
def cluster(server: Server, authority: Signed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, each with a line of its own to PostgreSQL, which all tests leave as they found it."""
    with ExitStack() as stack:
        lines = [stack.enter_context(Line(free_port(), f"{server.folder}/.s.PGSQL.5432")) for _ in range(3)]
        addresses = [f"postgresql://svcd@127.0.0.1:{line.port}/postgres" for line in lines]
        cluster = stack.enter_context(cluster_on(tmp_path_factory.mktemp("cluster"), authority, addresses))
        for member, line in zip(cluster.members, lines, strict=True):
            member.line = line
        cluster.start()
        yield cluster


@pytest.fixture
def load(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster while shops sell."""
    cluster.shops.resume()
    wait_until(lambda: len(cluster.receiver.first) > 0, "the first event")
    yield cluster
    cluster.shops.pause()


def report(what: str, *figures: object) -> None:
    """For who runs the tests with -s."""
    sys.stderr.write(f"\n{what}: {' '.join(map(str, figures))}\n")


def test_the_leader_is_killed(load: Cluster, torture: bool) -> None:
    chance = random.Random(1)
    waited = []
    for _ in range(50 if torture else 1):
        time.sleep(chance.uniform(0, 3))
        leader = load.leader
        before = set(load.receiver.first)
        at = time.monotonic()
        leader.kill()
        # What was under way when it died does not count.
        waited.append(seconds_to_next_event(load, at, after=lambda seconds: seconds > 1))
        assert waited[-1] < SOON
        assert set(load.receiver.first) > before
        leader.start()
    report("leader killed", len(waited), "times; seconds to the next event:", sorted(round(each, 1) for each in waited))
    report("audit", load.settle(), load.shops.refused)


def test_a_leader_is_stopped_and_goes_on(load: Cluster, torture: bool) -> None:
    leader = load.leader
    term = leader.record().get("leader")
    leader.serving = False
    leader.signal(signal.SIGSTOP)
    if torture:
        time.sleep(30)
    second = load.leader
    assert second is not leader
    leader.signal(signal.SIGCONT)
    wait_until(lambda: leader.record().get("role") == "standby", "a leader that knows that it leads no longer")
    wait_until(lambda: leader.knows_leader_of(second) and leader.record().get("leader") != term, "one leader for both")
    leader.serving = True
    report("leader stopped", load.settle())


def test_postgresql_is_killed(load: Cluster, server: Server, torture: bool) -> None:
    chance = random.Random(2)
    waited = []
    for _ in range(20 if torture else 2):
        time.sleep(chance.uniform(1, 3))
        server.kill()
        time.sleep(chance.uniform(0, 3))
        server.start()
        at = time.monotonic()
        orders = len(load.shops.orders)
        wait_until(lambda orders=orders: len(load.shops.orders) > orders + 1, "a registration")  # type: ignore[misc]
        waited.append(time.monotonic() - at)
        seconds_to_next_event(load, at)
    report("PostgreSQL killed", len(waited), "times; seconds to the next order:", [round(each, 1) for each in waited])
    assert max(waited) < SOON
    report("audit", load.settle())


def made_up_version(folder: Path, *steps: str) -> tuple[str, ...]:
    """What starts a version of the program that has these steps of the schema of webhooks more."""
    for package in ("svcd", "twisted"):
        shutil.copytree(ROOT / package, folder / package)
    for number, step in enumerate(steps, migrations(WEBHOOKS)[-1].version + 1):
        (folder / f"svcd/store/webhooks/{number:03}_made_up.sql").write_text(step)
    return "env", f"PYTHONPATH={folder}"


def test_nodes_are_upgraded_one_after_the_other(server: Server, authority: Signed, tmp_path: Path) -> None:
    """A version runs for a while beside the next one, which has changed the schema."""
    first_step = "ALTER TABLE event ADD COLUMN made_up INTEGER; CREATE TABLE made_up (id INTEGER PRIMARY KEY) STRICT;"
    second_step = "ALTER TABLE watch ADD COLUMN made_up TEXT NOT NULL DEFAULT 'blue'; DROP TABLE made_up;"
    before = made_up_version(tmp_path / "before", first_step)
    after = made_up_version(tmp_path / "after", first_step, second_step)
    address = server.new_schema()

    def schema() -> int:
        with closing(psycopg.connect(address)) as connection:
            (version,) = connection.execute("SELECT version FROM webhook_schema").fetchone() or (0,)
        return int(version)

    with cluster_on(tmp_path, authority, [address, address]) as cluster:
        for member in cluster.members:
            member.inside = before
        cluster.start()
        old = migrations(WEBHOOKS)[-1].version + 1
        assert schema() == old
        cluster.shops.resume()
        wait_until(lambda: len(cluster.receiver.first) > 5, "events")
        leader = cluster.leader
        standby = next(each for each in cluster.members if each is not leader)
        for member in (standby, leader):
            member.stop()
            member.inside = after
            member.start()
            wait_until(lambda: schema() == old + 1, "the newest schema")
            seconds_to_next_event(cluster, time.monotonic())
            if member is standby:
                # The node of the version before goes on beside the new one.
                wait_until(lambda: register(leader, "order-at-the-old-version").status == 201, "a registration")
        longest = max(cluster.shops.waited)
        report("rolling upgrade: longest registration", round(longest, 2), "s;", cluster.settle())
        assert longest < SOON


def test_a_leader_is_cut_off_from_postgresql(load: Cluster) -> None:
    leader = load.leader
    assert leader.line is not None
    leader.line.cut()
    at = time.monotonic()
    wait_until(lambda: any(each.leads for each in load.members if each is not leader), "another leader")
    report("cut off from PostgreSQL: another leader after", round(time.monotonic() - at, 1), "s")
    wait_until(lambda: not leader.leads, "a leader that gives up")
    wait_until(lambda: misses_postgresql(leader), "a node that says why it is not ready")
    leader.serving = False
    answer = register(leader, "order-nobody-pays")
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    leader.line.mend()
    wait_until(lambda: leader.node.operator("/ready").status == 200, "a node that is ready again")
    leader.serving = True
    report("audit", load.settle())


def register(member: Member, reference: str, **more: Any) -> Any:
    """The answer to a registration at one node."""
    asked = {"recipient": SHOP, "amountBaseUnits": "5", "reference": reference, "confirmations": REQUIRED}
    callback = {"callbackUrl": f"https://localhost:{member.port}/paid"}
    connection = HTTPConnection("127.0.0.1", member.port, timeout=60)
    target = "/rpc/commerce/webhooks"
    return exchange(connection, "POST", target, asked | callback | more, Authorization=f"Bearer {TOKEN}")


def misses_postgresql(member: Member) -> bool:
    """Whether a node says that it is not ready because of PostgreSQL; it names another reason first if it has one."""
    answer = member.node.operator("/ready")
    return answer.status == 503 and "does not answer" in answer.error


def part(cluster: Cluster, member: Member) -> None:
    """Let a node and the others refuse each other."""
    for other in cluster.members:
        if other is not member:
            for one, two in ((member, other), (other, member)):
                endpoint = f"http://127.0.0.1:{two.port}"
                one.node.ok(one.node.operator("/operator/peers/ban", {"endpoint": endpoint}))


def rejoin(cluster: Cluster, member: Member) -> None:
    """Undo :func:`part`."""
    for other in cluster.members:
        if other is not member:
            for one, two in ((member, other), (other, member)):
                endpoint = f"http://127.0.0.1:{two.port}"
                one.node.operator("/operator/peers/unban", {"endpoint": endpoint})
                one.node.operator("/operator/peers/add", {"endpoint": endpoint})


def test_a_leader_is_cut_off_from_its_peers(load: Cluster) -> None:
    """The others have blocks that it lacks, so another one leads."""
    leader = load.leader
    part(load, leader)
    leader.serving = False
    at = time.monotonic()
    wait_until(lambda: any(each.leads for each in load.serving), "another leader")
    report("cut off from its peers: another leader after", round(time.monotonic() - at, 1), "s")
    rejoin(load, leader)
    leader.serving = True
    report("audit", load.settle())


def test_a_leader_is_cut_off_from_postgresql_and_its_peers(load: Cluster) -> None:
    """What it makes of its own branch meanwhile, nobody hears of."""
    leader = load.leader
    assert leader.line is not None
    leader.serving = False
    part(load, leader)
    leader.line.cut()
    at = time.monotonic()
    # More work than the others have so far, and less than they will have.
    leader.node.mine(2)
    waited = seconds_to_next_event(load, at, after=lambda seconds: seconds > 1)
    report("cut off from PostgreSQL and its peers: seconds to the next event", round(waited, 1))
    assert waited < SOON
    wait_until(lambda: misses_postgresql(leader), "a node that says why it is not ready")
    wait_until(lambda: not leader.leads, "a leader that gives up")
    answer = register(leader, "order-nobody-pays")
    assert (answer.status, int(answer.headers["retry-after"]) > 0) == (503, True)
    for each in load.serving:
        # One that has not got the newest block of the other is not ready for that moment.
        wait_until(lambda each=each: each.node.operator("/ready").status == 200, "a node that is ready")  # type: ignore[misc]
    leader.line.mend()
    rejoin(load, leader)
    wait_until(lambda: leader.node.operator("/ready").status == 200, "a node that is ready again")
    leader.serving = True
    report("audit", load.settle())


def is_settled(member: Member, sold: Sold) -> bool:
    """Whether no event of an order waits for its delivery any more."""
    target = f"/rpc/commerce/webhooks/{sold.order.subscription}"
    shown = exchange(member.node.connection(), "GET", target, Authorization=f"Bearer {TOKEN}")
    events = shown.json["subscription"]["events"]
    return all(event["deliveredAt"] is not None or "superseded" in event for event in events)


def test_two_branches_for_twenty_blocks(load: Cluster) -> None:
    """What the leader told of its branch stands until a greater one is known, whoever leads then."""
    before, leader = load.settle(), load.leader
    for _ in range(5):
        load.shops.sell()
    sold = load.shops.orders[-5:]
    load.shops.hand_in_again(0)
    wait_until(lambda: all(load.shops.waits_at(*each) for each in product(load.members, sold)), "payments everywhere")
    part(load, leader)
    others = [each for each in load.members if each is not leader]
    leader.node.mine(21)
    others[0].node.mine(20)

    def are_told(epoch: int) -> bool:
        newest = load.newest_told()
        return all(newest.get(each.order.reference) == ("payment.confirmed", epoch) for each in sold)

    wait_until(lambda: are_told(0), "confirmations on the leader's branch")
    leader.kill()
    second = load.leader
    # What the one before has delivered without noting it comes again, and would supersede a reorganisation meanwhile.
    wait_until(lambda: all(is_settled(second, each) for each in sold), "the notes of the deliveries")
    told = len(load.receiver.first)
    time.sleep(3)
    assert second.record().get("lagBlocks", 0) == 0
    assert len(load.receiver.first) == told, "a reorganisation to a branch with less work"
    others[0].node.mine(2)
    wait_until(lambda: are_told(1), "confirmations on the greater branch")
    leader.start()
    rejoin(load, leader)
    figures = load.settle()
    report("two branches", figures)
    assert figures["reorged"] == before["reorged"] + 5


def test_the_clock_of_a_node_is_an_hour_ahead(server: Server, authority: Signed, tmp_path: Path) -> None:
    """Also of the leader: leases, expiry and signatures follow the clock of the database."""
    program("faketime")
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    ahead = (
        "env",
        f"LD_PRELOAD={library}",
        "FAKETIME=+3600s",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "DONT_FAKE_MONOTONIC=1",
    )
    address = server.new_schema()
    with cluster_on(tmp_path, authority, [address, address]) as cluster:
        right, wrong = cluster.members
        wrong.inside = ahead
        for member in cluster.members:
            # Peers do not believe each other's hello of another hour, so each has a chain of its own.
            member.options = (*member.options, "--set=participation.alone=true")
        wrong.start()
        wait_until(lambda: wrong.leads, "a leader")
        right.start()
        assert int(wrong.node.status()["time"]) / 1000 > time.time() + 3_000
        begun = [register(member, f"open-{member.name}", ttlSeconds=1_800) for member in cluster.members]
        for answer in begun:
            assert abs(int(answer.json["subscription"]["createdAt"]) / 1000 - time.time()) < 60
        right.serving, cluster.members = False, [wrong]
        cluster.shops.resume()
        wait_until(lambda: len(cluster.receiver.first) > 20, "events")
        # What was signed an hour off would not be taken.
        report("clocks an hour apart", cluster.settle())
        cluster.members = [right, wrong]
        wait_until(lambda: right.knows_leader_of(wrong), "one leader for both")
        for member, answer in zip(cluster.members, begun, strict=True):
            target = f"/rpc/commerce/webhooks/{answer.json['subscription']['id']}"
            shown = exchange(member.node.connection(), "GET", target, Authorization=f"Bearer {TOKEN}")
            assert shown.json["subscription"]["active"] is True


def test_the_primary_is_killed_and_its_synchronous_standby_promoted(authority: Signed, tmp_path: Path) -> None:
    with postgresql.running(durable=True) as primary, postgresql.running(durable=True, standby_of=primary) as standby:
        with closing(psycopg.connect(primary.uri, autocommit=True)) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
        address = f"postgresql://svcd@/postgres?host={primary.folder},{standby.folder}"
        with cluster_on(tmp_path, authority, [address, address]) as cluster:
            cluster.start()
            cluster.shops.resume()
            wait_until(lambda: len(cluster.receiver.first) > 20, "events")
            primary.kill()
            at, orders = time.monotonic(), len(cluster.shops.orders)
            with closing(psycopg.connect(standby.uri, autocommit=True)) as connection:
                connection.execute("SELECT pg_promote()")
            wait_until(lambda: len(cluster.shops.orders) > orders + 1, "a registration")
            waited = time.monotonic() - at
            seconds_to_next_event(cluster, at)
            report("standby promoted: seconds to the next order", round(waited, 1), cluster.settle())
            assert any(event["epoch"] >= PROMOTED for event in cluster.receiver.events)
            assert waited < SOON
