"""Every command of docs/operations.md, and of what it sends operators to, pasted twice on one machine.

`make debian` runs the same commands on a fresh Debian. Here the machine is a folder: what is below `/etc`, `/opt`,
`/run`, `/usr` and `/var` on the page is below that folder, and programs of the system are scripts, of which `systemctl`
starts and stops a node of a devnet as the unit does.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from attrs import define, field

from tests.debian import page
from tests.process_level.pages import ROOT, run
from tests.process_level.running import BIN, DEADLINE, ENVIRONMENT, free_port
from tests.programs import needs

DEBIAN: Final = "docs/debian-package.md"
DONE: Final = "#!/bin/sh\nexit 0\n"
SYSTEMCTL: Final = """\
#!/bin/bash
set -eu
lib={machine}/var/lib/svcd pid={machine}/pid
credentials={machine}/run/credentials/svcd.service
runs() {{ [ -e $pid ] && grep -qs '^State:.[^Z]' /proc/$(cat $pid)/status; }}
stop() {{
  if runs; then kill $(cat $pid); while runs; do sleep 0.05; done; fi
  rm -f $pid
}}
start() {{
  runs && return
  (umask 077; mkdir -p $credentials; cp -f {machine}/etc/credstore/* $credentials 2>/dev/null || true)
  setsid twistd -n --pidfile= svcd --config={machine}/etc/svcd/svcd.toml --data-dir=$lib \\
    --listen=tcp:{port}:interface=127.0.0.1 </dev/null >>{machine}/log 2>&1 &
  echo $! >$pid
  until curl -sf --unix-socket $lib/operator.sock http://localhost/health >/dev/null; do
    runs || {{ cat {machine}/log >&2; exit 1; }}
    sleep 0.05
  done
}}
case "$*" in
  *svcd.service*) ;;
  *) exit 0 ;;
esac
case "$1 $2" in
  "disable --now" | "stop "*) stop ;;
  "start "*) start ;;
  "restart "*) stop; start ;;
esac
"""


@define
class Computer:
    """The machine of an operator, who pastes what pages say."""

    root: Path
    port: int = field(factory=free_port)
    operator_port: int = field(factory=free_port)
    pasted: list[str] = field(factory=list)

    def prepare(self) -> None:
        """What a fresh Debian has, and what its packages bring."""
        folders = "bin root etc/default etc/nginx/conf.d etc/prometheus etc/systemd/system usr/local/bin var/backups"
        for name in folders.split():
            (self.root / name).mkdir(parents=True)
        (self.root / "var/lib/svcd").mkdir(parents=True, mode=0o700)
        programs = dict.fromkeys(("apt", "certbot", "editor", "git", "nginx", "systemd-sysusers"), DONE)
        programs["python3"] = f'#!/bin/sh\n[ "$1 $2" = "-m venv" ] || exec {BIN}/python "$@"\n'
        programs["sudo"] = '#!/bin/sh\n[ "$1 $2" = "-u svcd" ] && shift 2 && exec "$@"\n'
        programs["systemctl"] = SYSTEMCTL.format(machine=self.root, port=self.port)
        for name, text in programs.items():
            (self.root / "bin" / name).write_text(text)
            (self.root / "bin" / name).chmod(0o755)
        certificate = self.root / "etc/letsencrypt/live/node.example.org"
        certificate.mkdir(parents=True)
        for name in ("privkey.pem", "fullchain.pem"):
            (certificate / name).touch()
        self.install_program()
        (self.root / "root/svcd_0.0.1-1~deb12_amd64.deb").touch()
        run("sha256sum *.deb >SHA256SUMS", self.root / "root")

    def install_program(self) -> None:
        """What `python3 -m venv /opt/svcd` makes, with a pip that has nothing to do."""
        program = self.root / "opt/svcd/bin"
        program.mkdir(parents=True, exist_ok=True)
        for name in ("twistd", "svc"):
            (program / name).unlink(missing_ok=True)
            (program / name).symlink_to(BIN / name)
        (program / "pip").write_text(DONE)
        (program / "pip").chmod(0o755)

    def configure(self, settings: dict[tuple[str, str], object]) -> None:
        """Set what a page says, for a devnet."""
        file = self.root / "etc/svcd/svcd.toml"
        for (name, key), value in settings.items():
            page.edit(file, name, key, self.here(json.dumps(value)))
        page.edit(file, "p2p", "seeds", "[]")
        file.write_text(file.read_text().replace('#network = "mainnet"', 'network = "devnet"'))

    def here(self, text: str) -> str:
        """A text of a page for this machine."""
        text = text.replace("tcp:8646", f"tcp:{self.operator_port}")
        text = re.sub(r"(?<![\w.])/(etc|opt|run|usr|var)/", rf"{self.root}/\1/", text)
        text = text.replace("https://node.example.org", f"http://127.0.0.1:{self.port}")
        return re.sub("-g (svcd|prometheus) ", f"-g {os.getgid()} ", text)

    def paste(self, commands: str, *, folder: Path = ROOT) -> str:
        """What they print; none may fail, neither this time nor the next."""
        self.pasted.append(commands)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.here(commands)],
            capture_output=True,
            text=True,
            cwd=folder,
            env=ENVIRONMENT | {"HOME": str(self.root / "root"), "PATH": f"{self.root}/bin:{ENVIRONMENT['PATH']}"},
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 0, (commands, done.stdout, done.stderr)
        return done.stdout

    def paste_twice(self, *several: str, folder: Path = ROOT) -> str:
        """One after the other, and then all of them again; gives what is printed the second time."""
        return [self.paste(commands, folder=folder) for commands in 2 * several][-1]

    @property
    def keys(self) -> list[str]:
        """What makes this node the one that it is, and what a merchant has."""
        files = ("var/lib/svcd/node.key", "var/lib/svcd/operator.key", "etc/credstore/svcd.manage-token")
        return [(self.root / name).read_text() for name in files]


@pytest.fixture
def computer(tmp_path: Path) -> Iterator[Computer]:
    computer = Computer(tmp_path / "m")
    computer.prepare()
    yield computer
    subprocess.run(
        [computer.root / "bin/systemctl", "stop", "svcd.service"], env=ENVIRONMENT, timeout=DEADLINE, check=True
    )
    assert "Traceback" not in (computer.root / "log").read_text()


@pytest.mark.socket
@pytest.mark.slow
@pytest.mark.deadline(400)
@needs("bash", "curl", "setsid", "install", "tar", "sha256sum")
def test_every_command_can_be_pasted_twice(computer: Computer) -> None:
    packages, program, tls, secrets, start, look = page.commands(page.STEPS)
    computer.paste_twice(packages, program)
    computer.configure(page.settings(page.STEPS))
    printed = computer.paste_twice(tls, secrets, start, look)
    assert "svcnode_" in printed
    node = computer.keys
    # The whole list again, as somebody does who has forgotten where the interruption was.
    for commands in (packages, program, tls, secrets, start, look):
        computer.paste(commands)
    assert computer.keys == node
    assert 'network = "devnet"' in (computer.root / "etc/svcd/svcd.toml").read_text()

    computer.configure(page.settings("## Prometheus and Grafana", "docs/monitoring.md"))
    computer.paste_twice(page.commands("## Prometheus and Grafana", "docs/monitoring.md")[0])
    computer.paste_twice(*page.commands("### Without a proxy"))
    assert "svcd_chain_height 0.0" in computer.paste_twice(*page.commands("## Metrics", "docs/monitoring.md"))

    computer.paste("svc --data-dir /var/lib/svcd node mine 3")
    computer.paste_twice(*page.commands("## Backup"), *page.commands("## Upgrading"))
    before, _ = sorted((computer.root / "var/backups").glob("backup-*"))
    computer.paste("svc --data-dir /var/lib/svcd node mine 2")
    (restoring,) = page.commands("### Restoring")
    computer.paste_twice(re.sub("backup-[-0-9]+", before.name, restoring))
    computer.pasted.append(restoring)
    assert re.search("^height +3$", computer.paste("svc --data-dir /var/lib/svcd node status"), re.MULTILINE)

    computer.paste_twice(*page.commands("## Repairing", "docs/troubleshooting.md"))
    computer.paste_twice(*page.commands("## Moving to another machine", "docs/storage.md"))
    assert computer.keys == node

    identity, secrets_of_merchant = page.commands("## If a key or a token is stolen", "docs/troubleshooting.md")
    computer.paste_twice(identity, secrets_of_merchant)
    replaced = computer.keys
    assert [new == old for new, old in zip(replaced, node, strict=True)] == [False, True, False]

    install, other_network = page.commands("## Installing", DEBIAN)
    (from_pip,) = page.commands("## From an installation by pip", DEBIAN)
    computer.paste_twice(install, other_network, folder=computer.root / "root")
    assert re.search("^height +0$", computer.paste("svc --data-dir /var/lib/svcd node status"), re.MULTILINE)
    for commands in 2 * [from_pip]:
        computer.paste(commands)
        computer.install_program()
    computer.paste_twice(*page.commands("### A release with pip"), folder=computer.root / "root")

    (removing,) = page.commands("## Uninstalling")
    computer.paste_twice(removing)
    assert not (computer.root / "opt/svcd").exists()
    assert not (computer.root / "etc/systemd/system/svcd.service").exists()
    assert computer.keys == replaced

    for name in (page.PAGE, DEBIAN):
        headings = re.findall(r"^##+ .*$", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        shown = [commands for heading in headings for commands in page.commands(heading, name)]
        assert [commands for commands in shown if commands not in computer.pasted] == []
