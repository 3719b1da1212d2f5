"""docs/operations.md, followed on a fresh Debian; `make debian` runs it. It needs root, debootstrap and systemd-nspawn.

Where it differs from the page: certbot's certificate comes from an authority of its own; the network is one node
beside it, on loopback, which makes blocks; and the shop is on the same machine. So the configuration trusts that
authority besides, and allows private addresses.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import frozen

from tests.debian import page
from tests.debian.conftest import FOLDER
from tests.debian.machine import Machine
from tests.process_level.conftest import Nodes
from tests.process_level.pages import ROOT
from tests.process_level.running import RunningNode, free_port, wait_until

URL = "https://node.example.org"
SVC = "svc --data-dir /var/lib/svcd node"
BOTH = "svcd.socket svcd.service"
PASSWORD = "a password for the story"
NAMES = "127.0.0.1 node.example.org shop.example.org."


@frozen
class Operator:
    """Whoever sits at the machine, reads the page and types."""

    machine: Machine
    repository: str = "/root/svcd"

    def types(self, commands: str, *, seconds: float = 600) -> str:
        """Type ``commands`` in the folder of the repository; gives what is printed, and shows both."""
        print(f"\n# {commands.strip()}", flush=True)
        printed = self.machine.run(commands, folder=self.repository, seconds=seconds)
        print("\n".join(printed.splitlines()[-30:]), flush=True)
        return printed

    def waits(self, what: str, come: Callable[[], bool], *, seconds: float = 60) -> None:
        """Try ``come`` until it is true; shows what the node has logged where it does not become so."""
        try:
            wait_until(come, what, seconds=seconds)
        except AssertionError:
            self.types("journalctl --unit=svcd --lines=20")
            raise

    def status(self) -> dict[str, str]:
        """What the node says of itself through the proxy."""
        answer = json.loads(self.machine.run(f"curl --silent --fail {URL}/rpc/status"))
        return {name: str(value) for name, value in answer["status"].items()}

    def is_ready(self) -> bool:
        """Whether /ready says so."""
        ask = "curl --silent --unix-socket /var/lib/svcd/operator.sock http://localhost/ready || true"
        return '"ok":true' in self.machine.run(ask)

    def unit(self, name: str) -> str:
        """A property of the service."""
        return self.machine.run(f"systemctl show --property={name} --value svcd.service").strip()


@pytest.fixture
def network(debian: Path) -> Iterator[RunningNode]:
    """A node of the main network that has made a block; it stays for the next run, for the first takes minutes."""
    nodes, port = Nodes(debian.parent), free_port()
    founder = nodes.start(
        "--set=participation.enabled=true",
        "--set=participation.alone=true",
        "--set=p2p.allowPrivate=true",
        f"--set=http.publicUrl=http://127.0.0.1:{port}",
        name="founder",
        port=port,
    )
    try:
        wait_until(lambda: founder.get("/rpc/status").json["status"]["height"] != "0", "a block", seconds=3600)
        yield founder
    finally:
        nodes.stop()


@pytest.fixture
def operator(debian: Path) -> Iterator[Operator]:
    """At a fresh machine."""
    with Machine.copy(debian, FOLDER / "machine", ROOT) as machine:
        yield Operator(machine)


def prepare(operator: Operator) -> None:
    """Step 1, the clone, and what this machine has instead of certbot's certificate and a name in the world."""
    packages = page.commands(page.STEPS)[0]
    operator.machine.run(f"export DEBIAN_FRONTEND=noninteractive\n{packages}")
    operator.machine.run("git config --global --add safe.directory /source/.git; git clone --quiet /source svcd")
    shutil.copy(Path(__file__).with_name("authority.sh"), operator.machine.root / "root")
    operator.machine.run(f"echo {NAMES} >>/etc/hosts; bash authority.sh")


def configure(operator: Operator, network: RunningNode) -> None:
    """Steps 3 and 5: what the page says is set; the network's URL is another one, and addresses are private."""
    file = operator.machine.root / "etc/svcd/svcd.toml"
    wanted = page.settings(page.STEPS)
    assert {name for name, _ in wanted} == {"http", "p2p", "commerce.webhooks"}
    for (name, key), value in wanted.items():
        page.edit(file, name, key, json.dumps(value))
    page.edit(file, "p2p", "seeds", json.dumps([network.url]))
    page.edit(file, "p2p", "allowPrivate", "true")
    page.edit(file, "commerce.webhooks", "allowPrivateCallbacks", "true")
    page.edit(file, "commerce.webhooks", "extraCaFile", '"/etc/svcd/authority.crt"')


def install_node(operator: Operator, network: RunningNode) -> None:
    """All steps, in their order."""
    prepare(operator)
    _, program, tls, secrets, start, look = page.commands(page.STEPS)
    operator.types(program)
    operator.types("cp /root/authority/authority.crt /etc/svcd/")
    operator.types("\n".join(line for line in tls.splitlines() if not line.startswith("certbot")))
    operator.types(secrets)
    configure(operator, network)
    operator.types(start)
    operator.waits("ready", operator.is_ready)
    assert '"ok":true' in operator.types(look)
    operator.waits("the line of systemctl status", lambda: operator.unit("StatusText").endswith(", ready"))


def pay(operator: Operator, network: RunningNode) -> None:
    """A merchant's order is paid from another computer, and the shop hears of it."""
    machine = operator.machine
    address = json.loads(machine.run(f"{SVC} status --json"))["participation"]["address"]
    machine.run(
        "systemd-run --quiet --unit=shop svc webhook listen --json --listen 127.0.0.1:9443"
        " --secret-file /etc/credstore/svcd.signing-secret"
        " --tls-cert /root/authority/fullchain.pem --tls-key /root/authority/privkey.pem"
    )
    operator.types(
        f"svc webhook register order-17 {address} 2 --callback https://shop.example.org:9443/paid"
        f" --token-file /etc/credstore/svcd.manage-token --url {URL}"
    )
    shutil.copy(network.data_dir / "operator.key", machine.root / "root/founder.key")
    wallet = f"export SVC_WALLET_PASSWORD='{PASSWORD}' SVC_WALLET=/root/wallet.json"
    operator.types(f"{wallet}\nsvc wallet import --operator-key /root/founder.key")
    operator.types(f"{wallet}\nsvc wallet send {address} 2 --reference order-17 --yes --url {URL}")
    operator.waits("payment.pending at the shop", lambda: "payment.pending" in machine.run("journalctl -u shop"))


def test_from_a_fresh_debian_to_a_node_behind_tls_that_tells_shops_and_outlives_everything(
    network: RunningNode, operator: Operator, debian: Path
) -> None:
    install_node(operator, network)
    first = operator.status()
    assert (first["endpoint"], first["chainId"]) == (URL, "SVC-MAINNET")
    assert " 308 " in operator.types("curl --silent --head http://node.example.org/rpc/status")
    pay(operator, network)
    assert "1.2 OK" in operator.types("systemd-analyze security svcd.service | tail -n 1")

    # Killed, hung, restarted under a client, and the power goes: it comes again by itself, and is the same node.
    killed = operator.unit("MainPID")
    operator.types(f"kill -9 {killed}")
    operator.waits("another process", lambda: operator.unit("MainPID") not in (killed, "0") and operator.is_ready())
    hung = operator.unit("MainPID")
    operator.types(f"kill -STOP {hung}")
    operator.waits("the watchdog", lambda: operator.unit("MainPID") not in (hung, "0"), seconds=200)
    operator.waits("ready", operator.is_ready)
    operator.types(f"systemctl restart svcd.service & sleep 0.1; curl --fail --silent {URL}/rpc/status; wait")
    operator.machine.shut_down()
    operator.machine.boot()
    operator.waits("ready", operator.is_ready)
    assert operator.status()["nodeId"] == first["nodeId"]

    monitor(operator)
    upgrade(operator)
    restore(operator)
    logged = operator.machine.run("journalctl -u svcd --output=cat")
    assert "Unable to write" not in logged
    assert "Traceback" not in logged
    move(operator, network, debian)


def monitor(operator: Operator) -> None:
    """Prometheus has the node's metrics and the rules."""
    where = "## Prometheus and Grafana", "docs/monitoring.md"
    file = operator.machine.root / "etc/svcd/svcd.toml"
    for (name, key), value in page.settings(*where).items():
        page.edit(file, name, key, json.dumps(value))
    operator.types(f"export DEBIAN_FRONTEND=noninteractive\n{page.commands(*where)[0]}")
    ask = "curl --silent http://127.0.0.1:9090/api/v1"
    operator.waits(
        "the metrics", lambda: '"value"' in operator.machine.run(f"{ask}/query?query=svcd_chain_height || true")
    )
    assert "SvcdNotSynced" in operator.machine.run(f"{ask}/rules")


def upgrade(operator: Operator) -> None:
    """The page's commands, with a backup before them, and it is the new program that runs."""
    find = "import svcd; print(svcd.__file__)"
    module = operator.machine.run(f"/opt/svcd/bin/python -I -c '{find}'").strip()
    operator.machine.run(f"echo '# an older program' >>{module}")
    before = operator.unit("MainPID")
    operator.types(page.commands("## Backup")[0])
    (commands,) = page.commands("## Upgrading")
    operator.types(commands)
    assert "# an older program" not in operator.machine.run(f"cat {module}")
    assert operator.unit("MainPID") != before
    operator.waits("ready", operator.is_ready)


def restore(operator: Operator) -> None:
    """The chain is put back from the copy of before the upgrade; a copy of the stopped node is made."""
    (copy,) = operator.machine.run("cd /var/backups && ls -d backup-*").split()
    for commands in [*page.commands("### Restoring"), page.commands("## Backup")[1]]:
        operator.types(re.sub("backup-[-0-9]+", copy, commands))
    operator.waits("ready", operator.is_ready)


def move(operator: Operator, network: RunningNode, debian: Path) -> None:
    """Another machine becomes this node."""
    old = operator.status()
    installed, packed, taken_in = page.commands("## Moving to another machine", "docs/storage.md")
    operator.types(packed)
    operator.machine.shut_down()
    with Machine.copy(debian, FOLDER / "other", ROOT) as other:
        there = Operator(other)
        install_node(there, network)
        assert there.status()["nodeId"] != old["nodeId"]
        there.types(installed)
        for secret in (operator.machine.root / "etc/credstore").iterdir():
            shutil.copy(secret, other.root / "etc/credstore")
        shutil.move(operator.machine.root / "root/moving.tar", other.root / "root/moving.tar")
        there.types(taken_in)
        there.waits("ready", there.is_ready)
        assert there.status()["nodeId"] == old["nodeId"]
        assert json.loads(there.machine.run(f"{SVC} status --json"))["webhooks"]["watches"] == 1
