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
        with (self.folder / f"node-{len(self.started)}.log").open("wb") as log:
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
        for path in self.folder.glob("node-*.log"):
            assert "Traceback" not in path.read_text()


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    terminals = Terminals(tmp_path)
    yield terminals
    terminals.stop()


@pytest.mark.socket
@pytest.mark.slow
@needs("bash", "grep", "mkdir", "openssl")
def test_the_ten_minutes_and_the_chapter_after_them(terminals: Terminals, tmp_path: Path) -> None:
    keys, file, nodes, wallets = indented("## Ten minutes with three terminals")
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text(f"{PASSWORD}\n")

    told = terminals.run(re.sub("(key new .*)", rf"\1 --password-file {password}", keys))
    anna, bert = re.findall("^address +(svc1q.*)$", told, re.MULTILINE)
    file = file.replace("ANNA", anna).replace("BERT", bert).replace("--slots-per-block 2", FAST)
    terminals.run(file.rstrip("\n"))
    for command in nodes.replace("\\\n", "").splitlines():
        if not command.startswith("twistd"):
            terminals.run(command)
            continue
        unlock = "" if "--data-dir=shop" in command else f" --set=participation.keyPasswordFile={password}"
        terminals.start(f"{BIN}/{command}{unlock}")

    def height() -> int:
        told = terminals.run("svc --url http://127.0.0.1:18653 status 2>/dev/null || true")
        return int((re.findall("^height +(.*)$", told, re.MULTILINE) or ["0"])[0])

    wait_until(lambda: height() >= 2, "blocks of both at the shop")
    shop = r"$(svc wallet address --keyfile shop.json)"
    wallets = wallets.replace("svc:SHOP", f"svc:'{shop}'").replace("SHOP", shop)
    wallets = wallets.replace("wallet new", "wallet new --words-to words")
    wallets = wallets.replace(
        "--secret-file shop-secret &", "--listen 127.0.0.1:8080 --secret-file shop-secret >heard &"
    )
    wallets = re.sub(r"(svc wallet pay .*)", r"\1 --yes", wallets)
    paid = "until grep -q payment.confirmed heard; do sleep 0.1; done"
    terminals.run(f"trap 'kill $(jobs -p)' EXIT\n{wallets}\n{paid}")
    heard = re.findall(r"payment\.\w+", (tmp_path / "heard").read_text())
    assert list(dict.fromkeys(heard)) == ["payment.pending", "payment.confirming", "payment.confirmed"]

    (invite,) = indented("## Inviting members")
    assert "You are invited to the network festival" in terminals.run(invite)

    payout = "svc verify payout-anna $shop 5 --confirmations 2"
    assert payout in chapter()
    wait = f"until {payout} | grep -q '^state *confirmed'; do sleep 0.1; done\n{payout}"
    told = terminals.run(chapter().replace(payout, wait))
    assert "You are invited to the network festival" in told
    assert "annas-keys" in {path.name for path in tmp_path.iterdir()}
    assert "others turn" in told
    assert "the node makes no blocks" in told
    assert re.search("^state +confirmed$", told, re.MULTILINE)
    assert "payout-anna" in (tmp_path / "payouts.csv").read_text()
