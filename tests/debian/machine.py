"""A Debian in a folder, booted by systemd-nspawn with systemd as its first process, on this computer's network."""

import shutil
import subprocess
import time
from pathlib import Path
from typing import Final, Self

from attrs import define

RELEASES: Final = ("bookworm", "trixie")
"""Debian 12 and 13."""
MIRROR: Final = "http://deb.debian.org/debian"
_AUTHORITIES: Final = Path("usr/local/share/ca-certificates")
_BOOT_SECONDS: Final = 120
_ROOT: Final = {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM": "dumb"}


class CommandFailed(Exception):
    """A command on the machine did not end with status 0; the message has what it printed."""


def install(folder: Path, *, release: str) -> None:
    """Put a Debian into ``folder``: debootstrap's smallest set of packages, and those that boot it."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    include = "--include=systemd-sysv,dbus,ca-certificates,iproute2"
    subprocess.run(["debootstrap", "--variant=minbase", include, release, str(partial), MIRROR], check=True)
    _trust_as_here(partial)
    partial.rename(folder)


def _trust_as_here(root: Path) -> None:
    """Let the machine, and its pip, trust what this computer trusts: its way out may be signed by a proxy."""
    authorities = list((Path("/") / _AUTHORITIES).glob("*.crt"))
    if not authorities:
        return
    for path in authorities:
        shutil.copy(path, root / _AUTHORITIES / path.name)
    subprocess.run(["chroot", str(root), "update-ca-certificates"], check=True, stdout=subprocess.DEVNULL)
    (root / "etc/pip.conf").write_text("[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n")


@define
class Machine:
    """A copy of an installed Debian that runs; used as a context, it is shut down at the end."""

    root: Path
    source: Path
    """The repository, to be cloned from /source."""
    _nspawn: "subprocess.Popen[bytes] | None" = None
    _leader: int = 0

    @classmethod
    def copy(cls, installed: Path, root: Path, source: Path) -> Self:
        """A fresh machine in ``root``; what was there is removed."""
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["cp", "-a", "--reflink=auto", str(installed), str(root)], check=True)
        return cls(root, source)

    def __enter__(self) -> Self:
        self.boot()
        return self

    def __exit__(self, *_: object) -> None:
        self.shut_down()

    def boot(self) -> None:
        """Start it, and wait until systemd has started everything."""
        log = self.root.with_name(f"{self.root.name}.console").open("ab")
        with log:
            self._nspawn = subprocess.Popen(
                [
                    "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--console=pipe",
                    "--resolv-conf=replace-host", f"--bind-ro={self.source}:/source", f"--directory={self.root}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + _BOOT_SECONDS
        while time.monotonic() < deadline and self._nspawn.poll() is None:
            children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split()
            self._leader = int(children[0]) if children else 0
            if self._leader and self._state() in ("running", "degraded"):
                return
            time.sleep(0.5)
        # Nobody shuts down what has never been up.
        self._nspawn.kill()
        raise CommandFailed(f"the machine in {self.root} does not boot; see {log.name}")

    def _state(self) -> str:
        return self._enter("systemctl is-system-running", timeout=60).stdout.strip()

    def _enter(self, commands: str, *, timeout: float, user: str | None = None) -> "subprocess.CompletedProcess[str]":
        become = [] if user is None else ["runuser", f"--user={user}", "--", "env", f"HOME=/home/{user}"]
        return subprocess.run(
            ["nsenter", f"--target={self._leader}", "--mount", "--uts", "--ipc", "--pid", "--net", "--cgroup",
             "--", *become, "/bin/bash", "-euo", "pipefail", "-c", commands],
            env=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )  # fmt: skip

    def run(self, commands: str, *, folder: str = "/root", user: str | None = None, seconds: float = 600) -> str:
        """What a shell prints for these commands in ``folder``, run as root or as ``user``; raises CommandFailed."""
        done = self._enter(f"cd {folder}\n{commands}", user=user, timeout=seconds)
        if done.returncode:
            raise CommandFailed(f"exit status {done.returncode} of\n{commands}\n{done.stdout}")
        return done.stdout

    def shut_down(self) -> None:
        """Stop it as `poweroff` does."""
        nspawn, self._nspawn = self._nspawn, None
        if nspawn is None:
            return
        self._enter("systemctl poweroff --no-wall", timeout=30)
        try:
            nspawn.wait(timeout=90)
        except subprocess.TimeoutExpired:
            nspawn.kill()
            nspawn.wait()
