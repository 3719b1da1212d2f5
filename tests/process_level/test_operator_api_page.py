"""docs/operator-api.md: its examples against a devnet, and that it names every route."""

import re
from collections.abc import Callable

import pytest

from svcd.chain.params import DEVNET
from tests.process_level.pages import ROOT, check_examples
from tests.process_level.running import RunningNode
from tests.programs import needs
from tests.schema.documents import operator

PAGE = "docs/operator-api.md"


@pytest.mark.socket
@pytest.mark.slow
@needs("curl")
def test_the_examples_answer_as_shown_twice(make_devnet: Callable[[], RunningNode]) -> None:
    folder = make_devnet().data_dir.parent
    check_examples(PAGE, folder)
    asked = "".join(check_examples(PAGE, folder))
    untried = {"/metrics", "/operator/openapi.json"}
    assert all(f"http://localhost{path}" in asked for path in operator(DEVNET)["paths"] if path not in untried)


def test_every_route_is_in_the_table() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8").partition("\n## ")[0]
    shown = set()
    for row in re.findall(r"^\| (`(?:GET|POST) .*?) \|", text, re.MULTILINE):
        method, first = re.findall(r"`(\w+) ([^`]+)`", row)[0]
        others = [f"{first.rpartition('/')[0]}{end}" for end in re.findall(r"`…(/\w+)`", row)]
        shown |= {(method.lower(), path) for path in (first, *others)}
    paths = operator(DEVNET)["paths"]
    assert shown == {(method, path) for path, methods in paths.items() for method in methods if method != "head"}
