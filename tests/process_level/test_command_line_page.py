"""The examples of docs/command-line.md, typed twice on one devnet."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.process_level.pages import ROOT
from tests.process_level.running import DEADLINE, ENVIRONMENT, free_port, wait_until
from tests.programs import needs

PAGE: Final = "docs/command-line.md"
TYPED: Final = re.compile(r"^    \$ ((?:.*\\\n)*.*)$", re.MULTILINE)
PASSWORD: Final = "good enough for a devnet"
SHOP: Final = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"


def typed() -> list[str]:
    """The commands of the page after a prompt, in order."""
    return [command.replace("\\\n", "") for command in TYPED.findall((ROOT / PAGE).read_text(encoding="utf-8"))]


class Reader:
    """Types the commands in a folder, in which `svc devnet` runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.devnet = subprocess.Popen(
                ["svc", "devnet", "--port", str(self.port)], cwd=folder, env=ENVIRONMENT, stdout=log, stderr=log
            )
        wait_until(lambda: (folder / "devnet" / "operator.sock").exists(), "a devnet that listens")

    def types(self, command: str, *, status: int = 0) -> str:
        """What is printed."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=ENVIRONMENT
            | {
                "SVCD_URL": self.url,
                "SVCD_DATA_DIR": "devnet",
                "SVC_NETWORK": "devnet",
                "SVC_WALLET_PASSWORD": PASSWORD,
            },
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == status, (command, done.stdout, done.stderr, self.log.read_text())
        return done.stdout

    def listens(self, command: str) -> str:
        """What a command prints that runs until Ctrl-C."""
        out = self.folder / "heard"
        with out.open("wb") as heard:
            listening = subprocess.Popen(command.split(), cwd=self.folder, env=ENVIRONMENT, stdout=heard, stderr=heard)
            wait_until(lambda: "until Ctrl-C" in out.read_text(), "a receiver that listens")
            listening.send_signal(signal.SIGINT)
            assert listening.wait(DEADLINE) == 0
        return out.read_text()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.devnet.send_signal(signal.SIGINT)
    assert reader.devnet.wait(DEADLINE) == 0
    assert "Traceback" not in reader.log.read_text()


@pytest.mark.socket
@pytest.mark.slow
@needs("bash", "cat")
def test_the_examples_can_be_typed_twice(reader: Reader) -> None:
    devnet, faucet, mine, reorganise, export, look, verify, new, send, show, trigger, listen, check = typed()
    assert devnet == "svc devnet"
    for first in (True, False):
        reader.types(f"{new} --words-to words", status=0 if first else 1)
        for command in (faucet, mine):
            reader.types(command)
        assert "replaced 3 blocks by 4 empty ones" in reader.types(reorganise)
        reader.types("svc node mine 1")

        reader.types(f"svc wallet pay 'svc:{SHOP}?amount=2.5&ref=order-1042' --yes")
        reader.types("svc node mine 20")
        reader.types(re.sub(r"20\d\d-11-", "2026-11-", export).replace("--from 2026-11-01 --to 2026-11-30", ""))
        assert ",2.5,0,2.5," in reader.types(look)
        trustless = verify.replace("https://one.example", reader.url).replace("--url https://two.example", "")
        assert re.search(r"^state +confirmed, proved$", reader.types(trustless), re.MULTILINE)

        token = "--token-file devnet/manage-token"
        if first:
            callback = f"--callback http://127.0.0.1:{free_port()}/"
            reader.types(f"svc webhook register order-17 {SHOP} 2.5 --confirmations 3 {callback} {token}")
        printed = reader.types(f"{send} --yes")
        assert re.search("^state +accepted" if first else "^state +in a block", printed, re.MULTILINE), printed
        reader.types("svc node mine 1")
        assert "payment.confirming" in reader.types(show)
        unheard = f"--callback http://127.0.0.1:{free_port()}/"
        reader.types(f"{trigger} {unheard}", status=1)
        assert reader.listens(f"{listen} --listen 127.0.0.1:{free_port()}").startswith("listening on http://127.0.0.1:")

        copy = f"data-{first}"
        reader.types(f"svc node backup {reader.folder}/devnet/{copy}")
        printed = reader.types(check.replace(" data ", f" devnet/{copy} "))
        assert re.search(r"^headers +\d+ valid, from block 1 on$", printed, re.MULTILINE)
