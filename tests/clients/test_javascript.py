"""The JavaScript client as `npm pack` makes it: its tests, types and README's examples, and a story on a devnet."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.difficulty import target_at
from svcd.chain.params import NetworkParams
from svcd.chain.state_root import state_root
from svcd.chain.transition import genesis_accounts
from tests.browser.between import between
from tests.browser.chain import FAUCET, SHOP, Chain, fresh
from tests.chains import COIN, key_of
from tests.clients.conftest import devnet, in_forms
from tests.clients.forged_proofs import forge
from tests.clients.own_network import FESTIVAL, NODE, NOW, OPEN, OTHER, address, as_json, networks, opened, shown
from tests.process_level.pages import ROOT, blocks_of
from tests.process_level.running import BIN, DEADLINE, RunningNode
from tests.programs import NODE_OPTIONS, needs, program

CLIENT = ROOT / "clients" / "javascript"
TESTS = Path(__file__).parent / "js"
TYPESCRIPT, NODE_TYPES = "typescript@5.9.3", "@types/node@20.19.25"
HASH_WASM = "hash-wasm@4.13.0"
VECTORS = ROOT / "tests" / "vectors" / "svc_protocol.json"
SETTINGS = ["--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module", "nodenext", "--types", "node"]

LIGHT = """
import { Client, concerns, parseNetwork, type Network, type Order, type WatchEvent } from "svc-pay";
import { provenBalance, provenPayment, verifyChain } from "svc-pay/light";

export async function onNetwork(text: string, order: Order, event: WatchEvent): Promise<bigint> {
  const network: Network = await parseNetwork(text);
  const node = new Client("https://node.example", { network });
  const { work } = await verifyChain(node, node.network ?? network);
  const { balance } = await provenBalance([node], order.recipient, { minimumWork: work, network });
  const paid = await provenPayment(node, order, { network });
  // @ts-expect-error: not the text
  new Client("https://node.example", { network: text });
  return concerns(event, order, { network }) ? BigInt(balance) + network.rules.minimumFee + paid.work : 0n;
}
"""


def ran(*command: str, folder: Path, seconds: float = DEADLINE, **variables: str) -> str:
    """Standard output of a program that must succeed."""
    environment = {**os.environ, "no_proxy": "*", "NODE_OPTIONS": NODE_OPTIONS, **variables}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@needs("node")
@pytest.mark.parametrize("file", sorted(TESTS.glob("*.test.mjs")), ids=lambda file: file.name.removesuffix(".test.mjs"))
def test_module(file: Path) -> None:
    told = re.search(
        r"^# pass ([0-9]+)$", ran("node", "--test", "--test-reporter=tap", str(file), folder=ROOT), re.MULTILINE
    )
    assert told
    assert int(told[1]) > 0


@contextmanager
def running(folder: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A program of Node.js, with pipes."""
    process = subprocess.Popen(
        ["node", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "no_proxy": "*", "NODE_OPTIONS": NODE_OPTIONS},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packed client in `node_modules`, as an empty project installs it."""
    npm, folder = program("npm"), tmp_path_factory.mktemp("project")
    [packed] = json.loads(ran(npm, "pack", "--json", str(CLIENT), folder=folder))
    files = {file["path"] for file in packed["files"]}
    sources = {str(path.relative_to(CLIENT)) for path in (CLIENT / "src").rglob("*") if path.is_file()}
    assert files == sources | {"package.json", "README.md", "CHANGELOG.md", "LICENSE"}
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    ran(npm, "install", "--offline", "--no-audit", "--no-fund", f"./{packed['filename']}", folder=folder)
    return folder


@pytest.fixture(scope="module")
def with_argon2id(installed: Path) -> Path:
    """The same folder, with the optional package of the light client."""
    options = ("--no-audit", "--no-fund", "--prefer-offline")
    ran(program("npm"), "install", *options, HASH_WASM, folder=installed)
    return installed


def test_the_licence_is_that_of_svcd() -> None:
    assert (CLIENT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_changelog_names_the_version() -> None:
    version = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))["version"]
    assert version in (CLIENT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_it_needs_no_other_package_and_nothing_of_node_but_files() -> None:
    package = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))
    assert {name for name in package if "dependencies" in name.lower()} == {
        "peerDependencies",
        "peerDependenciesMeta",
    }
    assert package["peerDependenciesMeta"] == {name: {"optional": True} for name in package["peerDependencies"]}
    for path in (CLIENT / "src").rglob("*.*js"):
        text = path.read_text(encoding="utf-8")
        imported = re.findall(r"""(?:from |import\()["']([^"']+)""", text)
        # The package's own entry imports neither, so that browsers never load the files or need Argon2id.
        allowed = {"file-journal.js": ("./", "node:"), "light.js": ("./", *package["peerDependencies"])}.get(
            path.name, ("./",)
        )
        assert all(name.startswith(allowed) for name in imported), path
        files = {"./file-journal.js"} if path.name == "file-orders.js" else set()
        assert not {"./file-journal.js", "./file-orders.js", "./light.js"} & set(imported) - files
        assert not re.search(r"\b(?:require|process|Buffer|window|document)\b[.(]", text), path
        assert max(map(len, text.splitlines())) <= 120, path


def test_the_checks_of_proofs_are_those_of_the_pages() -> None:
    """In a clone by links; in a source distribution, which has none, as copies."""
    modules = list((CLIENT / "src" / "light").iterdir())
    assert len(modules) > 4
    for path in modules:
        assert (ROOT / "svcd" / "pages" / "static" / path.name).read_bytes() == path.read_bytes()


def test_the_words_are_those_of_bip39() -> None:
    spec = find_spec("mnemonic")
    assert spec is not None
    assert spec.origin is not None
    words = (Path(spec.origin).parent / "wordlist" / "english.txt").read_text().split()
    assert (CLIENT / "src" / "words.js").read_text(encoding="utf-8").split("`")[1].split() == words


def test_the_types_of_the_light_client_name_what_it_exports() -> None:
    names = re.compile(r"^export (?:async )?function (\w+)", re.MULTILINE)
    code, types = ((CLIENT / "src" / f"light.{ending}").read_text(encoding="utf-8") for ending in ("js", "d.ts"))
    # What one answer proves is exported for the vectors alone.
    assert set(names.findall(code)) - {"paymentIn"} == set(names.findall(types))


def test_the_types_name_what_is_exported() -> None:
    exported = set()
    for names in re.findall(
        r"^export \{([^}]+)\}", (CLIENT / "src" / "index.js").read_text(encoding="utf-8"), re.MULTILINE
    ):
        exported |= set(re.findall(r"\w+", names))
    types = (CLIENT / "src" / "index.d.ts").read_text(encoding="utf-8")
    assert set(re.findall(r"^export (?:const|class|function) (\w+)", types, re.MULTILINE)) == exported


@pytest.mark.slow
@needs("node", "npm")
def test_the_light_client_says_what_the_vectors_say(with_argon2id: Path) -> None:
    name = "light-vectors.mjs"
    (with_argon2id / name).write_bytes((TESTS / name).read_bytes())
    told = ran("node", "--test", "--test-reporter=tap", name, folder=with_argon2id, SVC_VECTORS=str(VECTORS))
    passed = re.search(r"^# pass ([0-9]+)$", told, re.MULTILINE)
    assert passed
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    cases = sum(len(vectors[part]) for part in ("chainProofs", "accountProofs", "paymentProofs"))
    assert cases > 60
    assert int(passed[1]) > cases


@pytest.mark.socket
@pytest.mark.slow
@needs("node", "npm")
def test_the_examples_of_the_readme_print_what_it_shows(with_argon2id: Path, shop_node: RunningNode) -> None:
    """They do so twice on one devnet."""
    blocks = blocks_of("clients/javascript/README.md", "js", "text")
    assert [block.language for block in blocks] == ["js", "text"] * (len(blocks) // 2)
    assert len(blocks) >= 12
    text = "".join(block.text for block in blocks[::2]).replace("http://127.0.0.1:18645", shop_node.url)
    (with_argon2id / "readme.mjs").write_text(text, encoding="utf-8")
    for name, target in (("devnet", shop_node.data_dir), (".venv", BIN.parent)):
        (with_argon2id / name).symlink_to(target)
    for _ in range(2):
        printed = ran("node", "readme.mjs", folder=with_argon2id, SVCD_URL=shop_node.url)
        assert in_forms(printed) == in_forms("".join(block.text for block in blocks[1::2]))


@pytest.fixture(scope="module")
def with_types(installed: Path) -> Path:
    """The same folder, with the compiler of TypeScript."""
    options = ("--no-save", "--no-audit", "--no-fund", "--prefer-offline")
    ran(program("npm"), "install", *options, TYPESCRIPT, NODE_TYPES, folder=installed)
    return installed


def told_in_typescript(folder: Path, node: RunningNode, name: str, *words: str) -> list[str]:
    """The lines of a program in TypeScript, which asks on some of them for blocks of a devnet."""
    (folder / f"{name}.ts").write_bytes((TESTS / f"{name}.ts").read_bytes())
    ran("node", "node_modules/typescript/bin/tsc", *SETTINGS, f"{name}.ts", folder=folder)
    with running(folder, f"{name}.js", node.url, *words) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            told.append(line.rstrip())
            match told[-1].split():
                case ["mine", count]:
                    node.mine(int(count))
                case ["reorganise", depth]:
                    node.ok(node.operator("/operator/reorganise", {"depth": int(depth)}))
                case _:
                    continue
            process.stdin.write("done\n")
            process.stdin.flush()
        _, errors = process.communicate(timeout=DEADLINE)
    assert (process.returncode, errors) == (0, "")
    return told


@pytest.mark.socket
@pytest.mark.slow
@needs("node", "npm")
def test_a_story_in_typescript(with_types: Path, shop_node: RunningNode) -> None:
    (with_types / "light.ts").write_text(LIGHT, encoding="utf-8")
    ran("node", "node_modules/typescript/bin/tsc", *SETTINGS, "light.ts", folder=with_types)
    secrets = [(shop_node.data_dir / name).read_text().strip() for name in ("manage-token", "signing-secret")]
    assert told_in_typescript(with_types, shop_node, "story", *secrets, FAUCET.seed.hex()) == [
        "mine 2",
        "reorganise 2",
        "payment.confirmed confirmed 2, payment.reorged pending 0",
        "this needs the header Authorization: Bearer <token> with the right token",
    ]


@pytest.mark.socket
@pytest.mark.slow
@needs("node", "npm")
def test_open_orders_in_typescript(with_types: Path, shop_node: RunningNode) -> None:
    assert told_in_typescript(with_types, shop_node, "open-orders", FAUCET.seed.hex()) == [
        "payment.pending pending 0",
        "mine 1",
        "payment.confirming confirming 1",
        "mine 1",
        "payment.confirmed confirmed 2",
        "reorganise 2",
        "payment.reorged pending 0",
        "payment.reorged pending 0",
        "mine 1",
        "payment.confirming confirming 1",
        "mine 1",
        "payment.confirmed confirmed 2",
        "5 true",
    ]


@pytest.mark.socket
@pytest.mark.slow
@needs("node", "npm")
def test_the_light_client_believes_no_node(with_argon2id: Path, shop_node: RunningNode, tmp_path: Path) -> None:
    order, elsewhere = fresh("light"), fresh("elsewhere")
    Chain(shop_node).pay(FAUCET, SHOP, 250_000_000, order)
    shop_node.mine(3)
    name = "light-live.mjs"
    (with_argon2id / name).write_bytes((TESTS / name).read_bytes())
    with devnet(tmp_path) as lighter, between(shop_node) as liar:
        Chain(lighter).pay(FAUCET, SHOP, 250_000_000, elsewhere)
        lighter.mine(1)
        liar.lie = forge
        urls = (shop_node.url, liar.url, lighter.url)
        told = ran("node", name, *urls, SHOP, "250000000", order, elsewhere, folder=with_argon2id)
    assert told == f"proven {shop_node.account(SHOP)['balance']}\n"


@pytest.mark.slow
@needs("node", "npm")
def test_a_network_of_somebodys_own(with_argon2id: Path, tmp_path: Path) -> None:
    """The client says of the nodes in tests/clients/own_network.py what the Python client says of them."""
    name, shop = "own-network.mjs", address("shop")
    (with_argon2id / name).write_bytes((TESTS / name).read_bytes())
    texts = [shown(params, tmp_path) for params in (FESTIVAL, OPEN)]
    words = (name, *texts, NODE, OTHER, shop, key_of("alice").seed.hex(), str(NOW))
    with opened(tmp_path) as world, running(with_argon2id, *words) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told: dict[str, Any] = {}
        for line in process.stdout:
            told = json.loads(line)
            if "url" not in told:
                break
            status, body = world.reply(told["method"], told["url"], told["body"] and told["body"].encode())
            process.stdin.write(json.dumps({"status": status, "body": body.decode()}) + "\n")
            process.stdin.flush()
        _, errors = process.communicate(timeout=DEADLINE)
        assert (process.returncode, errors) == (0, "")
        context = world.nodes[NODE].node_context
        tip, waiting = context.chain_manager.tip, context.transaction_pool.mempool
        state, problem, txid = told.pop("payout")
        assert (state, problem) == ("waiting", None)
        assert waiting.transfer(bytes.fromhex(txid)) is not None
    balance = str(300 * COIN + 5_000_000)
    sentence = (
        f"InvalidAnswer: the node is not on festival: its genesis hash is '{OPEN.genesis_hash.hex()}',"
        f" and that of festival {FESTIVAL.genesis_hash.hex()}"
    )
    assert told == {
        "uri": f"svc:{shop}?amount=5&ref=order-2&confirmations=2",
        "payment": ["confirmed", 10],
        "references": ["order-1"],
        "balance": balance,
        "chain": ["12", str(FESTIVAL.slot_time(tip.slot)), 12],
        "account": [True, balance],
        "proven": ["3", 10],
        "elsewhere": [sentence],
        "signed": 2,
        "genesis": ["0", str(10 * COIN)],
    }


@pytest.fixture(scope="module")
def reading() -> Iterator["subprocess.Popen[str]"]:
    """A program that reads networks."""
    with running(TESTS, "networks.mjs") as process:
        yield process


@pytest.mark.slow
@needs("node")
@given(networks(), st.lists(st.integers(0, 2**53 - 1), max_size=5), st.integers(-(2**40), 2**40))
def test_what_svc_accepts_is_the_same_network(
    reading: "subprocess.Popen[str]", params: NetworkParams, heights: list[int], lag: int
) -> None:
    assert reading.stdin is not None
    assert reading.stdout is not None
    asked = {"text": as_json(params), "heights": [str(height) for height in heights], "lag": str(lag)}
    reading.stdin.write(json.dumps(asked) + "\n")
    reading.stdin.flush()
    root = state_root(genesis_accounts(params).items())
    assert json.loads(reading.stdout.readline()) == {
        "hashes": [each.hex() for each in (params.genesis_hash, params.rules_hash, root)],
        "issued": [str(params.issued_after(height)) for height in heights],
        "producers": [list(params.producers_at(height)) for height in heights],
        "times": [str(params.slot_time(height)) for height in heights],
        "target": str(target_at(params, lag)),
    }
