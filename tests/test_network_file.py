"""The file of a network: what it says is what was written, and a wrong one is refused with its line."""

import os
from pathlib import Path

import pytest
from attrs import evolve

from svcd.chain.address import encode_address
from svcd.chain.network_rules import MAX_FILE_BYTES
from svcd.chain.params import MAINNET, ProducerChange
from svcd.config.layers import ConfigError
from svcd.config.network_file import parse_network_file, read_network_file, render_network_file

A, B, C, D = (encode_address(bytes([number]) * 20, "fest") for number in range(4))
FESTIVAL = evolve(
    MAINNET,
    name="festival",
    network_id=48_213,
    chain_id="FESTIVAL",
    address_prefix="fest",
    genesis_time=1_795_749_600_000,
    producers=(A, B, C),
    allocations=((A, 10_000_000_000), (B, 1)),
    changes=(ProducerChange(height=1000, producers=(B, C)), ProducerChange(height=1001, producers=(D,))),
)
TEXT = render_network_file(FESTIVAL)
ALLOCATED = 10_000_000_001
MOST_HALVING_BLOCKS = (2**53 - 1 - ALLOCATED) // sum(FESTIVAL.initial_reward >> halvings for halvings in range(31))


def sentence(text: str) -> str:
    """The error about a file with this text."""
    with pytest.raises(ConfigError) as refused:
        parse_network_file(text.encode(), "festival.toml")
    return str(refused.value)


def sealed(text: str) -> str:
    """The text with the hash that its rules give."""
    try:
        parse_network_file(text.encode(), "f")
    except ConfigError as error:
        given = str(error).partition("the rules of the file give ")[2][:64]
        return text.replace(FESTIVAL.genesis_hash.hex(), given) if given else text
    return text


def line_of(part: str) -> int:
    """The number of the first line that begins with ``part``."""
    return next(number for number, line in enumerate(TEXT.splitlines(), 1) if line.startswith(part))


def test_a_file_is_read_as_it_was_written() -> None:
    assert parse_network_file(TEXT.encode(), "festival.toml") == FESTIVAL
    assert TEXT.isascii()
    assert max(map(len, TEXT.splitlines())) <= 120
    assert TEXT.endswith(f"[genesis]\n{''.join(TEXT.splitlines(True)[-2:])}")
    assert TEXT.splitlines()[-1] == f'hash = "{FESTIVAL.genesis_hash.hex()}"'


@pytest.mark.parametrize("producers", [(), (A,), (A, B)])
def test_each_rule_has_a_comment(producers: tuple[str, ...]) -> None:
    params = evolve(FESTIVAL, producers=producers, changes=(), allocations=(), halving_blocks=0)
    text = render_network_file(params)
    assert parse_network_file(text.encode(), "f") == params
    lines = text.splitlines()
    keys = [number for number, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    uncommented = [lines[number].split()[0] for number in keys if not lines[number - 1].startswith("#")]
    assert uncommented == ["maxBlockBytes", "transactionFutureSeconds"]


def test_a_file_without_any_of_its_lines_or_its_end_is_refused_or_the_same() -> None:
    lines = TEXT.splitlines(keepends=True)
    texts = [lines[:number] + lines[number + 1 :] for number in range(len(lines))]
    texts += [lines[:number] for number in range(len(lines))]
    for text in texts:
        try:
            params = parse_network_file("".join(text).encode(), "festival.toml")
        except ConfigError as error:
            assert str(error).startswith("festival.toml")  # noqa: PT017 -- most texts are refused, comments are not needed
        else:
            assert evolve(params, changes=FESTIVAL.changes) == FESTIVAL


def test_the_name_is_no_rule() -> None:
    renamed = parse_network_file(TEXT.replace('name = "festival"', 'name = "fete"').encode(), "f")
    assert renamed == evolve(FESTIVAL, name="fete")
    assert renamed.genesis_hash == FESTIVAL.genesis_hash


def test_the_unit_is_no_rule_and_svc_where_there_is_none() -> None:
    tokens = parse_network_file(TEXT.replace('unit = "SVC"', 'unit = "Token"').encode(), "f")
    assert tokens == evolve(FESTIVAL, unit="Token")
    assert tokens.genesis_hash == FESTIVAL.genesis_hash
    assert parse_network_file(render_network_file(tokens).encode(), "f") == tokens
    assert parse_network_file(TEXT.replace('unit = "SVC"\n', "").encode(), "f").unit == "SVC"
    for refused in ("", "Festivaltoken", "Tok3n", "M\u00fcnze", "a b"):
        told = sentence(TEXT.replace('unit = "SVC"', f'unit = "{refused}"'))
        assert told.endswith(f'unit = "{refused}": must be 1 to 12 letters from A to Z, such as "Token"')


def test_changes_of_producers_are_no_rules() -> None:
    fewer = render_network_file(evolve(FESTIVAL, changes=FESTIVAL.changes[:1]))
    assert parse_network_file(fewer.encode(), "f").changes == FESTIVAL.changes[:1]
    assert fewer.splitlines()[-1] == TEXT.splitlines()[-1]


@pytest.mark.parametrize(("slot_seconds", "drift"), [(1, 5), (2, 3), (3, 2), (10, 2)])
def test_the_drift_follows_from_the_slot(slot_seconds: int, drift: int) -> None:
    text = sealed(TEXT.replace("slotSeconds = 10", f"slotSeconds = {slot_seconds}"))
    assert parse_network_file(text.encode(), "f").drift_slots == drift


def test_a_changed_rule_is_another_network() -> None:
    told = sentence(TEXT.replace("slotSeconds = 10", "slotSeconds = 11"))
    other = evolve(FESTIVAL, slot_seconds=11).genesis_hash.hex()
    assert told == (
        f'festival.toml, line {line_of("hash")}: [genesis] hash = "{FESTIVAL.genesis_hash.hex()}": the rules of the'
        f" file give {other}: with another rule it is another network; restore the file of the network"
    )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("slotSeconds = 10\n", "\n", "line 9: [rules] slotSeconds is missing"),
        ('name = "festival"\n', "\n", "festival.toml: name is missing"),
        (TEXT[TEXT.index("[genesis]") :], "", "festival.toml: genesis is missing"),
        (TEXT, "", "festival.toml: name is missing"),
        (
            "slotSeconds = 10",
            "slotSeconds = = 10",
            "line 19: is not valid TOML: Invalid value; a line is a section, such",
        ),
        ("slotSeconds", "slotSecond", "[rules] slotSecond is not known; did you mean slotSeconds?"),
        ("slotSeconds = 10", 'slotSeconds = "10"', 'slotSeconds = "10": must be an integer from 1 to 600, without'),
        ("slotSeconds = 10", "slotSeconds = 0", "slotSeconds = 0: must be an integer from 1 to 600"),
        ("slotsPerBlock = 6", "slotsPerBlock = 1", "slotsPerBlock = 1: must be an integer from 2 to 1000"),
        (
            "halfLifeSlots = 720",
            "halfLifeSlots = 59",
            "halfLifeSlots = 59: must be at least ten times slotsPerBlock, 60",
        ),
        ("gapCapSlots = 120", "gapCapSlots = 17", "gapCapSlots = 17: must be at least three times slotsPerBlock, 18"),
        ("transactionPastSeconds = 86400", "transactionPastSeconds = 600", None),
        ("transactionPastSeconds = 86400", "transactionPastSeconds = 599", "must be an integer from 600"),
        ("networkId = 48213", "networkId = 1000", None),
        ("networkId = 48213", "networkId = 999", "networkId = 999: must be an integer from 1000 to 2147483647"),
        ('"FESTIVAL"', '"SVC-DEVNET"', 'chainId = "SVC-DEVNET": is that of devnet; choose another one'),
        ('"FESTIVAL"', '"Festival"', "must be 1 to 32 capitals, digits and, between them, hyphens, such as FESTIVAL"),
        ('"fest"', '"svcd"', 'addressPrefix = "svcd": is that of devnet; choose another one'),
        ('"fest"', '"f"', "must be 2 to 8 lower-case letters"),
        ('"fest"', '"festivals"', "must be 2 to 8 lower-case letters"),
        ('"fest"', '"tent"', f"{A} must be an address of this network: 44 characters that begin with tent1q"),
        (
            'name = "festival"',
            'name = "mainnet"',
            'name = "mainnet": is that of a built-in network; choose another one',
        ),
        ("03:20:00Z", "03:20:00", "must be a date and time in UTC to the second, without quotes, such as 2026-12-01T"),
        ("03:20:00Z", "03:20:00+01:00", "must be a date and time in UTC to the second"),
        ("03:20:00Z", "03:20:00.5Z", "must be a date and time in UTC to the second"),
        ('"2^242"', '"2^256"', 'must be a power of two in quotes, from "2^160" to "2^255"'),
        ('"2^242"', '"2^0242"', "must be a power of two in quotes"),
        ('"2^242"', "242", "must be a power of two in quotes"),
        ('"2^242"', '"2^245"', 'maxTarget = "2^244": must not be below initialTarget, "2^245"'),
        ('"2^160"', '"2^243"', 'minTarget = "2^243": must not be above initialTarget, "2^242"'),
        ('initialReward = "20"', 'initialReward = "0"', None),
        ('initialReward = "20"', "initialReward = 20", 'must be an amount of coins in quotes, such as "10000"'),
        ('minimumFee = "0.0001"', 'minimumFee = "0"', 'and at least "0.00000001"'),
        ("halvingBlocks = 2100000", "halvingBlocks = 0", None),
        ("halvingBlocks = 2100000", f"halvingBlocks = {MOST_HALVING_BLOCKS}", None),
        (
            "halvingBlocks = 2100000",
            f"halvingBlocks = {MOST_HALVING_BLOCKS + 1}",
            "in the end, and at most 90071992.54740991 SVC can exist (2^53 - 1 base units): halve the reward",
        ),
        (
            'amount = "100"',
            'amount = "90071993"',
            '[[rules.allocations]] number 1, amount = "90071993": must be an amount of coins in quotes',
        ),
        ('amount = "0.00000001"', 'amount = "90071992"', "must be 90071992.54740991 SVC at most together, 2^53 - 1"),
        (f'address = "{B}"', f'address = "{A}"', "is allocated coins twice; add the two amounts"),
        (f'address = "{B}"', 'address = "svc1q"', "must be an address of this network"),
        ("[[0, 10000], ", "[[0, 10001], ", "must begin with [0, 10000] and have at most 16 steps"),
        ("[777600, 11000]", "[777600, 11001]", "must begin with [0, 10000] and have at most 16 steps"),
        ("[777600, 11000]", "[259200, 11000]", "must begin with [0, 10000] and have at most 16 steps"),
        ("[777600, 11000]", "[777600]", "must be a list of pairs of integers, such as [[0, 10000], [8640, 10200]]"),
        ("memoryKiB = 8192", "memoryKiB = 63", "memoryKiB = 63: must be an integer from 64 to 65536"),
        (f'  "{C}",\n]\n\n# Coins', f'  "{B}",\n]\n\n# Coins', f"must name {B} once"),
        ("height = 1001", "height = 1000", "[[changes]] number 2, height = 1000: must be greater than that of the"),
        ("height = 1000", "height = 0", "[[changes]] number 1, height = 0: must be an integer from 1"),
        (f'producers = [\n  "{D}",\n]', "producers = []", "number 2, producers = []: must name at least one producer"),
        (f'producers = [\n  "{D}",\n]', f'producers = ["{D}", "{D}"]', f"must name {D} once"),
        (
            f'producers = [\n  "{A}",\n  "{B}",\n  "{C}",\n]',
            "producers = []",
            "everybody may make blocks on this network",
        ),
        ("[genesis]\n", "[genesis]\nheight = 0\n", "[genesis] height is not known; there are hash"),
        ("[genesis]", "[end]", "section [end] is not known"),
        ("networkId = 48213", "networkId = 4x", "is not valid TOML: Expected newline"),
    ],
)
def test_what_a_file_may_say(old: str, new: str, told: str | None) -> None:
    assert old in TEXT
    text = sealed(TEXT.replace(old, new, 1))
    if told is None:
        params = parse_network_file(text.encode(), "festival.toml")
        assert params != FESTIVAL
        assert parse_network_file(render_network_file(params).encode(), "again.toml") == params
    else:
        assert told in sentence(text)


def test_no_transfer_would_be_possible() -> None:
    tokens = TEXT.replace('unit = "SVC"', 'unit = "Token"')
    poor = sealed(tokens.replace('initialReward = "20"', 'initialReward = "0"'))
    keep = 'accountMinimum = "0.01"'
    enough = sealed(poor.replace(keep, 'accountMinimum = "49.99995"').replace(FESTIVAL.genesis_hash.hex(), "0" * 64))
    assert "the rules of the file give" in sentence(enough)
    told = sentence(poor.replace(keep, 'accountMinimum = "49.99995001"'))
    assert "with the minimum fee no transfer would ever be possible, because only 100.00000001 Token will exist" in told
    start, end = poor.index("\n# Coins that exist"), poor.index("\n# From this height")
    assert "without allocations too there would never be a coin" in sentence(poor[:start] + poor[end:])


def test_errors_name_the_line() -> None:
    told = sentence(TEXT.replace('amount = "0.00000001"', 'amount = "x"'))
    number = next(n for n, line in enumerate(TEXT.splitlines(), 1) if line == 'amount = "0.00000001"')
    assert told.startswith(f'festival.toml, line {number}: [[rules.allocations]] number 2, amount = "x": must be')
    assert sentence(TEXT.replace("memoryKiB = 8192", "memoryKiB = 1")).startswith(
        f"festival.toml, line {line_of('memoryKiB')}: [rules] memoryKiB = 1: "
    )


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "festival.toml"
    with pytest.raises(ConfigError, match=f"{path}: the network file cannot be read: No such file"):
        read_network_file(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="must be UTF-8 text; the byte at offset 0 is not"):
        read_network_file(path)
    path.write_text(TEXT)
    assert read_network_file(path) == FESTIVAL
    os.truncate(path, MAX_FILE_BYTES + 1)
    with pytest.raises(ConfigError, match=f"must have at most {MAX_FILE_BYTES} bytes, so this is not a network file"):
        read_network_file(path)
