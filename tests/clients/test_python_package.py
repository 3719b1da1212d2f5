"""`pip install ./clients/python`, as README says, in a virtual environment of its own."""

import ast
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from tests.test_packaging import run

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "python"
PROJECT = tomllib.loads((CLIENT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_imported_packages_are_required() -> None:
    found = set()
    for path in (CLIENT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    names = {"PyNaCl": "nacl", "argon2-cffi": "argon2"}
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["light"]]
    required = {names.get(name, name) for name, _ in (each.split(">=") for each in wanted)}
    assert found - set(sys.stdlib_module_names) - {"svc_pay"} == required


def test_the_licence_is_that_of_svcd() -> None:
    assert (CLIENT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_changelog_names_the_version() -> None:
    assert PROJECT["version"] in (CLIENT / "CHANGELOG.md").read_text(encoding="utf-8")


PROGRAM = """
from svc_pay import (
    DEVNET, AsyncClient, AsyncPayouts, Client, EventName, Journal, Key, Network, Order, Payment, PayoutState, Payouts,
    Quote, RateSource, SqliteJournal, State, WatchEvent, Webhook, order_amount,
    read_network, sign_transfer,
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


@pytest.mark.slow
def test_it_is_installed_with_its_types(tmp_path: Path) -> None:
    # A copy is installed, for setuptools leaves its workings behind.
    shutil.copytree(CLIENT, tmp_path / "clients" / "python", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "./clients/python", cwd=tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    run(python, "-I", "program.py", cwd=tmp_path)
    # Without a configuration file, which would find the sources in place of what was installed.
    checked = ("--strict", "--config-file=", f"--python-executable={python}", "program.py")
    assert run(sys.executable, "-I", "-m", "mypy", *checked, cwd=tmp_path).startswith("Success")
