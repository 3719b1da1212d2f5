"""Builds the OCI image of the commit that is checked out: `make image`.

build/packages/COMMIT/ then contains an archive that `podman load` and `docker load` read. No container engine and no
root rights are needed: the image is packages of Debian, unpacked without running anything of them, and wheels, both
pinned by SHA-256. The same commit gives the same bytes: every order, time and owner is fixed.
"""

import gzip
import hashlib
import io
import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import release
from debian_packages import ARCHITECTURE, fetch
from wheels import commands_of, environment_settings, modules_of, pinned_wheels

FOLDER: Final = Path(__file__).parent / "image"
"""What is in the image besides packages and wheels."""
PYTHON: Final = "3.13"
"""That of Debian 13."""
USER: Final = 8645
"""The node's user and group: outside the ranges that Debian gives to users of the system and to people."""
DATA: Final = "/var/lib/svcd"
ENVIRONMENT: Final = f"opt/svcd/lib/python{PYTHON}/site-packages"

OLD: Final = 315532800
"""1980-01-01, the time of every file that is not svcd's: those layers are the same in the images of many commits."""

PRUNED: Final = re.compile(
    r"""
    (?:etc/(?:cron|default|init|kernel|logrotate|pam|profile|update-motd|apt|debconf|bash|ca-certificates)
    |usr/share/(?:base-files|bash-completion|binfmts|bug|debconf|doc-base|gcc|info|lintian|locale|man|menu|python3?|pixmaps
        |applications|initramfs|libc-bin|gdb|readline|apport|polkit|perl5|ca-certificates)
    |usr/share/doc/[^/]+/(?!copyright$)
    |usr/lib/x86_64-linux-gnu/(?:gconv|audit|perl|security|engines)
    |usr/lib/python3[^/]*/(?:ensurepip|idlelib|lib2to3|pydoc_data|test|tkinter|turtledemo|venv)/
    |usr/lib/python3[^/]*/(?:pydoc|turtle|doctest)\.py
    |usr/sbin|home|mnt|media|srv|boot|opt
    |usr/lib/(?:systemd|sysusers|tmpfiles|binfmt|udev|cron|init|locale|gcc)
    )""",
    re.VERBOSE,
)
"""What the node and a person at a shell in its container do not use. Licences stay."""


@dataclass(frozen=True)
class File:
    """A file, folder or link of the image."""

    kind: bytes
    """As tar has it: tarfile.REGTYPE, DIRTYPE or SYMTYPE."""
    mode: int
    data: bytes = b""
    target: str = ""
    """What a link leads to."""
    owner: int = 0
    time: int = OLD


Tree = dict[str, File]
"""The files of a layer by their paths, without a slash at the beginning."""


def text(content: str, *, executable: bool = False) -> File:
    return File(tarfile.REGTYPE, 0o755 if executable else 0o644, content.encode())


def folder(mode: int = 0o755, owner: int = 0) -> File:
    return File(tarfile.DIRTYPE, mode, owner=owner)


def link(target: str) -> File:
    return File(tarfile.SYMTYPE, 0o777, target=target)


# --- Packages of Debian ---


def parts_of_deb(deb: bytes) -> tuple[str, list[tuple[tarfile.TarInfo, bytes]]]:
    """The control paragraph of a package, and the members of its archive of files."""
    if not deb.startswith(b"!<arch>\n"):
        sys.exit("a package must be an archive of ar")
    archives: dict[str, tarfile.TarFile] = {}
    position = 8
    while position < len(deb):
        name, size = deb[position : position + 16].decode().strip(" /"), int(deb[position + 48 : position + 58])
        content = deb[position + 60 : position + 60 + size]
        position += 60 + size + size % 2
        if name.startswith(("control.tar", "data.tar")):
            kind, _, compression = name.partition(".tar")
            if compression not in (".xz", ".gz"):
                sys.exit(f"{name} in a package must be compressed by xz or gzip")
            data = lzma.decompress(content) if compression == ".xz" else gzip.decompress(content)
            archives[kind] = tarfile.open(fileobj=io.BytesIO(data))  # noqa: SIM115
    paragraph = archives["control"].extractfile("./control")
    assert paragraph is not None  # noqa: S101
    members = []
    for member in archives["data"]:
        source = archives["data"].extractfile(member) if member.isfile() or member.islnk() else None
        members.append((member, source.read() if source else b""))
    return paragraph.read().decode(), members


def base(debs: Iterable[tuple[str, bytes]]) -> Tree:
    """The layer of Debian: the files of the packages, and what their scripts would have made."""
    tree: Tree = {}
    status: list[str] = []
    authorities: list[bytes] = []
    for _, deb in debs:
        paragraph, members = parts_of_deb(deb)
        # Programs that look for known faults in an image read this list.
        status.append(paragraph.strip().replace("\n", "\nStatus: install ok installed\n", 1) + "\n")
        for member, data in members:
            path = member.name.removeprefix("./").rstrip("/")
            if re.fullmatch(r"usr/share/ca-certificates/mozilla/.*\.crt", path):
                authorities.append(data)
            if not path or PRUNED.match(path + ("/" if member.isdir() else "")):
                continue
            if member.issym():
                tree[path] = link(member.linkname)
            elif member.isdir():
                tree[path] = folder(member.mode & 0o7777)
            else:
                # Nobody but root may gain root's rights, and there is no root.
                tree[path] = File(tarfile.REGTYPE, member.mode & 0o755, data)
    users = f"root:x:0:0:root:/root:/usr/sbin/nologin\nsvcd:x:{USER}:{USER}:svcd:{DATA}:/bin/sh\n"
    tree |= {
        "etc/group": text(f"root:x:0:\nsvcd:x:{USER}:\n"),
        "etc/nsswitch.conf": text("passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"),
        "etc/passwd": text(users + "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"),
        "etc/ssl/certs/ca-certificates.crt": File(tarfile.REGTYPE, 0o644, b"".join(sorted(authorities))),
        "opt/svcd/bin/python3": link(f"/usr/bin/python{PYTHON}"),
        "opt/svcd/pyvenv.cfg": text(environment_settings(PYTHON)),
        "tmp": folder(0o1777),
        "usr/bin/python3": link(f"python{PYTHON}"),
        "usr/bin/sh": link("dash"),
        "usr/lib/ssl/cert.pem": link("/etc/ssl/certs/ca-certificates.crt"),
        "var/lib/dpkg/status": text("\n".join(status)),
        DATA[1:]: folder(0o700, USER),
    }
    return with_parents(tree)


def with_parents(tree: Tree) -> Tree:
    """The tree with the folders that its files are in, and without those that are empty."""
    used = {str(parent) for path, file in tree.items() if file.kind != tarfile.DIRTYPE for parent in Path(path).parents}
    kept = {path: file for path, file in tree.items() if file.kind != tarfile.DIRTYPE or path in used or file.owner}
    kept |= {path: file for path, file in tree.items() if path in ("tmp", "run", "proc", "sys", "dev", "etc", "root")}
    parents = {str(parent) for path in kept for parent in Path(path).parents} - {"."}
    return {parent: folder() for parent in parents if parent not in kept} | kept


# --- Wheels ---


def unpacked(wheel: Path) -> Tree:
    """The files of a wheel in the environment, and its commands."""
    tree: Tree = {}
    for path, data, executable in modules_of(wheel):
        tree[f"{ENVIRONMENT}/{path}"] = File(tarfile.REGTYPE, 0o755 if executable else 0o644, data)
        if path.endswith(".dist-info/entry_points.txt"):
            for name, program in commands_of(data.decode()):
                tree[f"opt/svcd/bin/{name}"] = text(program, executable=True)
    return tree


# --- Bytecode ---


def compiled(layers: list[Tree]) -> None:
    """Add the bytecode of all modules, and Twisted's list of plugins, which a container could not write.

    Python of the image makes them. It does not compare them with the times of the sources (PEP 552).
    """
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        for tree in layers:
            for path, file in sorted(tree.items()):
                target = root / path
                target.parent.mkdir(parents=True, exist_ok=True)
                if file.kind == tarfile.REGTYPE:
                    target.write_bytes(file.data)
                    target.chmod(file.mode)
                elif file.kind == tarfile.SYMTYPE:
                    target.unlink(missing_ok=True)
                    target.symlink_to(file.target)
                else:
                    target.mkdir(exist_ok=True)
        libraries = root / "usr/lib/x86_64-linux-gnu"
        python = [
            libraries / "ld-linux-x86-64.so.2",
            "--library-path",
            libraries,
            root / f"usr/bin/python{PYTHON}",
            "-sB",
        ]
        clean = {
            "PATH": "",
            "PYTHONHASHSEED": "0",
            "PYTHONHOME": str(root / "usr"),
            "PYTHONPATH": str(root / ENVIRONMENT),
        }
        words = ("-m", "compileall", "-qq", "--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/")
        folders = (str(root / f"usr/lib/python{PYTHON}"), str(root / ENVIRONMENT))
        program = "from twisted.plugin import IPlugin, getPlugins; list(getPlugins(IPlugin))"
        for command in ([*python, "-c", program], [*python, *words, *folders]):
            done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)  # noqa: S603
            # Twisted only reports a plugin that cannot be imported.
            if done.returncode or done.stderr:
                sys.exit(f"Python of the image cannot compile its modules:\n{done.stdout}{done.stderr}")
        for made in root.rglob("__pycache__/*.pyc"):
            source = made.parent.parent / f"{made.name.split('.')[0]}.py"
            [tree] = [tree for tree in layers if str(source.relative_to(root)) in tree]
            tree[str(made.relative_to(root))] = File(tarfile.REGTYPE, 0o644, made.read_bytes())
        plugins = f"{ENVIRONMENT}/twisted/plugins/dropin.cache"
        # Twisted reads the modules again unless the list is newer than all of them.
        layers[-1][plugins] = File(tarfile.REGTYPE, 0o644, (root / plugins).read_bytes(), time=OLD + 1)


# --- The archive ---


def layer(tree: Tree) -> bytes:
    """A tar archive of the tree, in order of the paths."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, file in sorted(with_parents(tree).items()):
            member = tarfile.TarInfo(path)
            member.type, member.mode, member.linkname, member.mtime = file.kind, file.mode, file.target, file.time
            member.uid = member.gid = file.owner
            member.size = len(file.data)
            archive.addfile(member, io.BytesIO(file.data))
    return data.getvalue()


def configuration(version: str, commit: str, epoch: int, layers: list[tuple[str, bytes]]) -> dict[str, Any]:
    """How the image is run, as OCI and Docker have it; only Docker's form has the health check."""
    created = datetime.fromtimestamp(epoch, UTC).isoformat().replace("+00:00", "Z")
    second = 10**9
    return {
        "created": created,
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "ExposedPorts": {"8645/tcp": {}},
            "Env": [
                "PATH=/opt/svcd/bin:/usr/bin",
                f"SVCD_DATA_DIR={DATA}",
                "SVCD_URL=http://127.0.0.1:8645",
                "LANG=C.UTF-8",
            ],
            "Entrypoint": [
                *("/opt/svcd/bin/twistd", "--nodaemon", "--pidfile=", "svcd"),
                *("--config=/etc/svcd/svcd.toml", f"--data-dir={DATA}", "--listen=tcp:8645"),
            ],
            "Volumes": {DATA: {}},
            # Not the volume: twistd has no sentence for a folder that its user cannot enter, and the node has.
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Healthcheck": {
                "Test": ["CMD", "/opt/svcd/bin/svcd-ready"],
                "Interval": 30 * second,
                "Timeout": 5 * second,
                "StartPeriod": 60 * second,
                "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "svcd",
                "org.opencontainers.image.description": "A blockchain node with a payment layer",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.revision": commit,
                "org.opencontainers.image.licenses": "MIT",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(data).hexdigest()}" for _, data in layers]},
        "history": [{"created": created, "created_by": name} for name, _ in layers],
    }


def archive(config: dict[str, Any], layers: list[bytes], name: str) -> bytes:
    """An OCI layout in a tar archive; manifest.json in it lets Docker before version 25 read it, too."""
    files: dict[str, bytes] = {}

    def blob(data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        files[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    def encoded(value: object) -> bytes:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    packed = [blob(gzip.compress(data, mtime=0), "layer.v1.tar+gzip") for data in layers]
    described = blob(encoded(config), "config.v1+json")
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described,
        "layers": packed,
    }
    entry = {
        **blob(encoded(manifest), "manifest.v1+json"),
        "platform": {"architecture": ARCHITECTURE, "os": "linux"},
        "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name},
    }
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
    path = "blobs/{}".format
    files |= {
        "index.json": encoded(index),
        "manifest.json": encoded(
            [
                {
                    "Config": path(described["digest"].replace(":", "/")),
                    "RepoTags": [name],
                    "Layers": [path(each["digest"].replace(":", "/")) for each in packed],
                }
            ]
        ),
        "oci-layout": encoded({"imageLayoutVersion": "1.0.0"}),
    }
    return layer({path: File(tarfile.REGTYPE, 0o644, data) for path, data in files.items()})


def build(snapshot: str | None) -> Path:
    """Build the image of the commit that is checked out; returns its archive."""
    epoch = release.time_of_commit()
    commit = release.commit()
    with tempfile.TemporaryDirectory() as temporary:
        wheel = release.build_commit(Path(temporary), epoch)
        pinned = pinned_wheels(release.REQUIREMENTS[-1], Path(temporary, "wheels"), python=PYTHON)
        dependencies: Tree = {}
        for each in pinned:
            dependencies |= unpacked(each)
        own = unpacked(wheel)
    version = wheel.name.split("-")[1]
    own |= {
        "etc/svcd/svcd.toml": text((release.ROOT / "conf" / "svcd.toml").read_text("utf-8")),
        "opt/svcd/bin/svcd-ready": text((FOLDER / "ready.py").read_text("utf-8"), executable=True),
    }
    trees = {"Debian's packages": base(fetch(snapshot)), "dependencies of svcd": dependencies, f"svcd {version}": own}
    compiled(list(trees.values()))
    layers = [(name, layer(tree)) for name, tree in trees.items()]
    config = configuration(version, commit, epoch, layers)
    data = archive(config, [packed for _, packed in layers], f"localhost/svcd:{version}")
    built = release.packages() / f"svcd-{version}-linux-{ARCHITECTURE}.oci.tar"
    built.parent.mkdir(parents=True, exist_ok=True)
    partial = built.with_suffix(".partial")
    partial.write_bytes(data)
    partial.rename(built)
    return built


if __name__ == "__main__":
    os.umask(0o022)
    image = build(os.environ.get("SNAPSHOT") or None)
    print(f"{image.relative_to(release.ROOT)}: {image.stat().st_size / 1e6:.1f} MB")
    print(f"sha256 {hashlib.sha256(image.read_bytes()).hexdigest()}")
