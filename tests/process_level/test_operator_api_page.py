"""docs/operator-api.md: its examples against a devnet, and that it names every route."""

import re

import pytest

from svcd.chain.params import DEVNET
from svcd.cli.operator.devnet import CONFIG
from tests.process_level.conftest import Nodes
from tests.process_level.pages import ROOT, check_examples
from tests.process_level.test_webhooks_page import secrets_of_a_devnet
from tests.programs import needs
from tests.schema.documents import operator

PAGE = "docs/operator-api.md"


@pytest.mark.socket
@pytest.mark.slow
@needs("curl", "grep")
def test_the_examples_answer_as_shown_twice(nodes: Nodes) -> None:
    """On a devnet with the configuration of `svc devnet`, on another port."""
    folder = nodes.folder
    secrets_of_a_devnet(folder)
    nodes.start(f"--config={CONFIG}", name="devnet")
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
