"""`svc network …`: the file of a network of one's own, and the rules of any network."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from math import log2
from pathlib import Path
from typing import Any, Final

import click
from attrs import frozen

from svcd.chain.address import decode_address, encode_address, key_hash
from svcd.chain.errors import RuleViolation
from svcd.chain.network_rules import MIN_NETWORK_ID, NAME, UNIT
from svcd.chain.params import DEFAULT_UNIT, MAINNET, NetworkParams
from svcd.chain.units import format_amount, format_coins
from svcd.chain.value_types import BadValue
from svcd.cli import options
from svcd.cli.errors import CommandError
from svcd.cli.prompts import ask
from svcd.cli.rendering import TableColumn, format_time, property_table, table
from svcd.cli.secure_files import replace_file, require_absent, write_whole_file
from svcd.cli.session import Session
from svcd.config.layers import ConfigError, Layer, from_option, merged
from svcd.config.network_file import YEAR, network_of, read_rule, render_network_file
from svcd.config.types import NETWORK_FILE

_LONGEST_FIRST_BLOCK: Final = 3600
"""Seconds that the first block may be expected to take on this computer."""
_EASING: Final = 4
"""How many powers of two the easiest target of a new network lies above its initial one."""
_BLOCK_SECONDS: Final = 60
_ROOM_FOR_IDS: Final = 2**31 - MIN_NETWORK_ID
_YEARS: Final = (0, 1, 2, 3, 4, 5, 10, 20, 50, 100)
_MODE: Final = 0o644
"""A network file has no secrets."""
_ADDRESS: Final = re.compile("([a-z]{2,8})1q.*")
_FILE: Final = click.Path(path_type=Path)


def _time(text: str) -> object:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


def _integer(text: str) -> object:
    return int(text) if re.fullmatch("[0-9]{1,19}", text) else text


def _steps(text: str) -> object:
    pairs = [pair.split(":") for pair in text.split(",")]
    return [[_integer(part) for part in pair] for pair in pairs]


@frozen
class _Rule:
    """A rule, and the option that sets it."""

    key: str
    option: str
    help: str
    metavar: str = "N"
    read: Callable[[str], object] = _integer
    """What the text of the option is in a network file; raises ValueError."""

    @property
    def parameter(self) -> str:
        return self.option.removeprefix("--").replace("-", "_")

    def value(self, text: str) -> object:
        """What the text of the option is in a network file; raises ValueError, or RuleViolation for an amount."""
        value = self.read(text)
        read_rule(self.key, value)
        return value


_RULES: Final = (
    _Rule("chainId", "--chain-id", "Name of the chain.  [default: NAME in capitals]", "TEXT", str),
    _Rule("networkId", "--network-id", "Number of the network, 1000 or more.  [default: a random one]"),
    _Rule("addressPrefix", "--prefix", "First letters of addresses.  [default: from NAME]", "TEXT", str),
    _Rule("genesisTime", "--genesis-time", "Start of slot 0, as 2026-12-01T00:00:00Z.  [default: now]", "TIME", _time),
    _Rule("slotSeconds", "--slot-seconds", "Length of a slot.  [default: 10]"),
    _Rule("slotsPerBlock", "--slots-per-block", "Slots between two blocks.  [default: a minute]"),
    _Rule("halfLifeSlots", "--half-life-slots", "Lag that halves the difficulty.  [default: 120 blocks]"),
    _Rule("gapCapSlots", "--gap-cap-slots", "Longest gap that counts.  [default: 20 blocks]"),
    _Rule("memoryKiB", "--memory-kib", "Memory of one attempt.  [default: 8192]"),
    _Rule("initialTarget", "--initial-target", "Target of the first block.  [default: measured]", "2^N", str),
    _Rule("maxTarget", "--max-target", "Easiest target.  [default: 16 times the initial one]", "2^N", str),
    _Rule("minTarget", "--min-target", "Hardest target.  [default: 2^160]", "2^N", str),
    _Rule("initialReward", "--reward", "Coins that a block creates; 0 for none.  [default: 20]", "COINS", str),
    _Rule("halvingBlocks", "--halving-blocks", "Blocks between halvings; 0 for none.  [default: 2100000]"),
    _Rule("minimumFee", "--minimum-fee", "Least fee of a transfer.  [default: 0.0001]", "COINS", str),
    _Rule("accountMinimum", "--account-minimum", "What an account must keep.  [default: 0.01]", "COINS", str),
    _Rule("holdingMinimum", "--holding-minimum", "Least balance that eases work.  [default: 1000]", "COINS", str),
    _Rule(
        "multiplierSchedule",
        "--multipliers",
        "How much it eases work, as SLOTS:TEN-THOUSANDTHS pairs, such as 0:10000,8640:10200."
        "  [default: 10 % after 90 days, and with --producer not at all]",
        "STEPS",
        _steps,
    ),
    _Rule("maxBlockTransactions", "--max-block-transfers", "Transfers of a block.  [default: 2000]"),
    _Rule("maxBlockBytes", "--max-block-bytes", "Bytes of a block.  [default: 1310720]"),
    _Rule("transactionPastSeconds", "--past-seconds", "How old a transfer may be in its block.  [default: 86400]"),
    _Rule(
        "transactionFutureSeconds",
        "--future-seconds",
        "How far after its block a transfer may be dated.  [default: 600]",
    ),
)
_OF: Final = {rule.key: rule for rule in _RULES}
_QUESTIONS: Final = {
    "chainId": "Name of the chain, in capitals",
    "addressPrefix": "First letters of addresses, 2 to 8",
    "slotsPerBlock": "Slots of {slot_seconds} seconds from block to block",
    "initialReward": "Coins that each block creates, 0 for none",
    "halvingBlocks": "Blocks after which that halves, 0 for never",
    "minimumFee": "Least fee of a transfer, in coins",
    "accountMinimum": "Coins that an account must keep",
}
"""What a group decides; the other rules are asked for by nobody, and options set them."""


def _rule_options(command: Callable[..., None]) -> Callable[..., None]:
    for rule in reversed(_RULES):
        command = click.option(rule.option, metavar=rule.metavar, help=rule.help)(command)
    return command


def _name(text: str) -> str:
    return NAME.read(text)


@click.command()
@click.argument("name", callback=options.validated(_name))
@click.option(
    "--unit",
    metavar="TEXT",
    help=f"What coins are called, as in 12.5 Token: 1 to 12 letters.  [default: {DEFAULT_UNIT}]",
)
@_rule_options
@click.option(
    "--producer",
    "producers",
    metavar="KEY",
    multiple=True,
    help="An address of any network, or a public key, that may make blocks; repeat it.  [default: everybody may]",
)
@click.option(
    "--allocation",
    "allocations",
    metavar="KEY=COINS",
    multiple=True,
    help="Coins that KEY, an address of any network or a public key, has from the beginning; repeat it.",
)
@click.option("--output", type=_FILE, metavar="FILE", help="The file to write.  [default: NAME.toml]")
@click.option("--replace", is_flag=True, help="Overwrite the file if it exists.")
@click.option("--defaults", is_flag=True, help="Ask nothing at a terminal.")
@options.json_option
@click.pass_obj
def new(
    session: Session,
    /,
    name: str,
    unit: str | None,
    output: Path | None,
    replace: bool,
    defaults: bool,
    **given: Any,
) -> None:
    """Write the rules of the new network NAME to the file NAME.toml.

    At a terminal it asks for the rules that a group decides and no option has set. It measures how fast this computer
    makes blocks and proposes the initial target. Everybody on the network needs the file.

    \b
    Example:
      svc network new festival --unit Token
      svc network new festival --prefix fest --producer svc1q8dlr95e… --producer svc1qy90a…
    """
    path = output or Path(f"{name}{NETWORK_FILE}")
    if path.suffix != NETWORK_FILE:
        raise click.UsageError(f"--output must end with {NETWORK_FILE}, by which svc and the node know a network file")
    if not replace:
        require_absent(path, "--output")
    params = _Founding(session, name, unit, given).params(asking=session.runtime.interactive() and not defaults)
    content = render_network_file(params).encode()
    if replace:
        replace_file(path, content, mode=_MODE)
    else:
        write_whole_file(path, content, "--output", mode=_MODE)
    record = {**_record(params), "file": str(path)}
    advice = (
        f"The rules are in {path}, with a comment for each. Every member needs this file; no rule can be changed later."
    )
    session.print_result(record, f"{_summary(params)}\n\n{advice}")


@frozen
class _Founding:
    """The rules of a new network: what options set, what the user answers, and defaults."""

    session: Session
    name: str
    unit: str | None
    """None if no option has set it."""
    given: Mapping[str, Any]

    def params(self, *, asking: bool) -> NetworkParams:
        """The network; raises CommandError, click.UsageError or click.Abort."""
        layers = [*self._defaults(), *self._options()]
        if self.unit is not None:
            layers.append(from_option("--unit", ("unit",), self.unit))
        elif asking:
            unit = ask("What coins are called, in 1 to 12 letters", DEFAULT_UNIT, UNIT.read)
            layers.append(Layer("answer", {"unit": unit}))
        if asking:
            layers.append(self._answers(merged(layers).values["rules"]))
        prefix = merged(layers).values["rules"]["addressPrefix"]
        layers += self._members(str(prefix), asking=asking)
        layers = self._with_target(self._with_multipliers(layers))
        try:
            return network_of(merged(layers))
        except ConfigError as error:
            raise CommandError(str(error)) from None

    def _defaults(self) -> list[Layer]:
        slot = _positive(self.given["slot_seconds"], 10)
        per_block = _positive(self.given["slots_per_block"], max(2, _BLOCK_SECONDS // slot))
        letters = re.sub("[^a-z]", "", self.name)[:8]
        random = int.from_bytes(self.session.runtime.random(8), "big")
        now = self.session.runtime.clock.milliseconds() // 1000
        rules = {
            "chainId": self.name.upper(),
            "networkId": MIN_NETWORK_ID + random % _ROOM_FOR_IDS,
            "addressPrefix": letters,
            "genesisTime": _time(f"{format_time(now * 1000)[:-4]}Z"),
            "slotSeconds": slot,
            "slotsPerBlock": per_block,
            "halfLifeSlots": 120 * per_block,
            "gapCapSlots": 20 * per_block,
            "memoryKiB": MAINNET.memory_kib,
            "minTarget": "2^160",
            "initialReward": format_amount(MAINNET.initial_reward),
            "halvingBlocks": MAINNET.halving_blocks,
            "minimumFee": format_amount(MAINNET.minimum_fee),
            "accountMinimum": format_amount(MAINNET.account_minimum),
            "holdingMinimum": format_amount(MAINNET.holding_minimum),
            "maxBlockTransactions": MAINNET.max_block_transactions,
            "maxBlockBytes": MAINNET.max_block_bytes,
            "transactionPastSeconds": MAINNET.transaction_past_seconds,
            "transactionFutureSeconds": MAINNET.transaction_future_seconds,
        }
        name = Layer("NAME", {"name": self.name, "rules": {"producers": []}})
        return [
            name,
            *(from_option(f"the default of {_OF[key].option}", ("rules", key), value) for key, value in rules.items()),
        ]

    def _options(self) -> list[Layer]:
        layers = []
        for rule in _RULES:
            text = self.given[rule.parameter]
            if text is not None:
                layers.append(from_option(rule.option, ("rules", rule.key), rule.read(text)))
        return layers

    def _answers(self, rules: Mapping[str, object]) -> Layer:
        answers = {}
        for key, question in _QUESTIONS.items():
            rule = _OF[key]
            if self.given[rule.parameter] is None:
                asked = question.format(slot_seconds=rules["slotSeconds"])
                answers[key] = ask(asked, str(rules[key]), rule.value)
        return Layer("answer", {"rules": answers})

    def _members(self, prefix: str, *, asking: bool) -> list[Layer]:
        """Producers and allocations, as addresses of the new network."""
        producers = [_parsed("--producer", text, lambda text: _key(text, prefix)) for text in self.given["producers"]]
        allocations = [
            _parsed("--allocation", text, lambda text: _allocation(text, prefix)) for text in self.given["allocations"]
        ]
        if asking and not producers:
            producers = ask(
                "Who may make blocks: addresses or public keys, with blanks between (none: everybody)",
                "",
                lambda text: [_key(each, prefix) for each in text.split()],
            )
        if asking and not allocations:
            allocations = ask(
                "Coins from the beginning: ADDRESS=COINS, with blanks between (none)",
                "",
                lambda text: [_allocation(each, prefix) for each in text.split()],
            )
        return [
            from_option("--producer", ("rules", "producers"), producers),
            from_option("--allocation", ("rules", "allocations"), allocations),
        ]

    def _with_multipliers(self, layers: Sequence[Layer]) -> list[Layer]:
        """The layers, and the schedule of mainnet; or none where the list of producers says who makes blocks."""
        rules = merged(layers).values["rules"]
        slot = _positive(self.given["slot_seconds"], 10)
        steps = MAINNET.multiplier_schedule[: 1 if rules["producers"] else None]
        schedule = [[held * MAINNET.slot_seconds // slot, points] for held, points in steps]
        return [from_option("the default of --multipliers", ("rules", "multiplierSchedule"), schedule), *layers]

    def _with_target(self, layers: Sequence[Layer]) -> list[Layer]:
        """The layers, and the targets that suit this computer; raises CommandError."""
        rules = merged(layers).values["rules"]
        memory, slot, per_block = (_rule_or_fail(rules, key) for key in ("memoryKiB", "slotSeconds", "slotsPerBlock"))
        rate = self._measured(memory)
        proposed = 256 - round(log2(max(2.0, rate * slot * per_block)))
        initial = rules.get("initialTarget", f"2^{max(160, proposed)}")
        target = _rule_or_fail({"initialTarget": initial}, "initialTarget")
        seconds = 2**256 // target / rate
        if seconds >= _LONGEST_FIRST_BLOCK:
            raise CommandError(
                f"--initial-target {initial}: this computer would need {seconds / 3600:.0f} hours or so for the first"
                f" block; 2^{max(160, proposed)} suits it"
            )
        highest = f"2^{min(target.bit_length() - 1 + _EASING, 255)}"
        return [
            from_option("the default of --initial-target", ("rules", "initialTarget"), initial),
            from_option("the default of --max-target", ("rules", "maxTarget"), highest),
            *layers,
        ]

    def _measured(self, memory_kib: int) -> float:
        if not self.session.as_json:
            click.echo(f"Measuring how fast this computer makes attempts with {memory_kib} KiB …", err=True, nl=False)
        rate = self.session.runtime.hash_rate(memory_kib)
        if not self.session.as_json:
            click.echo(f" {rate:,.0f} a second.", err=True)
        return rate


def _positive(text: str | None, default: int) -> int:
    """The number of an option that others depend on; what is no such number is refused later."""
    number = _integer(text) if text is not None else default
    return number if isinstance(number, int) and number > 0 else default


def _rule_or_fail(rules: Mapping[str, Any], key: str) -> Any:
    try:
        return read_rule(key, rules[key])
    except BadValue as error:
        raise CommandError(f"{_OF[key].option} {rules[key]}: {error}") from None


def _parsed(option: str, text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=f"'{option}'") from None


def _key(text: str, prefix: str) -> str:
    """The address on the new network of an address of any network, or of a public key; raises ValueError."""
    if re.fullmatch("[0-9a-f]{64}", text):
        return encode_address(key_hash(bytes.fromhex(text)), prefix)
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is neither an address nor a public key of 64 lower-case hex digits")
    try:
        return encode_address(decode_address(text, match[1], text), prefix)
    except RuleViolation as violation:
        raise ValueError(violation.detail) from None


def _allocation(text: str, prefix: str) -> dict[str, str]:
    key, equals, coins = text.partition("=")
    if not equals:
        raise ValueError(f"{text} must be written ADDRESS=COINS")
    return {"address": _key(key, prefix), "amount": coins}


@click.command()
@click.argument("network", metavar="NETWORK", type=options.NETWORK)
@options.json_option
@click.pass_obj
def show(session: Session, network: NetworkParams) -> None:
    """Show the rules of NETWORK: its hashes, its money over the years, and its producers.

    NETWORK is mainnet, devnet, or the file of a network.

    \b
    Example:
      svc network show festival.toml
      svc network show mainnet --json
    """
    session.print_result(_record(network), _page(network))


def _record(params: NetworkParams) -> dict[str, object]:
    return {
        "name": params.name,
        "unit": params.unit,
        "genesisHash": params.genesis_hash.hex(),
        "rulesHash": params.rules_hash.hex(),
        "changesHash": params.changes_hash.hex(),
        "rules": params.rules,
        "changes": params.listed_changes,
        "supply": [
            {"years": years, "height": str(height), "supply": str(supply)} for years, height, supply in _supply(params)
        ],
        "supplyLimit": str(params.supply_limit),
    }


def _supply(params: NetworkParams) -> list[tuple[int, int, int]]:
    """Years after the genesis, the height then if blocks take as long as they should, and the base units that exist."""
    heights = [(years, years * YEAR // (params.slot_seconds * params.slots_per_block)) for years in _YEARS]
    return [(years, height, params.issued_after(height)) for years, height in heights]


def _summary(params: NetworkParams) -> str:
    # Where everybody may make blocks no file can have a change.
    changes = [("changes hash", params.changes_hash.hex())] if params.producers else []
    return property_table(
        [
            ("network", f"{params.name}, {params.chain_id} (network id {params.network_id})"),
            ("genesis hash", params.genesis_hash.hex()),
            ("rules hash", params.rules_hash.hex()),
            *changes,
            ("addresses", f"{params.address_prefix}1q..."),
            ("coins", params.unit),
            ("begins", format_time(params.genesis_time)),
            (
                "a block",
                f"every {params.slot_seconds * params.slots_per_block} seconds, in slots of {params.slot_seconds}",
            ),
            ("attempts", f"{2**256 // params.initial_target:,} for the first block, of {params.memory_kib} KiB each"),
            ("reward", _reward(params)),
            ("minimum fee", format_coins(params.minimum_fee, params.unit)),
            ("account keeps", format_coins(params.account_minimum, params.unit)),
            ("producers", _producers(params, 0) + (", from the first block on" if params.changes else "")),
        ]
    )


def _producers(params: NetworkParams, tip: int) -> str:
    """How many may make the block after the one at the height ``tip``, and how many of them the chain needs."""
    needed, listed = params.undone_by(tip)
    return f"{listed}, of which {needed} must be at work" if listed else "everybody"


def _reward(params: NetworkParams) -> str:
    if not params.halving_blocks:
        return f"{format_coins(params.initial_reward, params.unit)}, as long as the supply has room"
    return f"{format_coins(params.initial_reward, params.unit)}, halved every {params.halving_blocks:,} blocks"


def _page(params: NetworkParams) -> str:
    columns = [TableColumn("years", True), TableColumn("height", True), TableColumn(params.unit, True)]
    rows = [(str(years), f"{height:,}", format_amount(supply)) for years, height, supply in _supply(params)]
    parts = [_summary(params), table(columns, [*rows, ("end", "", format_amount(params.supply_limit))], None)]
    if params.producers:
        parts.append("\n".join(("Producers from the first block on:", *(f"  {each}" for each in params.producers))))
    for change in params.changes:
        heading = f"From height {change.height} on ({_producers(params, change.height - 1)}):"
        parts.append("\n".join((heading, *(f"  {each}" for each in change.producers))))
    if params.allocations:
        lines = [f"  {address}  {format_coins(units, params.unit)}" for address, units in params.allocations]
        parts.append("\n".join(("Coins from the beginning:", *lines)))
    rules = [(name, _shown(value)) for name, value in params.rules.items() if name not in ("producers", "allocations")]
    parts.append(f"The rules, as docs/protocol.md names them:\n{property_table(rules)}")
    return "\n\n".join(parts)


def _shown(value: object) -> str:
    return ", ".join(":".join(map(str, pair)) for pair in value) if isinstance(value, list) else str(value)
