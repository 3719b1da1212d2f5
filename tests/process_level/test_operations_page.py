"""docs/operations.md: its examples against a devnet, and its tables against the program."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import attrs
import pytest

from svcd.chain.units import format_amount
from svcd.commerce.events import EventType
from svcd.config.layers import camel
from svcd.config.schema import DEFAULTS, Config, MerchantSettings
from svcd.config.types import Coins
from svcd.store.state_tree_file import StateTreeFile
from svcd.tap import Options
from tests.process_level.pages import ROOT, blocks_of, check_json, run, section
from tests.process_level.running import RunningNode
from tests.programs import needs

PAGE = "docs/operations.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


def rows(text: str) -> dict[str, str]:
    """First cell to second cell, of table rows whose first cell is in backticks."""
    return dict(re.findall(r"^\| `([^`]+)` \| (?:`([^`]+)`)?", text, re.MULTILINE))


@pytest.mark.socket
@pytest.mark.slow
@needs("curl")
def test_the_examples_answer_as_shown(make_devnet: Callable[[], RunningNode]) -> None:
    node = make_devnet()
    folder = node.data_dir.parent
    examples = blocks_of(PAGE, "sh", "json", "text")
    asked = [block.text for block in examples[::2]]
    assert all(block.language == "sh" for block in examples[::2])
    paths = ["mine", "reorganise", "faucet", "status", "peers", "peers/add", "peers/ban", "peers/unban"]
    paths += ["limits", "participation", "backup", "reload"]
    for path in ["/health", "/ready", *(f"/operator/{name}" for name in paths)]:
        assert any(path in commands for commands in asked), path
    for commands, shown in zip(asked, examples[1::2], strict=True):
        printed = run(commands, folder)
        if shown.language == "json":
            check_json(shown.text, printed)
        else:
            assert printed == shown.text


def sections_of(cls: Any, name: str) -> dict[str, dict[str, Any]]:
    """Every key of a section of the configuration with its default, and of the sections in it."""
    found: dict[str, dict[str, Any]] = {name: {}}
    for field in attrs.fields(cls):
        if attrs.has(type(field.default)):
            inner = camel(field.name) if name == "top" else f"{name}.{camel(field.name)}"
            found |= sections_of(type(field.default), inner)
        elif field.name != "own_network":  # Read from the network file, and no key of the configuration.
            in_coins = any(isinstance(mark, Coins) for mark in get_args(field.type))
            found[name][camel(field.name)] = format_amount(field.default) if in_coins else field.default
    return {name: keys for name, keys in found.items() if keys}


def test_every_key_stands_in_its_table_with_its_default() -> None:
    for name, keys in sections_of(Config, "top").items():
        shown = rows(section(PAGE, "### top" if name == "top" else f"### [{name}]"))
        read = {key: tomllib.loads(f"v = {default}")["v"] for key, default in shown.items()}
        expected = keys | ({"dataDir": DEFAULTS["mainnet"]["dataDir"]} if name == "top" else {})
        assert read == {key: list(value) if isinstance(value, tuple) else value for key, value in expected.items()}


def test_every_key_of_a_merchant_stands_in_its_table() -> None:
    shown = rows(section(PAGE, "### [[commerce.merchants]]"))
    settings = {camel(each.name): each for each in attrs.fields(MerchantSettings) if get_origin(each.type) is Annotated}
    assert set(shown) == set(settings)
    for key, default in shown.items():
        expected = settings[key].default
        read = tomllib.loads(f"v = {default}")["v"] if default else attrs.NOTHING
        assert read == (list(expected) if isinstance(expected, tuple) else expected)


def test_the_defaults_of_devnet_are_named() -> None:
    sentence = TEXT.split("On devnet these defaults differ:")[1].split("\n\n")[0]
    for name, keys in DEFAULTS["devnet"].items():
        for key, value in keys.items() if isinstance(keys, dict) else ():
            assert re.search(rf"\[{name}\] {key}`[^.]*`{re.escape(json.dumps(value))}`", sentence), key


def test_every_option_is_named() -> None:
    shown = {option.split()[0].removeprefix("--") for option in rows(section(PAGE, "## twistd svcd"))}
    assert shown == {option[0] for option in Options.optParameters} | {"set"}


def test_every_file_of_the_data_directory_is_named() -> None:
    named = set(rows(section(PAGE, "## Data directory")))
    source = "".join(path.read_text() for path in (ROOT / "svcd").rglob("*.py"))
    written = set(re.findall(r'"((?:node|operator)\.\w+|(?:chain|mempool)\.sqlite|peers\.json|lock)"', source))
    written |= {StateTreeFile(Path("chain.sqlite")).path.name}
    written -= set(EventType)
    assert named == written


@pytest.mark.parametrize("line", list(rows(TEXT.split("## When it does not start")[1])))
def test_every_line_of_trouble_is_one_that_the_program_says(line: str) -> None:
    # A sentence in the source is an f-string in two pieces now and then: the quotes between them are left out.
    source = "".join(path.read_text() for path in (ROOT / "svcd").rglob("*.py"))
    said = re.sub(r'"\s+f?"', "", source)
    fixed = [part.strip() for part in re.split(r"…\S*|tcp:\S*|4711\)|SVC-MAINNET", line)]
    assert any(len(part) > 12 for part in fixed)
    assert all(part in said for part in fixed), line


def test_the_units_are_where_the_page_says() -> None:
    unit = (ROOT / "systemd" / "svcd.service").read_text()
    for path in ("/opt/svcd", "/etc/svcd/svcd.toml"):
        assert path in section(PAGE, "## systemd")
        assert path in unit
    assert "StateDirectory=svcd\n" in unit
    (watchdog,) = re.findall(r"^WatchdogSec=(\d+)$", unit, re.MULTILINE)
    assert watchdog == "60"


def test_the_commands_to_install_the_units_are_those_of_the_unit() -> None:
    unit = (ROOT / "systemd" / "svcd.service").read_text()
    commands = re.findall(r"^#   (.*)$", unit.partition("[Unit]")[0], re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        assert f"       {command}\n" in section(PAGE, "## A public node, step by step")


def test_a_refused_configuration_makes_no_data_directory(tmp_path: Path) -> None:
    """The page's example of a mistake makes no data directory."""
    (example,) = [block.text for block in blocks_of(PAGE, "sh") if "wrong.toml" in block.text]
    run(example, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.toml"]
