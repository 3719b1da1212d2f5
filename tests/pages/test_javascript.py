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


@pytest.mark.story
@pytest.mark.slow
@needs("node")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.removesuffix(".test.mjs"))
def test_module(file: Path) -> None:
    environment = {**os.environ, "SVC_WORD_LIST": str(word_list())}
    command = ["node", "--import", str(TESTS / "english.mjs"), "--test", "--test-reporter=tap", str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    told = re.search(r"^# pass ([0-9]+)$", done.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert told, done.stdout
    assert int(told[1]) > 0
