"""The unit files, as far as they can be judged without booting a system."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from twisted.internet.endpoints import serverFromString

from svcd.config.loader import load
from svcd.endpoint_description import EndpointDescription
from svcd.tap import Options
from tests.process.certificate_files import CertificateFiles
from tests.programs import program

UNITS = Path(__file__).parent.parent / "systemd"
INSTALLED = "/opt/svcd/bin/"


def setting(unit: str, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", (UNITS / unit).read_text(), re.M)


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units with the programs where they are on this machine; a unit whose program is missing does not verify."""
    installed = f"{Path(sys.executable).parent}/"
    for unit in UNITS.glob("svcd.*"):
        (tmp_path / unit.name).write_text(unit.read_text().replace(INSTALLED, installed))
    return sorted(tmp_path.iterdir())


def analyze(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [program("systemd-analyze"), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.slow
def test_systemd_accepts_the_units(units: list[Path]) -> None:
    verified = analyze("verify", *units)
    # It reports on every unit it has to load on the way; those of the system are not ours.
    ours = [line for line in verified.stderr.splitlines() if "svcd" in line]
    assert (verified.returncode, ours) == (0, [])


@pytest.mark.slow
def test_systemd_accepts_them_with_https(units: list[Path]) -> None:
    for unit in units:
        drop_in = unit.with_name(f"{unit.name}.d") / "https.conf"
        drop_in.parent.mkdir()
        drop_in.write_text((UNITS / "https" / f"{unit.name}.conf").read_text())
    verified = analyze("verify", *units)
    assert [line for line in verified.stderr.splitlines() if "svcd" in line] == []


@pytest.mark.slow
def test_systemd_refuses_a_unit_with_a_misspelt_key(units: list[Path]) -> None:
    service = next(unit for unit in units if unit.name == "svcd.service")
    service.write_text(service.read_text().replace("NoNewPrivileges=", "NoNewPrivilege="))
    assert "svcd.service" in analyze("verify", *units).stderr


@pytest.mark.slow
def test_the_service_is_well_confined(units: list[Path]) -> None:
    """1.4 of 10 with systemd 252, 1.2 where it runs; what is left is the network, which a node needs."""
    service = next(unit for unit in units if unit.name == "svcd.service")
    assert analyze("security", "--offline=true", "--threshold=20", service).returncode == 0


def test_no_core_with_the_keys_in_it_is_left_behind() -> None:
    """SIGABRT, by which the watchdog ends a node, asks for one."""
    assert setting("svcd.service", "WatchdogSec")
    assert setting("svcd.service", "LimitCORE") == ["0"]


def test_the_command_line_has_only_options_that_exist() -> None:
    [command] = setting("svcd.service", "ExecStart")
    ours = command.partition(" svcd ")[2].split()
    assert {option.partition("=")[0].removeprefix("--") + "=" for option in ours} <= set(Options().longOpt)


def test_the_socket_has_the_name_and_the_port_the_node_expects() -> None:
    [name] = setting("svcd.socket", "FileDescriptorName")
    assert setting("svcd.service", "Environment") == [f"LISTEN=systemd:domain=INET:name={name}"]
    assert setting("svcd.service", "ExecStart")[0].endswith(" --listen=${LISTEN}")
    host, _, port = setting("svcd.socket", "ListenStream")[0].rpartition(":")
    assert load().http.listen == f"tcp:{port}:interface={host}"


def test_https_is_on_the_same_socket(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path / "tls")
    [listen] = setting("https/svcd.service.conf", "Environment")
    endpoint = listen.removeprefix("LISTEN=").replace("/etc/svcd/tls/privkey.pem", str(files.key))
    described = EndpointDescription.parse(endpoint.replace("/etc/svcd/tls/fullchain.pem", str(files.certificate)))
    inherited, tls = described.for_twisted
    assert (inherited, setting("https/svcd.socket.conf", "ListenStream")) == (
        "systemd:domain=INET6:name=svcd",
        ["", "[::]:443"],
    )
    serverFromString(object(), tls)


def test_a_stop_has_time_to_drain() -> None:
    assert int(setting("svcd.service", "TimeoutStopSec")[0]) >= 3 * load().limits.drain_seconds
