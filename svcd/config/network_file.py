"""The network file, read and written (docs/own-network.md).

Amounts are coins, targets powers of two and the genesis time a date, each with one accepted form. The hash of the
genesis block, which the rules give, is its last line, so that a change of a rule does not go unnoticed.
"""

import re
import tomllib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from svcd.chain.network_rules import (
    MAX_FILE_BYTES,
    MIN_NETWORK_ID,
    RULES,
    BadNetwork,
    MissingKey,
    UnknownKey,
    params_in_file,
)
from svcd.chain.params import NetworkParams, ProducerChange
from svcd.chain.units import format_amount
from svcd.config.layers import ConfigError, Layer, Settings, lines_of, merged
from svcd.config.sections import hint
from svcd.visible_text import BadText, text_of

YEAR: Final = 31_556_952
"""Seconds of a mean year of the calendar."""
_TOML_REASON: Final = re.compile(r"(.*) \(at line ([0-9]+), column [0-9]+\)")


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
    params, genesis_hash = _read(settings, sealed=True)
    if genesis_hash != params.genesis_hash.hex():
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
    return _read(settings, sealed=False)[0]


def _read(settings: Settings, *, sealed: bool) -> tuple[NetworkParams, str]:
    try:
        return params_in_file(settings.values, sealed=sealed)
    except MissingKey as bad:
        raise settings.missing(bad.path) from bad
    except UnknownKey as bad:
        raise settings.unknown(bad.path, hint(str(bad.path[-1]), bad.known)) from bad
    except BadNetwork as bad:
        raise settings.problem(bad.path, bad.reason) from bad


def read_rule(key: str, value: object) -> object:
    """The value of one rule of a file, as its type reads it; raises BadValue."""
    return RULES[key].read(value)


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
# What its coins are called, in 1 to 12 letters, as in 12.5 {params.unit}. No rule, too.
unit = "{params.unit}"

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
