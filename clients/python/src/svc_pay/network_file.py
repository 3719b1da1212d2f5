"""A network of your own: its file, or what `svc network show --json` prints of it (docs/own-network.md).

The genesis hash follows from the rules (docs/protocol.md 5), and a file whose rules give another one than it says is
refused: so everything that is computed from the rules belongs to the network whose hash a user was given.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Final

from svc_pay.account_proof import Leaf, state_root
from svc_pay.chain import COIN, GREATEST, NETWORKS, Network, canonical, format_amount, key_hash_in, tagged_hash
from svc_pay.chain_rules import ChainRules
from svc_pay.errors import InvalidInput
from svc_pay.visible_text import BYTE_ORDER_MARK, file_text

MAX_FILE_BYTES: Final = 4 * 1024 * 1024

_NAME: Final = re.compile("[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_CHAIN_ID: Final = re.compile("[A-Z0-9](?:[A-Z0-9-]{0,30}[A-Z0-9])?")
_PREFIX: Final = re.compile("[a-z]{2,8}")
_HASH: Final = re.compile("[0-9a-f]{64}")
_DECIMAL: Final = re.compile("0|[1-9][0-9]{0,15}")
_COINS: Final = re.compile(r"(0|[1-9][0-9]{0,8})(?:\.([0-9]{1,8}))?")
_POWER: Final = re.compile("2\\^([1-9][0-9]{0,2})")
_MOST: Final = {"producers": 1_000, "allocations": 10_000, "changes": 1_000}

_INTEGERS: Final = {
    "networkId": (1000, 2**31 - 1),
    "slotSeconds": (1, 600),
    "slotsPerBlock": (2, 1_000),
    "halfLifeSlots": (20, 1_000_000),
    "gapCapSlots": (6, 1_000_000),
    "memoryKiB": (64, 65_536),
    "halvingBlocks": (0, 10**9),
    "maxBlockTransactions": (1, 2_000),
    "maxBlockBytes": (16_384, 1_310_720),
    "transactionPastSeconds": (600, 604_800),
    "transactionFutureSeconds": (60, 315_360_000),
}
_AMOUNTS: Final = {"initialReward": 0, "minimumFee": 1, "accountMinimum": 1, "holdingMinimum": 1}
"""The least base units."""
_TARGETS: Final = ("initialTarget", "maxTarget", "minTarget")
_RULES: Final = (
    *("chainId", "addressPrefix", "genesisTime", "multiplierSchedule", "producers", "allocations"),
    *_INTEGERS,
    *_AMOUNTS,
    *_TARGETS,
)


def read_network(path: str | PathLike[str]) -> Network:
    """The network of a file, which is TOML if its name ends with ``.toml``, and else JSON; raises InvalidInput."""
    file = Path(path)
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{file}: the file of the network cannot be read: {error.strerror}") from error
    try:
        if len(content) > MAX_FILE_BYTES:
            raise InvalidInput(f"a network file has at most {MAX_FILE_BYTES} bytes")
        text = file_text(content)
        return _from_toml(text) if file.suffix == ".toml" else parse_network(text)
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error}") from None


def parse_network(text: str) -> Network:
    """The network that `svc network show --json` has printed; raises InvalidInput."""
    try:
        value = json.loads(text.removeprefix(BYTE_ORDER_MARK))
    except (ValueError, RecursionError):
        raise InvalidInput("this is not JSON: give the output of svc network show --json") from None
    given = _table(value, "the file", "name", "rules", "changes", "genesisHash")
    changes = [_table(each, "each of changes", "height", "producers") for each in _list(given["changes"], "changes")]
    return _network(
        given["name"],
        _table(given["rules"], "rules"),
        [(_decimal(each["height"], "the height of a change", least=1), each["producers"]) for each in changes],
        given["genesisHash"],
    )


# TOML, in which a person reads amounts, targets and the time


def _from_toml(text: str) -> Network:
    try:
        value = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"this is not TOML: {error}") from None
    given = _table(value, "the file", "name", "rules", "genesis")
    rules = dict(_table(given["rules"], "rules"))
    allocations = [
        _table(each, "each of rules.allocations", "address", "amount")
        for each in _list(rules.get("allocations", []), "rules.allocations")
    ]
    rules["allocations"] = [[each["address"], _units("amount", each["amount"])] for each in allocations]
    for names, read in ((_AMOUNTS, _units), (_TARGETS, _target), (("genesisTime",), _milliseconds)):
        rules.update({name: read(name, rules[name]) for name in names if name in rules})
    changes = [
        _table(each, "each of changes", "height", "producers") for each in _list(given.get("changes", []), "changes")
    ]
    return _network(
        given["name"],
        rules,
        [(_whole(each["height"], "the height of a change", 1, GREATEST), each["producers"]) for each in changes],
        _table(given["genesis"], "genesis", "hash")["hash"],
    )


def _units(name: str, value: object) -> str:
    match = _COINS.fullmatch(value) if isinstance(value, str) else None
    units = -1 if match is None else int(match[1]) * COIN + int((match[2] or "").ljust(8, "0"))
    if units < 0 or format_amount(units) != value:
        raise InvalidInput(f'{name} must be an amount of coins in quotes, such as "0.5"')
    return str(units)


def _target(name: str, value: object) -> str:
    match = _POWER.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) > 255:
        raise InvalidInput(f'{name} must be a power of two in quotes, such as "2^242"')
    return f"{2 ** int(match[1]):064x}"


def _milliseconds(name: str, value: object) -> str:
    if not isinstance(value, datetime) or value.utcoffset() != timedelta(0) or value.microsecond:
        raise InvalidInput(f"{name} must be a second in UTC, such as 2026-12-01T00:00:00Z")
    return str(int(value.timestamp()) * 1000)


# The rules


def _network(name: object, rules: Mapping[str, Any], changes: list[tuple[int, object]], stated: object) -> Network:
    _table(rules, "rules", *_RULES)
    unknown = next((rule for rule in rules if rule not in _RULES), None)
    if unknown is not None:
        raise InvalidInput(
            f"rules has the unknown rule {unknown[:64]!r}: this version of svc-pay may be too old for it"
        )
    genesis_hash = _matched(_HASH, stated, "the genesis hash must be 64 lower-case hex characters")
    try:
        rules_hash = tagged_hash("svc/rules/v1", canonical(rules))
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput("a rule has a value that no rule can have") from None
    given = tagged_hash("svc/block-id/v4", tagged_hash("svc/genesis/v1", rules_hash) + bytes(8)).hex()
    if given != genesis_hash:
        raise InvalidInput(
            f"the file says that the genesis hash is {genesis_hash}, and its rules give {given}: get the file of the"
            " network again from those who founded it"
        )
    for known in NETWORKS:
        if known.genesis_hash == genesis_hash:
            return known
        if known.name == name or known.chain_id == rules["chainId"] or known.prefix == rules["addressPrefix"]:
            raise InvalidInput(f"name, chainId and addressPrefix must not be those of {known.name}")
    _matched(_NAME, name, "name must be 1 to 32 lower-case letters, digits and hyphens inside")
    _matched(_CHAIN_ID, rules["chainId"], "chainId must be 1 to 32 capitals, digits and hyphens inside")
    prefix = _matched(_PREFIX, rules["addressPrefix"], "addressPrefix must be 2 to 8 lower-case letters")
    return Network(
        name=str(name),
        network_id=_whole(rules["networkId"], "networkId", *_INTEGERS["networkId"]),
        chain_id=rules["chainId"],
        prefix=prefix,
        genesis_hash=genesis_hash,
        rules=_rules(rules, rules_hash, prefix, changes),
    )


def _rules(rules: Mapping[str, Any], rules_hash: bytes, prefix: str, changes: list[tuple[int, object]]) -> ChainRules:
    numbers = {rule: _whole(rules[rule], rule, *bounds) for rule, bounds in _INTEGERS.items()}
    amounts = {rule: _decimal(rules[rule], rule, least=least) for rule, least in _AMOUNTS.items()}
    lowest, initial, highest = (
        int(_matched(_HASH, rules[rule], f"{rule} must be 64 lower-case hex characters"), 16)
        for rule in ("minTarget", "initialTarget", "maxTarget")
    )
    if not 2**128 <= lowest <= initial <= highest < 2**256:
        raise InvalidInput("minTarget, initialTarget and maxTarget must ascend, from 2^128 on")
    accounts = _accounts(rules["allocations"], prefix)
    allocated = sum(account.balance for account in accounts)
    if allocated > GREATEST:
        raise InvalidInput(f"allocations must be {GREATEST} base units at most together")
    producers = _producers(rules["producers"], prefix)
    later = [(height, _producers(listed, prefix)) for height, listed in changes]
    if later and not (producers and all(listed for _, listed in later)):
        raise InvalidInput("changes may only replace a list of producers by another one that is not empty")
    if any(one[0] >= other[0] for one, other in pairwise(later)):
        raise InvalidInput("the heights of changes must ascend")
    return ChainRules(
        rules_hash=rules_hash,
        genesis_state_root=state_root(accounts),
        genesis_time=_decimal(rules["genesisTime"], "genesisTime", least=0),
        slot_seconds=numbers["slotSeconds"],
        slots_per_block=numbers["slotsPerBlock"],
        half_life_slots=numbers["halfLifeSlots"],
        gap_cap_slots=numbers["gapCapSlots"],
        memory_kib=numbers["memoryKiB"],
        initial_target=initial,
        max_target=highest,
        min_target=lowest,
        initial_reward=amounts["initialReward"],
        halving_blocks=numbers["halvingBlocks"],
        allocated=allocated,
        minimum_fee=amounts["minimumFee"],
        multipliers=_multipliers(rules["multiplierSchedule"]),
        max_block_transactions=numbers["maxBlockTransactions"],
        past_seconds=numbers["transactionPastSeconds"],
        future_seconds=numbers["transactionFutureSeconds"],
        producers=producers,
        changes=tuple(later),
    )


def _accounts(value: object, prefix: str) -> list[Leaf]:
    accounts: dict[int, Leaf] = {}
    for each in _list(value, "allocations"):
        address, units = each if isinstance(each, list) and len(each) == 2 else (None, None)
        key = _key(address, prefix)
        if key in accounts:
            raise InvalidInput(f"allocations must name {address} once")
        accounts[key] = Leaf(key, _decimal(units, "each amount of allocations", least=1), nonce=0, held_since=None)
    return list(accounts.values())


def _producers(value: object, prefix: str) -> tuple[str, ...]:
    listed = _list(value, "producers")
    keys = {_key(each, prefix) for each in listed}
    if len(keys) != len(listed):
        raise InvalidInput("a list of producers must name each once")
    return tuple(map(str, listed))


def _multipliers(value: object) -> tuple[int, ...]:
    pairs = [each if isinstance(each, list) and len(each) == 2 else (None, None) for each in _list(value, "steps")]
    what = "each number of multiplierSchedule"
    steps = [(_whole(held, what, 0, GREATEST), _whole(points, what, 10_000, 11_000)) for held, points in pairs]
    if not steps or any(one[0] >= other[0] or one[1] > other[1] for one, other in pairwise(steps)):
        raise InvalidInput("multiplierSchedule must have steps that ascend")
    return tuple(points for _, points in steps)


# Values of one form


def _table(value: object, what: str, *names: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be an object: this is not the file of a network")
    missing = next((name for name in names if name not in value), None)
    if missing is not None:
        raise InvalidInput(f"{what} lacks {missing}")
    return value


def _list(value: object, what: str) -> list[Any]:
    most = _MOST.get(what.rpartition(".")[2], 16)
    if not isinstance(value, list) or len(value) > most:
        raise InvalidInput(f"{what} must be an array of at most {most}")
    return value


def _key(value: object, prefix: str) -> int:
    if not isinstance(value, str):
        raise InvalidInput("an address must be a string")
    return key_hash_in(value, prefix, "the network")


def _matched(form: re.Pattern[str], value: object, sentence: str) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise InvalidInput(sentence)
    return value


def _whole(value: object, what: str, least: int, greatest: int) -> int:
    if type(value) is not int or not least <= value <= greatest:
        raise InvalidInput(f"{what} must be an integer from {least} to {greatest}")
    return value


def _decimal(value: object, what: str, *, least: int) -> int:
    sentence = f"{what} must be a string of digits from {least} to {GREATEST}"
    number = int(_matched(_DECIMAL, value, sentence))
    if not least <= number <= GREATEST:
        raise InvalidInput(sentence)
    return number
