"""The language in which tests write chains; see `tests.chains`."""

import re
from collections.abc import Callable

from attrs import define, field

from svcd.chain.errors import Refusal


@define
class Plan:
    """What a text says about one block."""

    parent: str
    producer: str
    slot: int | None = None
    payments: list[tuple[str, str, int, str | None]] = field(factory=list)
    break_: Refusal | None = None

    def pay(self, amount: str, sender: str, recipient: str, reference: str | None) -> None:
        self.payments.append((sender, recipient, int(amount), reference))

    def be_at(self, slot: str) -> None:
        self.slot = int(slot)

    def be_by(self, producer: str) -> None:
        self.producer = producer

    def break_rule(self, rule: str) -> None:
        self.break_ = Refusal(rule.replace(" ", "-"))


_BRANCH = re.compile(r"(?:(genesis):?|(\w+):)((?: +[a-z]+(?:\d+|\[\d+\.\.\d+\]))+)")
_NAMES = re.compile(r"([a-z]+)(?:(\d+)|\[(\d+)\.\.(\d+)\])")
_SENTENCES: tuple[tuple[re.Pattern[str], Callable[..., None]], ...] = (
    (re.compile(r"(\w+) pays (\d+) from (\w+) to (\w+)(?: for (\S+))?"), Plan.pay),
    (re.compile(r"(\w+) is at slot (\d+)"), Plan.be_at),
    (re.compile(r"(\w+) is by (\w+)"), Plan.be_by),
    (re.compile(r"(\w+) has an invalid ([a-z -]+)"), Plan.break_rule),
)


def plans(text: str) -> dict[str, Plan]:
    """What ``text`` says about each block, by name; raises ValueError for a line that says nothing."""
    found: dict[str, Plan] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        if branch := _BRANCH.fullmatch(line):
            _grow(found, branch[1] or branch[2], branch[3])
        else:
            _tell(found, line)
    return found


def _grow(found: dict[str, Plan], parent: str, names: str) -> None:
    if parent != "genesis" and parent not in found:
        raise ValueError(f"no block {parent!r} has been named before")
    for letters, single, first, last in _NAMES.findall(names):
        for number in range(int(single or first), int(single or last) + 1):
            name = f"{letters}{number}"
            if name in found:
                raise ValueError(f"block {name!r} has two parents")
            found[name] = Plan(parent, letters)
            parent = name


def _tell(found: dict[str, Plan], line: str) -> None:
    for pattern, verb in _SENTENCES:
        if match := pattern.fullmatch(line):
            name, *rest = match.groups()
            if name not in found:
                raise ValueError(f"no block {name!r} has been named before: {line!r}")
            verb(found[name], *rest)
            return
    raise ValueError(f"not a sentence about a chain: {line!r}")
