"""What schemathesis cannot guess: addresses, ids and signatures that the node under test takes for good.

schemathesis imports this module in its own process (``SCHEMATHESIS_HOOKS``). Requests that are meant to be valid get
known values where a schema cannot say what is valid (checksums, signatures, two parameters that exclude each other), so
that the node must accept each of them, and in four of five other places.
"""

import json
import os
import time
from random import Random
from typing import Any

import schemathesis

from svcd.chain.encoding import canonical, parse_json
from svcd.chain.params import DEVNET
from svcd.chain.transaction import Draft, sign_transfer
from svcd.chain.transition import genesis_point
from svcd.p2p.handshake import NodeKey
from tests.chains import COIN, address_of, key_of
from tests.schema.order import BLOCK, CALLBACK, EVENT, PAID, PAYER, PRICE, SHOP

UNSAYABLE = frozenset("address recipient amount transaction header headers hello endpoint callbackUrl".split())
"""The names of fields of which no schema says what is valid."""
WAITING = 12
"""Transfers of the payer, of which the mempool takes 16."""


class Known:
    """Good values by the name of the field that takes them; some are learnt from answers."""

    def __init__(self) -> None:
        self._random = Random(1)
        self._nonce = 1
        self._transferred: object = None
        self._learnt: dict[str, list[str]] = {"txid": [], "id": [], "reference": []}
        self._watch, self._event = os.environ[EVENT].split()
        self._block = json.loads(os.environ[BLOCK])

    def replace(self, values: dict[str, Any]) -> None:
        """Put known values where there are some for the names in ``values``."""
        for name in values:
            if (name in UNSAYABLE or self._random.random() < 0.8) and (known := self._known(name)) is not None:
                values[name] = known
        if isinstance(values.get("ttlSeconds"), int) and isinstance(values.get("payWithinSeconds"), int):
            # No schema says that one is at most the other.
            values["payWithinSeconds"] = min(values["payWithinSeconds"], values["ttlSeconds"])
        if "eventId" in values:
            values["id"], values["eventId"] = self._watch, self._event

    def agree(self, path: str, query: dict[str, Any]) -> None:
        """Change what no schema of a query can say: fields that need or exclude each other, pages that there are."""
        if "wait" in query:
            query["wait"] = 1
            query.setdefault("state", "unpaid")
        if path.startswith(("/rpc/commerce/payment/", "/rpc/commerce/confirmations")) or "amount" in query:
            query["amount"] = PRICE
            query.pop("amountBaseUnits", None)
        if path == "/rpc/commerce/payments" and query.keys() & {"amount", "amountBaseUnits"}:
            query["reference"] = PAID
        if path == "/rpc/commerce/webhooks" or path.startswith("/rpc/commerce/feed/"):
            query.pop("after", None)

    def block(self) -> bytes:
        """A body with a block as nodes send it, whose every byte counts."""
        return b'{"block":' + canonical(self._block) + b"}"

    def learn(self, answer: Any) -> None:
        """Remember what an answer names."""
        for member in answer.values():
            if isinstance(member, dict):
                if not str(member.get("id", "svcwh_")).startswith("svcwh_"):
                    continue  # An event has an id too.
                for name in self._learnt.keys() & member.keys():
                    self._learnt[name] = [*self._learnt[name][-9:], str(member[name])]
        if isinstance(answer.get("txid"), str) and answer.get("state") == "accepted":
            self._nonce += 1

    def _known(self, name: str) -> object:
        if name in ("address", "recipient"):
            return address_of(self._random.choice([PAYER, SHOP, SHOP, SHOP, "nobody"]), "svcd")
        if name == "amount":
            return PRICE
        if name == "reference" and self._random.random() < 0.5:
            return PAID
        if name == "callbackUrl":
            return CALLBACK
        if name == "transaction":
            return self._transfer()
        if name in ("header", "headers"):
            header = {name: value for name, value in self._block.items() if name != "transactions"}
            return header if name == "header" else [header]
        if name == "endpoint":
            return "http://127.0.0.1:18645"
        if name == "hello":
            return NodeKey(self._random.randbytes(32), "").hello(DEVNET, genesis_point(DEVNET), _now()).message()
        if name == "confirmations":
            return self._random.choice([1, 2, 6])
        if name in ("height", "from"):
            return str(self._random.randrange(4))
        if self._learnt.get(name):
            return self._random.choice(self._learnt[name])
        return None

    def _transfer(self) -> object:
        """A transfer of the next nonce; the last one again when no more may wait."""
        if self._nonce <= WAITING:
            self._transferred = self._signed()
        return self._transferred

    def _signed(self) -> object:
        draft = Draft(
            recipient=address_of(SHOP, "svcd"),
            amount=COIN // 100,
            fee=DEVNET.minimum_fee,
            nonce=self._nonce,
            timestamp=_now(),
            reference=self._random.choice([None, "order-1", "order-2"]),
        )
        return parse_json(sign_transfer(draft, seed=key_of(PAYER).seed, params=DEVNET).wire)


def without_fractions(value: Any) -> Any:
    """``value``, in which 60.0 is replaced by 60: to JSON Schema both are integers, and the node takes one form."""
    places = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, each in list(places):
        value[place] = without_fractions(each)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _now() -> int:
    return time.time_ns() // 1_000_000


KNOWN = Known()


@schemathesis.hook
def before_call(_context: Any, case: Any, arguments: dict[str, Any]) -> None:
    """Make a request that is meant to be valid valid in more than form."""
    # A chain that is too low is 503, which schemathesis takes for an error of the node.
    if isinstance(case.query, dict) and str(case.query.get("minHeight", "")).isdecimal():
        case.query["minHeight"] = 1
    if case.meta is None or case.meta.generation.mode.value != "positive":
        return
    path = case.operation.path
    without_fractions(case.body)
    for values in (case.path_parameters, case.query, case.body):
        if isinstance(values, dict):
            KNOWN.replace(values)
    if case.method in ("GET", "HEAD"):
        case.query = case.query if isinstance(case.query, dict) else {}
        KNOWN.agree(path, case.query)
    if path == "/p2p/block":
        arguments["data"] = KNOWN.block()


@schemathesis.hook
def after_call(_context: Any, case: Any, response: Any) -> None:
    """Learn from what was answered."""
    if response.status_code in (200, 201) and case.method not in ("HEAD", "OPTIONS"):
        KNOWN.learn(response.json())
