"""SIGTERM: no new connections, an answer for what was asked, the database closed last; and what a restart finds."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import DEADLINE, LocalConnection, RunningNode, free_port, wait_until
from tests.process_level.test_devnet import BOB, FAUCET

pytestmark = [pytest.mark.socket, pytest.mark.slow]


def accepts(port: int) -> bool:
    """Whether somebody listens on a port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE).close()
    except (ConnectionRefusedError, ConnectionResetError):
        # Reset: the port was closed before the node took the connection.
        return False
    return True


def send_half(node: RunningNode) -> socket.socket:
    """A connection on which half a request has arrived."""
    client = socket.create_connection(("127.0.0.1", node.port), timeout=DEADLINE)
    client.sendall(b"POST /rpc/broadcast HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{")
    assert node.status()["height"]
    return client


def test_a_request_under_way_is_answered(nodes: Nodes) -> None:
    node = nodes.start(*DEVNET, "--set=limits.drainSeconds=60")
    with send_half(node) as client, socket.create_connection(("127.0.0.1", node.port), timeout=DEADLINE) as waiting:
        query = f"recipient={BOB}&amount=1&wait=30&state=unpaid"
        waiting.sendall(f"GET /rpc/commerce/payment/order-1?{query} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        assert node.status()["height"]
        began = time.monotonic()
        node.terminate()
        assert b'"state":"unpaid"' in waiting.recv(4096)
        assert time.monotonic() - began < 25, "it waited to the end of its time"
        wait_until(lambda: not accepts(node.port), "a closed port")
        assert node.process.poll() is None
        client.sendall(b"}")
        answer = client.recv(4096)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nConnection: close\r\n" in answer
    assert node.wait_ended() == 0
    node.check_log()


def test_all_ports_close_at_once(nodes: Nodes) -> None:
    """None goes on accepting while the requests of another one are finished."""
    operator, health, peers = free_port(), free_port(), free_port()
    node = nodes.start(
        *DEVNET,
        f"--operator-listen=tcp:{operator}:interface=127.0.0.1",
        f"--set=operator.healthListen=tcp:{health}:interface=127.0.0.1",
        f"--set=p2p.listen=tcp:{peers}:interface=127.0.0.1",
        "--set=limits.drainSeconds=60",
    )
    ports = (node.port, operator, health, peers)
    with send_half(node) as client, socket.create_connection(("127.0.0.1", peers), timeout=DEADLINE) as peer:
        peer.sendall(b"POST /p2p/hello HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{")
        # The node reads connections in order: when it answers this one, it has the half request.
        with socket.create_connection(("127.0.0.1", peers), timeout=DEADLINE) as later:
            later.sendall(b"GET /p2p/status HTTP/1.1\r\nHost: h\r\n\r\n")
            assert later.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert all(map(accepts, ports))
        node.terminate()
        wait_until(lambda: not any(map(accepts, ports)), "closed ports")
        assert node.process.poll() is None, "requests are in progress"
        for connection in (client, peer):
            connection.sendall(b"}")
            assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")
    assert node.wait_ended() == 0
    node.check_log()


def test_a_request_that_never_ends_is_cut_off(nodes: Nodes) -> None:
    node = nodes.start(*DEVNET, "--set=limits.drainSeconds=1")
    with send_half(node) as client:
        began = time.monotonic()
        node.terminate()
        with pytest.raises(ConnectionResetError):
            client.recv(4096)
        assert time.monotonic() - began > 0.9
        assert node.wait_ended() == 0
    node.check_log()


def test_an_idle_connection_does_not_hold_it_up(nodes: Nodes) -> None:
    node = nodes.start()
    with socket.create_connection(("127.0.0.1", node.port), timeout=DEADLINE) as client:
        client.sendall(b"GET /rpc/block/x HTTP/1.1\r\nHost: h\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 400 ")
        node.terminate()
        assert client.recv(4096) == b""
        assert node.wait_ended() == 0
    node.check_log()


def fill(pipe: int) -> None:
    """Write into a pipe, of which ``pipe`` is the end to read, until no byte more fits into it."""
    writing = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while os.write(writing, b"."):
            """It fails when the pipe is full."""
    except BlockingIOError:
        return
    finally:
        os.close(writing)


def test_a_pipe_that_its_reader_leaves_full_holds_up_neither_requests_nor_the_stop(tmp_path: Path) -> None:
    """As a log collector that hangs."""
    reading, writing = os.pipe()
    node = RunningNode(tmp_path / "data", free_port(), *DEVNET, output=writing)
    os.close(writing)
    try:
        node.wait_ready()
        fill(reading)
        assert len(node.mine(3)) == 3
        assert node.status()["height"] == "3"
        node.terminate()
        assert node.wait_ended() == 0
    finally:
        node.kill()
        os.close(reading)


def test_work_that_the_operator_asked_for_is_finished(nodes: Nodes) -> None:
    node = nodes.start(*DEVNET, "--set=limits.drainSeconds=60")
    connection = LocalConnection(node.socket)
    connection.request("POST", "/operator/mine", json.dumps({"blocks": 60}))
    wait_until(lambda: int(node.status()["height"]) > 0, "the first blocks")
    node.terminate()
    response = connection.getresponse()
    hashes = json.loads(response.read())["hashes"]
    connection.close()
    assert (response.status, len(hashes)) == (200, 60)
    assert node.wait_ended() == 0
    node.check_log()
    again = nodes.start()
    assert (again.status()["height"], again.status()["hash"]) == ("60", hashes[-1])


@pytest.mark.story
@pytest.mark.parametrize("end", [RunningNode.stop, RunningNode.kill])
def test_chain_mempool_and_keys_are_there_again(nodes: Nodes, end: Callable[[RunningNode], None]) -> None:
    node = nodes.start()
    node.mine(5)
    txids = [node.ok(node.operator("/operator/faucet", {"recipient": BOB, "amount": "1"}))["txid"] for _ in range(3)]
    before, account = node.status(), node.account(FAUCET)
    end(node)
    again = nodes.start()
    after = again.status()
    assert {**after, "time": ""} == {**before, "time": ""}
    assert (again.account(FAUCET), account["pendingNonce"]) == (account, "3")
    again.mine(1)
    assert len(again.ok(again.get("/rpc/block/6"))["block"]["transactions"]) == 3
    for txid in txids:
        assert again.ok(again.get(f"/rpc/transaction/{txid}"))["transaction"]["blockHeight"] == "6"


def test_a_stopped_node_leaves_its_databases_without_logs(nodes: Nodes) -> None:
    node = nodes.start()
    node.mine(3)
    node.stop()
    names = {path.name for path in node.data_dir.iterdir()}
    assert names == {
        "chain.sqlite",
        "chain.sqlite-tree",
        "lock",
        "mempool.journal",
        "node.key",
        "operator.key",
        "peers.json",
    }


def test_a_backup_by_copying_is_a_chain(nodes: Nodes, tmp_path: Path) -> None:
    node = nodes.start()
    node.mine(20)
    tip = node.status()["hash"]
    node.stop()
    subprocess.run(["cp", "-a", node.data_dir, tmp_path / "copy"], check=True)
    assert nodes.start(name="copy").status()["hash"] == tip


def test_asked_twice_it_stops_once(nodes: Nodes) -> None:
    node = nodes.start(*DEVNET, "--set=limits.drainSeconds=60")
    with send_half(node) as client:
        node.terminate()
        wait_until(lambda: not accepts(node.port), "a closed port")
        node.terminate()
        node.process.send_signal(signal.SIGINT)
        assert node.logged("stopping already")
        assert node.process.poll() is None
        client.sendall(b"}")
        assert client.recv(4096).startswith(b"HTTP/1.1 400 ")
    assert node.wait_ended() == 0
    node.check_log()


def test_ctrl_c_stops_it_too(nodes: Nodes) -> None:
    node = nodes.start()
    node.process.send_signal(signal.SIGINT)
    assert node.wait_ended() == 0
    node.check_log()
