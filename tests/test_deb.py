"""What `make deb` writes into packages; tests/debian/package.py installs them."""

import gzip
import subprocess
import zipfile
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import click
import deb
import manual
import pytest

from svcd.cli.lazy_commands import LazyCommand
from svcd.cli.main import svc
from svcd.config.loader import load
from tests.programs import program

ROOT = Path(__file__).parent.parent
BOOKWORM, TRIXIE = deb.RELEASES["bookworm"], deb.RELEASES["trixie"]
WRITTEN = datetime(2026, 11, 27, tzinfo=UTC)


def test_versions_are_in_the_same_order_for_debian_as_for_python() -> None:
    ordered = [
        "1.0.dev2",
        "1.0a1.dev1",
        "1.0a1",
        "1.0b1",
        "1.0rc1",
        "1.0rc1.post1",
        "1.0",
        "1.0.post1",
        "1.0.1",
        "1.10",
    ]
    versions = [deb.debian_version(version, BOOKWORM) for version in ordered]
    assert versions[0] == "1.0~~dev2-1~deb12"
    for older, newer in [*pairwise(versions), (versions[-1], deb.debian_version("1.10", TRIXIE))]:
        assert is_older(older, newer), f"{older} {newer}"
    assert is_older(deb.debian_version("1.0", TRIXIE), "1.0-1")


def is_older(older: str, newer: str) -> bool:
    command = [program("dpkg"), "--compare-versions", older, "lt", newer]
    return subprocess.run(command, check=False).returncode == 0


def test_a_version_that_debian_cannot_order_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"^version 1\.0\+local: must be such as 1\.2, 1\.2a1"):
        deb.debian_version("1.0+local", BOOKWORM)


def test_a_package_needs_the_python_whose_wheels_it_has() -> None:
    text = deb.control("0.0.1", TRIXIE, maintainer="Somebody <somebody@example.org>", kibibytes=7)
    fields = dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith(" "))
    assert fields["Version"] == "0.0.1-1~deb13"
    assert "python3 (>= 3.13~), python3 (<< 3.14~)" in fields["Depends"]
    assert "libc6 (>= 2.41)" in fields["Depends"]
    assert (fields["Installed-Size"], fields["Conflicts"]) == ("7", "daemontools")
    assert max(map(len, text.splitlines()[-8:])) <= 80


def test_a_changelog_has_the_form_of_debian() -> None:
    text = deb.changelog("0.0.1", BOOKWORM, "bookworm", maintainer="Somebody <somebody@example.org>", epoch=0)
    assert text.splitlines() == [
        "svcd (0.0.1-1~deb12) bookworm; urgency=medium",
        "",
        "  * The changes are in changelog.gz beside this file.",
        "",
        " -- Somebody <somebody@example.org>  Thu, 01 Jan 1970 00:00:00 +0000",
    ]


def test_a_unit_of_a_package_does_not_say_how_to_install_it() -> None:
    text = (ROOT / "systemd" / "svcd.service").read_text()
    assert deb.unit(text) == text[text.index("[Unit]\n") :]
    socket = (ROOT / "systemd" / "svcd.socket").read_text()
    assert deb.unit(socket) == socket


def test_wheels_are_unpacked_without_their_programs(tmp_path: Path) -> None:
    wheel = tmp_path / "six-1-py3-none-any.whl"
    record = "six.py,,\nsix-1.data/scripts/six,,\nsix-1.data/purelib/more.py,,\nmore.py,,\nsix-1.dist-info/RECORD,,\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("six.py", "")
        archive.writestr("six-1.data/scripts/six", "")
        archive.writestr("six-1.data/purelib/more.py", "more = 1")
        archive.writestr("six-1.dist-info/RECORD", record)
    site = tmp_path / "site"
    deb.unpack([wheel], site)
    files = sorted(str(path.relative_to(site)) for path in site.rglob("*") if path.is_file())
    assert files == ["more.py", "six-1.dist-info/RECORD", "six.py"]
    assert (site / "six-1.dist-info/RECORD").read_text() == "more.py,,\nsix-1.dist-info/RECORD,,\nsix.py,,\n"
    assert (site / "more.py").read_text() == "more = 1"


def test_the_licence_of_each_library_is_named_and_found(tmp_path: Path) -> None:
    folder = tmp_path / "klein-24.8.0.dist-info"
    (folder / "licenses").mkdir(parents=True)
    (folder / "licenses" / "LICENSE").touch()
    metadata = (
        "Name: klein\nVersion: 24.8.0\nClassifier: Topic :: Web\nClassifier: License :: OSI Approved :: MIT License\n"
    )
    (folder / "METADATA").write_text(metadata)
    text = deb.licences(tmp_path, Path("/opt/svcd/lib"), "MIT License")
    assert "\nklein 24.8.0: MIT License\n    klein-24.8.0.dist-info/licenses/LICENSE\n" in text


def test_the_same_tree_makes_the_same_package(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        root = tmp_path / name
        deb.put(root / "opt/svcd/bin/svc", "program")
        deb.put(root / "usr/share/doc/svcd/changelog.gz", deb.compressed("text"))
        deb.put(root / "DEBIAN/control", deb.control("1", BOOKWORM, maintainer="A <a@example.org>", kibibytes=1))
        deb.put(root / "DEBIAN/postinst", "#!/bin/sh\n")
        deb.put(root / "DEBIAN/md5sums", deb.sums(root))
        deb.settle(root, 1_000_000_000)
        states = ((path.relative_to(root), path.stat()) for path in root.rglob("*"))
        made.append({str(path): (state.st_mode, state.st_mtime) for path, state in states})
    assert made[0] == made[1]
    assert (made[0]["opt/svcd/bin/svc"][0] & 0o777, made[0]["DEBIAN/control"][0] & 0o777) == (0o755, 0o644)
    assert made[0]["DEBIAN/postinst"] == (0o100755, 1_000_000_000)
    sums = (tmp_path / "one/DEBIAN/md5sums").read_text()
    assert [line.split("  ")[1] for line in sums.splitlines()] == [
        "opt/svcd/bin/svc",
        "usr/share/doc/svcd/changelog.gz",
    ]


def test_a_compressed_file_has_no_time_in_it() -> None:
    assert deb.compressed("text") == deb.compressed("text")
    assert gzip.decompress(deb.compressed("text")) == b"text"


@pytest.mark.parametrize("script", deb.SCRIPTS)
def test_the_scripts_of_a_package_are_valid(script: str) -> None:
    text = (deb.DEBIAN / script).read_text()
    assert text.startswith("#!/bin/sh\n# ")
    assert "\nset -e\n" in text
    done = subprocess.run(["sh", "-n", deb.DEBIAN / script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_and_option_is_in_the_manual() -> None:
    page = manual.svc_page(WRITTEN).replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")

    def check(group: click.Group, path: str) -> None:
        for name, command in group.commands.items():
            loaded = command.load() if isinstance(command, LazyCommand) else command
            assert f"\n.SS {path} {name}" in page
            for option in loaded.params:
                if isinstance(option, click.Option) and not option.hidden:
                    assert option.opts[0] in page.partition(f"\n.SS {path} {name}")[2].partition("\n.SS")[0]
            if isinstance(loaded, click.Group):
                check(loaded, f"{path} {name}")

    check(svc, "svc")


def test_every_key_of_the_configuration_is_in_the_manual() -> None:
    text = (ROOT / "conf" / "svcd.toml").read_text()
    page = manual.toml_page(text, WRITTEN)
    keys = [line[1:] for line in text.splitlines() if line.startswith("#") and not line.startswith("# ")]
    assert len(keys) > 60
    for key in keys:
        assert f"\n\\fB{manual.escaped(key)}\\fR\n" in page
    assert manual.escaped(load().http.listen) in page


def test_every_option_of_the_node_is_in_the_manual() -> None:
    page = manual.svcd_page(WRITTEN)
    for name in ("config", "data-dir", "network", "listen", "operator-listen", "key-password-fd", "set"):
        assert manual.escaped(f"--{name}=") in page


def test_what_roff_would_take_for_a_request_stays_text() -> None:
    assert manual.escaped(".TH\n'no \\ `svc -x`") == "\\&.TH\n\\(aqno \\e \\fBsvc \\-x\\fR"
