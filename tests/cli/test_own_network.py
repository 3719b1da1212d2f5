"""svc on a network of one's own, from its file: addresses, keyfiles, transfers, and what is refused."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve
from twisted.internet.task import Clock

from svcd.chain.address import encode_address
from svcd.chain.params import NetworkParams, ProducerChange
from svcd.config.network_file import render_network_file
from svcd.keyfile import parse, unseal
from svcd.seed_file import SeedKind, render_seed
from tests.chains import COIN, FESTIVAL, key_of
from tests.cli.terminal import KEYFILE, OTHER, PASSWORD, Fixed, Terminal, site_of
from tests.rpc.conftest import public_client
from tests.rpc.node import Node, Settings

KNOWN = {"SVC_WALLET_PASSWORD": PASSWORD}
FEST = {**KNOWN, "SVC_NETWORK": "festival.toml"}
ALICE = encode_address(key_of("alice").hash, "fest")


@pytest.fixture
def festival(terminal: Terminal) -> NetworkParams:
    """A network with an easy target, in festival.toml, on which alice has coins; and fete.toml with other rules."""
    params = evolve(
        FESTIVAL,
        unit="Token",
        allocations=((ALICE, 100 * COIN),),
    )
    (terminal.folder / "festival.toml").write_text(render_network_file(params))
    other = evolve(params, name="fete", network_id=4712, chain_id="FETE", address_prefix="fete", allocations=())
    (terminal.folder / "fete.toml").write_text(render_network_file(other))
    return params


@pytest.fixture
def node(tmp_path: Path, clock: Clock, terminal: Terminal, festival: NetworkParams) -> Iterator[Node]:
    """A node of the network behind the terminal."""
    node = Node(tmp_path / "chain.sqlite", clock, Settings(params=festival))
    terminal.public.site = node.public
    terminal.operator.site = node.operator
    yield node
    node.close()


def test_a_wallet_of_a_network_says_so(terminal: Terminal, festival: NetworkParams) -> None:
    for number, words in enumerate((("wallet", "new", "--network", "festival.toml"), ("wallet", "new"))):
        env = KNOWN if "--network" in words else FEST
        told = terminal.ok(*words, "--keyfile", f"{number}.json", env=env).out
        assert "network  festival\n" in told
        content = json.loads((terminal.folder / f"{number}.json").read_bytes())
        assert content["network"] == festival.genesis_hash.hex()
        assert content["address"].startswith("fest1q")
    address = terminal.ok("--network", "festival.toml", "wallet", "address", "--keyfile", "0.json").out.strip()
    assert address == content["address"]
    words = ("wallet", "address", "--keyfile", "0.json")
    assert terminal.ok(*words, "--network", "festival.toml").out.strip() == address
    assert "the key is for another network" in terminal.failure(*words, "--network", "devnet", env=FEST)


def test_the_words_of_a_wallet_make_the_key_of_a_producer(terminal: Terminal, festival: NetworkParams) -> None:
    """A member needs an address before the file of the network exists."""
    terminal.ok("wallet", "new", "--words-to", "words", env=KNOWN)
    before = parse((terminal.folder / "wallet.json").read_bytes())
    words = ("wallet", "import", "--words-from", "words", "--keyfile", "operator.key")
    terminal.ok(*words, env=FEST)
    after = parse((terminal.folder / "operator.key").read_bytes(), (festival,))
    assert (after.public_key, after.params) == (before.public_key, festival)
    found = terminal.ok("node", "key", "address", "--data-dir", ".", "--network", "festival.toml").out.strip()
    assert found == after.address != before.address


def test_a_producer_whose_key_is_older_than_the_file_can_spend_the_rewards(
    terminal: Terminal, festival: NetworkParams
) -> None:
    """`svc node key new` shows no words, so the keyfile itself must do."""
    password = terminal.folder / "password"
    password.touch(0o600)
    password.write_text(PASSWORD)
    terminal.ok("node", "key", "new", "--data-dir", ".", "--password-file", "password")
    before = parse((terminal.folder / "operator.key").read_bytes())
    told = terminal.ok("wallet", "import", "--from", "operator.key", env=FEST).out
    after = parse((terminal.folder / "wallet.json").read_bytes(), (festival,))
    assert (after.public_key, after.params) == (before.public_key, festival)
    assert f"network  {festival.name}\n" in told
    assert unseal(after, PASSWORD) == unseal(before, PASSWORD)
    assert terminal.ok("node", "key", "address", "--data-dir", ".", env=FEST).out.strip() == after.address
    assert terminal.ok("node", "key", "address", "--data-dir", ".").out.strip() == before.address


def test_a_keyfile_needs_the_file_of_its_network(terminal: Terminal, festival: NetworkParams) -> None:
    terminal.ok("wallet", "new", env=FEST)
    assert terminal.failure("wallet", "address", env=KNOWN) == (
        f"wallet.json: the key is for another network, whose genesis hash is {festival.genesis_hash.hex()}: name the"
        " file of that network with --network or SVC_NETWORK"
    )
    assert "the key is for another network, whose genesis hash is" in terminal.failure(
        "--network", "fete.toml", "wallet", "address", env=KNOWN
    )
    (terminal.folder / "wallet.json").write_bytes(KEYFILE)
    (terminal.folder / "wallet.json").chmod(0o600)
    assert terminal.failure("wallet", "address", env=FEST) == (
        "wallet.json is a keyfile for devnet, and not for festival: choose another wallet with --keyfile, or copy its"
        " key for festival with svc wallet import --from"
    )


def test_a_changed_file_is_refused_by_every_command(terminal: Terminal, festival: NetworkParams) -> None:
    file = terminal.folder / "festival.toml"
    file.write_text(file.read_text().replace('minimumFee = "0.0001"', 'minimumFee = "0.0002"'))
    assert "with another rule it is another network" in terminal.failure("status", env=FEST)
    assert "with another rule it is another network" in terminal.failure("wallet", "new", env=FEST)


def test_coins_are_sent_and_seen(terminal: Terminal, node: Node) -> None:
    seed = terminal.folder / "seed"
    seed.touch(0o600)
    seed.write_bytes(render_seed(key_of("alice").seed, SeedKind.BLOCK))
    terminal.ok("wallet", "import", "--operator-key", "seed", env=FEST)
    assert terminal.ok("balance", ALICE, env=FEST).out.splitlines()[1] == "balance     100 Token"
    told = terminal.ok("balance", ALICE, "--network", "festival.toml").out
    assert told == terminal.ok("balance", ALICE, env=FEST).out
    told = terminal.misuse("balance", ALICE)
    assert told.endswith("svcd1q on devnet; for another network name its file with --network")
    assert "FESTIVAL (network id 4711)" in terminal.ok("status", env=FEST).out
    assert "hash  " in terminal.ok("block", 0, env=FEST).out
    assert "is on network 4711, which svc does not know" in terminal.failure("block", 0)
    bob = encode_address(key_of("bob").hash, "fest")
    terminal.clock.advance(node.params.slot_time(5) / 1000 - terminal.clock.seconds())
    assert "FESTIVAL (festival)" in terminal.ok("wallet", "send", bob, "2.5", "--yes", env=FEST).err
    assert bob in terminal.ok("wallet", "history", env=FEST).out
    for command in (("wallet", "send", OTHER, "1", "--yes"), ("balance", OTHER)):
        assert terminal.misuse(*command, env=FEST).endswith(
            "an address begins with fest1q on festival; for another network name its file with --network"
        )


def test_where_producers_are_listed_they_undo_payments_and_not_computing(
    terminal: Terminal, node: Node, festival: NetworkParams
) -> None:
    producers = tuple(encode_address(key_of(name).hash, "fest") for name in ("alice", "bob", "carol"))
    change = ProducerChange(height=5, producers=producers[:2])
    listed = evolve(festival, producers=producers, changes=(change,))
    (terminal.folder / "listed.toml").write_text(render_network_file(listed))
    node.grow("genesis: a[1..4]\na2 pays 5000000 from alice to bob for order-1")
    words = ("verify", "order-1", producers[1], "0.05")
    told = terminal.ok(*words, env=FEST).out
    assert re.search(r"^to undo +[0-9]+ hashes, ", told, re.MULTILINE)
    assert "confirmations" in terminal.ok("confirmations", 5, env=FEST).out

    payment = terminal.ok(*words, "--json", env=FEST).out
    status = public_client(node).ok("/rpc/status")["status"] | {"genesisHash": listed.genesis_hash.hex()}
    answers = {"order-1": (200, f'{{"ok":true,"payment":{payment}}}'.encode())}
    answers["status"] = (200, json.dumps({"ok": True, "status": status}).encode())
    terminal.public.site = site_of(Fixed(**answers), terminal.clock)
    told = terminal.ok(*words, "--network", "listed.toml").out
    assert re.search(r"^to undo +2 of the 2 producers together$", told, re.MULTILINE)
    assert terminal.failure("confirmations", 5, "--network", "listed.toml") == (
        "on festival computing undoes no payment: 2 of the 2 producers together undo any, however deep;"
        " `svc help own-network` says how many confirmations are enough"
    )


def test_a_proof_is_of_the_network_that_is_named(terminal: Terminal, node: Node) -> None:
    node.grow("genesis: a[1..4]\na2 pays 5000000 from alice to bob for order-1")
    bob = encode_address(key_of("bob").hash, "fest")
    path = f"/rpc/commerce/payment/order-1/proof?recipient={bob}&amountBaseUnits=5000000"
    (terminal.folder / "proof.json").write_bytes(public_client(node).get(path).body)
    words = ("verify", "--proof", "proof.json")
    told = terminal.ok(*words, "--network", "festival.toml").out
    assert re.search(r"^network +FESTIVAL$", told, re.MULTILINE)
    assert re.search(rf"^recipient +{bob}$", told, re.MULTILINE)
    assert "network        FESTIVAL\n" in terminal.ok(*words, env=FEST).out
    for network, chains in (("", "SVC-MAINNET or SVC-DEVNET"), ("devnet", "SVC-DEVNET"), ("fete.toml", "FETE")):
        assert terminal.failure(*words, env={"SVC_NETWORK": network}) == (
            f"the proof is for another network; without the network's file it must be for {chains}"
        )


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("block", 0),
        ("tx", "ab" * 32),
        ("balance", "ADDRESS"),
        ("wallet", "send", "ADDRESS", 1, "--yes"),
        ("wallet", "history"),
        ("export", "ADDRESS"),
        ("pay-request", "ADDRESS", 1),
        ("verify", "order-1", "ADDRESS", 1),
        ("webhook", "list", "--token-file", "token"),
    ],
    ids=lambda words: " ".join(map(str, words[:2])),
)
def test_a_node_of_another_network_is_refused(
    terminal: Terminal, festival: NetworkParams, node: Node, words: tuple[object, ...]
) -> None:
    """Though it has the same chain id, network id and prefix; and it gets no token."""
    twin = evolve(festival, name="twin", minimum_fee=2 * festival.minimum_fee)
    (terminal.folder / "twin.toml").write_text(render_network_file(twin))
    env = {**KNOWN, "SVC_NETWORK": "twin.toml"}
    terminal.ok("wallet", "new", env=env)
    token = terminal.folder / "token"
    token.touch(0o600)
    token.write_text("t" * 40)
    told = terminal.failure(*(ALICE if word == "ADDRESS" else word for word in words), env=env)
    assert told == (
        f"the node at http://127.0.0.1:8645 is on FESTIVAL with the genesis hash {festival.genesis_hash.hex()}, not on"
        f" twin with {twin.genesis_hash.hex()}: give a node of twin with --url, or another network with --network"
    )


def test_a_wallet_refuses_a_node_of_another_network(terminal: Terminal, node: Node, wallet: Path) -> None:
    """Without --network too: the keyfile says which one it is of."""
    assert terminal.failure("wallet", "send", OTHER, 1, "--yes", env=KNOWN) == (
        "the node is on the network FESTIVAL, which svc does not know; it knows SVC-MAINNET, SVC-DEVNET, and another"
        " from its file (--network)"
    )


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("missing.toml", "missing.toml: the network file cannot be read: No such file or directory"),
        (
            "broken.toml",
            "broken.toml, line 19: [rules] slotSeconds = 0: must be an integer from 1 to 600, without quotes",
        ),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(
    terminal: Terminal, festival: NetworkParams, file: str, told: str
) -> None:
    broken = render_network_file(festival).replace("slotSeconds = 1", "slotSeconds = 0")
    (terminal.folder / "broken.toml").write_text(broken)
    for words in (("--network", file, "status"), ("wallet", "new", "--network", file)):
        assert terminal.failure(*words, env=KNOWN) == told
    assert terminal.failure("status", env={"SVC_NETWORK": file}) == told
