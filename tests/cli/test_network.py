"""`svc network new` and `svc network show`, and that what they accept is a network on which a chain can grow."""

import json
import re
import stat
from collections.abc import Iterator
from itertools import count
from random import Random

import pytest
from attrs import frozen
from click.testing import CliRunner
from hypothesis import event, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from svcd.chain.address import encode_address, key_hash
from svcd.chain.block import Block
from svcd.chain.params import DEVNET, FAUCET, MAINNET, NetworkParams
from svcd.chain.transaction import Transfer
from svcd.cli.hash_rate import hash_rate
from svcd.cli.main import svc
from svcd.config.network_file import read_network_file
from tests.chains import ChainBuilder, key_of
from tests.cli.terminal import Terminal
from tests.node.bench import Setting, late_clock, running
from tests.node.connecting import sound
from tests.node.test_laws import hand_in
from tests.torture.audit import audit

NEW = ("network", "new", "festival")
NEW_RULES = ("--genesis-time", "2026-12-01T00:00:00Z", "--network-id", 4711)
KEY = key_of("alice").public.hex()
ALICE = encode_address(key_of("alice").hash, "festival")
ON_MAINNET = encode_address(key_hash(bytes.fromhex(KEY)), "svc")


def made(terminal: Terminal, *words: object) -> NetworkParams:
    """The network of a file that `svc network new` has written."""
    terminal.ok(*NEW, *words)
    return read_network_file(terminal.folder / "festival.toml")


def test_the_defaults_suit_a_group(terminal: Terminal, clock: Clock) -> None:
    params = made(terminal)
    assert (params.name, params.chain_id, params.address_prefix) == ("festival", "FESTIVAL", "festival")
    assert params.network_id == 1000 + int.from_bytes(bytes(range(8)), "big") % (2**31 - 1000)
    assert params.genesis_time == int(clock.seconds()) * 1000
    assert (params.slot_seconds, params.slots_per_block, params.drift_slots, params.unit) == (10, 6, 2, "SVC")
    same = {name: value for name, value in MAINNET.rules.items() if params.rules[name] == value}
    others = "addressPrefix chainId genesisTime maxTarget networkId"
    assert sorted(set(MAINNET.rules) - set(same)) == others.split()
    assert stat.S_IMODE((terminal.folder / "festival.toml").stat().st_mode) == 0o644


@pytest.mark.parametrize(("rate", "initial"), [(1, 250), (300, 242), (20_000, 236), (0.01, 255)])
def test_the_first_target_suits_this_computer(terminal: Terminal, rate: float, initial: int) -> None:
    terminal.hash_rate = rate
    params = made(terminal)
    assert params.initial_target == 1 << initial
    assert params.max_target == 1 << min(initial + 4, 255)


def test_the_rate_is_told_while_it_is_measured(terminal: Terminal) -> None:
    told = terminal.ok(*NEW, "--memory-kib", 1024).err
    assert told == "Measuring how fast this computer makes attempts with 1024 KiB … 300 a second.\n"
    assert terminal.ok("network", "new", "fete", "--json").err == ""


def test_a_first_block_of_an_hour_is_refused(terminal: Terminal) -> None:
    terminal.hash_rate = 2**20 / 3600
    sentence = "--initial-target 2^236: this computer would need 1 hours or so for the first block; 2^242 suits it"
    assert terminal.failure(*NEW, "--initial-target", "2^236") == sentence
    terminal.hash_rate *= 1.001
    assert made(terminal, "--initial-target", "2^236").initial_target == 2**236


def test_slots_of_another_length_keep_the_times(terminal: Terminal) -> None:
    params = made(terminal, "--slot-seconds", 5)
    assert (params.slots_per_block, params.half_life_slots, params.gap_cap_slots) == (12, 1440, 240)
    assert params.multiplier_schedule[1:3] == ((17_280, 10_200), (120_960, 10_400))


def test_the_coins_have_a_name(terminal: Terminal) -> None:
    params = made(terminal, "--unit", "Token", *NEW_RULES)
    assert params.unit == "Token"
    assert params.genesis_hash == made(terminal, "--replace", *NEW_RULES).genesis_hash


def test_with_a_list_of_producers_nothing_is_gained_by_holding_coins(terminal: Terminal) -> None:
    assert made(terminal, "--producer", KEY).multiplier_schedule == ((0, 10_000),)
    asked = made(terminal, "--replace", "--producer", KEY, "--multipliers", "0:10000,60:10200")
    assert asked.multiplier_schedule == ((0, 10_000), (60, 10_200))


def test_options_set_every_rule(terminal: Terminal) -> None:
    words = (
        "--chain-id FEST --network-id 4711 --prefix fest --genesis-time 2026-12-01T00:00:00Z --slot-seconds 2 "
        "--slots-per-block 5 --half-life-slots 100 --gap-cap-slots 30 --memory-kib 64 --initial-target 2^250 "
        "--max-target 2^251 --min-target 2^170 --reward 1.5 --halving-blocks 0 --minimum-fee 0.5 --account-minimum 2 "
        "--holding-minimum 7 --multipliers 0:10000,60:10500 --max-block-transfers 10 --max-block-bytes 20000 "
        "--past-seconds 3600 --future-seconds 120"
    )
    rules = made(terminal, *words.split(), "--producer", KEY, "--allocation", f"{ON_MAINNET}=12.25").rules
    assert {name for name, value in rules.items() if value == MAINNET.rules[name]} == set()
    assert rules | {"initialTarget": "", "maxTarget": "", "minTarget": ""} == {
        "chainId": "FEST",
        "networkId": 4711,
        "addressPrefix": "fest",
        "genesisTime": "1796083200000",
        "slotSeconds": 2,
        "slotsPerBlock": 5,
        "halfLifeSlots": 100,
        "gapCapSlots": 30,
        "memoryKiB": 64,
        "initialTarget": "",
        "maxTarget": "",
        "minTarget": "",
        "initialReward": "150000000",
        "halvingBlocks": 0,
        "minimumFee": "50000000",
        "accountMinimum": "200000000",
        "holdingMinimum": "700000000",
        "multiplierSchedule": [[0, 10000], [60, 10500]],
        "maxBlockTransactions": 10,
        "maxBlockBytes": 20000,
        "transactionPastSeconds": 3600,
        "transactionFutureSeconds": 120,
        "producers": [encode_address(key_of("alice").hash, "fest")],
        "allocations": [[encode_address(key_of("alice").hash, "fest"), "1225000000"]],
    }


def test_producers_are_addresses_of_any_network_or_public_keys(terminal: Terminal) -> None:
    bob = key_of("bob")
    params = made(terminal, "--producer", FAUCET, "--producer", KEY, "--producer", encode_address(bob.hash, "svc"))
    hashes = params.producer_keys_at(1)
    assert len(params.producers) == len(hashes) == 3
    assert {key_of("alice").hash, bob.hash} < hashes
    assert all(address.startswith("festival1q") for address in params.producers)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--unit", "4711"), '--unit: unit = "4711": must be 1 to 12 letters from A to Z, such as "Token"'),
        (("--network-id", "999"), "--network-id: [rules] networkId = 999: must be an integer from 1000 to 2147483647"),
        (("--prefix", "svc"), '--prefix: [rules] addressPrefix = "svc": is that of mainnet; choose another one'),
        (("--producer", KEY, "--producer", ON_MAINNET), f"must name {ALICE} once"),
        (("--slots-per-block", "1"), "--slots-per-block 1: must be an integer from 2 to 1000, without quotes"),
        (("--memory-kib", "much"), "--memory-kib much: must be an integer from 64 to 65536, without quotes"),
        (("--initial-target", "2"), "--initial-target 2: must be a power of two in quotes, from"),
        (("--reward", "900", "--halving-blocks", "10000000"), "at most 90071992.54740991 SVC can exist"),
        (("--minimum-fee", "84000000"), "with the minimum fee no transfer would ever be possible"),
        (("--multipliers", "x"), '--multipliers: [rules] multiplierSchedule = [["x"]]: must be a list of pairs'),
        (("--genesis-time", "now"), '--genesis-time: [rules] genesisTime = "now": must be a date and time in UTC'),
    ],
)
def test_what_cannot_work_is_refused(terminal: Terminal, words: tuple[str, ...], sentence: str) -> None:
    assert sentence in terminal.failure(*NEW, *words)
    assert list(terminal.folder.iterdir()) == []


def test_a_name_without_a_prefix_needs_one(terminal: Terminal) -> None:
    told = terminal.failure("network", "new", "1848")
    assert told == 'the default of --prefix: [rules] addressPrefix = "": must be 2 to 8 lower-case letters'
    terminal.ok("network", "new", "1848", "--prefix", "rev")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("network", "new", "devnet"), "Invalid value for 'NAME': is that of a built-in network; choose another one"),
        (
            ("network", "new", "Fest"),
            "Invalid value for 'NAME': must be 1 to 32 lower-case letters, digits and, between them, hyphens",
        ),
        ((*NEW, "--producer", "bob"), "bob is neither an address nor a public key of 64 lower-case hex digits"),
        ((*NEW, "--producer", f"{FAUCET[:-1]}q"), "has a wrong checksum; copy the address again"),
        ((*NEW, "--allocation", FAUCET), f"Invalid value for '--allocation': {FAUCET} must be written ADDRESS=COINS"),
        ((*NEW, "--output", "festival"), "--output must end with .toml"),
        (("network", "show", "fest"), "'fest' must be mainnet, devnet or the file of a network, such as festival.toml"),
    ],
)
def test_incorrect_calls(terminal: Terminal, words: tuple[str, ...], sentence: str) -> None:
    assert sentence in terminal.misuse(*words)


def test_a_file_is_not_overwritten_unasked(terminal: Terminal) -> None:
    first = made(terminal)
    sentence = "festival.toml exists already and is never overwritten; choose another file with --output"
    assert terminal.failure(*NEW, "--reward", "1") == sentence
    assert read_network_file(terminal.folder / "festival.toml") == first
    assert made(terminal, "--reward", "1", "--replace").initial_reward == 10**8
    assert [path.name for path in terminal.folder.iterdir()] == ["festival.toml"]


ANSWERS = ("T0ken", "Token", "FEST", "svcd", "fest", "", "25", "0", "0.001", "0.02", f"bob {KEY}", KEY, f"{KEY}=5", "")


def test_a_terminal_asks_what_a_group_decides(terminal: Terminal) -> None:
    terminal.interactive = True
    told = terminal.ok(*NEW, typed="\n".join(ANSWERS)).err
    params = read_network_file(terminal.folder / "festival.toml")
    assert (params.chain_id, params.address_prefix, params.slots_per_block) == ("FEST", "fest", 6)
    assert (params.initial_reward, params.halving_blocks, params.minimum_fee) == (25 * 10**8, 0, 100_000)
    assert (params.account_minimum, params.unit) == (2_000_000, "Token")
    assert params.producers == (encode_address(key_of("alice").hash, "fest"),)
    assert params.allocations == ((params.producers[0], 5 * 10**8),)
    assert "Slots of 10 seconds from block to block [6]: " in told
    assert "Error: is that of devnet; choose another one" in told
    assert "Error: bob is neither an address nor a public key" in told


def test_options_answer_questions(terminal: Terminal) -> None:
    terminal.interactive = True
    options = (
        "--unit Token --chain-id A --prefix fest --slots-per-block 6 --reward 20 --halving-blocks 0 --minimum-fee 1"
    )
    words = (*options.split(), "--account-minimum", "1", "--producer", KEY, "--allocation", f"{KEY}=1")
    assert "[" not in terminal.ok(*NEW, *words).err
    assert "[" not in terminal.ok("network", "new", "fete", "--defaults").err


def test_show_tells_the_rules_and_the_money(terminal: Terminal) -> None:
    made(terminal, "--producer", KEY, "--allocation", f"{FAUCET}=100", "--halving-blocks", 0)
    file = terminal.folder / "festival.toml"
    text = file.read_text()
    file.write_text(text.replace("[genesis]", f'[[changes]]\nheight = 9\nproducers = ["{ALICE}"]\n\n[genesis]'))
    params = read_network_file(file)
    told = terminal.ok("network", "show", "festival.toml").out
    assert f"genesis hash   {params.genesis_hash.hex()}\n" in told
    assert f"rules hash     {params.rules_hash.hex()}\n" in told
    assert f"changes hash   {params.changes_hash.hex()}\n" in told
    assert "producers      1, of which 1 must be at work, from the first block on\n" in told
    assert "reward         20 SVC, as long as the supply has room\n" in told
    assert re.search(r"\n +1 +525,949 +10519080\n", told)
    assert re.search(r"\n +10 +5,259,492 +90071980\n", told)
    assert re.search(r"\n +end +90071980\n", told)
    assert f"Producers from the first block on:\n  {ALICE}\n" in told
    assert f"From height 9 on (1, of which 1 must be at work):\n  {ALICE}\n" in told
    assert f"Coins from the beginning:\n  {params.allocations[0][0]}  100 SVC\n" in told
    shown = json.loads(terminal.ok("network", "show", "festival.toml", "--json").out)
    assert shown["rules"] == params.rules
    assert shown["changes"] == [{"height": "9", "producers": [ALICE]}]
    assert shown["changesHash"] == params.changes_hash.hex()
    assert shown["supply"][1] == {"years": 1, "height": "525949", "supply": str(100 * 10**8 + 525_949 * 20 * 10**8)}
    assert shown["supplyLimit"] == str(params.supply_limit)


@pytest.mark.parametrize("params", [MAINNET, DEVNET], ids=lambda params: params.name)
def test_show_knows_the_built_in_networks(terminal: Terminal, params: NetworkParams) -> None:
    shown = json.loads(terminal.ok("network", "show", params.name, "--json").out)
    assert shown["genesisHash"] == params.genesis_hash.hex()
    assert "producers      everybody\n" in terminal.ok("network", "show", params.name).out


def test_a_list_that_has_not_changed_has_the_changes_hash_that_a_node_tells(terminal: Terminal) -> None:
    """Members compare it by telephone, and some read it from their node."""
    made = terminal.ok(*NEW, "--producer", KEY).out
    line = f"changes hash   {read_network_file(terminal.folder / 'festival.toml').changes_hash.hex()}\n"
    assert line in made
    assert line in terminal.ok("network", "show", "festival.toml").out
    assert "changes hash" not in terminal.ok(*NEW, "--replace").out


def test_show_says_what_is_wrong_with_a_file(terminal: Terminal) -> None:
    made(terminal)
    file = terminal.folder / "festival.toml"
    file.write_text(file.read_text().replace("slotSeconds = 10", "slotSeconds = 11"))
    assert "the rules of the file give" in terminal.failure("network", "show", "festival.toml")
    assert terminal.failure("network", "show", "x.toml").startswith("x.toml: the network file cannot be read: No such")


def test_the_rate_of_this_computer() -> None:
    times = iter([0, 0.25, 0.5])
    assert hash_rate(64, lambda: next(times)) == 2
    times = iter([0, 0.1, 0.2, 0.4, 0.8])
    assert hash_rate(64, lambda: next(times)) == 3 / 0.8


# Any network that is accepted

PEOPLE = "alice bob carol dave".split()
NUMBERS = count()
EXAMPLES = max(10, min(settings().max_examples, 1000) // 10)
"""Each makes two databases and fifty blocks."""

# What Hypothesis tries first and most comes first, and is accepted.
OPTIONS = st.fixed_dictionaries(
    {
        "--memory-kib": st.just("64"),
        "--initial-target": st.integers(252, 255).map("2^{}".format),
        "--slot-seconds": st.sampled_from("1 2 10 60".split()),
        "--slots-per-block": st.sampled_from("2 2 3 3 6 6 60 1".split()),
        "--future-seconds": st.sampled_from("60 600".split()),
    },
    optional={
        "--half-life-slots": st.sampled_from("10000 10000 720 60 20".split()),
        "--gap-cap-slots": st.sampled_from("180 180 18 6".split()),
        "--max-target": st.integers(252, 255).map("2^{}".format),
        "--min-target": st.sampled_from(["2^160", "2^251"]),
        "--reward": st.sampled_from("20 20 20 0.5 0.00000001 1000000 90071992.54740991 0".split()),
        "--halving-blocks": st.sampled_from("0 0 1 2 10 50 1000".split()),
        "--minimum-fee": st.sampled_from("0.00000001 0.0001 1".split()),
        "--account-minimum": st.sampled_from("0.00000001 0.01 10".split()),
        "--holding-minimum": st.sampled_from("0.00000001 1000".split()),
        "--multipliers": st.sampled_from(["0:10000", "0:10000,1:10200,20:11000", "0:10000,1:11000", "0:10000,5:12000"]),
        "--max-block-transfers": st.sampled_from("1 5 2000".split()),
        "--max-block-bytes": st.sampled_from("16384 1310720".split()),
        "--past-seconds": st.sampled_from("86400 604800 600".split()),
    },
)


@frozen
class Step:
    """A block, with at most one transfer."""

    back: int
    """How many blocks before this one its parent stands."""
    gap: int
    choice: int
    amount: int


STEPS = st.lists(
    st.builds(
        Step, st.sampled_from([1] * 8 + [2, 3, 5]), st.integers(1, 30), st.integers(0, 99), st.integers(1, 10**9)
    ),
    min_size=50,
    max_size=50,
)


def grown(chain: ChainBuilder, steps: list[Step]) -> Iterator[Block]:
    """Fifty blocks, most of them one on the other, by those who may make them."""
    params = chain.params
    blocks: list[Block | None] = [None]
    makers: dict[Block | None, list[str]] = {None: []}
    for step in steps:
        parent = blocks[-min(step.back, len(blocks))]
        listed = [name for name in PEOPLE if chain.address(name) in params.producers] or PEOPLE
        resting = makers[parent][-params.blocks_between_at(1) :] if params.blocks_between_at(1) else []
        allowed = [name for name in listed if name not in resting]
        maker = allowed[step.choice % len(allowed)]
        slot = chain.point_after(parent).slot + step.gap
        block = chain.block(parent, slot=slot, producer=maker, transfers=affordable(chain, parent, step, slot))
        makers[block] = [*makers[parent], maker]
        blocks.append(block)
        yield block


def affordable(chain: ChainBuilder, parent: Block | None, step: Step, slot: int) -> list[Transfer]:
    """The transfer of a step, if its sender has the coins."""
    params = chain.params
    sender, recipient = PEOPLE[step.choice % 4], PEOPLE[step.choice // 4 % 4]
    account = chain.account_after(parent, sender)
    amount = max(step.amount, params.account_minimum)
    if account.balance < amount + params.minimum_fee + params.account_minimum:
        return []
    time = params.slot_time(slot)
    return [chain.transfer(sender, recipient, amount, nonce=account.nonce, timestamp=time)]


@settings(max_examples=EXAMPLES)
@given(
    given_options=OPTIONS,
    producers=st.lists(st.sampled_from(PEOPLE), unique=True),
    allocated=st.lists(st.sampled_from(PEOPLE), unique=True),
    steps=STEPS,
    seed=st.integers(0, 2**32),
)
def test_whatever_is_accepted_is_a_network_whose_chain_keeps_the_laws(
    tmp_path_factory: pytest.TempPathFactory,
    given_options: dict[str, str],
    producers: list[str],
    allocated: list[str],
    steps: list[Step],
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("network")
    file = folder / "festival.toml"
    words = [word for option, value in given_options.items() for word in (option, value)]
    words += [word for name in producers for word in ("--producer", key_of(name).public.hex())]
    words += [word for name in allocated for word in ("--allocation", f"{key_of(name).public.hex()}=1000")]
    runtime = Terminal(folder, Clock()).runtime()
    time = ("--genesis-time", "2026-12-01T00:00:00Z")
    result = CliRunner().invoke(svc, [*NEW, *words, *time, "--output", str(file)], obj=runtime, catch_exceptions=False)
    event(f"accepted: {result.exit_code == 0}")
    if result.exit_code:
        assert result.stderr.splitlines()[-1].startswith("Error: ")
        assert not file.exists()
        return
    params = read_network_file(file)
    chain = ChainBuilder(params)
    blocks = list(grown(chain, steps))
    with running(folder, Setting(params=params, clock=late_clock(params))) as node:
        hand_in(node, list(blocks), Random(seed))
        node.check()
        work = {block: chain.point_after(block).work for block in blocks}
        best = [block for block in blocks if work[block] == max(work.values())]
        [tip] = [block for block in best if block.header.hash == node.tip]
        sound(node, chain, tip)
        issued = node.chain_manager.tip.issued
        assert issued == params.issued_after(tip.header.height) <= params.supply_limit < 2**53
        assert sum(account.balance for account in node.accounts().values()) == issued
    assert audit(folder / "chain.sqlite", params.rules).tip == tip.header.hash
