"""The network file: the rules of a network in readable TOML, read and written (docs/own-network.md).

Amounts are coins, targets powers of two and the genesis time a date, each with one accepted form. The hash of the
genesis block, which the rules give, is its last line, so that a change of a rule does not go unnoticed.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, ClassVar, Final

from attrs import evolve, fields, frozen

from svcd.chain.address import decode_address
from svcd.chain.errors import RuleViolation
from svcd.chain.params import DEVNET, MAINNET, NetworkParams, ProducerChange
from svcd.chain.units import format_amount
from svcd.config import types
from svcd.config.layers import ConfigError, KeyPath, Layer, Settings, camel, lines_of, merged
from svcd.config.sections import structured, type_of
from svcd.config.types import Between, Coins, ListOf, Matching, PowerOfTwo
from svcd.visible_text import BadText, text_of

BUILT_IN: Final = (MAINNET, DEVNET)
MIN_NETWORK_ID: Final = 1000
"""The least id of a network that is not built in."""
MAX_FILE_BYTES: Final = 4 << 20
MAX_SUPPLY: Final = 2**53 - 1
"""Base units."""
MAX_PRODUCERS: Final = 1000
_LEAST_DRIFT_SECONDS: Final = 5
YEAR: Final = 31_556_952
"""Seconds of a mean year of the calendar."""
_TOML_REASON: Final = re.compile(r"(.*) \(at line ([0-9]+), column [0-9]+\)")

NAME: Final = Matching(
    "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?",
    '1 to 32 lower-case letters, digits and, between them, hyphens, such as "festival"',
    tuple((params.name, "a built-in network") for params in BUILT_IN),
)
_CHAIN_ID: Final = Matching(
    "[A-Z0-9](?:[A-Z0-9-]{0,30}[A-Z0-9])?",
    "1 to 32 capitals, digits and, between them, hyphens, such as FESTIVAL",
    tuple((params.chain_id, params.name) for params in BUILT_IN),
)
_PREFIX: Final = Matching(
    "[a-z]{2,8}", "2 to 8 lower-case letters", tuple((params.address_prefix, params.name) for params in BUILT_IN)
)


@frozen
class AllocationSettings:
    """Coins that exist from the beginning."""

    MAX_SECTIONS: ClassVar[int] = 10_000

    address: Annotated[str, types.String()]
    amount: Annotated[int, Coins(1)]


@frozen
class ChangeSettings:
    """Another list of producers from a height on."""

    MAX_SECTIONS: ClassVar[int] = 1_000

    height: Annotated[int, Between(1, MAX_SUPPLY)]
    producers: Annotated[tuple[str, ...], ListOf(types.String())]


@frozen(kw_only=True)
class RuleSettings:
    """The rules, under the names of docs/protocol.md 1 and with the bounds of networks that can work."""

    chain_id: Annotated[str, _CHAIN_ID]
    network_id: Annotated[int, Between(MIN_NETWORK_ID, 2**31 - 1)]
    address_prefix: Annotated[str, _PREFIX]
    genesis_time: Annotated[int, types.UtcSecond()]
    slot_seconds: Annotated[int, Between(1, 600)]
    # With one slot a block the chain could never be ahead of the clock, and its difficulty would only fall.
    slots_per_block: Annotated[int, Between(2, 1_000)]
    half_life_slots: Annotated[int, Between(20, 1_000_000)]
    gap_cap_slots: Annotated[int, Between(6, 1_000_000)]
    # So spelt for memoryKiB.
    memory_ki_b: Annotated[int, Between(64, 65_536)]
    initial_target: Annotated[int, PowerOfTwo(160, 255)]
    max_target: Annotated[int, PowerOfTwo(160, 255)]
    min_target: Annotated[int, PowerOfTwo(128, 255)]
    initial_reward: Annotated[int, Coins(0)]
    halving_blocks: Annotated[int, Between(0, 10**9)]
    minimum_fee: Annotated[int, Coins(1)]
    account_minimum: Annotated[int, Coins(1)]
    holding_minimum: Annotated[int, Coins(1)]
    multiplier_schedule: Annotated[tuple[tuple[int, int], ...], types.Steps()]
    max_block_transactions: Annotated[int, Between(1, MAINNET.max_block_transactions)]
    max_block_bytes: Annotated[int, Between(16_384, MAINNET.max_block_bytes)]
    transaction_past_seconds: Annotated[int, Between(600, 604_800)]
    transaction_future_seconds: Annotated[int, Between(60, 86_400)]
    producers: Annotated[tuple[str, ...], ListOf(types.String())]
    allocations: tuple[AllocationSettings, ...] = ()

    def problem(self, supply: int) -> tuple[KeyPath, str] | None:
        """The first rule that contradicts another one, or that no network can have, and why.

        ``supply`` is how many base units the rules create in the end, however many can exist.
        """
        return next(self._problems(supply), None)

    def _problems(self, supply: int) -> Iterator[tuple[KeyPath, str]]:
        if self.half_life_slots < 10 * self.slots_per_block:
            yield ("halfLifeSlots",), f"must be at least ten times slotsPerBlock, {10 * self.slots_per_block}"
        if self.gap_cap_slots < 3 * self.slots_per_block:
            yield ("gapCapSlots",), f"must be at least three times slotsPerBlock, {3 * self.slots_per_block}"
        if self.transaction_past_seconds < 10 * self.slots_per_block * self.slot_seconds:
            at_least = 10 * self.slots_per_block * self.slot_seconds
            yield ("transactionPastSeconds",), f"must be at least the time of ten blocks, {at_least}"
        if self.min_target > self.initial_target:
            yield ("minTarget",), f'must not be above initialTarget, "{_power(self.initial_target)}"'
        if self.max_target < self.initial_target:
            yield ("maxTarget",), f'must not be below initialTarget, "{_power(self.initial_target)}"'
        yield from self._schedule_problems()
        yield from ((("producers",), problem) for problem in _producer_problems(self.producers, self.address_prefix))
        yield from self._money_problems(supply)

    def _schedule_problems(self) -> Iterator[tuple[KeyPath, str]]:
        steps = self.multiplier_schedule
        if not (
            0 < len(steps) <= 16
            and steps[0] == (0, 10_000)
            and all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(steps))
            and steps[-1][1] <= 11_000
            and steps[-1][0] <= MAX_SUPPLY
        ):
            yield (
                ("multiplierSchedule",),
                "must begin with [0, 10000] and have at most 16 steps, each with more slots and no fewer basis points "
                "than the one before, and at most 11000 of them",
            )

    def _money_problems(self, supply: int) -> Iterator[tuple[KeyPath, str]]:
        seen: set[str] = set()
        for number, allocation in enumerate(self.allocations):
            at = ("allocations", number, "address")
            yield from ((at, problem) for problem in _address_problems(allocation.address, self.address_prefix))
            if allocation.address in seen:
                yield at, "is allocated coins twice; add the two amounts"
            seen.add(allocation.address)
        allocated = sum(each.amount for each in self.allocations)
        if allocated > MAX_SUPPLY:
            yield ("allocations",), f"must be {format_amount(MAX_SUPPLY)} coins at most together, 2^53 - 1 base units"
        if supply > MAX_SUPPLY:
            yield (
                ("halvingBlocks",),
                f"with this reward and these allocations there would be {format_amount(supply)} coins in the end, and "
                f"at most {format_amount(MAX_SUPPLY)} can exist (2^53 - 1 base units): halve the reward after fewer "
                "blocks, or begin with less",
            )
        if supply == 0:
            yield (
                ("initialReward",),
                "without allocations too there would never be a coin: set a reward or an allocation",
            )
        if 2 * self.account_minimum + self.minimum_fee > supply:
            yield (
                ("accountMinimum",),
                f"with the minimum fee no transfer would ever be possible, because only {format_amount(supply)} coins "
                "will exist: sender and recipient must each keep it",
            )


@frozen(kw_only=True)
class NetworkSettings:
    """The content of a network file without the hash that it gives."""

    name: Annotated[str, NAME]
    rules: RuleSettings
    changes: tuple[ChangeSettings, ...] = ()


@frozen
class GenesisSettings:
    """What the file says of the genesis block."""

    hash: Annotated[str, Matching("[0-9a-f]{64}", "64 lower-case hex digits")]


@frozen(kw_only=True)
class NetworkFile(NetworkSettings):
    """The content of a network file."""

    genesis: GenesisSettings


def read_network_file(path: Path) -> NetworkParams:
    """The network that a file describes.

    Raises:
        ConfigError: the file cannot be read, no network can have these rules, or they are not those of its hash.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: the network file cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: must have at most {MAX_FILE_BYTES} bytes, so this is not a network file")
    return parse_network_file(content, str(path))


def parse_network_file(content: bytes, origin: str) -> NetworkParams:
    """The network that the content of a file describes; ``origin`` is its name. Raises ConfigError."""
    try:
        text = text_of(content)
        values = tomllib.loads(text)
    except BadText as error:
        raise ConfigError(f"{origin}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise _no_toml(origin, str(error)) from error
    settings = merged([Layer(origin, values, lines_of(text))])
    file = structured(settings, NetworkFile)
    params = _params(file, settings)
    if file.genesis.hash != params.genesis_hash.hex():
        raise settings.problem(
            ("genesis", "hash"),
            f"the rules of the file give {params.genesis_hash.hex()}: with another rule it is another network; restore "
            "the file of the network",
        )
    return params


def _no_toml(origin: str, reason: str) -> ConfigError:
    found = _TOML_REASON.fullmatch(reason)
    place, reason = (f"{origin}, line {found[2]}", found[1]) if found else (origin, reason)
    return ConfigError(
        f"{place}: is not valid TOML: {reason}; a line is a section, such as [rules], or a key with its value, such as "
        "slotSeconds = 10, and occurs once"
    )


def network_of(settings: Settings) -> NetworkParams:
    """The network with these settings, which are those of a network file without its hash; raises ConfigError."""
    return _params(structured(settings, NetworkSettings), settings)


def read_rule(key: str, value: object) -> object:
    """The value of one rule of a file, as its type reads it; raises BadValue."""
    types_of = {camel(each.name): type_of(each.type) for each in fields(RuleSettings)}
    value_type = types_of[key]
    return value if value_type is None else value_type.read(value)


def _params(network: NetworkSettings, settings: Settings) -> NetworkParams:
    rules, params = network.rules, _without_changes(network)
    if (problem := rules.problem(params.supply_limit)) is not None:
        path, reason = problem
        raise settings.problem(("rules", *path), reason)
    before = 0
    for number, change in enumerate(network.changes):
        at: KeyPath = ("changes", number)
        if not rules.producers:
            raise settings.problem((*at, "height"), "everybody may make blocks on this network: remove the change")
        if change.height <= before:
            raise settings.problem((*at, "height"), f"must be greater than that of the change before it, {before}")
        if not change.producers:
            raise settings.problem((*at, "producers"), "must name at least one producer")
        for reason in _producer_problems(change.producers, rules.address_prefix):
            raise settings.problem((*at, "producers"), reason)
        before = change.height
    changes = tuple(ProducerChange(height=each.height, producers=each.producers) for each in network.changes)
    return evolve(params, changes=changes)


def _without_changes(network: NetworkSettings) -> NetworkParams:
    rules = network.rules
    return NetworkParams(
        name=network.name,
        network_id=rules.network_id,
        chain_id=rules.chain_id,
        address_prefix=rules.address_prefix,
        genesis_time=rules.genesis_time,
        slot_seconds=rules.slot_seconds,
        slots_per_block=rules.slots_per_block,
        half_life_slots=rules.half_life_slots,
        gap_cap_slots=rules.gap_cap_slots,
        drift_slots=max(2, -(-_LEAST_DRIFT_SECONDS // rules.slot_seconds)),
        memory_kib=rules.memory_ki_b,
        initial_target=rules.initial_target,
        max_target=rules.max_target,
        min_target=rules.min_target,
        initial_reward=rules.initial_reward,
        halving_blocks=rules.halving_blocks,
        minimum_fee=rules.minimum_fee,
        account_minimum=rules.account_minimum,
        holding_minimum=rules.holding_minimum,
        multiplier_schedule=rules.multiplier_schedule,
        max_block_transactions=rules.max_block_transactions,
        max_block_bytes=rules.max_block_bytes,
        transaction_past_seconds=rules.transaction_past_seconds,
        transaction_future_seconds=rules.transaction_future_seconds,
        producers=rules.producers,
        allocations=tuple((each.address, each.amount) for each in rules.allocations),
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


def _power(number: int) -> str:
    return f"2^{number.bit_length() - 1}"


def _seconds(seconds: int) -> str:
    """A length of time in the largest unit that divides it."""
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            count = seconds // size
            return f"{count} {unit}" + ("s" if count > 1 else "")
    return f"{seconds} second" + ("s" if seconds > 1 else "")


def _long_time(seconds: int) -> str:
    """A length of time in years or days, rounded."""
    tenths = (seconds * 10 + YEAR // 2) // YEAR
    return f"{tenths // 10}.{tenths % 10} years" if tenths >= 10 else f"{max(1, seconds // 86_400)} days"


def render_network_file(params: NetworkParams) -> str:
    """The text of the file of a network, of which :func:`parse_network_file` reads the same network."""
    slot, block = params.slot_seconds, params.slot_seconds * params.slots_per_block
    attempts = 2**256 // params.initial_target
    started = datetime.fromtimestamp(params.genesis_time // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    halving = (
        f"The reward halves after so many blocks, about every {_long_time(params.halving_blocks * block)}; 0 for never."
        if params.halving_blocks
        else "0: the reward never halves, and ends before more than 2^53 - 1 base units would exist."
    )
    steps = ", ".join(f"[{held}, {points}]" for held, points in params.multiplier_schedule)
    return f"""\
# The network "{params.name}". All its nodes and wallets need the rules of this file unchanged: with any other rule it
# is another network, with another genesis hash (last line). docs/own-network.md explains networks like this one.

# What this computer calls the network. No rule: it is in no hash, and each member may change it.
name = "{params.name}"

[rules]
# The name of the chain, in every hello and proof. No two networks should share it.
chainId = "{params.chain_id}"
# A number in every transfer, block and hello, random from {MIN_NETWORK_ID} on, so that no other network has it.
networkId = {params.network_id}
# Every address begins with it, and with 1q: {params.address_prefix}1q...
addressPrefix = "{params.address_prefix}"
# When slot 0 begins, in UTC.
genesisTime = {started}
# A block belongs to a slot, and each slot has one block at most.
slotSeconds = {slot}
# The difficulty settles where a block takes so many slots: {_seconds(block)}.
slotsPerBlock = {params.slots_per_block}
# A chain that is so many slots behind its schedule halves the difficulty; one that is ahead doubles it.
halfLifeSlots = {params.half_life_slots}
# A longer gap between two blocks counts as this one for the difficulty.
gapCapSlots = {params.gap_cap_slots}
# Memory of one attempt to make a block, in KiB: the more, the less do graphics cards help.
memoryKiB = {params.memory_kib}
# The target of the first block: {attempts} attempts are expected.
initialTarget = "{_power(params.initial_target)}"
# The easiest target, however few machines make blocks: {2**256 // params.max_target} attempts.
maxTarget = "{_power(params.max_target)}"
# The hardest target, which no network is expected to reach.
minTarget = "{_power(params.min_target)}"
# The coins that each block creates for its producer, before the first halving; "0" for none.
initialReward = "{format_amount(params.initial_reward)}"
# {halving}
halvingBlocks = {params.halving_blocks}
# The least fee of a transfer, in coins; it goes to the producer of the block.
minimumFee = "{format_amount(params.minimum_fee)}"
# What sender and recipient must have after a transfer, in coins, so that nobody fills the state with tiny accounts.
accountMinimum = "{format_amount(params.account_minimum)}"
# The coins that a producer must have held for long to make blocks a little more easily.
holdingMinimum = "{format_amount(params.holding_minimum)}"
# How much more easily: slots for which they were held, and ten-thousandths by which the target is multiplied then.
multiplierSchedule = [{steps}]
# The most transfers in a block, and the most bytes of a block.
maxBlockTransactions = {params.max_block_transactions}
maxBlockBytes = {params.max_block_bytes}
# How much older, and how much newer, than its block a transfer may be.
transactionPastSeconds = {params.transaction_past_seconds}
transactionFutureSeconds = {params.transaction_future_seconds}
# Who may make blocks, as addresses. {_producers_comment(len(params.producers))}
producers = {_list(params.producers)}
{"".join(map(_allocation, params.allocations))}{"".join(map(_change, params.changes))}
[genesis]
# The hash of the genesis block, which the rules above give: what tells this network from every other one.
hash = "{params.genesis_hash.hex()}"
"""


def _producers_comment(count: int) -> str:
    if count == 0:
        return "An empty list: everybody may, and whoever computes most decides."
    if count == 1:
        return "This one decides alone."
    need = count // 2 + 1
    return f"Of these {count}, {need} must be at work, or\n# the chain stands still; so many can undo any payment."


def _list(addresses: Iterable[str]) -> str:
    lines = "".join(f'  "{address}",\n' for address in addresses)
    return f"[\n{lines}]" if lines else "[]"


def _allocation(allocation: tuple[str, int]) -> str:
    address, units = allocation
    return f"""
# Coins that exist from the beginning.
[[rules.allocations]]
address = "{address}"
amount = "{format_amount(units)}"
"""


def _change(change: ProducerChange) -> str:
    return f"""
# From this height on, others may make blocks. No rule, but all nodes must have the same changes.
[[changes]]
height = {change.height}
producers = {_list(change.producers)}
"""
