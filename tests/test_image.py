"""The pure parts of `make image`: what is chosen from packages and wheels, and the bytes of the archive.

`make test-image` builds an image and runs it.
"""

import gzip
import hashlib
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import debian_packages
import image
import pytest
import yaml

DIGEST = "a" * 64


def deb(files: dict[str, str], *, name: str = "hello", mode: int = 0o644) -> bytes:
    """A package with these files."""
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": archive({"./control": f"Package: {name}\nVersion: 1\n"}),
        "data.tar.xz": archive({f"./{path}": content for path, content in files.items()}, mode),
    }
    packed = b"!<arch>\n"
    for part, data in parts.items():
        packed += (
            f"{part:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
        )
    return packed


def archive(files: dict[str, str], mode: int = 0o644) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content.encode()))
    return data.getvalue()


def members(layer: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        return {member.name: member for member in tar}


def test_packages_bring_what_they_need_except_what_is_left_out() -> None:
    records = {
        "python": {"Pre-Depends": "libc (>= 2)", "Depends": "ssl | gnutls, debconf (>= 1) | debconf-2.0"},
        "libc": {},
        "ssl": {"Depends": "libc:any"},
        "unused": {},
    }
    assert debian_packages.closure({"python"}, {"debconf"}, records) == ["libc", "python", "ssl"]


def test_a_choice_that_is_there_already_brings_no_other() -> None:
    records = {"python": {"Depends": "gnutls, ssl | gnutls"}, "gnutls": {}, "ssl": {}}
    assert debian_packages.closure({"gnutls", "python"}, set(), records) == ["gnutls", "python"]


def test_a_package_that_debian_lacks_and_an_exception_that_nothing_needs_are_refused() -> None:
    with pytest.raises(SystemExit, match="Debian trixie has no package pyton"):
        debian_packages.closure({"pyton"}, set(), {})
    with pytest.raises(SystemExit, match=r"packages\.in leaves out what no package needs: perl"):
        debian_packages.closure({"libc"}, {"perl"}, {"libc": {}})


def test_the_pinned_packages_are_those_that_are_wanted() -> None:
    wanted, without = debian_packages.parse_wanted(debian_packages.WANTED.read_text("utf-8"))
    pinned = {name for name, _, _ in debian_packages.parse_pinned(debian_packages.PINNED.read_text("utf-8"))}
    assert wanted <= pinned, "make image-packages"
    assert not without & pinned


@pytest.mark.parametrize("line", ["libc6 2.41", f"libc6 2.41 {DIGEST[1:]}", f"libc6 2.41 {DIGEST} again"])
def test_a_pin_that_is_not_whole_is_refused(line: str) -> None:
    assert debian_packages.parse_pinned(f"# comment\nlibc6 2.41 {DIGEST}\n") == [("libc6", "2.41", DIGEST)]
    with pytest.raises(SystemExit, match="must be a name, a version and a SHA-256"):
        debian_packages.parse_pinned(line)


def test_a_package_without_the_pinned_hash_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class OtherPackages:
        def __init__(self, *_: object) -> None:
            pass

        def update(self) -> None:
            pass

        def download(self, names: list[str], into: Path) -> None:
            into.mkdir(parents=True, exist_ok=True)
            for name in names:
                (into / f"{name}.deb").write_bytes(deb({}))

    pins = tmp_path / "packages.txt"
    monkeypatch.setattr(debian_packages, "Apt", OtherPackages)
    monkeypatch.setattr(debian_packages, "WORK", tmp_path)
    monkeypatch.setattr(debian_packages, "PINNED", pins)
    pins.write_text(f"hello 1 {hashlib.sha256(deb({})).hexdigest()}\n")
    assert list(debian_packages.fetch(None)) == [("hello", deb({}))]
    pins.write_text(f"hello 1 {DIGEST}\n")
    with pytest.raises(SystemExit, match=r"hello 1 is not the one that packages\.txt pins: its SHA-256 is another"):
        list(debian_packages.fetch(None))


def test_the_layer_of_debian_has_programs_and_licences_and_no_manuals() -> None:
    tree = image.base(
        [
            (
                "hello",
                deb(
                    {
                        "usr/bin/hello": "program",
                        "usr/share/doc/hello/copyright": "licence",
                        "usr/share/doc/hello/changelog.gz": "",
                        "usr/share/man/man1/hello.1.gz": "",
                        "usr/share/locale/de/hello.mo": "",
                    },
                    mode=0o4755,
                ),
            ),
            ("certificates", deb({f"usr/share/ca-certificates/mozilla/{name}.crt": name for name in "ba"}, name="ca")),
        ]
    )
    assert tree["usr/bin/hello"].data == b"program"
    assert tree["usr/bin/hello"].mode == 0o755, "no file gives the rights of its owner"
    assert [path for path in tree if "hello" in path and tree[path].data] == [
        "usr/bin/hello",
        "usr/share/doc/hello/copyright",
    ]
    assert tree["etc/ssl/certs/ca-certificates.crt"].data == b"ab"
    listed = tree["var/lib/dpkg/status"].data.decode()
    assert listed == (
        "Package: hello\nStatus: install ok installed\nVersion: 1\n\n"
        "Package: ca\nStatus: install ok installed\nVersion: 1\n"
    )
    data = tree["var/lib/svcd"]
    assert (data.mode, data.owner) == (0o700, image.USER)
    assert f"svcd:x:{image.USER}:{image.USER}:" in tree["etc/passwd"].data.decode()


def test_a_wheel_brings_its_modules_and_the_commands_of_an_operator(tmp_path: Path) -> None:
    wheel = tmp_path / "svcd-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("svcd/__init__.py", "")
        packed.writestr("svcd-1.data/purelib/more.py", "more")
        packed.writestr("svcd-1.data/scripts/other", "")
        packed.writestr("svcd-1.dist-info/entry_points.txt", "[console_scripts]\nsvc = svcd.cli:main\npip = pip:main\n")
    tree = image.unpacked(wheel)
    site = "opt/svcd/lib/python3.13/site-packages"
    assert set(tree) == {
        "opt/svcd/bin/svc",
        f"{site}/more.py",
        f"{site}/svcd/__init__.py",
        f"{site}/svcd-1.dist-info/entry_points.txt",
    }
    assert tree["opt/svcd/bin/svc"].mode == 0o755
    assert b"from svcd.cli import main\n" in tree["opt/svcd/bin/svc"].data


def test_a_layer_has_the_same_bytes_in_whatever_order_its_files_came() -> None:
    files = {"a/b": image.text("1"), "a": image.folder(), "c/d/e": image.link("/a/b"), "empty": image.folder()}
    packed = image.layer(files)
    assert packed == image.layer(dict(reversed(files.items())))
    found = members(packed)
    assert list(found) == ["a", "a/b", "c", "c/d", "c/d/e"]
    assert {(each.uid, each.gid, each.mtime, each.uname) for each in found.values()} == {(0, 0, image.OLD, "")}


def test_the_image_runs_as_an_own_user_with_one_volume_and_a_health_check() -> None:
    config = image.configuration("1", "commit", 0, [("layer", b"data")])
    run = config["config"]
    assert run["User"] == "8645:8645"
    assert run["Volumes"] == {"/var/lib/svcd": {}}
    assert run["Healthcheck"]["Test"] == ["CMD", "/opt/svcd/bin/svcd-ready"]
    assert config["created"] == "1970-01-01T00:00:00Z"
    # As the unit starts it, with the port on every address of the container.
    unit = (image.release.ROOT / "systemd/svcd.service").read_text("utf-8")
    [started] = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert " ".join(run["Entrypoint"]) == started.replace("${STATE_DIRECTORY}", "/var/lib/svcd").replace(
        "${LISTEN}", "tcp:8645"
    )


def test_every_part_of_the_archive_is_found_by_its_hash() -> None:
    layers = [image.layer({"a": image.text("1")}), image.layer({"b": image.text("2")})]
    config = image.configuration("1", "commit", 0, [("first", layers[0]), ("second", layers[1])])
    packed = image.archive(config, layers, "localhost/svcd:1")
    assert packed == image.archive(config, layers, "localhost/svcd:1")
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
    assert json.loads(files.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    index, docker = json.loads(files.pop("index.json")), json.loads(files.pop("manifest.json"))
    assert all(path == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}" for path, data in files.items())
    manifest = json.loads(files[path_of(index["manifests"][0])])
    assert json.loads(files[path_of(manifest["config"])]) == config
    unpacked = [gzip.decompress(files[path_of(each)]) for each in manifest["layers"]]
    assert unpacked == layers
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    assert docker == [
        {
            "Config": path_of(manifest["config"]),
            "Layers": [path_of(each) for each in manifest["layers"]],
            "RepoTags": ["localhost/svcd:1"],
        }
    ]


def path_of(descriptor: dict[str, str]) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def asked(folder: Path) -> tuple[int, str]:
    """Exit status and output of the health check."""
    done = subprocess.run(
        [sys.executable, image.FOLDER / "ready.py"],
        env={**os.environ, "SVCD_DATA_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.socket
@pytest.mark.parametrize(("status", "expected"), [("200 OK", 0), ("503 Service Unavailable", 1)])
def test_the_health_check_is_the_answer_of_the_node(status: str, expected: int, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "operator.sock"))
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                assert connection.recv(4096).startswith(b"GET /ready HTTP/1.0\r\n")
                connection.sendall(f'HTTP/1.0 {status}\r\nContent-Length: 11\r\n\r\n{{"ok":true}}'.encode())

        node = threading.Thread(target=answer)
        node.start()
        assert asked(tmp_path) == (expected, '{"ok":true}\n')
        node.join()


@pytest.mark.socket
def test_the_health_check_says_that_the_node_does_not_answer(tmp_path: Path) -> None:
    status, output = asked(tmp_path)
    assert status == 1
    assert output == f"the node does not answer at {tmp_path}/operator.sock: [Errno 2] No such file or directory\n"


def test_compose_runs_the_image_without_rights_and_finds_its_files() -> None:
    services = yaml.safe_load((image.release.ROOT / "conf/compose.yaml").read_text("utf-8"))["services"]
    node = services["node"]
    config = image.configuration("0.0.1", "commit", 0, [])["config"]
    assert node["read_only"]
    assert node["cap_drop"] == ["ALL"]
    assert node["healthcheck"]["test"] == config["Healthcheck"]["Test"]
    assert node["image"] == "localhost/svcd:0.0.1"
    mounted = [each.split(":")[0] for service in services.values() for each in service["volumes"]]
    # The page says how an operator makes the tokens.
    files = {name for name in mounted if name.startswith("./")} - {"./operator.token", "./prometheus.token"}
    assert files == {f"./{name}" for name in ("nginx.conf", "prometheus.yml", "prometheus-rules.yml", "svcd.toml")}
    assert all((image.release.ROOT / "conf" / name).is_file() for name in files)


def test_each_service_of_compose_runs_by_itself_and_after_a_reboot() -> None:
    """A network that belongs to a container is lost when that one restarts; on-failure ends with the computer."""
    services = yaml.safe_load((image.release.ROOT / "conf/compose.yaml").read_text("utf-8"))["services"]
    for service in services.values():
        assert (service["network_mode"], service["restart"]) == ("host", "always")
        assert not {"depends_on", "ports"} & service.keys()
