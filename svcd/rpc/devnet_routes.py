"""The operator's routes of devnet: blocks, reorganisations and coins on devnet."""

from typing import Final

from svcd.node.devnet import MAX_BLOCKS, MAX_DEPTH, Devnet
from svcd.rpc import schemas
from svcd.rpc.fields import AMOUNT_TYPE
from svcd.rpc.operator_routes import BEARER
from svcd.web.field_types import Bool, Custom, Hex, Int, Text
from svcd.web.responses import Renderable
from svcd.web.routes import Field, Route, object_schema

_HASHES: Final = object_schema({"hashes": {"type": "array", "items": schemas.HASH}})


BLOCKS: Final = Field("blocks", Int(1, MAX_BLOCKS), "How many blocks to make.")
PRODUCER: Final = Field("producer", Hex(32), "The seed of the key to pay.", default=None)
DEPTH: Final = Field("depth", Int(1, MAX_DEPTH), "How many blocks to replace.")
DROP: Final = Field(
    "dropTransactions", Bool(), "Whether to forget the transfers of the replaced blocks too.", default=False
)
_RECIPIENT: Final = Field("recipient", Custom(schemas.ADDRESS, Text().parse), "The address that gets the coins.")
_AMOUNT: Final = Field("amount", AMOUNT_TYPE, 'How many coins, such as "25" or "0.5".')


class DevnetRoutes:
    """Mining, reorganisations and the faucet."""

    def __init__(self, devnet: Devnet, *, seed: bytes, token: str | None) -> None:
        self.token = token
        self._devnet = devnet
        self._producer = seed

    @Route(
        "POST",
        "/operator/mine",
        "Make blocks at once",
        bucket="operator",
        guards=(BEARER,),
        body_fields=(BLOCKS, PRODUCER),
        answers={200: _HASHES},
        seconds=600,
    )
    async def mine(self, blocks: int, producer: bytes | None) -> Renderable:
        """Answer POST /operator/mine."""
        return _hashes(await self._devnet.mine(blocks, producer or self._producer))

    @Route(
        "POST",
        "/operator/reorganise",
        "Replace the newest blocks with a longer branch of empty ones",
        bucket="operator",
        guards=(BEARER,),
        body_fields=(DEPTH, DROP),
        answers={200: _HASHES},
        seconds=600,
    )
    async def reorganise(self, depth: int, drop_transactions: bool) -> Renderable:
        """Answer POST /operator/reorganise."""
        made = await self._devnet.reorganise(depth, self._producer, drop_transactions=drop_transactions)
        return _hashes(made)

    @Route(
        "POST",
        "/operator/faucet",
        "Send coins from the public faucet",
        bucket="operator",
        guards=(BEARER,),
        body_fields=(_RECIPIENT, _AMOUNT),
        answers={200: object_schema({"txid": schemas.HASH})},
    )
    async def faucet(self, recipient: str, amount: int) -> Renderable:
        """Answer POST /operator/faucet."""
        return {"txid": (await self._devnet.faucet(recipient, amount)).hex()}


def _hashes(made: list[bytes]) -> Renderable:
    return {"hashes": [block_hash.hex() for block_hash in made]}
