"""The packages of `make deb` on fresh Debian systems, as docs/debian-package.md says; root runs `make test-deb`.

A package with a higher version is the same one, unpacked, changed and packed again.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from release import packages

from svcd.seed_file import SeedKind, render_seed
from tests.debian import page
from tests.debian.conftest import FOLDER
from tests.debian.machine import CommandFailed, Machine
from tests.process_level.pages import ROOT
from tests.process_level.running import wait_until

INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends --quiet=2"
SVC = "svc --data-dir /var/lib/svcd node"
READY = "curl --silent --unix-socket /var/lib/svcd/operator.sock http://localhost/ready || true"
NUMBERS = {"bookworm": 12, "trixie": 13}
HIGHER = "9.0-1"
TYPED_IN_ZSH = r"""
zmodload zsh/zpty
zpty typed 'zsh -fi'
zpty -w typed 'tell() { print -r -- $BUFFER > /root/told; BUFFER=exit; zle accept-line }'
zpty -w typed 'zle -N tell; bindkey "^T" tell; autoload -U compinit; compinit -Du'
zpty -w typed "PS1='typed''here '"
zpty -rm typed seen '*typedhere *'
zpty -nw typed $'svc wallet exp\t\x14'
while zpty -r typed seen; do :; done
cat /root/told
"""


def built(release: str) -> Path:
    """The package of this commit for a release of Debian."""
    folder = packages()
    found = list(folder.glob(f"svcd_*~deb{NUMBERS[release]}_*.deb"))
    assert len(found) == 1, f"{folder} must have the package for {release}: make deb"
    return found[0]


@pytest.fixture
def machine(debian: Path) -> Iterator[Machine]:
    """A fresh machine, with what the tests look with, and with both packages in /root."""
    release = debian.name.removeprefix("fresh-")
    with Machine.copy(debian, FOLDER / "machine", ROOT) as machine:
        machine.run("apt-get --quiet=2 update")
        machine.run(f"{INSTALL} bash-completion curl fish groff lintian man-db mandoc zsh")
        package = machine.root / "root" / "svcd.deb"
        package.write_bytes(built(release).read_bytes())
        machine.run(
            "dpkg-deb --raw-extract svcd.deb higher\n"
            f"sed -i 's/^Version: .*/Version: {HIGHER}/' higher/DEBIAN/control\n"
            "echo '# A setting of the newer version' >>higher/etc/svcd/svcd.toml\n"
            "echo '# newer' >>higher/opt/svcd/lib/python3*/site-packages/svcd/__init__.py\n"
            "dpkg-deb --root-owner-group -Zgzip --build higher higher.deb; rm -r higher"
        )
        yield machine


def unit(machine: Machine, name: str) -> str:
    """A property of the service."""
    return machine.run(f"systemctl show --property={name} --value svcd.service").strip()


def wait_for_ready(machine: Machine) -> None:
    wait_until(lambda: '"ok":true' in machine.run(READY), "ready", seconds=120)


def status(machine: Machine) -> dict[str, str]:
    """What `svc status` says of the node on the public port."""
    answer: dict[str, str] = json.loads(machine.run("svc status --json"))
    return answer


def check_the_package(machine: Machine) -> None:
    """lintian has nothing to say but what the overrides explain; pages render, and shells complete."""
    said = machine.run("lintian --allow-root --fail-on none --display-info svcd.deb")
    assert re.findall("^[EW]: .*|.*unused-override.*", said, re.MULTILINE) == []
    for name in ("svc.1", "svcd.8", "svcd.toml.5"):
        file = f"/usr/share/man/man{name[-1]}/{name}.gz"
        assert machine.run(f"zcat {file} | mandoc -T lint -W warning") == ""
        assert machine.run(f"LC_ALL=C.UTF-8 man --warnings -l {file} 2>&1 >/dev/null") == ""
    assert "svc wallet send RECIPIENT AMOUNT" in machine.run("man svc | col -b")
    assert "trustedProxies = []" in machine.run("man svcd.toml | col -b")
    bash = ". /usr/share/bash-completion/bash_completion; _completion_loader svc || true; complete -p svc"
    assert "_svc_completion svc" in machine.run(f"bash -c '{bash}'")
    typed = "COMP_WORDS=(svc wallet exp) COMP_CWORD=2; _svc_completion svc exp wallet; echo ${COMPREPLY[@]}"
    assert machine.run(f"bash -c '. /usr/share/bash-completion/completions/svc; {typed}'") == "export\n"
    (machine.root / "root/typed.zsh").write_text(TYPED_IN_ZSH)
    assert machine.run("TERM=dumb zsh -f typed.zsh") == "svc wallet export \n"
    assert machine.run("fish -c \"complete -C 'svc wallet exp'\"").startswith("export\t")


def use_a_devnet(machine: Machine) -> None:
    """As the page says for another network; and a block, by which the chain is known again."""
    (commands,) = (each for each in page.commands("## Installing", "docs/debian-package.md") if "chain.sqlite" in each)
    stop, _, start = commands.partition("editor ")
    machine.run(stop)
    file = machine.root / "etc/svcd/svcd.toml"
    page.edit(file, "participation", "enabled", "true")
    page.edit(file, "participation", "onDemand", "true")
    text = file.read_text().replace('#network = "mainnet"', 'network = "devnet"')
    file.write_text(text)
    machine.run(start.partition("\n")[2])
    wait_for_ready(machine)
    machine.run(f"{SVC} mine 3")


def test_a_package_is_installed_upgraded_removed_and_purged(machine: Machine) -> None:
    printed = machine.run(f"time {INSTALL} ./svcd.deb")
    print("\n".join(printed.splitlines()[-12:]))
    assert unit(machine, "ActiveState") == "active"
    assert machine.run("systemctl is-enabled svcd.service svcd.socket").split() == ["enabled", "enabled"]
    assert machine.run("ps -o user= -C twistd").split() == ["svcd"]
    assert machine.run("stat --format='%F %U %G %a' /var/lib/svcd") == "directory svcd svcd 700\n"
    assert machine.run("stat --format=%U /var/lib/svcd/operator.key") == "svcd\n"
    assert machine.run("dpkg --verify svcd") == ""
    assert "/opt/svcd/lib" not in machine.run("find /opt/svcd -name '*.so*' -exec ldd {} + | grep 'not found' || true")
    assert status(machine)["chainId"] == "SVC-MAINNET"
    check_the_package(machine)
    use_a_devnet(machine)
    before, process = status(machine), unit(machine, "MainPID")
    assert (before["chainId"], before["height"]) == ("SVC-DEVNET", "3")

    # An upgrade under a client: the socket keeps it, and the settings stay as the operator has changed them.
    machine.run(
        "systemd-run --quiet --unit=client bash -c 'while sleep 0.05; do"
        " curl --silent --show-error --fail --max-time 60 http://127.0.0.1:8645/rpc/status >/dev/null || exit 1; done'"
    )
    changed = machine.run("cat /etc/svcd/svcd.toml")
    printed = machine.run(f"time {{ echo N | {INSTALL} ./higher.deb; }}")
    print("\n".join(printed.splitlines()[-12:]))
    assert "Configuration file '/etc/svcd/svcd.toml'\n ==> Modified (by you or by a script)" in printed
    wait_for_ready(machine)
    assert machine.run("systemctl is-active client.service || journalctl -u client.service --output=cat") == "active\n"
    machine.run("systemctl stop client.service")
    assert unit(machine, "MainPID") not in (process, "0")
    assert machine.run("cat /etc/svcd/svcd.toml") == changed
    assert "# A setting of the newer version" in machine.run("cat /etc/svcd/svcd.toml.dpkg-*")
    after = status(machine)
    assert [after[name] for name in ("hash", "height", "nodeId")] == [
        before[name] for name in ("hash", "height", "nodeId")
    ]
    logged = machine.run("journalctl -u svcd --output=cat")
    assert "Traceback" not in logged
    assert "Unable to write" not in logged

    # A node that takes long to start, as after a crash, gets the new program, too.
    machine.run(
        "mkdir -p /run/systemd/system/svcd.service.d\n"
        "printf '[Service]\\nExecStartPre=/bin/sleep 3600\\n' >/run/systemd/system/svcd.service.d/slow.conf\n"
        "systemctl daemon-reload; systemctl stop svcd.service; systemctl start --no-block svcd.service"
    )
    wait_until(lambda: unit(machine, "ActiveState") == "activating", "a start")
    machine.run(f"rm -r /run/systemd/system/svcd.service.d; {INSTALL} --reinstall ./higher.deb")
    wait_for_ready(machine)

    # A stopped node is not started by an upgrade; settings that are wrong do not break it.
    machine.run("systemctl stop svcd.socket svcd.service")
    machine.run(f"{INSTALL} --reinstall ./higher.deb")
    assert unit(machine, "ActiveState") == "inactive"
    machine.run("systemctl start svcd.socket svcd.service")
    wait_for_ready(machine)
    machine.run("cp /etc/svcd/svcd.toml good.toml; echo wrong >>/etc/svcd/svcd.toml")
    machine.run(f"{INSTALL} --reinstall ./higher.deb")
    assert machine.run("dpkg-query --show --showformat='${db:Status-Abbrev}' svcd").strip() == "ii"
    machine.run("cp good.toml /etc/svcd/svcd.toml; systemctl reset-failed; systemctl restart svcd.service")
    wait_for_ready(machine)

    # Removed, and installed again: the same node.
    machine.run("apt-get remove --yes --quiet=2 svcd")
    assert machine.run("ls /opt/svcd /usr/bin/svc 2>/dev/null || true") == ""
    assert machine.run("cat /etc/svcd/svcd.toml") == changed
    machine.run(f"{INSTALL} ./higher.deb")
    wait_for_ready(machine)
    assert status(machine)["nodeId"] == before["nodeId"]
    assert status(machine)["hash"] == before["hash"]

    # Purged: the keys stay, and it says so.
    printed = machine.run("apt-get purge --yes --quiet=2 svcd 2>&1")
    assert "svcd: /var/lib/svcd stays, since nobody can restore keys" in printed
    assert machine.run("ls -d /etc/svcd /opt/svcd 2>/dev/null || true") == ""
    assert "operator.key" in machine.run("ls /var/lib/svcd/")
    assert machine.run("find /etc/systemd /var/lib/systemd/deb-systemd-helper-enabled -name 'svcd*'") == ""


def test_an_installation_and_a_removal_that_fail_leave_a_node_that_runs_when_they_are_repaired(
    machine: Machine,
) -> None:
    machine.run(f"{INSTALL} python3; mv /usr/bin/py3compile py3compile")
    with pytest.raises(CommandFailed, match="py3compile: not found"):
        machine.run(f"{INSTALL} ./svcd.deb")
    # As a restart of the computer in between does.
    machine.run("rm /run/svcd.installed; mv py3compile /usr/bin; dpkg --configure svcd")
    assert unit(machine, "ActiveState") == "active"
    machine.run("mv /usr/bin/py3clean py3clean")
    with pytest.raises(CommandFailed, match="py3clean: not found"):
        machine.run("apt-get remove --yes --quiet=2 svcd")
    assert unit(machine, "ActiveState") == "active"
    machine.run("mv py3clean /usr/bin; apt-get remove --yes --quiet=2 svcd")
    assert machine.run("ls /opt/svcd 2>/dev/null || true") == ""


def test_a_package_takes_the_place_of_an_installation_by_pip_once_that_is_removed(machine: Machine) -> None:
    key = render_seed(bytes(range(32)), SeedKind.BLOCK).decode()
    machine.run(
        "mkdir -p /opt/svcd/bin; umask 077; mkdir -p /var/lib/private/svcd; cd /var/lib/private/svcd\n"
        f"printf '{key}' >operator.key; chown -R 61234:61234 .; ln -s private/svcd /var/lib/svcd"
    )
    with pytest.raises(CommandFailed, match="svcd: /opt/svcd is of an installation without this package"):
        machine.run(f"{INSTALL} ./svcd.deb 2>&1")
    assert machine.run("ls -A /opt/svcd") == "bin\n"
    # The data of a dynamic user, as the unit of an installation by pip has it, become those of the package's.
    machine.run(f"rm -r /opt/svcd; {INSTALL} ./svcd.deb")
    wait_until(lambda: '"ok":' in machine.run(READY), "an answer", seconds=120)
    assert machine.run("stat --format='%F %U %a' /var/lib/svcd") == "directory svcd 700\n"
    assert machine.run("stat --format='%U %a' /var/lib/svcd/operator.key") == "svcd 600\n"
    assert machine.run("cat /var/lib/svcd/operator.key") == key
