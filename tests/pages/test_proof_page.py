"""The page of payment proofs: it has the rules of a network of somebody's own, so that its script need not ask."""

import json
from collections.abc import Callable

import pytest
from attrs import evolve

from svcd.chain.params import DEVNET, MAINNET, NetworkParams
from tests.clients.own_network import FESTIVAL
from tests.pages.conftest import show
from tests.rpc.node import Node

SENTENCE = "with the one that you were given: the rules of FESTIVAL come from this node."


def test_the_page_has_the_rules_of_a_network_of_its_own(open_node: Callable[..., Node]) -> None:
    shown = show(open_node(params=FESTIVAL))
    page = shown.see("/proof/")
    [place] = page.all("div", id="proof")
    told = json.loads(place["data-network"])
    assert told["changes"] != []
    assert {"ok": True, **told} == shown.ask("/rpc/rules").json
    [genesis] = page.all("div", id="proof-genesis")
    assert "hidden" in genesis
    assert len(page.all("span", data_fill="genesis-hash")) == 1
    assert SENTENCE in page.text
    assert [len(page.all("span", data_fill=name)) for name in ("together", "listed")] == [1, 1]
    assert ["hidden" in page.all("div", id=name)[0] for name in ("proof-by-work", "proof-by-producers")] == [
        False,
        True,
    ]
    assert "Die Regeln von FESTIVAL kommen" in shown.ask("/proof/", Accept_Language="de").body.decode()


@pytest.mark.parametrize("params", [MAINNET, DEVNET], ids=lambda params: params.name)
def test_a_built_in_network_is_known_to_the_script(open_node: Callable[..., Node], params: NetworkParams) -> None:
    page = show(open_node(params=params)).see("/proof/")
    [place] = page.all("div", id="proof")
    assert "data-network" not in place
    assert page.all("div", id="proof-genesis") == []
    assert page.all("div", id="proof-by-producers") == []
    assert "genesis hash" not in page.text


def test_a_network_that_only_has_a_name_of_a_built_in_one_is_none(open_node: Callable[..., Node]) -> None:
    params = evolve(MAINNET, minimum_fee=2 * MAINNET.minimum_fee)
    page = show(open_node(params=params)).see("/proof/")
    [place] = page.all("div", id="proof")
    assert json.loads(place["data-network"])["rules"] == params.rules
