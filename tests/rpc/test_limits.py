"""GET /operator/limits: one table of every limit, each with an attack that docs/threats.md names."""

import re
from pathlib import Path

import attrs
import pytest

from svcd.composition.limits import limits_of
from svcd.config.loading import camel, load
from svcd.config.schema import Limits
from svcd.rpc.limits import UNITS, Limit, LimitsRoutes
from tests.rpc.conftest import local_client
from tests.rpc.node import TOKEN, Client, Node

ROOT = Path(__file__).parents[2]
CONFIG = load()
TABLE = limits_of(CONFIG)
ATTACKS = re.findall(
    r"^\| (.*?) \| .*`tests/", (ROOT / "docs" / "threats.md").read_text(encoding="utf-8"), re.MULTILINE
)
NO_LIMITS = {"drainSeconds", "exempt"}
"""Settings beside the limits: how long a stop takes, and for whom there are none."""


@pytest.fixture
def asking(still_node: Node) -> Client:
    """The operator of a node that has nothing but its limits."""
    still_node.operator = still_node.sites.operator([LimitsRoutes(TABLE, token=None)], still_node.operator.limits)
    still_node.operator_rooms = [LimitsRoutes(TABLE, token=None)]
    return local_client(still_node)


@pytest.mark.parametrize("limit", TABLE, ids=lambda limit: limit.name)
def test_every_limit_stops_an_attack_that_is_known(limit: Limit) -> None:
    assert limit.stops in ATTACKS
    assert limit.unit in UNITS
    assert limit.value > 0


def test_no_name_stands_twice() -> None:
    assert len({limit.name for limit in TABLE}) == len(TABLE)


def test_every_setting_is_in_it_with_its_value() -> None:
    by_setting = {limit.setting: limit.value for limit in TABLE if limit.setting}
    for field in attrs.fields(Limits):
        name = camel(field.name)
        if name not in NO_LIMITS:
            assert by_setting.pop(f"limits.{name}") == getattr(CONFIG.limits, field.name)
    assert by_setting == {
        "mempool.maxTransactions": CONFIG.mempool.max_transactions,
        "mempool.maxBytes": CONFIG.mempool.max_bytes,
        "commerce.webhooks.maxTtlSeconds": CONFIG.commerce.webhooks.max_ttl_seconds,
    }


def test_what_is_configured_is_shown() -> None:
    config = attrs.evolve(CONFIG, limits=attrs.evolve(CONFIG.limits, connections=7))
    assert [limit.value for limit in limits_of(config) if limit.name == "connections"] == [7]


def test_every_limit_of_the_peers_page_is_in_it() -> None:
    page = (ROOT / "docs" / "peers.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `svcd\.p2p\.\w+\.([A-Z_]+)` ", page, re.MULTILINE)
    source = (ROOT / "svcd" / "composition" / "limits.py").read_text(encoding="utf-8")
    assert [name for name in shown if f".{name}" not in source] == []


def test_the_operator_reads_the_table(asking: Client) -> None:
    shown = asking.ok("/operator/limits")["limits"]
    assert [limit["name"] for limit in shown] == [limit.name for limit in TABLE]
    assert shown[0] == {
        "name": "connections",
        "value": 1000,
        "unit": "connections",
        "setting": "limits.connections",
        "stops": "Idle connections, to use up sockets",
    }


def test_it_asks_for_the_token(still_node: Node) -> None:
    room = LimitsRoutes(TABLE, token=TOKEN)
    still_node.operator = still_node.sites.operator([room], still_node.operator.limits)
    still_node.operator_rooms = [room]
    assert local_client(still_node).refusal("/operator/limits", status=401)
