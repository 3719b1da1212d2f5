"""Every answer that the other tests here get is held to what nodes say of themselves; this sees that it is."""

import json

import pytest
from jsonschema import ValidationError  # type: ignore[import-untyped]

from svcd.chain.params import DEVNET
from tests.process_level.described import check
from tests.process_level.running import RunningNode
from tests.rpc.description import Asked
from tests.schema.documents import operator, public
from tests.web.wire import Response

pytestmark = [pytest.mark.socket, pytest.mark.slow]


def test_a_node_says_the_same_of_itself(devnet: RunningNode) -> None:
    assert devnet.get("/rpc/openapi.json").json == public(DEVNET)
    assert devnet.operator("/operator/openapi.json").json == operator(DEVNET)


def test_an_answer_that_is_not_announced_is_noticed(devnet: RunningNode) -> None:
    assert devnet.get("/rpc/status").status == 200
    headers = {"server": "svcd", "cache-control": "no-store", "access-control-allow-origin": "*"}
    headers |= {"content-type": "application/json", "content-length": "0", "date": "Fri, 20 Nov 2026 12:00:00 GMT"}
    asked, answer = Asked("GET", "/rpc/consensus", b""), {"ok": True, "consensus": {}}
    with pytest.raises(ValidationError):
        check(asked, Response(200, headers, json.dumps(answer).encode()))
    with pytest.raises(KeyError):
        check(asked, Response(418, headers, json.dumps(answer).encode()))
