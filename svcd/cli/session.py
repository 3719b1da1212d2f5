"""One run of a command: its runtime, its node, and the output of its result."""

import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import eq
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import click
from attrs import define, field, frozen

from svcd.chain.params import NETWORKS, NetworkParams, known_networks
from svcd.cli.answers import ResponseObject, dumps
from svcd.cli.clock import BlockingClock
from svcd.cli.errors import CommandError
from svcd.cli.http_client import (
    OPERATOR_TIMEOUT,
    Connect,
    NodeClient,
    is_exposed,
    operator_endpoint,
    public_endpoint,
)

T = TypeVar("T")

DEFAULT_URL: Final = "http://127.0.0.1:8645"
DEFAULT_DATA_DIR: Final = "data"
SOCKET: Final = "operator.sock"


class Runner(Protocol):
    """Runs a coroutine function with a reactor; returns its result or raises its exception."""

    def __call__(self, work: Callable[[Any], Coroutine[Any, Any, T]], /) -> T:
        """Return when the coroutine has ended; may be called once in a process."""


@frozen(kw_only=True)
class Runtime:
    """Everything that commands use outside the process: network, time, randomness, environment and terminal."""

    connect: Connect
    clock: BlockingClock
    run: Runner
    run_twistd: Callable[[Sequence[str]], None]
    """Runs `twistd` with these arguments in this process until it is stopped, in the place of ``run``."""
    random: Callable[[int], bytes]
    """Returns that many cryptographically secure random bytes."""
    environ: Mapping[str, str]
    hash_rate: Callable[[int], float]
    """Measures how many attempts a second with so many KiB of memory one thread makes on this computer."""
    stderr_is_terminal: Callable[[], bool]
    """Whether progress can be shown on standard error."""
    interactive: Callable[[], bool] = lambda: False
    """Whether a user sees prompts and can answer them: standard input and standard error are a terminal."""
    forbid_core_dumps: Callable[[], None] = lambda: None
    """Keeps keys and passwords in the memory of this process out of core dumps."""
    terminal_width: Callable[[], int | None] = lambda: None
    """Columns of the terminal that standard output goes to; None if it is not a terminal."""


def check_names(status: ResponseObject, networks: Iterable[NetworkParams]) -> None:
    """Raise NoValidResponse if a node's status has a part of the names of one of ``networks``, but not all of them."""
    said = (status.text("chainId"), status.count("networkId"), status.hash("genesisHash"))
    for params in networks:
        names = (params.chain_id, params.network_id, params.genesis_hash.hex())
        if any(map(eq, said, names)):
            status.check(chainId=names[0], networkId=names[1], genesisHash=names[2])


@define
class Session:
    """One run of a command."""

    runtime: Runtime
    url: str = DEFAULT_URL
    urls: tuple[str, ...] = ()
    """All nodes that were given to a command that asks several; empty for :attr:`url` alone."""
    data_dir: str = DEFAULT_DATA_DIR
    network: NetworkParams | None = None
    """The network that ``--network`` names; None if it was not given."""
    as_json: bool = False
    insecure_http: bool = False
    """Whether a token may be sent over a network unencrypted."""
    _warned: set[str] = field(factory=set, init=False)
    """The URLs of which the user has been warned."""

    @property
    def meant(self) -> tuple[NetworkParams, ...]:
        """The networks of which addresses, proofs and answers may be: that of ``--network``, or the built-in ones."""
        return tuple(NETWORKS.values()) if self.network is None else (self.network,)

    @property
    def networks(self) -> tuple[NetworkParams, ...]:
        """The networks whose keyfiles and chains the command can read: the built-in ones, and that of ``--network``."""
        return known_networks(self.network)

    @property
    def unit(self) -> str:
        """What the coins of these networks are called."""
        return self.meant[0].unit

    def node(self, *, token: str | None = None) -> NodeClient:
        """A client of the node's public interface with a bearer ``token``; raises CommandError.

        A token is not sent over http to another host, unless the user insists; for anything else there is one warning.
        A node of another network than ``--network`` names is refused.
        """
        client = self._client(self.url, token)
        if self.network is not None:
            self._check_network(self.network)
        return client

    def nodes(self) -> list[tuple[str, NodeClient]]:
        """A client of each node that was given, with its URL, each once."""
        return [(url, self._client(url, None)) for url in dict.fromkeys(self.urls or (self.url,))]

    def _client(self, url: str, token: str | None) -> NodeClient:
        endpoint = public_endpoint(url)
        if is_exposed(url):
            self._warn_of_http(url, token)
        return NodeClient(self.runtime.connect, endpoint, clock=self.runtime.clock, token=token)

    def _check_network(self, expected: NetworkParams) -> None:
        """Raise CommandError if the node is of another network; it gets no token before."""
        status = self._client(self.url, None).get("/rpc/status").object("status")
        genesis = status.hash("genesisHash")
        if genesis != expected.genesis_hash.hex():
            raise CommandError(
                f"the node at {self.url} is on {status.text('chainId')} with the genesis hash {genesis}, not on"
                f" {expected.name} with {expected.genesis_hash.hex()}: give a node of {expected.name} with --url, or"
                " another network with --network"
            )
        check_names(status, (expected,))

    def operator(
        self, *, timeout: float = OPERATOR_TIMEOUT, poll: Callable[[float], object] | None = None
    ) -> NodeClient:
        """A client of the operator's interface, with ``timeout`` seconds per request; raises CommandError.

        ``poll`` is called twice a second while a request waits for its response, with the seconds elapsed.
        """
        endpoint = operator_endpoint(str(Path(self.data_dir) / SOCKET), timeout)
        return NodeClient(self.runtime.connect, endpoint, clock=self.runtime.clock, poll=poll)

    def _warn_of_http(self, url: str, token: str | None) -> None:
        """Warn once of http to another host; raises CommandError if a ``token`` would be sent that way unasked."""
        if token is not None and not self.insecure_http:
            raise CommandError(
                f"the token would cross the network unencrypted to {url}: use https://, or a tunnel to this"
                " computer; --insecure-http sends it anyway"
            )
        if url not in self._warned:
            self._warned.add(url)
            click.echo(
                f"Warning: {url} is not encrypted: others on the way can read and change requests and answers. Use"
                " https://, or a tunnel to this computer.",
                err=True,
            )

    @property
    def shows_progress(self) -> bool:
        """Whether to show progress: at a terminal, and without --json."""
        return not self.as_json and self.runtime.stderr_is_terminal()

    def progress_bar(
        self, length: int, label: str, *, hidden: bool = False, update_min_steps: int = 1
    ) -> AbstractContextManager[Any]:
        """A progress bar on standard error, which is shown only at a terminal."""
        return click.progressbar(
            length=length,
            label=label,
            file=sys.stderr,
            hidden=hidden or not self.shows_progress,
            update_min_steps=update_min_steps,
        )

    def print_result(self, value: ResponseObject | Mapping[str, object], text: str) -> None:
        """Print the result of the command: ``value`` as JSON with --json, ``text`` otherwise."""
        click.echo(dumps(value, indent=2) if self.as_json else text)
