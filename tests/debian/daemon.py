"""A day of the daemon on a fresh Debian, with systemd: https without a proxy, a renewed certificate, a merchant more, a
rotated log, a stop under load while PostgreSQL is away and a receiver hangs, and a port of root's without systemd's
help. `make debian` runs it.

What differs from docs/operations.md is what differs in tests/debian/story.py; and PostgreSQL is on the same machine.
"""

import json
import shutil

from tests.debian import page
from tests.debian.story import PASSWORD, SVC, URL, Operator, install_node, network, operator
from tests.process_level.running import RunningNode

__all__ = ["network", "operator"]

STOP_SECONDS = 15
CERTIFICATE = "openssl s_client -connect node.example.org:443 -servername node.example.org </dev/null 2>/dev/null"
SERIAL = f"{CERTIFICATE} | openssl x509 -noout -serial"
HANGS = """
import socket, time
listening = socket.create_server(("127.0.0.1", 9444))
held = []
while True:
    held.append(listening.accept())
"""
LOAD = f"""
import threading, urllib.request
def ask():
    while True:
        try:
            urllib.request.urlopen("{URL}/rpc/status", timeout=10).read()
        except OSError:
            pass
for _ in range(8):
    threading.Thread(target=ask).start()
"""


def https_without_proxy(operator: Operator) -> None:
    """The page's commands, without certbot."""
    operator.types("systemctl disable --now nginx.service")
    (commands,) = page.commands("### Without a proxy")
    operator.types("\n".join(line for line in commands.splitlines() if not line.startswith("certbot")))
    operator.waits("ready", operator.is_ready)
    assert operator.status()["endpoint"] == URL
    assert "nginx" not in operator.types(f"curl --silent --fail --include {URL}/rpc/status")


def renew(operator: Operator) -> None:
    """The authority signs another certificate; the hook is all that happens, and the node is the same process."""
    before, process = operator.machine.run(SERIAL), operator.unit("MainPID")
    operator.types(
        "cd /root/authority && openssl x509 -req -in request.pem -CA authority.crt -CAkey authority.key -days 8"
        " -extfile extensions -out certificate.pem && cat certificate.pem authority.crt >fullchain.pem"
        " && install -m 640 -g svcd privkey.pem fullchain.pem /etc/svcd/tls/"
    )
    operator.waits("the new certificate", lambda: operator.machine.run(SERIAL) != before, seconds=120)
    assert operator.unit("MainPID") == process
    assert "the certificate /etc/svcd/tls/fullchain.pem has been renewed" in operator.machine.run("journalctl -u svcd")


def add_merchant(operator: Operator) -> None:
    """Its secrets are files of the node's user: a credential of systemd is copied at the start only."""
    operator.types(
        "for name in token secret; do (umask 077; head -c 32 /dev/urandom | base64 -w0 >/root/music.$name)\n"
        "  install -m 600 -o $(stat -c %u /var/lib/svcd/) /root/music.$name /var/lib/svcd/music.$name; done\n"
        'printf \'[[commerce.merchants]]\\nname = "music"\\ntokenFile = "music.token"\\n'
        'signingSecretFile = "music.secret"\\n\' >>/etc/svcd/svcd.toml'
    )
    asked = f"svc webhook list --token-file /root/music.token --url {URL}"
    assert "Error: " in operator.machine.run(f"{asked} 2>&1 || true")
    process = operator.unit("MainPID")
    operator.types("systemctl reload svcd.service")
    operator.waits("the merchant", lambda: "Error: " not in operator.machine.run(f"{asked} 2>&1 || true"))
    assert operator.unit("MainPID") == process


def rotate_log(operator: Operator) -> None:
    """The log is in the journal, which rotates it: the signal ends nothing."""
    process = operator.unit("MainPID")
    operator.types("systemctl kill --signal=USR1 --kill-whom=main svcd.service")
    sentence = "SIGUSR1: the node does not write the log to a file of its own, so there is nothing to rotate"
    operator.waits("the answer in the log", lambda: sentence in operator.machine.run("journalctl -u svcd"))
    assert operator.unit("MainPID") == process


def webhooks_on_postgresql(operator: Operator) -> None:
    """Two orders are watched: the receiver of one works, that of the other takes connections and never answers."""
    machine = operator.machine
    machine.run("DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends postgresql sudo")
    operator.types("/opt/svcd/bin/pip install --quiet '.[postgresql]'")
    create_user, create_database = page.commands("## Webhooks on PostgreSQL", "docs/scaling.md")[0].splitlines()
    operator.types(f"{create_user}\n{create_database}")
    operator.types("sudo -u postgres psql --command \"alter user svcd password 'a-password'\"")
    database = json.dumps("postgresql://svcd:a-password@127.0.0.1/svcd")
    page.edit(machine.root / "etc/svcd/svcd.toml", "commerce.webhooks", "database", database)
    operator.types("chmod 644 /etc/svcd/svcd.toml; systemctl restart svcd.service")
    operator.waits("ready", operator.is_ready)
    (machine.root / "root/hangs.py").write_text(HANGS)
    machine.run("systemd-run --quiet --unit=hangs python3 /root/hangs.py")
    machine.run(
        "systemd-run --quiet --unit=shop svc webhook listen --json --listen 127.0.0.1:9443"
        " --secret-file /etc/credstore/svcd.signing-secret"
        " --tls-cert /root/authority/fullchain.pem --tls-key /root/authority/privkey.pem"
    )


def order(operator: Operator, reference: str, port: int) -> None:
    """Register a watch, and pay it from the founder's coins."""
    address = json.loads(operator.machine.run(f"{SVC} status --json"))["participation"]["address"]
    operator.types(
        f"svc webhook register {reference} {address} 2 --callback https://shop.example.org:{port}/paid"
        f" --token-file /etc/credstore/svcd.manage-token --url {URL}"
    )
    wallet = f"export SVC_WALLET_PASSWORD='{PASSWORD}' SVC_WALLET=/root/wallet.json"
    operator.types(f"{wallet}\nsvc wallet send {address} 2 --reference {reference} --yes --url {URL}")


def watches(operator: Operator) -> str:
    return operator.machine.run(f"svc webhook list --token-file /etc/credstore/svcd.manage-token --url {URL}")


def stop_under_load(operator: Operator) -> None:
    """All at once; the status is clean, and after the next start everything is there."""
    machine = operator.machine
    (machine.root / "root/load.py").write_text(LOAD)
    machine.run("systemd-run --quiet --unit=load python3 /root/load.py")
    order(operator, "order-18", 9444)
    connections = "ss --no-header --tcp state established '( dport = :9444 )' | wc --lines"
    operator.waits("a delivery that hangs", lambda: machine.run(connections).strip() != "0")
    operator.types("systemctl stop postgresql.service")
    operator.waits("the alarm of the database", lambda: not operator.is_ready())
    seconds = float(
        operator.types(
            "begun=$(date +%s.%N); systemctl stop svcd.socket svcd.service; ended=$(date +%s.%N)\n"
            'systemctl stop load.service; awk "BEGIN { print $ended - $begun }"'
        )
    )
    assert seconds < STOP_SECONDS
    assert (operator.unit("Result"), operator.unit("ExecMainStatus"), operator.unit("ExecMainCode")) == (
        "success",
        "0",
        "1",
    )
    operator.types("systemctl start postgresql.service svcd.socket svcd.service")
    operator.waits("ready", operator.is_ready)
    assert all(name in watches(operator) for name in ("order-17", "order-18"))


def port_by_capability(operator: Operator) -> None:
    """The page's capability, in the place of systemd's socket: the port is one that only root may open."""
    machine = operator.machine
    machine.run("useradd --system --create-home --home-dir /var/lib/other other")
    operator.types(
        "systemd-run --quiet --unit=other --uid=other --property=AmbientCapabilities=CAP_NET_BIND_SERVICE"
        " --working-directory=/var/lib/other /opt/svcd/bin/twistd -n --pidfile= svcd --network=devnet"
        " --data-dir=/var/lib/other/data --listen=tcp:81"
    )
    ask = "curl --silent --fail http://127.0.0.1:81/rpc/status || true"
    operator.waits("the node of another user", lambda: '"ok":true' in machine.run(ask))
    operator.types("systemctl stop other; systemctl show --property=Result,ExecMainStatus other")


def test_a_day_of_the_daemon(network: RunningNode, operator: Operator) -> None:
    install_node(operator, network)
    https_without_proxy(operator)
    renew(operator)
    add_merchant(operator)
    rotate_log(operator)
    webhooks_on_postgresql(operator)
    machine = operator.machine
    shutil.copy(network.data_dir / "operator.key", machine.root / "root/founder.key")
    wallet = f"export SVC_WALLET_PASSWORD='{PASSWORD}' SVC_WALLET=/root/wallet.json"
    operator.types(f"{wallet}\nsvc wallet import --operator-key /root/founder.key")
    order(operator, "order-17", 9443)
    operator.waits("payment.pending at the shop", lambda: "payment.pending" in machine.run("journalctl -u shop"))
    stop_under_load(operator)
    port_by_capability(operator)
    assert "Traceback" not in machine.run("journalctl -u svcd --output=cat")
