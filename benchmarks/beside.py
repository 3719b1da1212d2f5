"""svcd beside litecoind and hsd, nodes of other chains: the same work, the same client, in turn on one machine.

``litecoind`` (Debian: ``apt-get install --no-install-recommends litecoind``) and ``hsd`` (``npm install -g hsd``) are
run if they are on PATH, each on its regtest with a data directory of its own; one that is not is left out. No other
benchmark needs them, so ``make bench`` does not run this one.
"""

import json
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen

from benchmarks.broadcast import write_bodies
from benchmarks.figures import Rounds, Row
from benchmarks.prepared_chain import Signer, build_blocks, create_chain, unowned_key
from benchmarks.processes import DATABASE, Served, closed_port, node, running
from benchmarks.program import main
from benchmarks.sync import near_empty
from benchmarks.wrk import CONNECTIONS, hammer
from svcd.chain.address import encode_address
from svcd.chain.params import DEVNET

Lines = list[str]
"""Calls as the script calls.lua of wrk reads them."""


@frozen(kw_only=True)
class Sizes:
    """How much is measured."""

    rounds: int
    seconds: int
    blocks: int
    """Empty blocks to be fetched from a peer; more than coins of litecoind must be deep to be spent, which is 100."""
    ready: int
    """Transfers signed for each round: more than can be taken in."""


FULL: Final = Sizes(rounds=5, seconds=2, blocks=3_000, ready=16_000)
QUICK: Final = Sizes(rounds=1, seconds=1, blocks=150, ready=8_000)
_SENDERS: Final = 64
"""Connections that hand in transfers, as in benchmarks.broadcast."""
_ADDRESSES: Final = 100
_OUTPUTS: Final = 2_000
"""Outputs of a transaction that makes coins for transfers."""
_START_SECONDS: Final = 60.0
_LONGEST_CALL: Final = 600.0
_POLL_SECONDS: Final = 0.02


@frozen
class Node:
    """A running node of some program."""

    served: Served
    peer: str
    """Where other nodes of the same program find it."""
    authorization: str = ""

    def call(self, path: str, body: object = None) -> Any:
        """The JSON that it answers to a GET, or to a POST of ``body``; raises RuntimeError for an error."""
        connection = HTTPConnection("127.0.0.1", self.served.port, timeout=_LONGEST_CALL)
        headers = {"Authorization": self.authorization} if self.authorization else {}
        if body is None:
            connection.request("GET", path, headers=headers)
        else:
            connection.request("POST", path, json.dumps(body), {**headers, "Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status != HTTPStatus.OK:
            raise RuntimeError(f"{self.served.url}{path}: {answer.status} {text[:1000]!r}")
        return json.loads(text)

    def rpc(self, method: str, *params: object) -> Any:
        """The result of one call of bitcoind's JSON-RPC, which litecoind and hsd share."""
        return self.call("/", {"method": method, "params": params})["result"]

    def rpcs(self, method: str, each: Iterable[Sequence[object]]) -> list[Any]:
        """The results of several calls, made in one request."""
        calls = [{"id": number, "method": method, "params": params} for number, params in enumerate(each)]
        return [answer["result"] for answer in self.call("/", calls)]

    def wait_until(self, done: Callable[["Node"], bool]) -> None:
        """Ask again and again."""
        until = time.monotonic() + _LONGEST_CALL
        while not done(self):
            if time.monotonic() > until:
                raise RuntimeError(f"{self.served.process.args!r} does not get any further")
            time.sleep(_POLL_SECONDS)


class Program(ABC):
    """A program that serves a chain, and what it is asked."""

    name: str
    advice: str
    """What installs it."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.folder, self.sizes = folder / self.name, sizes
        self.folder.mkdir()

    @abstractmethod
    def source(self) -> AbstractContextManager[Node]:
        """A node with ``sizes.blocks`` empty blocks."""

    @abstractmethod
    def empty(self, number: int, peer: str) -> AbstractContextManager[Node]:
        """The ``number``-th node without blocks, which fetches them from ``peer``."""

    @abstractmethod
    def height(self, running_node: Node) -> int:
        """The height of its tip."""

    @abstractmethod
    def reader(self, source: Node) -> AbstractContextManager[Node]:
        """The node that is asked and that takes transfers: ``source`` or another."""

    @abstractmethod
    def reads(self, reader: Node) -> dict[str, Lines]:
        """The calls of each work of _READS."""

    @abstractmethod
    def transfers(self, reader: Node, rounds: int) -> Iterator[Lines]:
        """For each round, calls that hand in transfers, each of a sender or coin of its own, signed now."""

    @abstractmethod
    def held(self, reader: Node) -> int:
        """How many transfers are in its mempool."""


_INFO: Final = "state of the node"
_BALANCE: Final = "balance"
_BLOCK: Final = "empty block"
_READS: Final = (_INFO, _BALANCE, _BLOCK)
_HELD: Final = f"transfers accepted and held, {_SENDERS} connections"


class Svcd(Program):
    """This program, on devnet."""

    name = "svcd"
    advice = ""

    @contextmanager
    def source(self) -> Iterator[Node]:
        self._chain = near_empty(self.folder, self.sizes.blocks)
        with self._node("source", self._chain.finished) as source:
            yield source

    @contextmanager
    def empty(self, number: int, peer: str) -> Iterator[Node]:
        with self._node(f"empty-{number}", self._chain.initial, f'p2p.seeds=["{peer}"]') as syncing:
            yield syncing

    @contextmanager
    def _node(self, name: str, database: Path, *settings: str) -> Iterator[Node]:
        data = self.folder / name
        data.mkdir()
        shutil.copy(database, data / DATABASE)
        with node(data, *settings) as served:
            yield Node(served, served.url)

    def height(self, running_node: Node) -> int:
        return int(running_node.call("/rpc/status")["status"]["height"])

    @contextmanager
    def reader(self, source: Node) -> Iterator[Node]:
        self._signers = [Signer(number) for number in range(self.sizes.rounds * self.sizes.ready)]
        database = self.folder / "reader.sqlite"
        create_chain(database, [*(signer.key for signer in self._signers), *map(unowned_key, range(_ADDRESSES))])
        build_blocks(database, [()])
        # As many as the rounds can bring.
        with self._node("reader", database, f"mempool.maxTransactions={len(self._signers)}") as reader:
            yield reader

    def reads(self, reader: Node) -> dict[str, Lines]:
        addresses = [encode_address(unowned_key(number), DEVNET.address_prefix) for number in range(_ADDRESSES)]
        balances = [f"/rpc/balance/{address}" for address in addresses]
        return {_INFO: ["/rpc/status"], _BALANCE: balances, _BLOCK: ["/rpc/block/1"]}

    def transfers(self, reader: Node, rounds: int) -> Iterator[Lines]:
        for number in range(rounds):
            file = self.folder / "bodies"
            write_bodies(file, self._signers[number * self.sizes.ready : (number + 1) * self.sizes.ready])
            yield [f"/rpc/broadcast {body}" for body in file.read_text("ascii").splitlines()]

    def held(self, reader: Node) -> int:
        return int(reader.call("/rpc/fees")["fees"]["mempool"]["transactions"])


class Other(Program):
    """What litecoind and hsd have in common: bitcoind's JSON-RPC, and one node for everything."""

    @contextmanager
    def source(self) -> Iterator[Node]:
        with self.serve("source") as source:
            self.grow(source)
            yield source

    def empty(self, number: int, peer: str) -> AbstractContextManager[Node]:
        return self.serve(f"empty-{number}", peer)

    @abstractmethod
    def serve(self, name: str, peer: str | None = None) -> AbstractContextManager[Node]:
        """A new node, which only knows ``peer``."""

    @abstractmethod
    def grow(self, source: Node) -> None:
        """Make the empty blocks; coins of the first ones are for transfers."""

    def height(self, running_node: Node) -> int:
        return int(running_node.rpc("getblockcount"))

    @contextmanager
    def reader(self, source: Node) -> Iterator[Node]:
        yield source

    def held(self, reader: Node) -> int:
        return int(reader.rpc("getmempoolinfo")["size"])


class Litecoind(Other):
    """Litecoin Core, a fork of Bitcoin Core."""

    name = "litecoind"
    advice = "apt-get install --no-install-recommends litecoind"

    @contextmanager
    def serve(self, name: str, peer: str | None = None) -> Iterator[Node]:
        port, peers = closed_port(), closed_port()
        data = self.folder / name
        data.mkdir()
        command = [self.name, "-regtest", "-server", f"-datadir={data}", f"-rpcport={port}", f"-port={peers}"]
        command += [f"-bind=127.0.0.1:{peers}", f"-connect={peer or 0}", "-listen=1", "-dnsseed=0"]
        # From block 432 on MWEB would want a transaction in every block: it begins in the year 2096.
        command += ["-vbparams=mweb:4000000000:4100000000"]
        # A queue of 16 calls, the default, would refuse calls of 64 connections.
        command += ["-rpcuser=benchmark", "-rpcpassword=benchmark", "-rpcworkqueue=256"]
        authorization = "Basic " + b64encode(b"benchmark:benchmark").decode("ascii")
        with running(command, port, log=self.folder / f"{name}.log", cwd=self.folder) as served:
            started = Node(served, f"127.0.0.1:{peers}", authorization)
            started.wait_until(_answers)
            yield started

    def grow(self, source: Node) -> None:
        # Most coins are not the wallet's that is asked for its balance, since it would add them all up.
        source.rpc("createwallet", "other")
        elsewhere = source.rpc("getnewaddress", "", "bech32")
        source.rpc("unloadwallet", "other")
        source.rpc("createwallet", "benchmark")
        self._address = source.rpc("getnewaddress", "", "bech32")
        self._key = source.rpc("dumpprivkey", self._address)
        self._script = bytes.fromhex(source.rpc("getaddressinfo", self._address)["scriptPubKey"])
        source.rpc("generatetoaddress", _ADDRESSES, self._address)
        source.rpc("generatetoaddress", self.sizes.blocks - _ADDRESSES, elsewhere)

    def reads(self, reader: Node) -> dict[str, Lines]:
        block = reader.rpc("getblockhash", 1)
        return {
            _INFO: [_rpc("getblockchaininfo")],
            _BALANCE: [_rpc("getbalance")],
            _BLOCK: [_rpc("getblock", block, 2)],
        }

    def transfers(self, reader: Node, rounds: int) -> Iterator[Lines]:
        # It would look at every transfer.
        reader.rpc("unloadwallet", "benchmark")
        per_round = -(-self.sizes.ready // _OUTPUTS)
        for number in range(rounds):
            heights = range(1 + number * per_round, 1 + (number + 1) * per_round)
            coins = [reader.rpc("getblock", reader.rpc("getblockhash", height), 2)["tx"][0] for height in heights]
            spends = [(coin["txid"], 0, round(coin["vout"][0]["value"] * 10**8), _OUTPUTS) for coin in coins]
            made = [(reader.rpc("sendrawtransaction", text, 0), each) for text, each in self._signed(reader, spends)]
            reader.rpc("generatetoaddress", 1, self._address)
            spends = [(txid, index, each, 1) for txid, each in made for index in range(_OUTPUTS)]
            yield [_rpc("sendrawtransaction", text) for text, _ in self._signed(reader, spends[: self.sizes.ready])]

    def _signed(self, reader: Node, spends: Sequence[tuple[str, int, int, int]]) -> Iterator[tuple[str, int]]:
        """Transactions that spend a coin (its transaction, position, value) in so many outputs; and what each holds."""
        drafts = [self._draft(*spend) for spend in spends]
        for start in range(0, len(drafts), _OUTPUTS):
            some = drafts[start : start + _OUTPUTS]
            signed = reader.rpcs("signrawtransactionwithkey", [(text, [self._key]) for text, _ in some])
            yield from [(done["hex"], each) for done, (_, each) in zip(signed, some, strict=True)]

    def _draft(self, txid: str, position: int, value: int, outputs: int) -> tuple[str, int]:
        each = (value - _fee(100 + 31 * outputs, outputs)) // outputs
        output = each.to_bytes(8, "little") + bytes([len(self._script)]) + self._script
        coin = bytes.fromhex(txid)[::-1] + position.to_bytes(4, "little")
        count = bytes([outputs]) if outputs < 253 else b"\xfd" + outputs.to_bytes(2, "little")
        draft = b"\2\0\0\0" + b"\1" + coin + b"\0" + b"\xff" * 4 + count + output * outputs + bytes(4)
        return draft.hex(), each


class Hsd(Other):
    """The node of Handshake, in JavaScript with native modules."""

    name = "hsd"
    advice = "npm install -g hsd"

    @contextmanager
    def serve(self, name: str, peer: str | None = None) -> Iterator[Node]:
        port, peers = closed_port(), closed_port()
        command = [self.name, "--network=regtest", f"--prefix={self.folder / name}", "--no-auth", "--no-wallet"]
        command += ["--no-dns", "--index-address", "--log-level=warning", "--listen", f"--http-port={port}"]
        command += ["--host=127.0.0.1", f"--port={peers}", f"--brontide-port={closed_port()}"]
        command += [f"--nodes={peer}"] if peer else []
        with running(command, port, log=self.folder / f"{name}.log", cwd=self.folder) as served:
            started = Node(served, f"127.0.0.1:{peers}")
            started.wait_until(_answers)
            yield started

    def _sign(self, **wanted: object) -> list[list[str]]:
        library = Path(shutil.which(self.name) or "").resolve().parent.parent
        command = ["node", str(Path(__file__).with_name("hsd_sign.js")), str(library)]
        done = subprocess.run(command, input=json.dumps(wanted), stdout=subprocess.PIPE, text=True, check=True)
        return [line.split() for line in done.stdout.splitlines()]

    def grow(self, source: Node) -> None:
        self._addresses = [address for (address,) in self._sign(addresses=_ADDRESSES)]
        # The first address takes what is left, and its coins are spent.
        for address in self._addresses[1:]:
            source.rpc("generatetoaddress", 1, address)
        source.rpc("generatetoaddress", self.sizes.blocks - _ADDRESSES + 1, self._addresses[0])

    def reads(self, reader: Node) -> dict[str, Lines]:
        return {_INFO: ["/"], _BALANCE: [f"/coin/address/{it}" for it in self._addresses[1:]], _BLOCK: ["/block/1"]}

    def transfers(self, reader: Node, rounds: int) -> Iterator[Lines]:
        per_round = -(-self.sizes.ready // 4 // _OUTPUTS)
        for number in range(rounds):
            heights = range(_ADDRESSES + number * per_round, _ADDRESSES + (number + 1) * per_round)
            coins = [reader.call(f"/block/{height}")["txs"][0] for height in heights]
            made = self._sign(
                spends=[self._spend(coin["hash"], 0, coin["outputs"][0]["value"], _OUTPUTS) for coin in coins]
            )
            for _, transaction, _ in made:
                reader.call("/broadcast", {"tx": transaction})
            reader.rpc("generatetoaddress", 1, self._addresses[0])
            spends = [self._spend(txid, index, int(each), 1) for txid, _, each in made for index in range(_OUTPUTS)]
            yield [f"/broadcast {json.dumps({'tx': text})}" for _, text, _ in self._sign(spends=spends)]

    def _spend(self, txid: str, position: int, value: int, outputs: int) -> tuple[str, int, int, int, int]:
        return txid, position, value, outputs, (value - _fee(150 + 32 * outputs, outputs)) // outputs


def _rpc(method: str, *params: object) -> str:
    return f"/ {json.dumps({'method': method, 'params': params})}"


def _fee(size: int, outputs: int) -> int:
    """The fee of a transaction of about ``size`` bytes; one that makes coins is mined before all that wait."""
    return size * (200 if outputs > 1 else 100)


def _answers(started: Node) -> bool:
    """Whether it has loaded its chain: until then litecoind refuses calls."""
    try:
        started.rpc("getblockcount")
    except RuntimeError:
        return False
    return True


@define
class Found:
    """Rates, and processor time in µs, of each program in each round, by the name of the work."""

    _rates: dict[str, dict[str, list[float]]] = field(factory=lambda: defaultdict(lambda: defaultdict(list)))
    _costs: dict[str, dict[str, list[float]]] = field(factory=lambda: defaultdict(lambda: defaultdict(list)))

    def add(self, work: str, program: Program, count: float, seconds: float, processor: float) -> None:
        """Note that the program did ``count`` pieces of work in ``seconds``."""
        self._rates[work][program.name].append(count / seconds)
        self._costs[work][program.name].append(processor / count * 1e6)

    def rows(self, others: list[str]) -> Iterator[Row]:
        """svcd against each other program: the rates of all works, and then what they take of the processor."""
        for by_work, unit, suffix in ((self._rates, "/s", ""), (self._costs, "µs", ", processor time")):
            for work, by_program in by_work.items():
                for other in others:
                    rounds = Rounds(by_program[Svcd.name], by_program[other])
                    yield rounds.row(work + suffix, unit=unit, baseline_is=f"{unit}, {other}")


def measure(folder: Path, quick: bool) -> list[Row]:
    """svcd beside litecoind and hsd, where they are installed: the same work, the same client, in turn."""
    sizes, found = QUICK if quick else FULL, Found()
    known: tuple[type[Program], ...] = (Litecoind, Hsd)
    chosen: list[type[Program]] = [Svcd]
    for other in known:
        if shutil.which(other.name) is None:
            print(f"{other.name} is left out, for it is not installed ({other.advice})", file=sys.stderr)
        else:
            chosen.append(other)
    if chosen == [Svcd]:
        raise RuntimeError("there is nothing to measure svcd beside: install litecoind or hsd")
    programs = [program(folder, sizes) for program in chosen]
    with ExitStack() as stack:
        sources = {program: stack.enter_context(program.source()) for program in programs}
        for number in range(min(sizes.rounds, 3)):
            for program, source in sources.items():
                _fetch(program, source, number, found)
        readers = {program: stack.enter_context(program.reader(source)) for program, source in sources.items()}
        reads = {program: program.reads(reader) for program, reader in readers.items()}
        for _ in range(sizes.rounds):
            for work in _READS:
                for program, reader in readers.items():
                    _read(program, reader, work, reads[program][work], found)
        rounds = zip(*(program.transfers(reader, sizes.rounds) for program, reader in readers.items()), strict=True)
        for calls in rounds:
            for (program, reader), lines in zip(readers.items(), calls, strict=True):
                _hand_in(program, reader, lines, found)
    return list(found.rows([program.name for program in programs[1:]]))


def _fetch(program: Program, source: Node, number: int, found: Found) -> None:
    with program.empty(number, source.peer) as syncing:
        began, spent = time.monotonic(), syncing.served.processor_seconds()
        syncing.wait_until(lambda it: program.height(it) >= program.sizes.blocks)
        seconds, processor = time.monotonic() - began, syncing.served.processor_seconds() - spent
    work = f"{program.sizes.blocks:,} empty blocks from one peer"
    found.add(work, program, program.sizes.blocks, seconds, processor)


def _read(program: Program, reader: Node, work: str, lines: Lines, found: Found) -> None:
    spent = reader.served.processor_seconds()
    per_second, _ = _hammer(program, reader, lines, CONNECTIONS)
    count = per_second * program.sizes.seconds
    found.add(work, program, count, program.sizes.seconds, reader.served.processor_seconds() - spent)


def _hand_in(program: Program, reader: Node, lines: Lines, found: Found) -> None:
    """Counted in the mempool: not every program checks a transfer before it answers."""
    held, spent = program.held(reader), reader.served.processor_seconds()
    _, exhausted = _hammer(program, reader, lines, _SENDERS)
    count = program.held(reader) - held
    if exhausted or count <= 0:
        raise RuntimeError(
            f"{program.name} took {count} transfers, and {len(lines)} were ready: more, or valid, ones are needed"
        )
    found.add(_HELD, program, count, program.sizes.seconds, reader.served.processor_seconds() - spent)


def _hammer(program: Program, reader: Node, lines: Lines, connections: int) -> tuple[float, bool]:
    """Answers per second, and whether there were fewer calls than that."""
    file = program.folder / "calls"
    file.write_text("".join(f"{line}\n" for line in lines), "ascii")
    report = hammer(
        reader.served.url,
        seconds=program.sizes.seconds,
        connections=connections,
        script="calls.lua",
        arguments=(str(file), reader.authorization),
    )
    return report.answers_per_second, report.lines["Exhausted"] != "0"


if __name__ == "__main__":
    main(measure)
