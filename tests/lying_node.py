"""A node that lies to wallets, in three forms that tell the same lies.

- :class:`LyingNode` in front of a :class:`SimulatedChain`: a Twisted resource for tests in memory, without a node. The
  chain has an adversary for a miner: every transfer that was ever relayed to it may be included as long as the rules
  allow it, blocks can be undone, and :meth:`SimulatedChain.paid` counts what an order was paid.
- :func:`lying_proxy` in front of a real node, on a real socket: for clients and browsers (it passes on pages, too).
- :class:`Liar`, the lies alone: what a liar answers, given how to ask an honest node.

A test sets ``lies`` of the liar, a set of :class:`Lie`, at any time. ``relayed`` has what the liar passed on.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from attrs import define, field, frozen
from twisted.internet.task import Clock
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from svcd.chain.address import decode_address, encode_address
from svcd.chain.encoding import parse_wire_object
from svcd.chain.errors import RuleViolation
from svcd.chain.params import DEVNET, NETWORKS, NetworkParams
from svcd.chain.transaction import Transfer, parse_transfer

DAY: Final = 24 * 3600 * 1000
"""Milliseconds."""
SKEW: Final = 7
"""By how much a liar changes a nonce."""
_SUCCESS: Final = 200
_INVALID: Final = 400
_NOT_FOUND: Final = 404


class Lie(Enum):
    """One lie. The first six are answers to a broadcast, of which a liar tells one."""

    RELAY_AND_REFUSE = "the transfer is relayed, and the answer is 400"
    RELAY_AND_FAIL = "the transfer is relayed, and the answer is 500"
    RELAY_AND_HANG = "the transfer is relayed, and there is no answer"
    RELAY_AND_MISNAME = "the transfer is relayed, and the answer has another txid"
    DROP_AND_ACCEPT = "the transfer is not relayed, and the answer says that it is accepted"
    DROP_AND_REFUSE = "the transfer is not relayed, and the answer is 400"
    UNKNOWN = "no transfer is known, in a block or waiting for one, and no order is paid"
    INCLUDED = "every transfer that the liar has seen is in a block, 100 deep"
    NONCE_AHEAD = "the account has sent more transfers than it has"
    NONCE_BEHIND = "the account has sent no transfer"
    NONE_WAITING = "no transfer of the account waits"
    SLOT_AHEAD = "the newest block is two days ahead"
    SLOT_BEHIND = "the newest block is two days old"
    CATCHING_UP = "the node is catching up"


BROADCAST_LIES: Final = tuple(Lie)[:6]
OTHER_LIES: Final = tuple(Lie)[6:]


@frozen
class Question:
    """A request to a node."""

    method: str
    path: str
    """With the query."""
    body: bytes = b""


@frozen
class Answer:
    """The answer to a request; ``None`` in its place is no answer at all."""

    status: int
    body: bytes
    content_type: str = "application/json"

    @property
    def members(self) -> dict[str, Any]:
        """The JSON object in the body."""
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value


Honest = Callable[[Question], Answer]
"""Asks an honest node. A broadcast is thereby relayed."""


def json_answer(status: int = _SUCCESS, /, **members: object) -> Answer:
    """An answer as a node gives it."""
    return Answer(status, json.dumps({"ok": status == _SUCCESS, **members}).encode())


def _failure(status: int, sentence: str) -> Answer:
    return json_answer(status, error=sentence)


@define
class Liar:
    """Answers questions with the help of an honest node."""

    honest: Honest
    lies: set[Lie] = field(factory=set)
    seen: dict[str, dict[str, Any]] = field(factory=dict)
    """Every transfer that was broadcast to the liar, as JSON, by txid."""
    relayed: list[str] = field(factory=list)
    """The txids that it passed on, in order."""

    def answer(self, question: Question) -> Answer | None:
        """The answer to ``question``, or None if there is none."""
        parts = urlsplit(question.path).path.strip("/").split("/")
        match (question.method, *parts):
            case ("POST", "rpc", "broadcast"):
                return self._broadcast(question)
            case ("GET", "rpc", "status"):
                return self._changed(question, "status", self._status)
            case ("GET", "rpc", "balance", _):
                return self._changed(question, "account", self._account)
            case ("GET", "rpc", "transaction", txid):
                return self._transaction(question, txid)
            case ("GET", "rpc", "commerce", "payment", _) if Lie.UNKNOWN in self.lies:
                return self._changed(question, "payment", _unpaid)
            case ("GET", "rpc", "mempool", _) if Lie.UNKNOWN in self.lies:
                return self._emptied(question, "incoming", "outgoing")
            case ("GET", "rpc", "address", _, "transactions") if Lie.UNKNOWN in self.lies:
                return self._emptied(question, "transactions")
            case ("GET", "rpc", "commerce", "payments") if Lie.UNKNOWN in self.lies:
                return self._emptied(question, "payments")
        return self.honest(question)

    def relay_late(self) -> None:
        """Relay all that was seen and not relayed: a liar may do that at any later time."""
        for txid, transaction in self.seen.items():
            if txid not in self.relayed:
                self.honest(Question("POST", "/rpc/broadcast", json.dumps({"transaction": transaction}).encode()))
                self.relayed.append(txid)

    def _broadcast(self, question: Question) -> Answer | None:
        transaction = json.loads(question.body)["transaction"]
        params = next(each for each in NETWORKS.values() if each.network_id == transaction["networkId"])
        txid = parse_transfer(transaction, params).txid.hex()
        self.seen[txid] = transaction
        if Lie.DROP_AND_ACCEPT in self.lies:
            return json_answer(txid=txid, state="accepted")
        if Lie.DROP_AND_REFUSE in self.lies:
            return _failure(_INVALID, "the balance is too low")
        answer = self.honest(question)
        self.relayed.append(txid)
        if Lie.RELAY_AND_REFUSE in self.lies:
            return _failure(_INVALID, "the balance is too low")
        if Lie.RELAY_AND_FAIL in self.lies:
            return _failure(500, "internal error")
        if Lie.RELAY_AND_HANG in self.lies:
            return None
        if Lie.RELAY_AND_MISNAME in self.lies:
            return json_answer(txid="00" * 32, state="accepted")
        return answer

    def _transaction(self, question: Question, txid: str) -> Answer:
        if Lie.INCLUDED in self.lies and txid in self.seen:
            return json_answer(transaction=_record(self.seen[txid], txid, height=1, slot=1, confirmations=100))
        if Lie.UNKNOWN in self.lies:
            return json_answer(_NOT_FOUND, error="no block of the chain has this transfer", mempool=False)
        return self.honest(question)

    def _status(self, status: dict[str, Any]) -> None:
        params = next(each for each in NETWORKS.values() if each.network_id == status["networkId"])
        days = 2 * ((Lie.SLOT_AHEAD in self.lies) - (Lie.SLOT_BEHIND in self.lies))
        if days:
            now = params.slot_at(int(status["time"]))
            status["slot"] = str(max(now + days * DAY // (1000 * params.slot_seconds), 0))
        if Lie.CATCHING_UP in self.lies:
            status["syncState"] = "catching-up"

    def _account(self, account: dict[str, Any]) -> None:
        if Lie.NONCE_AHEAD in self.lies:
            for name in ("nonce", "pendingNonce"):
                account[name] = str(int(account[name]) + SKEW)
        if Lie.NONCE_BEHIND in self.lies:
            account.update(nonce="0", pendingNonce="0")
        if Lie.NONE_WAITING in self.lies:
            account.update(pendingNonce=account["nonce"], pendingBalance=account["balance"])

    def _changed(self, question: Question, member: str, change: Callable[[dict[str, Any]], None]) -> Answer:
        answer = self.honest(question)
        if answer.status != _SUCCESS:
            return answer
        members = answer.members
        change(members[member])
        return Answer(answer.status, json.dumps(members).encode())

    def _emptied(self, question: Question, *lists: str) -> Answer:
        answer = self.honest(question)
        return Answer(answer.status, json.dumps({**answer.members, **{name: [] for name in lists}}).encode())


def _unpaid(payment: dict[str, Any]) -> None:
    for name in ("txid", "blockHash", "blockHeight", "blockTime"):
        payment.pop(name, None)
    payment.update(state="unpaid", canonical=False, confirmations=0, matchCount=0)


def _record(transaction: dict[str, Any], txid: str, *, height: int, slot: int, confirmations: int) -> dict[str, Any]:
    """A transfer in a block, as GET /rpc/transaction has it (docs/http.md)."""
    return {
        **transaction,
        "txid": txid,
        "blockHash": f"{height:064x}",
        "blockHeight": str(height),
        "index": 0,
        "slot": str(slot),
        "blockTime": str(DEVNET.slot_time(slot)),
        "confirmations": confirmations,
    }


@frozen
class SimulatedBlock:
    """A block without work: a slot and transfers."""

    slot: int
    transfers: tuple[Transfer, ...]


@frozen
class _Account:
    balance: int
    nonce: int


@define
class SimulatedChain:
    """A devnet without work, signatures and peers, and with a miner that is free to choose (docs/protocol.md 4).

    Every transfer that was ever relayed stays known: a node may drop it from its mempool, but another one may have it.
    """

    clock: Clock
    balances: dict[str, int]
    """What addresses have at the beginning, in base units."""
    params: NetworkParams = DEVNET
    blocks: list[SimulatedBlock] = field(factory=list)
    known: dict[bytes, Transfer] = field(factory=dict)

    def now(self) -> int:
        """The time in Unix milliseconds."""
        return int(self.clock.seconds() * 1000)

    # The miner

    def mine(self, choose: Callable[[Transfer], bool] = lambda _: True) -> SimulatedBlock:
        """Add a block with all transfers that it may have and that ``choose`` wants, the highest fees first."""
        slot = self.params.slot_at(self.now())
        if self.blocks:
            slot = max(slot, self.blocks[-1].slot + 1)
        accounts, chosen = self._accounts(), []
        ordered = sorted(filter(choose, self.known.values()), key=lambda each: (each.nonce, -each.fee))
        for transfer in ordered:
            if self._why_not(transfer, accounts, self.params.slot_time(slot)) is None:
                _execute(transfer, accounts)
                chosen.append(transfer)
        block = SimulatedBlock(slot, tuple(chosen))
        self.blocks.append(block)
        return block

    def undo(self, count: int) -> None:
        """Undo the newest ``count`` blocks; their transfers are known and may be included again."""
        del self.blocks[max(len(self.blocks) - count, 0) :]

    def paid(self, recipient: str, amount: int, reference: str | None) -> int:
        """How many transfers in blocks pay exactly these terms."""
        terms = recipient, amount, reference
        return sum(self._terms(each) == terms for block in self.blocks for each in block.transfers)

    def can_be_paid_twice(self) -> list[tuple[Transfer, Transfer]]:
        """Pairs of different transfers with the same terms that blocks, undone or not, could both include from now on.

        Two transfers of one sender with one nonce exclude each other for ever.
        """
        included = {each.txid for block in self.blocks for each in block.transfers}
        alive = [each for each in self.known.values() if each.txid in included or not self._is_too_old(each)]
        return [
            (one, other)
            for place, one in enumerate(alive)
            for other in alive[place + 1 :]
            if self._terms(one) == self._terms(other) and (one.sender, one.nonce) != (other.sender, other.nonce)
        ]

    # The honest node

    def answer(self, question: Question) -> Answer:
        """What an honest node answers."""
        url = urlsplit(question.path)
        match (question.method, *url.path.strip("/").split("/")):
            case ("GET", "rpc", "status"):
                return json_answer(status=self._status())
            case ("GET", "rpc", "consensus"):
                minimums = {"minimumFee": self.params.minimum_fee, "accountMinimum": self.params.account_minimum}
                return json_answer(consensus={**self._network(), **{name: str(of) for name, of in minimums.items()}})
            case ("GET", "rpc", "fees"):
                return json_answer(fees={"suggestedFee": str(self.params.minimum_fee)})
            case ("GET", "rpc", "balance", address):
                return json_answer(account=self._account(address))
            case ("GET", "rpc", "transaction", txid):
                return self._transaction(bytes.fromhex(txid))
            case ("GET", "rpc", "commerce", "payment", reference):
                return json_answer(payment=self._payment(reference, parse_qs(url.query)))
            case ("POST", "rpc", "broadcast"):
                return self._broadcast(json.loads(question.body)["transaction"])
        return _failure(_NOT_FOUND, "there is nothing here")

    def _network(self) -> dict[str, object]:
        named = {"chainId": self.params.chain_id, "networkId": self.params.network_id}
        return {**named, "genesisHash": self.params.genesis_hash.hex()}

    def _status(self) -> dict[str, object]:
        slot = self.blocks[-1].slot if self.blocks else 0
        place = {"height": str(len(self.blocks)), "slot": str(slot), "hash": f"{len(self.blocks):064x}"}
        return {**self._network(), **place, "syncState": "synced", "time": str(self.now())}

    def _account(self, address: str) -> dict[str, object]:
        key = decode_address(address, self.params.address_prefix)
        account = self._accounts().get(key, _Account(0, 0))
        waiting = self._waiting(key, account)
        spent = sum(each.amount + each.fee for each in waiting)
        return {
            "address": address,
            "balance": str(account.balance),
            "nonce": str(account.nonce),
            "pendingNonce": str(account.nonce + len(waiting)),
            "pendingBalance": str(account.balance - spent),
            "heldSince": None,
        }

    def _transaction(self, txid: bytes) -> Answer:
        for height, block in enumerate(self.blocks, start=1):
            for transfer in block.transfers:
                if transfer.txid == txid:
                    depth = len(self.blocks) - height + 1
                    wire = parse_wire_object(transfer.wire)
                    assert isinstance(wire, dict)
                    return json_answer(
                        transaction=_record(wire, txid.hex(), height=height, slot=block.slot, confirmations=depth)
                    )
        return json_answer(_NOT_FOUND, error="no block of the chain has this transfer", mempool=txid in self.known)

    def _payment(self, reference: str, query: dict[str, list[str]]) -> dict[str, object]:
        recipient, amount = query["recipient"][0], query["amountBaseUnits"][0]
        required, terms = int(query["confirmations"][0]), (recipient, int(amount), reference)
        named = {"reference": reference, "recipient": recipient, "amount": amount, "requiredConfirmations": required}
        for height, block in enumerate(self.blocks, start=1):
            for transfer in block.transfers:
                if self._terms(transfer) == terms:
                    depth = len(self.blocks) - height + 1
                    state = "confirmed" if depth >= required else "confirming"
                    return {**named, "state": state, "txid": transfer.txid.hex(), "confirmations": depth}
        accounts = self._accounts()
        for transfer in self.known.values():
            account = accounts.get(transfer.sender, _Account(0, 0))
            if self._terms(transfer) == terms and transfer in self._waiting(transfer.sender, account):
                return {**named, "state": "pending", "txid": transfer.txid.hex(), "confirmations": 0}
        return {**named, "state": "unpaid", "confirmations": 0}

    def _broadcast(self, transaction: object) -> Answer:
        try:
            transfer = parse_transfer(transaction, self.params)
            transfer.check_signature()
        except RuleViolation as violation:
            return _failure(_INVALID, str(violation))
        account = self._accounts().get(transfer.sender, _Account(0, 0))
        why_not = self._why_no_mempool(transfer, account)
        state = "known" if transfer.txid in self.known else "accepted"
        # Whatever this node says of the transfer, another one may hold it: the adversary keeps everything.
        self.known[transfer.txid] = transfer
        return json_answer(txid=transfer.txid.hex(), state=state) if why_not is None else _failure(_INVALID, why_not)

    # The rules

    def _why_no_mempool(self, transfer: Transfer, account: _Account) -> str | None:
        if transfer.nonce < account.nonce:
            return f"nonce {transfer.nonce} is already used; the next one is {account.nonce}"
        if self._is_too_old(transfer):
            return "the transfer is older than a day"
        rivals = [each for each in self._waiting(transfer.sender, account) if each.nonce == transfer.nonce]
        if any(each.txid != transfer.txid and 10 * transfer.fee < 11 * each.fee for each in rivals):
            return "another transfer waits with this nonce; the fee must be 10 % higher"
        return None

    def _why_not(self, transfer: Transfer, accounts: dict[bytes, _Account], time: int) -> str | None:
        """Why a block at ``time`` cannot have the transfer next, if it cannot."""
        sender = accounts.get(transfer.sender, _Account(0, 0))
        if transfer.nonce != sender.nonce:
            return "the nonce is not the next one"
        if transfer.timestamp < time - 1000 * self.params.transaction_past_seconds:
            return "the transfer is too old"
        if sender.balance < transfer.amount + transfer.fee + self.params.account_minimum:
            return "the balance is too low"
        return None

    def _is_too_old(self, transfer: Transfer) -> bool:
        """Whether no block from now on can have the transfer, wherever the chain is undone to."""
        return transfer.timestamp < self.now() - 1000 * self.params.transaction_past_seconds

    def _waiting(self, sender: bytes, account: _Account) -> list[Transfer]:
        """The transfers of the mempool from ``sender``, in order of nonce and without a gap."""
        own = [each for each in self.known.values() if each.sender == sender and not self._is_too_old(each)]
        best: dict[int, Transfer] = {}
        for transfer in own:
            if transfer.nonce not in best or transfer.fee > best[transfer.nonce].fee:
                best[transfer.nonce] = transfer
        waiting: list[Transfer] = []
        while (following := best.get(account.nonce + len(waiting))) is not None:
            waiting.append(following)
        return waiting

    def _accounts(self) -> dict[bytes, _Account]:
        prefix = self.params.address_prefix
        accounts = {decode_address(each, prefix): _Account(units, 0) for each, units in self.balances.items()}
        for block in self.blocks:
            for transfer in block.transfers:
                _execute(transfer, accounts)
        return accounts

    def _terms(self, transfer: Transfer) -> tuple[str, int, str | None]:
        recipient = encode_address(transfer.recipient, self.params.address_prefix)
        return recipient, transfer.amount, transfer.reference


def _execute(transfer: Transfer, accounts: dict[bytes, _Account]) -> None:
    sender = accounts[transfer.sender]
    accounts[transfer.sender] = _Account(sender.balance - transfer.amount - transfer.fee, sender.nonce + 1)
    recipient = accounts.get(transfer.recipient, _Account(0, 0))
    accounts[transfer.recipient] = _Account(recipient.balance + transfer.amount, recipient.nonce)


class LyingNode(Resource):
    """A liar as the public interface of a node in memory: ``site_of(LyingNode(Liar(chain.answer)), clock)``."""

    isLeaf = True  # noqa: N815

    def __init__(self, liar: Liar) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.liar = liar

    def render(self, request: Any) -> Any:
        """Answer one request."""
        answer = self.liar.answer(Question(request.method.decode(), request.uri.decode(), request.content.read()))
        if answer is None:
            return NOT_DONE_YET
        request.setResponseCode(answer.status)
        request.setHeader("Content-Type", answer.content_type)
        return answer.body


def node_at(url: str) -> Honest:
    """An honest node at ``url``, such as a devnet."""

    def ask(question: Question) -> Answer:
        headers = {"Content-Type": "application/json"} if question.body else {}
        body = question.body or None
        request = urllib.request.Request(url + question.path, body, headers, method=question.method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                return Answer(response.status, response.read(), response.headers.get("Content-Type", ""))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read(), error.headers.get("Content-Type", ""))

    return ask


@contextmanager
def lying_proxy(honest: str | Honest, lies: Iterable[Lie] = ()) -> Iterator[tuple[str, Liar]]:
    """The URL of a liar on a free port of this computer, and the liar; ``honest`` is a node or its URL.

    ``with lying_proxy(node.url, {Lie.RELAY_AND_REFUSE}) as (url, liar): …`` The lies can be changed meanwhile.
    A question without an answer gets a closed connection.
    """
    liar = Liar(node_at(honest) if isinstance(honest, str) else honest, set(lies))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _proxy_of(liar))
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", liar
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _proxy_of(liar: Liar) -> type[BaseHTTPRequestHandler]:
    class Proxy(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            answer = liar.answer(Question(self.command, self.path, self.rfile.read(length)))
            if answer is None:
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = _pass_on  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    return Proxy
