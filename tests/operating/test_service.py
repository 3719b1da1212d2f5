"""The unit's command with what systemd gives it: a port, a notify socket with a watchdog, credentials, a directory."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from svcd.store.database import connect
from tests.operating.service import SECRET, TOKEN, UNIT, WATCHDOG_SECONDS, Service, answered, service_in
from tests.process_level.running import DEADLINE, LocalConnection

pytestmark = [pytest.mark.socket, pytest.mark.slow]
BOB = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """What systemd holds, below the test's folder."""
    with service_in(tmp_path) as service:
        yield service


def test_a_client_waits_while_it_starts_and_while_it_is_restarted(service: Service) -> None:
    with service.client() as early:
        first = service.start()
        assert service.notice("READY=1"), service.log.read_text()
        assert answered(early) == "HTTP/1.1 200 OK"
    assert service.stop(first) == 0
    assert service.notice("STOPPING=1")
    with service.client() as between:
        second = service.start()
        assert answered(between) == "HTTP/1.1 200 OK"
    assert service.stop(second) == 0


def names(notices: list[str]) -> set[str]:
    return {line.partition("=")[0] for line in notices}


def test_ready_is_said_when_everything_answers_and_not_before(service: Service) -> None:
    process = service.start()
    assert service.notice("READY=1"), service.log.read_text()
    assert (service.received[-1], names(service.received[:-1])) == ("READY=1", {"EXTEND_TIMEOUT_USEC"})
    assert service.operator("/ready") == 200
    assert service.stop(process) == 0
    assert service.notice("STOPPING=1")
    assert names(service.received) <= {"EXTEND_TIMEOUT_USEC", "READY", "WATCHDOG", "STATUS", "STOPPING"}


@pytest.mark.story
def test_systemctl_status_shows_how_it_fares(service: Service) -> None:
    process = service.start()
    assert service.notice("STATUS=height 0, 0 peers, alone: makes its own chain; nothing compares it"), (
        service.log.read_text()
    )
    assert names(service.received[: service.received.index("READY=1")]) <= {"EXTEND_TIMEOUT_USEC"}
    assert service.operator("/operator/mine", {"blocks": 2}) == 200
    assert service.notice("STATUS=height 2, 0 peers, alone: makes its own chain; nothing compares it")
    assert service.stop(process) == 0
    assert service.notice("STOPPING=1")
    assert service.received[-1] == "STATUS=stopping"


def test_the_watchdog_hears_nothing_while_the_writer_hangs(service: Service) -> None:
    process = service.start()
    assert service.notice("READY=1"), service.log.read_text()
    assert service.notice("WATCHDOG=1")
    # Another program that holds the database keeps the writer's thread waiting, and the reactor is as well as ever.
    with closing(connect(service.state / "chain.sqlite")) as holder:
        holder.execute("BEGIN IMMEDIATE")
        asked = http.client.HTTPConnection(*service.port.getsockname(), timeout=DEADLINE)
        writing = LocalConnection(service.state / "operator.sock")
        writing.request("POST", "/operator/mine", json.dumps({"blocks": 1}))
        # What came before the writer was held may have to be read first, and no more than that.
        assert any(not service.notice("WATCHDOG=1", seconds=3 * WATCHDOG_SECONDS) for _ in range(8))
        asked.request("GET", "/rpc/status")
        assert asked.getresponse().status == 200
        asked.close()
        holder.execute("ROLLBACK")
    assert writing.getresponse().status == 200
    writing.close()
    assert service.notice("WATCHDOG=1")
    assert service.stop(process) == 0


def test_the_process_is_measured_where_it_sees_no_other(service: Service) -> None:
    assert "ProcSubset=pid" in UNIT
    process = service.start()
    assert service.notice("READY=1"), service.log.read_text()
    connection = LocalConnection(service.state / "operator.sock")
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    connection.close()
    assert "process_resident_memory_bytes" in page
    assert service.stop(process) == 0


def test_secrets_come_as_credentials_and_all_it_writes_is_in_its_directory(service: Service) -> None:
    process = service.start()
    assert service.notice("READY=1"), service.log.read_text()
    connection = http.client.HTTPConnection(*service.port.getsockname(), timeout=DEADLINE)
    order = {
        "callbackUrl": "https://shop.example.com/paid",
        "recipient": BOB,
        "amount": "1",
        "reference": "order-1",
    }
    statuses = []
    for token in ("another", TOKEN):
        connection.request("POST", "/rpc/commerce/webhooks", json.dumps(order), {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    connection.close()
    assert statuses[0] == 401
    # 201, or where nobody can look the callback's name up, 503: both are past the token.
    assert statuses[1] in {201, 503}
    assert service.stop(process) == 0
    written = {path.name for path in service.state.iterdir()}
    assert written >= {"chain.sqlite", "webhooks.sqlite", "node.key", "operator.key", "peers.json"}
    log = service.log.read_text()
    assert "webhooks answer 503" not in log
    assert TOKEN not in log
    assert SECRET not in log
