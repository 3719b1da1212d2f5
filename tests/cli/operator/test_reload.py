"""`svc node reload` at the terminal, and what it prints."""

import json

import pytest

from svcd.rpc.operator_routes import ReloadRoutes
from svcd.web.connections import SiteLimits
from svcd.web.responses import HttpError, Renderable
from tests.cli.terminal import Terminal
from tests.rpc.node import Node

CHANGES: dict[str, object] = {
    "added": ["music"],
    "changed": [{"name": "books", "settings": ["token", "recipients"]}],
    "removed": [{"name": "maps", "watches": 1, "undelivered": 2}],
    "settings": ["[log] level"],
    "certificates": [{"file": "/etc/svcd/cert.pem", "ends": "1800000000000"}],
    "left": ["[http] listen"],
}


def answering(node: Node, terminal: Terminal, answer: dict[str, object] | HttpError) -> None:
    async def reload(*, trust_clock: bool) -> Renderable:
        assert not trust_clock
        if isinstance(answer, HttpError):
            raise answer
        return answer

    terminal.operator.site = node.sites.operator([ReloadRoutes(reload, token=None)], SiteLimits())


def test_each_change_has_a_line(node: Node, terminal: Terminal) -> None:
    answering(node, terminal, CHANGES)
    assert terminal.ok("node", "reload").out.splitlines() == [
        "added music",
        "changed books: token, recipients",
        "removed maps: 1 active webhook continue; events wait for 2 webhooks, and are kept for a week and sent if "
        "it is configured again",
        "set [log] level",
        "renewed /etc/svcd/cert.pem",
        "restart the node to change [http] listen",
    ]
    assert json.loads(terminal.ok("node", "merchants", "reload", "--json").out) == CHANGES


def test_the_operator_says_that_the_clock_is_right(node: Node, terminal: Terminal) -> None:
    said = list[bool]()

    async def reload(*, trust_clock: bool) -> Renderable:
        said.append(trust_clock)
        return {name: [] for name in CHANGES}

    terminal.operator.site = node.sites.operator([ReloadRoutes(reload, token=None)], SiteLimits())
    terminal.ok("node", "reload", "--trust-clock")
    assert said == [True]


def test_no_change(node: Node, terminal: Terminal) -> None:
    answering(node, terminal, {name: [] for name in CHANGES})
    assert terminal.ok("node", "merchants", "reload").out == "nothing has changed\n"


@pytest.mark.parametrize("why", ["nothing has changed: svcd.toml: [[commerce.merchants]] number 1, name is missing"])
def test_a_wrong_file_is_answered_with_its_sentence(node: Node, terminal: Terminal, why: str) -> None:
    answering(node, terminal, HttpError(409, why))
    assert why in terminal.failure("node", "reload")
