"""What `pip install` of the Python client gives in a virtual environment of its own: its wheel, and its sources."""

import ast
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import svc_pay

from svcd.chain import params
from tests.process_level.running import RunningNode
from tests.test_packaging import run

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "python"
SHARED = CLIENT / "src" / "svc_pay" / "_svcd"
"""Links to files of svcd."""
PROJECT = tomllib.loads((CLIENT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_imported_packages_are_required() -> None:
    found = set()
    for path in (CLIENT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                found.add(node.module.split(".")[0])
    names = {"PyNaCl": "nacl", "argon2-cffi": "argon2"}
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["light"]]
    required = {names.get(name, name) for name, _ in (each.split(">=") for each in wanted)}
    assert found - set(sys.stdlib_module_names) - {"svc_pay"} == required


def test_the_rules_are_the_files_of_svcd_that_the_client_needs() -> None:
    links = {path.relative_to(SHARED): path for path in SHARED.rglob("*.py") if path != SHARED / "__init__.py"}
    assert {name: path.resolve() for name, path in links.items()} == {name: ROOT / "svcd" / name for name in links}
    assert all(path.is_symlink() for path in links.values())
    program = (
        f"import sys; sys.path.insert(0, {str(CLIENT / 'src')!r}); import svc_pay.light; "
        "print(*(name for name in sys.modules if name.startswith(('argon2', 'svcd', 'svc_pay._svcd'))))"
    )
    loaded = set(run(sys.executable, "-c", program, cwd=ROOT / "docs").split()) - {"svc_pay._svcd"}
    names = {f"svc_pay._svcd.{'.'.join(name.with_suffix('').parts)}" for name in links}
    assert loaded == {name.removesuffix(".__init__") for name in names}


def test_svcd_beside_it_is_another_package() -> None:
    assert svc_pay.DEVNET.rules == svc_pay.chain.Network(svc_pay.DEVNET.rules).rules
    assert type(svc_pay.DEVNET.rules) is not params.NetworkParams
    assert svc_pay.DEVNET.rules.rules == params.DEVNET.rules


def test_the_licence_is_that_of_svcd() -> None:
    assert (CLIENT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_changelog_names_the_version() -> None:
    assert PROJECT["version"] in (CLIENT / "CHANGELOG.md").read_text(encoding="utf-8")


PROGRAM = """
from svc_pay import (
    DEVNET, AsyncClient, AsyncOrders, AsyncPayouts, Client, EventName, Journal, Key, Network, Order, OrderStore, Orders,
    Payment, PayoutState, Payouts, Quote, RateSource, SqliteJournal, SqliteOrders, State, WatchEvent, Webhook,
    order_amount, read_network, sign_transfer,
)
from svc_pay.light import (
    ProvenAccount, ProvenChain, ProvenPayment, check_payment_proof, proven_balance, proven_payment, verify_chain,
)


def sell(node: Client, webhook: Webhook, body: bytes, headers: dict[str, str]) -> str:
    rates = RateSource.function("EUR", lambda: ("0.5", 1), max_age=60)
    quote: Quote = order_amount("2.50", rates.currency, rates.rate())
    order: Order = node.payment_request("svcd1…", quote.amount, reference="order-1").order
    names: list[EventName] = ["payment.confirmed"]
    node.register(order, "https://shop.example.com/paid", events=names)
    paid: Payment = node.wait_for(order, State.CONFIRMED, timeout=60)
    proven: int = check_payment_proof(node.proof(order), order, tip=node.block_hash(3)).confirmations
    event = webhook.verify(body, headers)
    if isinstance(event, WatchEvent) and event.settles(order):
        return f"{event.payment.state.value} {paid.settled} {proven} {event.place[0] + 1}"
    return event.name


async def pay(node: AsyncClient, key: Key) -> str:
    transfer = sign_transfer(key, DEVNET, recipient="svcd1…", amount=5, nonce=0)
    return await node.broadcast(transfer)


class Table:
    def read(self, after: int) -> list[str]:
        return []

    def append(self, sequence: int, entry: str) -> bool:
        return True


async def refund(node: Client, other: AsyncClient, key: Key) -> bool:
    journal: Journal = Table()
    state: PayoutState = Payouts(node, SqliteJournal("a"), key, DEVNET).pay("a", recipient="svcd1…", amount=5).state
    payout = await AsyncPayouts(other, journal, key, DEVNET, confirmations=3).check("a")
    return state is PayoutState.PAID or payout.problem is None


async def follow(node: Client, other: AsyncClient, order: Order) -> int:
    store: OrderStore = SqliteOrders("a")
    orders = Orders(node, order.recipient, store, since_height=7)
    orders.add(order, pay_until=1)
    for event in orders.changes():
        return event.sequence
    async for event in AsyncOrders(other, order.recipient, store).changes():
        return event.payment.amount
    return 0


def believe_nobody(node: Client, order: Order) -> int:
    chain: ProvenChain = verify_chain([node], DEVNET)
    paid: ProvenPayment = proven_payment(node, order, minimum_work=chain.work)
    account: ProvenAccount = proven_balance(node, order.recipient, progress=lambda done, total: None)
    return account.balance + chain.tip.height


def of_a_festival() -> int:
    festival: Network = read_network("festival.toml")
    order = Order("order-1", "fest1q…", 5, network=festival)
    with Client("https://node.example", network=festival) as node:
        account = proven_balance(node, order.recipient, network=order.network)
    return account.balance + festival.rules.slot_time(7)


def wrong(node: Client, webhook: Webhook) -> None:
    Payouts(node, "payouts.sqlite", Key(bytes(32)), DEVNET)  # type: ignore[arg-type]
    AsyncPayouts(node, Table(), Key(bytes(32)), DEVNET)  # type: ignore[arg-type]
    Orders(node, "svcd1…", "orders.sqlite")  # type: ignore[arg-type]
    AsyncOrders(node, "svcd1…", SqliteOrders("a"))  # type: ignore[arg-type]
    order_amount(2.5, "EUR", RateSource.fixed("EUR", 1).rate())  # type: ignore[arg-type]
    RateSource.function("EUR", lambda: 0.5, max_age=60)  # type: ignore[arg-type,return-value]
    Order("order-1", "fest1q…", 5, network="festival.toml")  # type: ignore[arg-type]
    Client("https://node.example", network="festival.toml")  # type: ignore[arg-type]
    node.payment_request("svcd1…", 2.5)  # type: ignore[arg-type]
    node.payment_request("svcd1…", 5, refrence="order-1")  # type: ignore[call-arg]
    node.payment("order-1")  # type: ignore[arg-type]
    proven_balance(AsyncClient("https://node.example"), "svcd1…")  # type: ignore[arg-type]
    webhook.verify("{}", {})  # type: ignore[arg-type]
    webhook.verify(b"{}", {}).payment  # type: ignore[attr-defined]
    node.register(Order("order-1", "svcd1…", 5), "https://shop.example/", events=["paid"])  # type: ignore[list-item]
"""
"""What somebody writes who uses the client, and what the types do not allow."""


def refusal_to_build(folder: Path) -> str:
    build = "from setuptools import build_meta as b; b.build_wheel('..')"
    done = subprocess.run([sys.executable, "-c", build], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert not list(folder.parent.glob("*.whl"))
    return done.stderr


def test_a_copy_of_its_folder_alone_is_not_built(tmp_path: Path) -> None:
    shutil.copytree(CLIENT, tmp_path / "python", symlinks=True)
    sentence = "built in a clone of the whole repository: svc_pay/_svcd/chain/__init__.py is a link"
    assert sentence in refusal_to_build(tmp_path / "python")


def test_a_clone_without_symbolic_links_is_not_built(tmp_path: Path) -> None:
    """Git writes the paths of links as texts there, and the wheel would have those for modules."""
    shutil.copytree(CLIENT, tmp_path / "python", symlinks=True)
    for path in (tmp_path / "python" / "src").rglob("*.py"):
        if path.is_symlink():
            target = str(path.readlink())
            path.unlink()
            path.write_text(target)
    sentence = (
        "svc_pay/_svcd/chain/__init__.py must be a link to a file of svcd, and is a text with the path of that file"
    )
    assert sentence in refusal_to_build(tmp_path / "python")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the source distribution, by their kind."""
    # A copy is built, for setuptools leaves its workings behind.
    folder = tmp_path_factory.mktemp("built")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for part in ("clients/python", "svcd/chain", "svcd/light"):
        shutil.copytree(ROOT / part, folder / part, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "svcd" / "visible_text.py", folder / "svcd")
    build = "from setuptools import build_meta as b; b.build_sdist('..'); b.build_wheel('..')"
    run(sys.executable, "-c", build, cwd=folder / "clients" / "python")
    [wheel], [sdist] = (list((folder / "clients").glob(name)) for name in ("*.whl", "*.tar.gz"))
    return {"wheel": wheel, "sdist": sdist}


def installed(distribution: Path, folder: Path, *, extra: str = "") -> Path:
    """The Python of a new virtual environment that has a distribution of the client."""
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{distribution}{extra}", cwd=folder)
    return python


@pytest.mark.slow
def test_both_distributions_have_the_rules_as_files(built: dict[str, Path]) -> None:
    expected = {f"svc_pay/{path.relative_to(SHARED.parent)}": path.read_bytes() for path in SHARED.parent.rglob("*.py")}
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
        assert {name: wheel.read(name) for name in names if name.endswith(".py")} == expected
        assert set(names) - set(expected) == {"svc_pay/py.typed"}
    with tarfile.open(built["sdist"]) as sdist:
        packed = {member.name.partition("/src/")[2]: member for member in sdist.getmembers()}
        assert all(packed[name].isfile() for name in expected)
        assert {name: opened.read() for name in expected if (opened := sdist.extractfile(packed[name]))} == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_it_is_installed_with_its_types(built: dict[str, Path], tmp_path: Path, kind: str) -> None:
    python = installed(built[kind], tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    run(python, "-I", "program.py", cwd=tmp_path)
    for absent in ("svcd", "argon2"):
        run(python, "-I", "-c", f"import importlib.util as i; assert i.find_spec({absent!r}) is None", cwd=tmp_path)
    # Without a configuration file, which would find the sources in place of what was installed.
    checked = ("--strict", "--config-file=", f"--python-executable={python}", "program.py")
    assert run(sys.executable, "-I", "-m", "mypy", *checked, cwd=tmp_path).startswith("Success")


ORDERS = """
import json
from pathlib import Path

from svc_pay import Order

FILE = Path("orders.json")


def keep(order: Order) -> None:
    told = [order.reference, order.recipient, order.amount, order.confirmations, order.since_height]
    FILE.write_text(json.dumps(told))


def last() -> Order:
    return Order(*json.loads(FILE.read_text()))
"""
SHOP = """
import sys
from hashlib import sha256

from svc_pay import DEVNET, Client, Key, State, parse_amount
from svc_pay.light import check_payment_proof, proven_payment

import orders

url, step = sys.argv[1:]
with Client(url) as node:
    if step == "sell":
        shop = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"
        request = node.payment_request(shop, parse_amount("2.5"), confirmations=2)
        orders.keep(request.order)
        faucet = Key(sha256(b"svc devnet faucet").digest())
        terms = {"recipient": request.order.recipient, "amount": request.order.amount}
        node.broadcast(node.sign(faucet, DEVNET, **terms, reference=request.order.reference))
        print(node.wait_for(request.order, State.PENDING, timeout=60).state)
    else:
        order = orders.last()
        received = node.payments(order.recipient, reference=order.reference)
        print(node.wait_for(order, timeout=60).state, [each.amount for each in received])
        print(proven_payment(node, order).confirmations, check_payment_proof(node.proof(order), order).confirmations)
"""
"""A shop of two files."""


@pytest.mark.slow
@pytest.mark.socket
def test_a_shop_with_the_wheel_is_paid_on_a_devnet(
    built: dict[str, Path], tmp_path: Path, shop_node: RunningNode
) -> None:
    python = installed(built["wheel"], tmp_path, extra="[light]")
    (tmp_path / "orders.py").write_text(ORDERS, encoding="utf-8")
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    assert run(python, "-E", "-s", "shop.py", shop_node.url, "sell", cwd=tmp_path) == "pending\n"
    shop_node.mine(2)
    told = run(python, "-E", "-s", "shop.py", shop_node.url, "deliver", cwd=tmp_path)
    assert told == "confirmed [250000000]\n2 2\n"
