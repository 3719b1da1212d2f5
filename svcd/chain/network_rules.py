"""What a network file says: the rules that a network can have, in a file and in JSON (docs/own-network.md).

The file is TOML for people; `svc network show --json` writes the same for programs, with the values of rules as
docs/protocol.md 5 has them. Each value has one accepted form in both.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Final

from attrs import evolve

from .address import decode_address
from .encoding import MAX_INTEGER
from .errors import RuleViolation
from .params import DEFAULT_UNIT, DEVNET, MAINNET, NetworkParams, ProducerChange
from .units import format_coins
from .value_types import (
    BadValue,
    Between,
    Coins,
    Height,
    ListOf,
    Matching,
    PowerOfTwo,
    RuleType,
    Steps,
    String,
    UtcSecond,
)

KeyPath = tuple[str | int, ...]
"""The keys that lead to a value; a number is the place among several of one name, from 0."""

BUILT_IN: Final = (MAINNET, DEVNET)
MIN_NETWORK_ID: Final = 1000
"""The least id of a network that is not built in."""
MAX_FILE_BYTES: Final = 4 << 20
MAX_PRODUCERS: Final = 1000
_LEAST_DRIFT_SECONDS: Final = 5

NAME: Final = Matching(
    "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?",
    '1 to 32 lower-case letters, digits and, between them, hyphens, such as "festival"',
    tuple((params.name, "a built-in network") for params in BUILT_IN),
)
UNIT: Final = Matching("[A-Za-z]{1,12}", '1 to 12 letters from A to Z, such as "Token"')
"""What a network calls its coins."""
_NAMES: Final[Mapping[str, RuleType]] = {"name": NAME, "unit": UNIT}
RULES: Final[Mapping[str, RuleType]] = {
    "chainId": Matching(
        "[A-Z0-9](?:[A-Z0-9-]{0,30}[A-Z0-9])?",
        "1 to 32 capitals, digits and, between them, hyphens, such as FESTIVAL",
        tuple((params.chain_id, params.name) for params in BUILT_IN),
    ),
    "networkId": Between(MIN_NETWORK_ID, 2**31 - 1),
    "addressPrefix": Matching(
        "[a-z]{2,8}", "2 to 8 lower-case letters", tuple((params.address_prefix, params.name) for params in BUILT_IN)
    ),
    "genesisTime": UtcSecond(),
    "slotSeconds": Between(1, 600),
    # With one slot a block the chain could never be ahead of the clock, and its difficulty would only fall.
    "slotsPerBlock": Between(2, 1_000),
    "halfLifeSlots": Between(20, 1_000_000),
    "gapCapSlots": Between(6, 1_000_000),
    "memoryKiB": Between(64, 65_536),
    "initialTarget": PowerOfTwo(160, 255),
    "maxTarget": PowerOfTwo(160, 255),
    "minTarget": PowerOfTwo(128, 255),
    "initialReward": Coins(0),
    "halvingBlocks": Between(0, 10**9),
    "minimumFee": Coins(1),
    "accountMinimum": Coins(1),
    "holdingMinimum": Coins(1),
    "multiplierSchedule": Steps(),
    "maxBlockTransactions": Between(1, MAINNET.max_block_transactions),
    "maxBlockBytes": Between(16_384, MAINNET.max_block_bytes),
    "transactionPastSeconds": Between(600, 604_800),
    "transactionFutureSeconds": Between(60, 86_400),
    "producers": ListOf(String()),
}
"""The types of all rules but the allocations, with the bounds of networks that can work."""
_ALLOCATION: Final[Mapping[str, RuleType]] = {"address": String(), "amount": Coins(1)}
_CHANGE: Final[Mapping[str, RuleType]] = {"height": Height(1, MAX_INTEGER), "producers": ListOf(String())}
_HASH: Final[Mapping[str, RuleType]] = {"hash": Matching("[0-9a-f]{64}", "64 lower-case hex digits")}
_MAX_ALLOCATIONS: Final = 10_000
_MAX_CHANGES: Final = 1_000
_Values = Mapping[str, Any]


class BadNetwork(Exception):
    """A value at ``path`` is one that no network can have; ``reason`` says what would be right."""

    def __init__(self, path: KeyPath, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        # A key that no network has may be any text, such as one that moves the cursor of a terminal.
        shown = [key if isinstance(key, int) else key.encode("unicode_escape").decode("ascii") for key in self.path]
        keys = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in shown)
        return f"{keys.removeprefix('.') or 'the network'}: {self.reason}"


class MissingKey(BadNetwork):
    """There is no value at ``path``."""

    def __init__(self, path: KeyPath) -> None:
        super().__init__(path, "is missing")


class UnknownKey(BadNetwork):
    """There must be no value at ``path``; ``known`` are the keys beside it that may be."""

    def __init__(self, path: KeyPath, known: Collection[str]) -> None:
        super().__init__(path, "is not known; this version may be too old for it")
        self.known = known


# What a file and JSON say


def params_in_file(values: Mapping[str, object], *, sealed: bool = True) -> tuple[NetworkParams, str]:
    """The network in the TOML of a file, and the genesis hash that the file states; raises BadNetwork.

    With ``sealed`` false the values have no hash, and it is "".
    """
    keys = ("name", "unit", "rules", "changes", *(["genesis"] if sealed else []))
    values = _table({"unit": DEFAULT_UNIT, "changes": [], **values}, keys, ())
    given = {"allocations": [], **_table(values["rules"], None, ("rules",))}
    rules = _table(given, (*RULES, "allocations"), ("rules",))
    params = _params(
        _read(values, _NAMES, (), json=False),
        _read(rules, RULES, ("rules",), json=False),
        _several(rules["allocations"], ("rules", "allocations"), _ALLOCATION, _MAX_ALLOCATIONS, json=False),
        _several(values["changes"], ("changes",), _CHANGE, _MAX_CHANGES, json=False),
    )
    if not sealed:
        return params, ""
    seal = _table(values["genesis"], _HASH, ("genesis",))
    return params, str(_read(seal, _HASH, ("genesis",), json=False)["hash"])


def params_in_json(value: object) -> tuple[NetworkParams, str]:
    """The network in the JSON of `svc network show --json`, and the genesis hash that it states; raises BadNetwork.

    A built-in network is that of this version. Members that follow from the rules are not read.
    """
    given = _table(value, None, ())
    names = ("name", "unit", "rules", "changes", "genesisHash")
    values = _table({"unit": DEFAULT_UNIT, **{name: given[name] for name in names if name in given}}, names, ())
    genesis_hash = str(_read(values, {"genesisHash": _HASH["hash"]}, (), json=True)["genesisHash"])
    for known in BUILT_IN:
        if known.rules == values["rules"]:
            return known, genesis_hash
    rules = _table(values["rules"], (*RULES, "allocations"), ("rules",))
    params = _params(
        _read(values, _NAMES, (), json=True),
        _read(rules, RULES, ("rules",), json=True),
        _several(_pairs(rules["allocations"]), ("rules", "allocations"), _ALLOCATION, _MAX_ALLOCATIONS, json=True),
        _several(values["changes"], ("changes",), _CHANGE, _MAX_CHANGES, json=True),
    )
    return params, genesis_hash


def _pairs(value: object) -> object:
    """Allocations as sections, which are pairs in JSON."""
    if not isinstance(value, list):
        return value
    return [
        {"address": each[0], "amount": each[1]} if isinstance(each, list) and len(each) == 2 else each for each in value
    ]


def _table(value: object, keys: Collection[str] | None, path: KeyPath) -> _Values:
    """``value`` as a section with exactly these keys, or with any for None; raises BadNetwork."""
    if not isinstance(value, dict):
        raise BadNetwork(path, "must be a section with keys of its own, in JSON an object")
    if keys is not None:
        for key in sorted(value.keys() - set(keys)):
            raise UnknownKey((*path, key), keys)
        for key in keys:
            if key not in value:
                raise MissingKey((*path, key))
    return value


def _read(values: _Values, types: Mapping[str, RuleType], path: KeyPath, *, json: bool) -> dict[str, Any]:
    """The values of these types; raises BadNetwork."""
    found = {}
    for key, of in types.items():
        try:
            found[key] = (of.of_json if json else of.read)(values[key])
        except BadValue as error:
            raise BadNetwork((*path, key), str(error)) from error
    return found


def _several(
    value: object, path: KeyPath, types: Mapping[str, RuleType], most: int, *, json: bool
) -> list[dict[str, Any]]:
    """Sections of one name; raises BadNetwork."""
    if not isinstance(value, list):
        raise BadNetwork(path, "must be sections, each with its name in double brackets, in JSON a list of objects")
    if len(value) > most:
        raise BadNetwork(path, f"there must be at most {most}")
    places = [(*path, number) for number in range(len(value))]
    return [_read(_table(each, types, at), types, at, json=json) for each, at in zip(value, places, strict=True)]


def _params(
    names: _Values, rules: _Values, allocations: Iterable[_Values], changes: Iterable[_Values]
) -> NetworkParams:
    """The network of these values; raises BadNetwork if no network can have all of them."""
    fields = {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", rule): rules[rule] for rule in RULES}
    fields["memory_kib"] = fields.pop("memory_ki_b")
    params = NetworkParams(
        name=names["name"],
        unit=names["unit"],
        drift_slots=max(2, -(-_LEAST_DRIFT_SECONDS // rules["slotSeconds"])),
        allocations=tuple((each["address"], each["amount"]) for each in allocations),
        **fields,
    )
    for path, reason in _problems(params):
        raise BadNetwork(("rules", *path), reason)
    before = 0
    listed = []
    for number, change in enumerate(changes):
        at: KeyPath = ("changes", number)
        if not params.producers:
            raise BadNetwork((*at, "height"), "everybody may make blocks on this network: remove the change")
        if change["height"] <= before:
            raise BadNetwork((*at, "height"), f"must be greater than that of the change before it, {before}")
        if not change["producers"]:
            raise BadNetwork((*at, "producers"), "must name at least one producer")
        for reason in _producer_problems(change["producers"], params.address_prefix):
            raise BadNetwork((*at, "producers"), reason)
        before = change["height"]
        listed.append(ProducerChange(height=before, producers=change["producers"]))
    return evolve(params, changes=tuple(listed))


# Rules that contradict each other, or that no network can have


def _problems(params: NetworkParams) -> Iterator[tuple[KeyPath, str]]:
    if params.half_life_slots < 10 * params.slots_per_block:
        yield ("halfLifeSlots",), f"must be at least ten times slotsPerBlock, {10 * params.slots_per_block}"
    if params.gap_cap_slots < 3 * params.slots_per_block:
        yield ("gapCapSlots",), f"must be at least three times slotsPerBlock, {3 * params.slots_per_block}"
    ten_blocks = 10 * params.slots_per_block * params.slot_seconds
    if params.transaction_past_seconds < ten_blocks:
        yield ("transactionPastSeconds",), f"must be at least the time of ten blocks, {ten_blocks}"
    initial = f"2^{params.initial_target.bit_length() - 1}"
    if params.min_target > params.initial_target:
        yield ("minTarget",), f'must not be above initialTarget, "{initial}"'
    if params.max_target < params.initial_target:
        yield ("maxTarget",), f'must not be below initialTarget, "{initial}"'
    steps = params.multiplier_schedule
    if not (
        0 < len(steps) <= 16
        and steps[0] == (0, 10_000)
        and all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(steps))
        and steps[-1][1] <= 11_000
        and steps[-1][0] <= MAX_INTEGER
    ):
        yield (
            ("multiplierSchedule",),
            "must begin with [0, 10000] and have at most 16 steps, each with more slots and no fewer basis points "
            "than the one before, and at most 11000 of them",
        )
    yield from ((("producers",), problem) for problem in _producer_problems(params.producers, params.address_prefix))
    yield from _money_problems(params)


def _money_problems(params: NetworkParams) -> Iterator[tuple[KeyPath, str]]:
    coins, seen = partial(format_coins, unit=params.unit), set[str]()
    for number, (address, _) in enumerate(params.allocations):
        at = ("allocations", number, "address")
        yield from ((at, problem) for problem in _address_problems(address, params.address_prefix))
        if address in seen:
            yield at, "is allocated coins twice; add the two amounts"
        seen.add(address)
    if params.allocated > MAX_INTEGER:
        yield ("allocations",), f"must be {coins(MAX_INTEGER)} at most together, 2^53 - 1 base units"
    supply = params.supply_limit
    if supply > MAX_INTEGER:
        yield (
            ("halvingBlocks",),
            f"with this reward and these allocations there would be {coins(supply)} in the end, and at most "
            f"{coins(MAX_INTEGER)} can exist (2^53 - 1 base units): halve the reward after fewer blocks, or begin with "
            "less",
        )
    if supply == 0:
        yield ("initialReward",), "without allocations too there would never be a coin: set a reward or an allocation"
    if 2 * params.account_minimum + params.minimum_fee > supply:
        yield (
            ("accountMinimum",),
            f"with the minimum fee no transfer would ever be possible, because only {coins(supply)} will "
            "exist: sender and recipient must each keep it",
        )


def _address_problems(address: str, prefix: str) -> Iterator[str]:
    try:
        decode_address(address, prefix, address)
    except RuleViolation as violation:
        yield violation.detail


def _producer_problems(producers: Iterable[str], prefix: str) -> Iterator[str]:
    seen: set[str] = set()
    for producer in producers:
        yield from _address_problems(producer, prefix)
        if producer in seen:
            yield f"must name {producer} once"
        seen.add(producer)
    if len(seen) > MAX_PRODUCERS:
        yield f"must name at most {MAX_PRODUCERS} producers"
