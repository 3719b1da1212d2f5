"""docs/own-network.md: its programs, on a network of a file."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from svc_pay import Client
from twisted.internet.task import Clock

from tests.clients.own_network import OPEN, shown
from tests.process_level.pages import blocks_of
from tests.rpc.conftest import public_client
from tests.rpc.node import Node, Settings

PAGE = "docs/own-network.md"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node of the network in the file `festival.toml`."""
    clock = Clock()
    clock.advance(OPEN.slot_time(200) // 1000)
    node = Node(tmp_path / "chain.sqlite", clock, Settings(params=OPEN))
    shown(OPEN, tmp_path)
    (tmp_path / f"{OPEN.name}.toml").rename(tmp_path / "festival.toml")
    yield node
    node.close()


def test_the_python_program_prints_what_the_page_shows(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        answer = public_client(node).send(request.method, request.url.raw_path.decode(), request.content or None)
        return httpx.Response(answer.status, content=answer.body)

    monkeypatch.setattr(Client, "_open", lambda *_: httpx.Client(transport=httpx.MockTransport(reply)))
    monkeypatch.chdir(tmp_path)
    [program, printed] = blocks_of(PAGE, "python", "text")[:2]
    exec(compile(program.text, PAGE, "exec"), {})  # noqa: S102
    assert capsys.readouterr().out == printed.text
