"""One run of a command: what it is given from outside, where its node is, and how its result is shown."""

import json
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import click
from attrs import define, evolve, frozen
from twisted.internet.task import LoopingCall

from svcd.ports import Clock
from svcd.wallet.answer import Answer
from svcd.wallet.client import Node
from svcd.wallet.places import OPERATOR_SECONDS, operator_place, public_place

T = TypeVar("T")

DEFAULT_URL: Final = "http://127.0.0.1:8645"
DEFAULT_DATA_DIR: Final = "data"
SOCKET: Final = "operator.sock"
LOOK_SECONDS: Final = 0.5
"""Between two looks at work that goes on."""


class Runner(Protocol):
    """Runs a coroutine function in a reactor, which it is given, and returns or raises what it does."""

    def __call__(self, work: Callable[[Any], Coroutine[Any, Any, T]], /) -> T:
        """Return when the coroutine has ended; to be called once in a process."""


@frozen(kw_only=True)
class Outside:
    """Everything that commands take from outside the process."""

    run: Runner
    agent: Callable[[Any], Any]
    operator_agent: Callable[[Any, str], Any]
    """Both make an IAgent for a reactor, the second one for a Unix socket."""
    random: Callable[[int], bytes]
    """So many bytes that nobody can guess."""
    environment: Mapping[str, str]
    watched: Callable[[], bool]
    """Whether somebody watches standard error, so that a progress bar is of use."""
    attended: Callable[[], bool] = lambda: False
    """Whether somebody sits at a terminal, sees what is asked and can answer."""
    columns: Callable[[], int | None] = lambda: None
    """How wide the terminal is that standard output goes to; None if it goes elsewhere."""


@frozen
class Reach:
    """What a command can talk to while the reactor runs."""

    node: Node
    clock: Clock


@define
class Session:
    """One run of a command."""

    outside: Outside
    url: str = DEFAULT_URL
    data_dir: str = DEFAULT_DATA_DIR
    as_json: bool = False

    def ask(self, path: str, member: str) -> Answer:
        """The object in ``member`` of what the node answers to GET ``path``; raises Failed."""

        async def work(reach: Reach) -> Answer:
            return (await reach.node.get(path)).object(member)

        return self.with_node(work)

    def with_node(self, work: Callable[[Reach], Coroutine[Any, Any, T]], *, token: str | None = None) -> T:
        """What ``work`` comes to with the node's public interface, and a bearer ``token`` to show; raises Failed."""
        place = public_place(self.url)
        return self.outside.run(
            lambda reactor: work(Reach(Node(self.outside.agent(reactor), place, clock=reactor, token=token), reactor))
        )

    def with_operator(
        self,
        work: Callable[[Node], Coroutine[Any, Any, T]],
        *,
        seconds: float = OPERATOR_SECONDS,
        meanwhile: Callable[[float], object] | None = None,
    ) -> T:
        """What ``work`` comes to with the operator's interface, ``seconds`` for each request; raises Failed.

        ``meanwhile`` is called twice a second while the work goes on, with the seconds that it has taken.
        """
        socket = str(Path(self.data_dir) / SOCKET)
        place = evolve(operator_place(socket), seconds=seconds)

        def working(reactor: Any) -> Coroutine[Any, Any, T]:
            under_way = work(Node(self.outside.operator_agent(reactor, socket), place, clock=reactor))
            return under_way if meanwhile is None else _beside(under_way, meanwhile, reactor)

        return self.outside.run(working)

    def show(self, value: Mapping[str, object], text: str) -> None:
        """Print the result of the command: ``text``, or ``value`` where JSON is asked for."""
        click.echo(json.dumps(value, indent=2) if self.as_json else text)


async def _beside(work: Coroutine[Any, Any, T], look: Callable[[float], object], clock: Any) -> T:
    began = clock.seconds()
    looking = LoopingCall(lambda: look(clock.seconds() - began))
    looking.clock = clock
    ended = looking.start(LOOK_SECONDS, now=False)
    try:
        return await work
    finally:
        if looking.running:
            looking.stop()
        # Raises what a look has raised.
        await ended
