"""The story of a network of one's own: its founding, a shop on it, a stranger, and a change of its producers."""

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from svcd.chain.address import decode_address, encode_address, key_hash
from svcd.chain.block import Block
from svcd.chain.params import MAINNET, NetworkParams
from svcd.config.network_file import read_network_file, render_network_file
from svcd.seed_file import SeedKind, render_seed
from tests.chains import ChainBuilder, key_of
from tests.net.certificates import make_authority, sign
from tests.process_level.conftest import Nodes
from tests.process_level.receiver import Receiver
from tests.process_level.running import (
    BIN,
    DEADLINE,
    ENVIRONMENT,
    RunningNode,
    exchange,
    free_port,
    refused,
    wait_until,
)

pytestmark = [pytest.mark.socket, pytest.mark.slow]

PASSWORD: Final = "tunnel-vehicle-marble-9"
SECRET: Final = "the-signing-secret-of-this-network"
TOKEN: Final = "the-management-token-of-this-network"
REQUIRED: Final = 2
LONGER: Final = 10
"""How many times the work of the chain the stranger has behind his own."""
MEMBERS: Final = ("anna", "bert", "shop", "stranger")
FORM: Final = "[participation]\nenabled = {makes}\nalone = {founds}\nworkers = {workers}\n"


class Festival:
    """The members of a network, a folder for each of them, and the file that they share."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.ports = {name: free_port() for name in MEMBERS}
        self.running: dict[str, RunningNode] = {}
        self.password = self.private("password", PASSWORD + "\n")
        self.addresses: dict[str, str] = {}

    def private(self, name: str, content: str) -> Path:
        """A file that only its owner may read."""
        path = self.nodes.folder / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(content)
        return path

    def svc(self, *words: object) -> Any:
        """What a command of `svc` prints as JSON."""
        done = subprocess.run(
            [BIN / "svc", *map(str, words), "--json"],
            capture_output=True,
            text=True,
            cwd=self.nodes.folder,
            env=ENVIRONMENT | {"SVC_WALLET_PASSWORD": PASSWORD},
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def keys(self) -> None:
        """The keys that the members make before there is a network: they have addresses of mainnet."""
        (self.nodes.folder / "anna").mkdir(mode=0o700)
        made = self.svc("node", "key", "new", "--data-dir=anna", f"--password-file={self.password}")
        self.addresses["anna"] = made["address"]
        for name in MEMBERS[1:]:
            self.private(f"{name}/operator.key", render_seed(key_of(name).seed, SeedKind.BLOCK).decode())
            self.addresses[name] = self.svc("node", "key", "address", f"--data-dir={name}")["address"]
        words = ("wallet", "new", "--words-to=words", "--keyfile=before.json")
        self.addresses["customer"] = self.svc(*words)["address"]

    def found(self) -> NetworkParams:
        """The file of the network, of which slot 0 is some minutes ago."""
        began = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)
        options = {
            "prefix": "fest",
            "slot-seconds": 1,
            "slots-per-block": 2,
            "half-life-slots": 20,
            "memory-kib": 64,
            "initial-target": "2^252",
            "genesis-time": began.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "allocation": f"{self.addresses['customer']}=100",
        }
        producers = [f"--producer={self.addresses[name]}" for name in ("anna", "bert")]
        told = self.svc("network", "new", "fest", *(f"--{name}={value}" for name, value in options.items()), *producers)
        params = read_network_file(self.nodes.folder / "fest.toml")
        assert told["genesisHash"] == params.genesis_hash.hex()
        self.addresses = {name: moved(address, params) for name, address in self.addresses.items()}
        return params

    def start(self, name: str, *options: str, file: str = "fest.toml", **changed: Any) -> RunningNode:
        """A member's node, which takes the network from ``file`` in its configuration."""
        form = {"makes": "true", "founds": "false", "workers": 1} | changed
        settings = self.nodes.folder / f"settings-of-{name}.toml"
        settings.write_text(f'network = "{file}"\n\n{FORM.format(**form)}')
        seeds = [f"http://127.0.0.1:{port}" for other, port in self.ports.items() if other != name]
        self.running[name] = self.nodes.start(
            f"--config={settings}",
            f"--set=http.publicUrl=http://127.0.0.1:{self.ports[name]}",
            f"--set=p2p.seeds={json.dumps(seeds)}",
            "--set=p2p.allowPrivate=true",
            '--set=limits.exempt=["127.0.0.0/8"]',
            *options,
            name=name,
            port=self.ports[name],
        )
        return self.running[name]

    def restart(self, name: str, *options: str, file: str, **changed: Any) -> RunningNode:
        """The node again, with another file of the network."""
        self.running[name].stop()
        return self.start(name, *options, file=file, **changed)


def moved(address: str, params: NetworkParams) -> str:
    """The address of a mainnet key on another network."""
    return encode_address(decode_address(address, MAINNET.address_prefix), params.address_prefix)


def report(node: RunningNode) -> Any:
    """What the node tells its operator."""
    return node.ok(node.operator("/operator/status"))["status"]


def height(node: RunningNode) -> int:
    return int(node.status()["height"])


def work(node: RunningNode) -> int:
    return int(node.ok(node.get("/p2p/status"))["status"]["cumulativeWork"])


def others_turn(node: RunningNode) -> str:
    """Why the node may not make the next block; "" if it may."""
    return str(report(node)["participation"]["othersTurn"] or "")


def producers(node: RunningNode, first: int, last: int) -> list[str]:
    """Who made the blocks from the first height to the last one."""
    blocks = [node.ok(node.get(f"/rpc/block/{number}"))["block"] for number in range(first, last + 1)]
    prefix = str(report(node)["participation"]["address"]).partition("1")[0]
    return [encode_address(key_hash(bytes.fromhex(block["producerPublicKey"])), prefix) for block in blocks]


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    """The shop's, with a certificate of the shop's own authority."""
    authority = make_authority("The authority of the shop")
    (tmp_path / "authority.pem").write_bytes(authority.pem)
    receiver = Receiver(SECRET)
    with receiver.serving(sign("localhost", by=authority), tmp_path):
        yield receiver
    receiver.check()


def shop_options(folder: Path) -> tuple[str, ...]:
    return (
        "--set=commerce.webhooks.enabled=true",
        f"--set=commerce.webhooks.manageToken={TOKEN}",
        f"--set=commerce.webhooks.signingSecret={SECRET}",
        '--set=commerce.webhooks.callbackNetworks=["127.0.0.1/32", "::1/128"]',
        f"--set=commerce.webhooks.extraCaFile={folder / 'authority.pem'}",
    )


def test_a_network_from_its_founding_to_a_change_of_its_producers(
    nodes: Nodes, receiver: Receiver, tmp_path: Path
) -> None:
    festival = Festival(nodes)
    festival.keys()
    params = festival.found()
    anna, bert, shop, stranger = (festival.addresses[name] for name in MEMBERS)
    assert params.producers == (anna, bert)

    # Anna founds the network, and Bert joins; the shop makes no blocks, and the stranger would like to.
    password = f"--set=participation.keyPasswordFile={festival.password}"
    founder = festival.start("anna", password, founds="true")
    festival.start("bert")
    counter = festival.start("shop", *shop_options(tmp_path), makes="false")
    outsider = festival.start("stranger", workers=LONGER)
    wait_until(lambda: all(height(node) >= 4 for node in festival.running.values()), "blocks at all nodes")
    first_four = producers(founder, 1, 4)
    assert first_four in ([anna, bert] * 2, [bert, anna] * 2)
    wait_until(lambda: stranger in others_turn(outsider), "why the stranger makes no blocks")

    # A customer pays an order of the shop.
    festival.svc("--network=fest.toml", "wallet", "import", "--words-from=words", "--keyfile=customer.json")
    order = {"recipient": shop, "amount": "25", "reference": "order-7", "confirmations": REQUIRED}
    watch = order | {"callbackUrl": f"https://localhost:{receiver.port}/paid"}
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    asked = exchange(counter.connection(), "POST", "/rpc/commerce/webhooks", watch, **bearer)
    assert asked.status == 201, asked
    uri = counter.ok(counter.post("/rpc/commerce/payment-request", order))["payment"]["paymentUri"]
    pay = ("--network=fest.toml", "wallet", "pay", uri, "--keyfile=customer.json", "--yes", f"--url={founder.url}")
    txid = festival.svc(*pay)["txid"]
    wait_until(lambda: "confirmed: confirmed 2" in receiver.names, "the confirmation")
    assert receiver.events[-1]["payment"]["txid"] == txid
    assert counter.account(shop)["balanceSvc"] == "25"

    # Bert leaves: Anna makes one more block at most, and then nobody may.
    leaving = festival.running["bert"]
    leaving.ok(leaving.operator("/operator/participation", {"enabled": False}))

    def stands_still() -> bool:
        tips = {(status["height"], status["hash"]) for status in map(RunningNode.status, festival.running.values())}
        return len(tips) == 1 and producers(founder, end := height(founder), end) == [anna]

    wait_until(stands_still, "a block of Anna at all nodes")
    end = height(founder)
    festival.running.pop("bert").stop()
    wait_until(lambda: anna in others_turn(founder), "why Anna makes no blocks")

    # The stranger shows a chain with far more work. Nobody wants it.
    theirs = longer_chain(params, work(founder) * LONGER)
    refused = counter.post("/p2p/branch", {"headers": [json.loads(block.header.wire()) for block in theirs]})
    assert refused.status == 400
    assert stranger in refused.error

    # The members agree that the shop makes blocks from now on instead of Bert.
    old = (tmp_path / "fest.toml").read_text()
    change = f'[[changes]]\nheight = {end + 1}\nproducers = ["{anna}", "{shop}"]\n\n'
    (tmp_path / "new.toml").write_text(old.replace("[genesis]", change + "[genesis]"))
    assert festival.svc("network", "show", "new.toml")["genesisHash"] == params.genesis_hash.hex()
    founder = festival.restart("anna", password, file="new.toml", founds="true")
    assert (height(founder), height(outsider)) == (end, end)
    counter = festival.restart("shop", *shop_options(tmp_path), file="new.toml")
    wait_until(lambda: height(founder) >= end + 4, "blocks by the new producers")
    assert producers(founder, end + 1, end + 4) == [shop, anna] * 2

    # The stranger has the old file: the node stands still and says why, until it gets the new one.
    wait_until(lambda: "is not followed" in report(outsider)["alarms"].get("producer-changes", ""), "the alarm")
    alarm = report(outsider)["alarms"]["producer-changes"]
    assert f"the producer {shop} is not one of the 2 that may make the block at height {end + 1}" in alarm
    assert height(outsider) == end
    outsider = festival.restart("stranger", file="new.toml", workers=LONGER)
    # Two producers may make a block at the same time, of which one is undone.
    wait_until(
        lambda: (
            height(outsider) >= end + 4
            and outsider.get(f"/rpc/block/{end + 4}").json == founder.get(f"/rpc/block/{end + 4}").json
        ),
        "the chain of the others",
    )
    wait_until(lambda: "producer-changes" not in report(founder)["alarms"], "the end of the alarm")
    assert stranger not in producers(founder, 1, height(founder))


def test_nodes_of_two_networks_refuse_each_other_and_the_data_of_the_other(nodes: Nodes) -> None:
    """One rule is another; chain id, network id and prefix are the same, and so is the name."""
    festival = Festival(nodes)
    festival.keys()
    own = festival.found()
    other = evolve(own, minimum_fee=2 * own.minimum_fee)
    (nodes.folder / "other.toml").write_text(render_network_file(other))
    founder = festival.start("anna", f"--set=participation.keyPasswordFile={festival.password}", founds="true")
    stranger = festival.start("stranger", file="other.toml", founds="true")
    sentence = (
        f"this node is on FEST with genesis {own.genesis_hash.hex()}, and the hello is from FEST with genesis "
        f"{other.genesis_hash.hex()}"
    )
    refusal = f"{founder.url} refuses the hello of this node: it answered 400: "
    wait_until(lambda: refusal in stranger.output and sentence in stranger.output, "the refusal")
    assert not stranger.ok(stranger.operator("/operator/peers"))["peers"]
    asked = ("--network=other.toml", "status", f"--url={founder.url}")
    told = subprocess.run([BIN / "svc", *asked], capture_output=True, text=True, cwd=nodes.folder, env=ENVIRONMENT)
    assert (told.returncode, told.stderr) == (
        1,
        f"Error: the node at {founder.url} is on FEST with the genesis hash {own.genesis_hash.hex()}, not on fest "
        f"with {other.genesis_hash.hex()}: give a node of fest with --url, or another network with --network\n",
    )
    stranger.stop()
    for network, why in (
        ("fest.toml", "has a chain of FEST with other rules than this node's"),
        ("devnet", "does not have the chain of SVC-DEVNET"),
    ):
        listen = f"--listen=tcp:{free_port()}:interface=127.0.0.1"
        done = refused(nodes.folder, f"--network={network}", f"--data-dir={stranger.data_dir}", listen)
        assert (done.status, done.sentence) == (1, f"svcd: the database {why}: use another data directory")


def longer_chain(params: NetworkParams, wanted: int) -> list[Block]:
    """A chain of the stranger alone with this much work, by all rules but that of the list."""
    builder, blocks, done = ChainBuilder(params), [], 0
    while done < wanted:
        parent = blocks[-1] if blocks else None
        slot = builder.point_after(parent).slot + 1
        blocks.append(builder.block(parent, slot=slot, producer="stranger"))
        done = builder.point_after(blocks[-1]).work
    return blocks
