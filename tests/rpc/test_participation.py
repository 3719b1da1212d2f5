"""POST /operator/participation: making blocks begins and ends at the operator's word."""

import pytest
from attrs import define
from twisted.internet.defer import Deferred, succeed

from svcd.node.status import LONELY, Neighbourhood
from svcd.rpc.participation import ParticipationRoutes
from svcd.web.limits import SiteLimits
from tests.rpc.conftest import local_client
from tests.rpc.node import TOKEN, Client, Node

PATH = "/operator/participation"


@define
class Lever:
    """Stands where it was put last."""

    enabled: bool = False

    def switch(self, enabled: bool) -> "Deferred[None]":
        self.enabled = enabled
        return succeed(None)


def asking(node: Node, lever: Lever | None, token: str | None = None) -> Client:
    """The operator of a node with this lever."""
    node.operator_rooms = [ParticipationRoutes(node.status, lever, token=token)]
    node.operator = node.sites.operator(node.operator_rooms, SiteLimits())
    return local_client(node)


def test_on_and_off(node: Node) -> None:
    lever = Lever()
    operator = asking(node, lever)
    assert operator.ok(PATH, {"enabled": True}) == {"enabled": True, "waitsFor": None}
    assert lever.enabled
    assert operator.ok(PATH, {"enabled": False}) == {"enabled": False, "waitsFor": None}
    assert not lever.enabled


def test_what_it_waits_for(node: Node) -> None:
    node.peers.around = Neighbourhood(0, 0, LONELY)
    operator = asking(node, Lever())
    assert operator.ok(PATH, {"enabled": True}) == {"enabled": True, "waitsFor": LONELY}
    assert operator.ok(PATH, {"enabled": False}) == {"enabled": False, "waitsFor": None}


@pytest.mark.parametrize("body", [{"enabled": 1}, {"enabled": "true"}, {"enabled": None}])
def test_a_value_that_is_neither(node: Node, body: dict[str, object]) -> None:
    assert asking(node, Lever()).refusal(PATH, body) == "enabled: must be true or false"


def test_what_must_be_given(node: Node) -> None:
    assert asking(node, Lever()).refusal(PATH, {}) == "enabled is missing: Whether to make blocks."


def test_blocks_on_demand_know_no_switch(node: Node) -> None:
    assert asking(node, None).refusal(PATH, {"enabled": True}) == (
        "this node makes blocks on demand ([participation] onDemand is true): ask for them at /operator/mine"
    )


def test_it_asks_for_the_token(node: Node) -> None:
    lever = Lever()
    asking(node, lever, TOKEN).refusal(PATH, {"enabled": True}, status=401)
    assert not lever.enabled
