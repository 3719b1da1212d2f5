"""Runs the tests of the pages' JavaScript modules in Node's test runner, with the vectors of the Python tests."""

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.programs import needs

TESTS = Path(__file__).parent / "js"
FILES = sorted(TESTS.glob("*.test.mjs"))


def word_list() -> Path:
    """The path of the English BIP-39 word list in the installed package, which nodes serve."""
    spec = importlib.util.find_spec("mnemonic")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "wordlist" / "english.txt"


def run(file: Path, **options: str) -> None:
    """Run the tests of a file, all of which must pass."""
    environment = {**os.environ, "SVC_WORD_LIST": str(word_list()), **options}
    # Without --test, with which node starts a second process for each file.
    command = ["node", "--import", str(TESTS / "english.mjs"), "--test-reporter=tap", str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    told = re.search(r"^# pass ([0-9]+)$", done.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert told, done.stdout
    assert int(told[1]) > 0


@pytest.mark.story
@pytest.mark.slow
@needs("node")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.removesuffix(".test.mjs"))
def test_module(file: Path) -> None:
    run(file)


@pytest.mark.slow
@needs("node")
def test_a_wallet_with_a_node_that_lies_in_many_more_histories() -> None:
    run(TESTS / "liar.test.mjs", SVC_HISTORIES="300")
