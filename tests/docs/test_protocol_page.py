"""docs/protocol.md states the parameters and hashes that the independent vectors hold."""

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
NETWORKS = json.loads((ROOT / "tests" / "vectors" / "svc_protocol.json").read_text(encoding="utf-8"))["networks"]
COLUMNS = {"mainnet": 0, "devnet": 1}


def section(number: int) -> str:
    """The text under the heading with this number."""
    return PAGE.split(f"\n## {number} ")[1].split("\n## ")[0]


def table(text: str, row: str) -> dict[str, tuple[str, str]]:
    """First cell to the two cells in backticks behind it, for the table rows whose first cell matches ``row``."""
    rows = re.findall(rf"^\| {row} \| `([^`|]+)` \| `([^`|]+)` \|", text, re.MULTILINE)
    assert len({name for name, *_ in rows}) == len(rows), "a row occurs twice"
    return {name: (mainnet, devnet) for name, mainnet, devnet in rows}


def value(cell: str) -> object:
    """What a cell of the parameter table stands for: JSON, or ``2^n`` for 64 hex digits."""
    if cell.startswith("2^"):
        return f"{2 ** int(cell[2:]):064x}"
    parsed: object = json.loads(cell)
    return parsed


def tagged_hash(tag: str, data: bytes) -> bytes:
    """H(tag, d) as the page's notation has it."""
    return sha256(tag.encode() + b"\0" + data).digest()


def rules(network: str) -> dict[str, object]:
    """The rules of a network as the page's table states them."""
    return {name: value(cells[COLUMNS[network]]) for name, cells in table(section(1), "`([A-Za-z]+)`").items()}


def test_sections_are_numbered_one_to_thirteen() -> None:
    assert re.findall(r"^## (\w+) ", PAGE, re.MULTILINE) == "1 2 3 4 5 6 7 8 8a 9 10 11 12 13".split()


@pytest.mark.parametrize("network", COLUMNS)
def test_the_parameter_table_is_the_rules(network: str) -> None:
    assert rules(network) == NETWORKS[network]["rules"]


@pytest.mark.parametrize("network", COLUMNS)
def test_the_table_alone_leads_to_the_stated_hashes(network: str) -> None:
    """Whoever implements the page needs no other source: its rules give its rules hash and its genesis hash."""
    stated = {name: cells[COLUMNS[network]] for name, cells in table(section(1), "([a-zA-Z ]+)").items()}
    text = json.dumps(rules(network), sort_keys=True, separators=(",", ":")).encode()
    rules_hash = tagged_hash("svc/rules/v1", text)
    genesis_hash = tagged_hash("svc/block-id/v4", tagged_hash("svc/genesis/v1", rules_hash) + bytes(8))
    assert stated["rulesHash"] == rules_hash.hex() == NETWORKS[network]["rulesHash"]
    assert stated["genesisHash"] == genesis_hash.hex() == NETWORKS[network]["genesisHash"]


@pytest.mark.parametrize("network", COLUMNS)
@pytest.mark.parametrize("root", ["stateRoot", "consensusRoot"])
def test_the_genesis_roots_are_stated(network: str, root: str) -> None:
    assert table(section(1), "([a-zA-Z ]+)")[f"{root} of the genesis"][COLUMNS[network]] == NETWORKS[network][root]


@pytest.mark.parametrize("network", COLUMNS)
def test_the_supply_follows_from_the_table(network: str) -> None:
    stated = re.search(r"The final supply is (\d+) base units on mainnet and (\d+) on devnet", section(1))
    found = rules(network)
    halving, reward, allocations = found["halvingBlocks"], int(str(found["initialReward"])), found["allocations"]
    assert isinstance(halving, int)
    assert isinstance(allocations, list)
    supply = sum(int(units) for _, units in allocations)
    while reward:
        supply += reward * halving
        reward >>= 1
    assert stated is not None
    assert int(stated[1 + COLUMNS[network]]) == supply < 2**53


def test_the_block_table_names_the_fields_of_a_block() -> None:
    fields = re.findall(r"^\| `(\w+)` \|", section(5), re.MULTILINE)
    assert sorted(fields) == sorted(NETWORKS["devnet"]["genesisBlock"])


def test_the_transfer_table_names_the_fields_of_a_transfer() -> None:
    fields = re.findall(r"^\| `(\w+)` \|", section(4), re.MULTILINE)
    assert sorted(fields) == sorted(NETWORKS["devnet"]["transactions"][0]["transaction"])


def test_the_hello_table_names_the_fields_of_a_hello() -> None:
    cells = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", section(11), re.MULTILINE)
    assert sorted(re.findall(r"\w+", " ".join(cells))) == sorted(NETWORKS["devnet"]["hello"])
