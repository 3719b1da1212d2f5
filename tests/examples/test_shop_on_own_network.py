"""The shop of examples/shop on a network of somebody's own: what it takes."""

import json
from pathlib import Path

import pytest
import shop
from svc_pay import InvalidInput, WatchEvent, read_network
from svc_pay.webhooks import parse_event

from svcd.chain.params import NetworkParams
from svcd.config.network_file import render_network_file
from tests.clients.own_network import FESTIVAL, OPEN, address
from tests.examples.test_shop import CONFIRMED, event_of


def written(params: NetworkParams, folder: Path) -> Path:
    """The file of a network."""
    file = folder / f"{params.name}.toml"
    file.write_text(render_network_file(params), encoding="utf-8")
    return file


def test_the_events_of_an_order_are_those_of_its_network(tmp_path: Path) -> None:
    network = read_network(written(FESTIVAL, tmp_path))
    db = shop.connect(str(tmp_path / "shop.sqlite"))
    db.executescript((shop.HERE / "schema.sql").read_text(encoding="utf-8"))
    db.execute(
        "INSERT INTO orders (reference, recipient, amount, confirmations, since_height, what, payment_uri,"
        " checkout_url) VALUES ('order-1', ?, 2500000000, 3, 0, 'Teapot', 'svc:', 'http://')",
        (address("shop"),),
    )
    for genesis_hash, done in ((OPEN.genesis_hash, "no such order"), (FESTIVAL.genesis_hash, "recorded")):
        told = {"genesisHash": genesis_hash.hex(), "payment": {"recipient": address("shop")}}
        verified = parse_event(json.dumps(event_of(*CONFIRMED, **told)).encode())
        assert isinstance(verified, WatchEvent)
        assert shop.take(db, verified, network) == done
    [row] = db.execute("SELECT * FROM orders").fetchall()
    assert shop.status(row) == "ready to ship"
    db.close()


def test_the_setting_is_the_file_of_the_network(settings: dict[str, str], tmp_path: Path) -> None:
    file = written(FESTIVAL, tmp_path)
    app = shop.create_app(settings | {"NETWORK": str(file)})
    assert app.config["NODE"].network == read_network(file)
    assert shop.create_app(settings).config["NODE"].network is None
    file.write_text(file.read_text().replace("slotSeconds = 5", "slotSeconds = 6"))
    with pytest.raises(InvalidInput, match=r"festival\.toml: the file says that the genesis hash is"):
        shop.create_app(settings | {"NETWORK": str(file)})
