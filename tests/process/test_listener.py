"""Listening on real sockets."""

import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString, connectProtocol, serverFromString
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import LoopingCall, deferLater

from svcd.process.listener import ACCEPTED_AT_ONCE, ListenerService
from svcd.process.sequential import CannotStart
from tests.support import has_result

pytestmark = pytest.mark.socket


def listening(endpoint: str, **options: Any) -> ListenerService:
    factory = Factory.forProtocol(Protocol)
    factory.noisy = False
    return ListenerService(serverFromString(reactor, endpoint), factory, description=endpoint, **options)


async def connect(port: int) -> Protocol:
    return await connectProtocol(clientFromString(reactor, f"tcp:127.0.0.1:{port}"), Protocol())


async def test_it_accepts_connections_while_it_runs() -> None:
    service = listening("tcp:0:interface=127.0.0.1")
    assert service.address is None
    await service.startService()
    port = service.address.port
    client = await connect(port)
    client.transport.loseConnection()
    await service.stopService()
    assert service.address is None
    with pytest.raises(Exception, match="refused"):
        await connect(port)


async def test_it_accepts_few_connections_in_a_turn_of_the_reactor() -> None:
    """None of them can give its descriptor back before the next turn."""
    service = listening("tcp:0:interface=127.0.0.1:backlog=200")
    accepted: Counter[int] = Counter()
    turn = 0

    def begin_turn() -> None:
        nonlocal turn
        turn += 1

    class Counted(Protocol):
        def connectionMade(self) -> None:  # noqa: N802
            accepted[turn] += 1

    service._factory.protocol = Counted
    await service.startService()
    turns = LoopingCall(begin_turn)
    turns.start(0)
    # The system takes them while the reactor does nothing, and keeps them for one turn.
    clients = [socket.create_connection(("127.0.0.1", service.address.port)) for _ in range(150)]
    while accepted.total() < len(clients):
        await deferLater(reactor, 0)
    turns.stop()
    for client in clients:
        client.close()
    await service.stopService()
    assert max(accepted.values()) == ACCEPTED_AT_ONCE


async def test_a_port_that_is_taken_is_named() -> None:
    first = listening("tcp:0:interface=127.0.0.1")
    await first.startService()
    taken = f"tcp:{first.address.port}:interface=127.0.0.1"
    with pytest.raises(CannotStart, match=rf"^cannot listen on {taken}: address already in use$"):
        await listening(taken).startService()
    await first.stopService()


# Twisted does not close the socket that it could not bind.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("endpoint", ["unix:{}/none/socket", "unix:{}/none/socket:lockfile=0"])
async def test_a_socket_in_a_folder_that_is_not_there_is_named(tmp_path: Path, endpoint: str) -> None:
    with pytest.raises(CannotStart, match=r"^cannot listen on unix:.*: no such file or directory$"):
        await listening(endpoint.format(tmp_path)).startService()


async def test_a_socket_that_another_process_holds_is_named(tmp_path: Path) -> None:
    first = listening(f"unix:{tmp_path}/socket")
    await first.startService()
    with pytest.raises(CannotStart, match=r"^cannot listen on unix:.*/socket: cannot acquire lock$"):
        await listening(f"unix:{tmp_path}/socket").startService()
    await first.stopService()


async def test_a_socket_left_by_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "socket.lock").symlink_to("999999999")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "socket"))
    service = listening(f"unix:{tmp_path}/socket:mode=600")
    await service.startService()
    assert (tmp_path / "socket").stat().st_mode & 0o777 == 0o600
    await service.stopService()


async def test_open_connections_are_drained_after_the_port_has_closed() -> None:
    drained: Deferred[None] = Deferred()
    addresses = []

    async def drain() -> None:
        addresses.append(service.address)
        await drained

    service = listening("tcp:0:interface=127.0.0.1", drain=drain)
    await service.startService()
    port = service.address.port
    stopped = service.stopService()
    with pytest.raises(Exception, match="refused"):
        await connect(port)
    assert addresses == [None]
    assert not has_result(stopped)
    drained.callback(None)
    await stopped


async def test_a_listener_that_never_started_drains_nothing() -> None:
    async def drain() -> None:
        pytest.fail("drained")

    await listening("tcp:0", drain=drain).stopService()
