"""Single flipped bits in the files of a stopped node, and whether the node that is started on them ever lies."""

import shutil
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from random import Random
from types import FrameType
from typing import Final

import pytest
from attrs import frozen
from twisted.internet.task import Clock

from svcd.composition import merchants
from svcd.composition.lifecycle import OPERATOR_ERRORS
from svcd.node.snapshots import CHECK_SECONDS
from svcd.p2p import transport
from svcd.pages import resource
from tests.chains import key_of
from tests.cli.terminal import Terminal
from tests.faults.merchant_data import ASKED_AT, SHOPS, MerchantData, Question, config_at, repeatable
from tests.faults.whole_node import WholeNode

DATABASES: Final = ("chain.sqlite", "webhooks.sqlite")
_BETWEEN_EVENTS: Final = b"\0"
SECONDS: Final = 60
"""After so long a node hangs."""
_DATABASE_HEADER: Final = {
    "page size": (16, 17),
    "versions of the format": (18, 19),
    "reserved bytes": (20,),
    "payload fractions": (21, 22, 23),
    "change counter": (27,),
    "size in pages": (31,),
    "first free page": (35,),
    "free pages": (39,),
    "schema cookie": (43,),
    "schema format": (47,),
    "encoding": (59,),
    "user_version": (63,),
    "application_id": (71,),
    "version-valid-for": (95,),
}
"""Bytes of the first page (sqlite.org/fileformat2.html, 1.3)."""


class Verdict(StrEnum):
    """What came of a flip."""

    SAME = "every answer is that of the undamaged node"
    TOLD = "a question was answered with 503, and the node stopped with an alarm"
    REFUSED = "the node did not start, and said why in a sentence"
    NOTED = "the log says which file is damaged, and the node goes on without it"
    SILENT = "an answer differs"
    CRASHED = "an exception, a traceback in the log, a 500, or no answer"
    UNFOUND = "the node noticed damage in files that `svc db check` called sound"


@frozen
class Flip:
    """A bit of a file that is the other way round."""

    file: str
    offset: int
    bit: int
    aim: str = "random"
    """What it is aimed at."""

    @classmethod
    def parse(cls, text: str) -> "Flip":
        """The flip of ``FILE:OFFSET:BIT``."""
        file, offset, bit = text.split(":")
        return cls(file, int(offset), int(bit), "by hand")

    def apply(self, folder: Path) -> None:
        """Flip the bit of the file in ``folder``."""
        with (folder / self.file).open("r+b") as file:
            file.seek(self.offset)
            (byte,) = file.read(1)
            file.seek(self.offset)
            file.write(bytes([byte ^ 1 << self.bit]))

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}:{self.bit} ({self.aim})"


@frozen
class Outcome:
    """What a flip led to."""

    verdict: Verdict
    why: str = ""

    @property
    def is_allowed(self) -> bool:
        """Whether the damage was told, or nothing that anybody was told differs."""
        return self.verdict not in (Verdict.SILENT, Verdict.CRASHED, Verdict.UNFOUND)


@frozen
class _Said:
    """What the node said, and at which point."""

    what: str
    heard: bytes
    """Status and body of an answer, or the bodies of events."""


class Inquiry:
    """Starts a node on a copy of the data, asks it everything, and compares."""

    def __init__(self, data: MerchantData, folder: Path) -> None:
        self.data = data
        self._folder = folder
        self._questions, self._later = data.questions(), data.later_questions()
        self._expected = self._undamaged(self._questions)
        assert self._undamaged(self._questions[::-1]) == self._expected, "the answers vary by themselves"

    def judge(self, flip: Flip) -> Outcome:
        """The outcome of one flip; what is asked first depends on the flip."""
        flip.apply(self._copy())
        questions = Random(str(flip)).sample(self._questions, len(self._questions))
        node = WholeNode(config_at(self._folder), ASKED_AT)
        try:
            with _deadline():
                is_sound = self._is_called_sound()
                outcome = self._compared(node, questions)
        except OPERATOR_ERRORS as error:
            outcome = Outcome(Verdict.REFUSED, str(error))
        except Exception as error:
            return Outcome(Verdict.CRASHED, f"{type(error).__name__}: {error}")
        tracebacks = [line["failure"]["traceback"] for line in node.lines if "failure" in line]
        if outcome.is_allowed and tracebacks:
            return Outcome(Verdict.CRASHED, tracebacks[0])
        if outcome.verdict in (Verdict.TOLD, Verdict.REFUSED) and is_sound:
            return Outcome(Verdict.UNFOUND, outcome.why)
        if outcome.verdict is Verdict.SILENT and flip.file not in DATABASES and _is_warned_of(flip.file, node):
            return Outcome(Verdict.NOTED, outcome.why)
        return outcome

    def _copy(self) -> Path:
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self.data.folder, self._folder)
        return self._folder

    def _is_called_sound(self) -> bool:
        """Whether `svc db check` finds nothing; it changes nothing."""
        result = Terminal(self._folder, Clock()).invoke("db", "check", self._folder)
        assert result.exit_code in (0, 1), result.output
        return result.exit_code == 0

    def _undamaged(self, questions: Sequence[Question]) -> dict[str, bytes]:
        self._copy()
        assert self._is_called_sound()
        node = WholeNode(config_at(self._folder), ASKED_AT)
        with _running(node):
            said = {each.what: each.heard for each in self._said(node, questions)}
            assert not node.damage_told
        return said

    def _compared(self, node: WholeNode, questions: Sequence[Question]) -> Outcome:
        with _running(node):
            for said in self._said(node, questions):
                expected = self._expected[said.what]
                if node.damage_told and (said.heard.startswith(b"503 ") or _is_part(said.heard, expected)):
                    return Outcome(Verdict.TOLD, said.what)
                if said.heard != expected:
                    verdict = Verdict.CRASHED if said.heard.startswith(b"500 ") else Verdict.SILENT
                    return Outcome(verdict, f"{said.what}\n{_difference(expected, said.heard)}")
        return Outcome(Verdict.SAME)

    def _said(self, node: WholeNode, questions: Sequence[Question]) -> Iterator[_Said]:
        """Everything that the node says, in order."""
        yield _Said("the start", b"")
        for question in questions:
            yield _Said(str(question), question.ask(node))
        for change in (
            Question("GET", "/ready", operator=True),
            Question("POST", "/operator/mine", {"blocks": 1}, operator=True),
            Question("POST", "/operator/reorganise", {"depth": 5}, operator=True),
        ):
            yield _Said(f"to change the chain: {change}", change.ask(node))
            node.receive()
            yield _Said(f"events after {change}", _BETWEEN_EVENTS.join(sorted(node.heard)))
            for question in self._later:
                yield _Said(f"{question} after {change}", question.ask(node))
        node.reactor.advance(CHECK_SECONDS)
        for question in self.data.last_questions():
            yield _Said(f"{question} at the end", question.ask(node))


@contextmanager
def _running(node: WholeNode) -> Iterator[None]:
    with repeatable(2):
        try:
            node.start()
            yield
        finally:
            node.stop()


def _is_warned_of(file: str, node: WholeNode) -> bool:
    """Whether a line of the log of level warn or above names the file; one that is of use for the node no more."""
    return any(f"/{file} " in line["message"] for line in node.lines if line["level"] in ("warn", "error"))


def _is_part(heard: bytes, expected: bytes) -> bool:
    """Whether these are answers, or events, that an undamaged node gives too; it may have more of them."""
    return {*heard.split(_BETWEEN_EVENTS)} <= {*expected.split(_BETWEEN_EVENTS), b""}


def _difference(expected: bytes, heard: bytes) -> str:
    pairs = zip(expected, heard, strict=False)
    at = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(expected), len(heard)))
    around = slice(max(at - 60, 0), at + 60)
    return f"  expected {expected[around]!r}\n  heard    {heard[around]!r}"


@contextmanager
def _deadline() -> Iterator[None]:
    def late(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"the node has not answered everything within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def loaded_once() -> Iterator[None]:
    """Load once what does not depend on the data directory: trusted certificates, and the texts of the pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merchants, "load_trust", cache(merchants.load_trust))
        patch.setattr(transport, "load_trust", cache(transport.load_trust))
        patch.setattr(resource, "load", cache(resource.load))
        yield


# Flips


def random_flips(folder: Path, files: Sequence[str], count: int, random: Random) -> list[Flip]:
    """Bits of all these files, each bit as likely as any other."""
    sizes = [(folder / file).stat().st_size for file in files]
    return [any_flip(folder / file, random) for file in random.choices(files, sizes, k=count)]


def any_flip(path: Path, random: Random) -> Flip:
    """Any bit of a file."""
    return Flip(path.name, random.randrange(path.stat().st_size), random.randrange(8))


def aimed_flips(data: MerchantData, files: Sequence[str], count: int, random: Random) -> list[Flip]:
    """Bits that matter in these databases: a like number for the file's header, for values and for kinds of pages."""
    families: list[list[Flip]] = [[], [], [], []]
    for file in files:
        for family, more in zip(families, _aims(data, file, random), strict=True):
            family.extend(more)
    for family in families:
        random.shuffle(family)
    turns = cycle([cycle(family) for family in families])
    return list(islice((next(turn) for turn in turns), count))


def _aims(data: MerchantData, file: str, random: Random) -> Iterator[list[Flip]]:
    """Four families of flips: the header of the file, what is known to be in it, rows, and the structure of pages."""
    content = (data.folder / file).read_bytes()
    size = int.from_bytes(content[16:18], "big")

    def flip(aim: str, offsets: Sequence[int]) -> Flip:
        return Flip(file, random.choice(offsets), random.randrange(8), aim)

    yield [flip(f"header of the file: {aim}", offsets) for aim, offsets in _DATABASE_HEADER.items()]
    beside = {
        # A byte of the value itself, the one behind it, and the next one, where a number often stands.
        aim: [at + len(value) + by for value in values for at in _places(content, value) for by in (-1, 0, 1)]
        for aim, values in _known_values(data).items()
    }
    yield [flip(aim, places) for aim, places in beside.items() if places for _ in range(4)]
    pages = _pages(data.folder / file)
    rows = {aim: [(page - 1) * size + at for page in of for at in range(size // 2, size)] for aim, of in pages.items()}
    yield [flip(f"rows of {aim}", offsets) for aim, offsets in rows.items()]
    heads = {aim: [(page - 1) * size + at for page in of for at in range(40)] for aim, of in pages.items()}
    last = flip("the last page", range(len(content) - size, len(content)))
    free = int.from_bytes(content[32:36], "big")
    unused = [flip("a list of free pages", range((free - 1) * size, (free - 1) * size + 40))] if free else []
    yield [*unused, last, *(flip(f"the structure of {aim}", offsets) for aim, offsets in heads.items())]


def _known_values(data: MerchantData) -> dict[str, list[bytes]]:
    """Bytes that the files contain, by what they are or stand beside."""
    return {
        "balances and recipients": [key_of(name).hash for name in SHOPS],
        "senders": [key_of(f"customer {number}").public for number in range(20)],
        "references and amounts": [order.reference.encode() for order in data.orders],
        "txids": data.txids,
        "undone blocks": [bytes.fromhex(each) for each in data.side_blocks],
        "headers": [b'"stateRoot":"', b'"transactionCount":'],
        "states of watches": [b"confirmed", b"unpaid", b"expired"],
        "events": [b'"confirmations":', b'"state":"', b'"amountBaseUnits":"'],
        "callbacks": [b"http://127.0.0.1:900"],
    }


def _places(content: bytes, value: bytes) -> Iterator[int]:
    at = content.find(value)
    while at >= 0:
        yield at
        at = content.find(value, at + 1)


def _pages(path: Path) -> dict[str, list[int]]:
    """The numbers of the pages of each kind of each table and index, but for empty ones."""
    with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
        rows = connection.execute("SELECT name, pagetype, pageno FROM dbstat WHERE ncell > 0 ORDER BY 1, 2").fetchall()
    pages: dict[str, list[int]] = {}
    for name, kind, page in rows:
        pages.setdefault(f"{kind} pages of {name}", []).append(page)
    return pages
