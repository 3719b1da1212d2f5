"""The signers in docs/wallets.md, taken from the page and run as a reader would run them.

Nothing here imports svcd: the page must be enough for somebody who has only the page, and the client that it names.
"""

import ast
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import environ, pathsep
from pathlib import Path

import pytest

from tests.programs import NODE_OPTIONS, needs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "wallets.md").read_text(encoding="utf-8")
NETWORKS = json.loads((ROOT / "tests" / "vectors" / "svc_protocol.json").read_text(encoding="utf-8"))["networks"]
FAUCET = NETWORKS["devnet"]["rules"]["allocations"][0][0]

Values = dict[str, object]
Signer = Callable[[object], subprocess.CompletedProcess[str]]


def block(language: str) -> str:
    """The only code block of a language in the page."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def row(name: str) -> list[str]:
    """The cells in backticks of the only table row with this first cell."""
    (cells,) = re.findall(rf"^\| {name} \|(.*)\|$", PAGE, re.MULTILINE)
    return re.findall(r"`([^`]+)`", cells)


def canonical(value: object) -> str:
    """The canonical JSON of ASCII values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def values_of(network: str, transaction: dict[str, object], seed: str) -> Values:
    """What a signer is told so that it makes ``transaction``."""
    payload = transaction["payload"]
    assert isinstance(payload, dict)
    return {"network": network, "seed": seed} | payload | {n: transaction[n] for n in ("nonce", "fee", "timestamp")}


PROGRAMS = {"python": "sign_transfer.py", "js": "sign_transfer.mjs"}
LANGUAGES = [
    "python",
    pytest.param("js", marks=needs("node")),
]
VECTORS = [
    pytest.param(network, vector, id=f"{network}-{number}")
    for network, content in NETWORKS.items()
    for number, vector in enumerate(content["transactions"])
]
EXAMPLE: Values = json.loads(block("json"))


@pytest.fixture
def signer(request: pytest.FixtureRequest, tmp_path: Path) -> Signer:
    """The program of the page in the language of the parameter, saved as the page says."""
    program = tmp_path / PROGRAMS[request.param]
    program.write_text(block(request.param), encoding="utf-8")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "svc-pay").symlink_to(ROOT / "clients" / "javascript")
    command = [sys.executable, "-I", str(program)] if request.param == "python" else ["node", str(program)]

    def run(values: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            input=json.dumps(values),
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=120,
            check=False,
            env={**environ, "NODE_OPTIONS": NODE_OPTIONS},
        )

    return run


in_both_languages = pytest.mark.parametrize("signer", LANGUAGES, indirect=True)


@in_both_languages
@pytest.mark.parametrize(("network", "vector"), VECTORS)
def test_a_signer_makes_the_vector(signer: Signer, network: str, vector: dict[str, dict[str, object]]) -> None:
    transaction = vector["transaction"]
    (seed,) = [k["seed"] for k in NETWORKS[network]["keys"] if k["publicKey"] == transaction["senderPublicKey"]]
    done = signer(values_of(network, transaction, seed))
    assert (done.returncode, done.stderr) == (0, f"{vector['txid']}\n")
    assert json.loads(done.stdout) == {"transaction": transaction}


@in_both_languages
@pytest.mark.parametrize("network", NETWORKS)
def test_a_signer_derives_every_address(signer: Signer, network: str) -> None:
    for key in NETWORKS[network]["keys"]:
        done = signer(EXAMPLE | {"network": network, "seed": key["seed"], "recipient": key["address"]})
        transaction = json.loads(done.stdout)["transaction"]
        assert transaction["senderPublicKey"] == key["publicKey"]
        assert transaction["senderAddress"] == transaction["payload"]["recipient"] == key["address"]


@in_both_languages
def test_the_extremes_are_signed(signer: Signer) -> None:
    most = str(2**53 - 1)
    values = EXAMPLE | {"amount": most, "fee": most, "nonce": most, "timestamp": "0", "paymentReference": "." * 64}
    transaction = json.loads(signer(values).stdout)["transaction"]
    assert values_of("devnet", transaction, str(values["seed"])) == values
    values |= {"amount": "1", "fee": "10000", "nonce": "0", "timestamp": most, "paymentReference": ":"}
    transaction = json.loads(signer(values).stdout)["transaction"]
    assert values_of("devnet", transaction, str(values["seed"])) == values


REFUSED = [
    ("recipient", "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcq", "recipient is no devnet address"),
    ("recipient", "svc1qqr0t67zeqfa0ed44hudd8s2a88ysuh7ytvpxz4", "recipient is no devnet address"),
    ("recipient", "SVCD1QQR0T67ZEQFA0ED44HUDD8S2A88YSUH7Y0C0QCC", "recipient must be a string of the form"),
    ("amount", "0", "amount must be from 1 to 2^53-1"),
    ("amount", "9007199254740992", "amount must be from 1 to 2^53-1"),
    ("amount", "0100", "amount must be a string of the form"),
    ("amount", 2500000000, "amount must be a string of the form"),
    ("fee", "9999", "fee must be from 10000 to 2^53-1"),
    ("nonce", "1\n", "nonce must be a string of the form"),
    ("timestamp", None, "timestamp must be a string of the form"),
    ("paymentReference", "", "paymentReference must be a string of the form"),
    ("paymentReference", None, "paymentReference must be a string of the form"),
    ("paymentReference", "order 1", "paymentReference must be a string of the form"),
    ("paymentReference", "x" * 65, "paymentReference must be a string of the form"),
    ("paymentRefrence", "order-1", "unknown field"),
    ("network", "testnet", "network must be a string of the form"),
    ("seed", "00", "seed must be a string of the form"),
]


@pytest.mark.parametrize("signer", ["python"], indirect=True)
def test_a_signer_refuses_with_one_sentence(signer: Signer) -> None:
    for name, value, sentence in REFUSED:
        done = signer(EXAMPLE | {name: value})
        assert (done.returncode, done.stdout) == (1, ""), (name, value)
        assert done.stderr.startswith(sentence), (name, value)
        assert done.stderr.count("\n") == 1, (name, value)


@needs("node")
@pytest.mark.parametrize("signer", ["js"], indirect=True)
def test_the_signer_with_the_client_refuses_the_same(signer: Signer) -> None:
    # Without a reference, null is as good as none.
    for name, value, sentence in [case for case in REFUSED if case[:2] != ("paymentReference", None)]:
        done = signer(EXAMPLE | {name: value})
        assert (done.returncode, done.stdout) == (1, ""), (name, value)
        assert "unknown member" in done.stderr if sentence == "unknown field" else len(done.stderr) > 20, (name, value)
        assert done.stderr.count("\n") == 1, (name, value)


@in_both_languages
def test_the_example_is_what_a_signer_makes_of_it(signer: Signer) -> None:
    done = signer(EXAMPLE)
    transaction = json.loads(done.stdout)["transaction"]
    assert row("signature") == [transaction.pop("signature")]
    assert block("text") == canonical(transaction) + "\n"
    assert row("txid") == [done.stderr.strip()]


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_signer_fits_on_a_screen(language: str) -> None:
    lines = block(language).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 120


def test_the_python_signer_needs_only_pynacl() -> None:
    found = set()
    for node in ast.walk(ast.parse(block("python"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    assert found - sys.stdlib_module_names == {"nacl"}


def test_the_javascript_signer_needs_only_node_and_the_client() -> None:
    assert re.findall(r'from "([^"]+)"', block("js")) == ["node:stream/consumers", "svc-pay"]


def test_the_table_of_networks_is_the_vectors() -> None:
    contents = [NETWORKS["mainnet"], NETWORKS["devnet"]]
    rules = [content["rules"] for content in contents]
    assert row("networkId") == [str(rule["networkId"]) for rule in rules]
    assert row("address prefix") == [rule["addressPrefix"] for rule in rules]
    assert row("genesis hash") == [content["genesisHash"] for content in contents]
    assert row("smallest fee in base units") == [rule["minimumFee"] for rule in rules]
    assert row("length of an address") == [str(len(content["keys"][0]["address"])) for content in contents]


class DevnetNode:
    """The three answers of a node that the page's shell commands need, on a free port of this machine."""

    def __init__(self) -> None:
        node = self
        self.asked: list[str] = []
        self.broadcast: dict[str, dict[str, object]] = {}

        class Routes(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                node.asked.append(self.path)
                self._answer({"ok": True, "account": {"nonce": "2", "pendingNonce": "3"}})

            def do_POST(self) -> None:
                node.asked.append(self.path)
                node.broadcast = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer({"ok": True})

            def log_message(self, *_: object) -> None:
                """Say nothing on standard error."""

            def _answer(self, body: object) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Routes)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more and give the port back."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def devnet_node() -> Iterator[DevnetNode]:
    """A node that answers as long as the test runs."""
    node = DevnetNode()
    node.start()
    yield node
    node.stop()


@pytest.mark.socket
@needs("sh", "curl", "sha256sum", "cut", "date", "cat")
def test_the_shell_commands_pay_out_of_the_faucet(devnet_node: DevnetNode, tmp_path: Path) -> None:
    (tmp_path / PROGRAMS["python"]).write_text(block("python"), encoding="utf-8")
    commands = block("sh").replace("http://127.0.0.1:18645", devnet_node.url)
    path = f"{Path(sys.executable).parent}{pathsep}{environ['PATH']}"
    done = subprocess.run(
        ["sh", "-euc", commands],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
        env={"PATH": path, "no_proxy": "*"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    transaction = devnet_node.broadcast["transaction"]
    assert transaction["senderAddress"] == FAUCET
    assert transaction["nonce"] == "3"
    txid = (tmp_path / "txid").read_text(encoding="ascii").strip()
    assert devnet_node.asked == [f"/rpc/balance/{FAUCET}", "/rpc/broadcast", f"/rpc/transaction/{txid}"]
    assert re.fullmatch("[0-9a-f]{64}", txid)
