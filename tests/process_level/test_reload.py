"""SIGHUP, `svc node reload` and SIGUSR1: merchants, limits, log and certificates change while the node runs."""

import os
import signal
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.chains import address_of
from tests.process.certificate_files import CertificateFiles
from tests.process_level.conftest import Nodes
from tests.process_level.running import BIN, ENVIRONMENT, RunningNode, exchange, free_port, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.socket, pytest.mark.deadline(180)]

PATH = "/rpc/commerce/webhooks"
OLD, NEW, MUSIC = "t-old" * 8, "t-new" * 8, "t-music" * 8


class Configured:
    """A configuration file with merchants, and the node that runs with it."""

    def __init__(self, nodes: Nodes) -> None:
        self.folder = nodes.folder
        self.file = nodes.folder / "svcd.toml"
        self.secret("books-secret", "s-books" * 8)
        self.secret("music-secret", "s-music" * 8)
        self.secret("books-token", OLD)
        self.secret("music-token", MUSIC)
        self.write(self.merchant("books"))
        options = (f"--config={self.file}", "--network=devnet", "--set=participation.onDemand=true")
        self.node: RunningNode = nodes.start(*options)

    def secret(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(content)
        return path

    def merchant(self, name: str, more: str = "") -> str:
        files = f'tokenFile = "{self.folder}/{name}-token"\nsigningSecretFile = "{self.folder}/{name}-secret"'
        return f'[[commerce.merchants]]\nname = "{name}"\n{files}\n{more}\n'

    def write(self, *merchants: str) -> None:
        hooks = '[commerce.webhooks]\nenabled = true\ncallbackNetworks = ["127.0.0.1/32", "::1/128"]\n'
        self.file.write_text("\n".join([*merchants, hooks]))

    def status(self, token: str) -> int:
        return exchange(self.node.connection(), "GET", PATH, Authorization=f"Bearer {token}").status

    def reload(self) -> subprocess.CompletedProcess[str]:
        return reload(self.folder / "data")

    def hang_up(self) -> None:
        os.kill(self.node.process.pid, signal.SIGHUP)


def reload(data_dir: Path) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "svc"), "node", "reload", "--data-dir", str(data_dir)]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=60)


def certificate_of(port: int) -> str:
    """The certificate that a server shows, as PEM."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=60)


def test_certificates_limits_and_the_level_change_without_a_restart(nodes: Nodes) -> None:
    files, port, file = CertificateFiles(nodes.folder / "tls"), free_port(), nodes.folder / "svcd.toml"
    file.write_text("")
    own = f"--config={file}", f"--set=p2p.listen={files.endpoint(port)}"
    node = nodes.start("--network=devnet", "--set=participation.onDemand=true", *own)
    assert certificate_of(port) == files.signed.pem.decode()
    files.write(days=10)
    limits = "[limits]\nrequestsPerSecond = 1\nburstSeconds = 1\n"
    file.write_text(f"{limits}[log]\nlevel = 'debug'\n[p2p]\noutbound = 3\n")
    told = reload(node.data_dir)
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines() == [
        "set [limits] requestsPerSecond",
        "set [limits] burstSeconds",
        "set [log] level",
        f"renewed {files.certificate}",
        "restart the node to change [p2p] outbound",
    ]
    assert certificate_of(port) == files.signed.pem.decode()
    alarm = f"the certificate {files.certificate} ends in less than 14 days: renew it"
    assert node.logged(alarm)
    assert 429 in [exchange(node.connection(), "GET", "/rpc/consensus").status for _ in range(20)]

    files.certificate.write_text("no certificate")
    refused = reload(node.data_dir)
    assert refused.returncode == 1
    assert "nothing has changed: " in refused.stderr
    assert "must be a key and its certificate in PEM" in refused.stderr
    assert certificate_of(port) == files.signed.pem.decode()
    os.kill(node.process.pid, signal.SIGUSR1)
    assert node.logged("SIGUSR1: the node does not write the log")
    # The log has the warning of the alarm.
    node.terminate()
    assert node.wait_ended() == 0


def test_merchants_change_without_a_restart(nodes: Nodes) -> None:
    configured = Configured(nodes)
    assert (configured.status(OLD), configured.status(NEW), configured.status(MUSIC)) == (200, 401, 401)
    body = {
        "recipient": address_of("shop", "svcd"),
        "amount": "1",
        "reference": "order-1",
        "callbackUrl": "https://localhost:44443/",
    }
    registered = exchange(configured.node.connection(), "POST", PATH, body, Authorization=f"Bearer {OLD}")
    assert registered.status == 201

    configured.secret("books-token", NEW)
    configured.secret("books-old", OLD)
    previous = f'previousTokenFile = "{configured.folder}/books-old"\npreviousTokenUntil = "2999-01-01T00:00:00Z"'
    configured.write(configured.merchant("books", previous), configured.merchant("music"))
    told = configured.reload()
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines() == ["added music", "changed books: token, previousToken"]
    assert (configured.status(OLD), configured.status(NEW), configured.status(MUSIC)) == (200, 200, 200)

    configured.write(configured.merchant("music"))
    configured.hang_up()
    wait_until(lambda: configured.status(NEW) == 401, "the removal of a merchant")
    assert (configured.status(OLD), configured.status(MUSIC)) == (401, 200)
    assert configured.node.logged("removed books (active webhooks, which continue: 1; webhooks with events")

    (configured.folder / "books-token").chmod(0o644)
    configured.write(configured.merchant("books"), configured.merchant("music", "tokenfile = 7"))
    refused = configured.reload()
    assert refused.returncode != 0
    assert "nothing has changed: " in refused.stderr
    assert "did you mean tokenFile?" in refused.stderr
    configured.write(configured.merchant("books"))
    configured.hang_up()
    assert configured.node.logged("is open to others (mode 0644)")
    assert (configured.status(NEW), configured.status(MUSIC)) == (401, 200)

    (configured.folder / "books-token").chmod(0o600)
    configured.hang_up()
    wait_until(lambda: configured.status(NEW) == 200, "the merchant's return")
    page = exchange(configured.node.connection(), "GET", PATH, Authorization=f"Bearer {NEW}")
    assert [each["reference"] for each in configured.node.ok(page)["subscriptions"]] == ["order-1"]
    assert configured.status(MUSIC) == 401
