"""Greeting an endpoint: hellos are exchanged, and what comes back must hold (docs/protocol.md 11)."""

from typing import Final

from attrs import frozen
from twisted.logger import Logger

from svcd.p2p.bans import Bans, address_in
from svcd.p2p.caller import CallFailed, Trouble
from svcd.p2p.client import PeerClient
from svcd.p2p.hello import Fault, Hello, HelloRefused, LatestHellos, check_hello
from svcd.p2p.peer import Home
from svcd.ports import milliseconds

_AT_ONCE: Final = 8


class NotGreeted(Exception):
    """Nobody at an endpoint whom we would talk to; the text is a sentence about it.

    ``is_ours``: we are there ourselves; ``is_lost``: no answer came in time; ``elsewhere`` is the endpoint that whoever
    answered names instead, or "".
    """

    def __init__(self, why: str, *, is_ours: bool = False, is_lost: bool = False, elsewhere: str = "") -> None:
        super().__init__(why)
        self.is_ours = is_ours
        self.is_lost = is_lost
        self.elsewhere = elsewhere


@frozen
class Greeted:
    """Who answered, and at which IP address; "" where that is not known."""

    hello: Hello
    address: str


class Greetings:
    """Those that are under way, at most eight, and the newest hello that each key has answered with."""

    log = Logger()

    def __init__(self, home: Home, client: PeerClient, bans: Bans) -> None:
        self.endpoints: set[str] = set()
        """Where we are waiting for an answer."""
        self._home = home
        self._client = client
        self._bans = bans
        self._replies = LatestHellos()

    def __len__(self) -> int:
        return len(self.endpoints)

    def may_begin(self, endpoint: str) -> bool:
        """Whether an endpoint may be greeted now: it is not being greeted yet, and there is room."""
        return endpoint not in self.endpoints and len(self.endpoints) < _AT_ONCE

    async def exchange(self, endpoint: str) -> Greeted:
        """The hello of the node that listens at an endpoint; raises NotGreeted."""
        if self._bans.shut_out(endpoint, self._home.now()):
            raise NotGreeted("it is banned here")
        self.endpoints.add(endpoint)
        try:
            hello = await self._client.hello(endpoint, self._home.hello())
            address = self._client.caller.address_of(endpoint) or address_in(endpoint)
            self._check(endpoint, hello, address)
        except HelloRefused as refused:
            if refused.fault is Fault.SELF:
                raise NotGreeted("it is this node itself", is_ours=True) from refused
            self.log.info("{endpoint} is no peer of ours: {why}", endpoint=endpoint, why=refused.detail)
            raise NotGreeted(f"its hello is refused: {refused.detail}") from refused
        except CallFailed as failed:
            self.log.debug("{endpoint} cannot be greeted: {why}", endpoint=endpoint, why=failed.detail)
            raise NotGreeted(failed.detail, is_lost=failed.trouble is Trouble.TIMEOUT) from failed
        finally:
            self.endpoints.discard(endpoint)
        return Greeted(hello, address)

    def _check(self, endpoint: str, hello: Hello, address: str) -> None:
        home = self._home
        check_hello(hello, home.params, own=home.key.node_id, now=milliseconds(home.clock))
        if hello.endpoint == endpoint:
            # Somebody who hands on the hello of another node must not make that node's own look old.
            self._replies.take(hello)
        # Only now is it known who is there, and where a name leads.
        if self._bans.forbids(hello.node_key, endpoint, address, home.now()):
            raise NotGreeted("the node that answers there, or its address, is banned here")
        if hello.endpoint != endpoint:
            said = hello.endpoint or "nothing: it has no publicUrl"
            self.log.info("{endpoint} answers and names as its endpoint {said}", endpoint=endpoint, said=said)
            raise NotGreeted(f"it names as its endpoint {said}", elsewhere=hello.endpoint)
