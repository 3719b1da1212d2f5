"""docs/own-network.md, typed as it stands: the ten minutes, an invitation, and what to do before real people use it."""

import re
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.process_level.founding import FAST
from tests.process_level.pages import ROOT, section
from tests.process_level.running import BIN, DEADLINE, ENVIRONMENT, free_port, wait_until
from tests.programs import needs

PAGE: Final = "docs/own-network.md"
PASSWORD: Final = "tunnel-vehicle-marble-9"
PORTS: Final = ("18651", "18652", "18653", "8080")
_SHELL: Final = re.compile(r"^( *)```sh\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INDENTED: Final = re.compile(r"(?:^    \S.*\n(?:^ {4,}.*\n)*)", re.MULTILINE)


def indented(heading: str) -> list[str]:
    """The indented blocks of a section, in order."""
    return [textwrap.dedent(block) for block in _INDENTED.findall(section(PAGE, heading))]


def chapter() -> str:
    """What the chapter "Before real people use it" tells to type, in order."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    whole = text.split("\n## Before real people use it\n")[1].split("\n## ")[0]
    return "".join(textwrap.dedent(block) for _, block in _SHELL.findall(whole))


class Terminals:
    """Where the nodes of the page run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {port: str(free_port()) for port in PORTS}
        self.started: list[subprocess.Popen[bytes]] = []

    def typed(self, commands: str) -> str:
        """The commands with the ports of this test."""
        return re.sub("|".join(PORTS), lambda port: self.ports[port[0]], commands)

    def run(self, commands: str) -> str:
        """What is printed; nothing may fail."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.typed(commands)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=ENVIRONMENT | {"SVC_WALLET_PASSWORD": PASSWORD},
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 0, (commands, done.stdout, done.stderr)
        return done.stdout

    def start(self, command: str) -> None:
        """A node in a terminal of its own, which asks for no password."""
        with (self.folder / f"node-{len(self.started)}.log").open("ab") as log:
            self.started.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {self.typed(command)}"],
                    cwd=self.folder,
                    env=ENVIRONMENT,
                    stdout=log,
                    stderr=log,
                )
            )

    def stop(self) -> None:
        """Press Ctrl-C in each."""
        for process in self.started:
            process.terminate()
        assert [process.wait(DEADLINE) for process in self.started] == [0] * len(self.started)
        self.started.clear()
        for path in self.folder.glob("node-*.log"):
            assert "Traceback" not in path.read_text()


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    terminals = Terminals(tmp_path)
    yield terminals
    terminals.stop()


@pytest.mark.socket
@pytest.mark.slow
@pytest.mark.deadline(400)
@needs("bash", "date", "grep", "mkdir", "openssl")
def test_the_ten_minutes_and_the_chapter_after_them_twice(terminals: Terminals, tmp_path: Path) -> None:
    """All is typed, the nodes are ended, and all is typed again: the network goes on, and another order is paid."""
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text(f"{PASSWORD}\n")
    orders = [pass_through(terminals, tmp_path, password), pass_through(terminals, tmp_path, password)]
    assert len(set(orders)) == 2


def pass_through(terminals: Terminals, folder: Path, password: Path) -> str:
    """Type everything once, and end the nodes; gives the reference of the order that was paid."""
    path, keys, file, nodes, wallets = indented("## Ten minutes with three terminals")
    assert path.startswith("export PATH=")
    first = not (folder / "anna").exists()
    told = terminals.run(re.sub("(key new .*)", rf"\1 --password-file {password}", keys))
    if first:
        anna, bert = re.findall("^address +(svc1q.*)$", told, re.MULTILINE)
        file = file.replace("ANNA", anna).replace("BERT", bert)
    terminals.run(file.replace("--slots-per-block 2", FAST).rstrip("\n"))
    for command in nodes.replace("\\\n", "").splitlines():
        if not command.startswith("twistd"):
            terminals.run(command)
            continue
        unlock = "" if "--data-dir=shop" in command else f" --set=participation.keyPasswordFile={password}"
        if "--data-dir=shop" in command and not first:
            unlock = f" --set=participation.keyPasswordFile={folder / 'shop-password'}"
        terminals.start(f"{BIN}/{command}{unlock}")

    def height() -> int:
        told = terminals.run("svc --url http://127.0.0.1:18653 status 2>/dev/null || true")
        return int((re.findall("^height +(.*)$", told, re.MULTILINE) or ["0"])[0])

    wait_until(lambda: height() >= 2, "the shop's node")
    begun = height()
    wait_until(lambda: height() >= begun + 2, "blocks of both at the shop")
    wallets = wallets.replace("wallet new", "wallet new --words-to words")
    wallets = wallets.replace(
        "--secret-file shop-secret &", "--listen 127.0.0.1:8080 --secret-file shop-secret >heard &"
    )
    wallets = re.sub(r"(svc wallet pay .*)", r"\1 --yes", wallets)
    paid = "until grep -q payment.confirmed heard; do sleep 0.1; done"
    told = terminals.run(f"trap 'kill $(jobs -p)' EXIT\n{wallets}\n{paid}\necho \"order: $order\"")
    (order,) = re.findall("^order: (.*)$", told, re.MULTILINE)
    heard = re.findall(r"payment\.\w+", (folder / "heard").read_text())
    assert list(dict.fromkeys(heard)) == ["payment.pending", "payment.confirming", "payment.confirmed"]

    (invite,) = indented("## Inviting members")
    assert "You are invited to the network festival" in terminals.run(invite)
    for block in indented("## Changing the producers"):
        assert "fest1q" in terminals.run(f"export SVC_NETWORK=festival.toml\n{block}")

    payout = "svc verify payout-anna $shop 5 --confirmations 2"
    assert payout in chapter()
    wait = f"until {payout} | grep -q '^state *confirmed'; do sleep 0.1; done\n{payout}"
    told = terminals.run(f"order={order}\n{chapter().replace(payout, wait)}")
    assert "You are invited to the network festival" in told
    assert "annas-keys" in {path.name for path in folder.iterdir()}
    assert "others turn" in told
    assert "the node makes no blocks" in told
    assert len(re.findall("^state +confirmed$", told, re.MULTILINE)) >= 2
    assert "payout-anna" in (folder / "payouts.csv").read_text()
    terminals.stop()
    return order
