"""Containers of the image, run as docs/container.md and conf/compose.yaml say; `make test-image` runs this.

nginx and Prometheus are those of this computer, in the network of a container: their images are in a registry.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest
import release
import yaml

from tests.process_level.running import free_port, wait_until

ROOT: Final = release.ROOT
PAGE: Final = (ROOT / "docs" / "container.md").read_text(encoding="utf-8")
OPTIONS: Final = shlex.split(os.environ.get("SVCD_PODMAN_OPTIONS", ""))
"""Further options of `podman run`, which the sandbox of the test may need."""
IMAGE: Final = "localhost/svcd:0.0.1"
NODE: Final = "svcd-test"
NETWORK: Final = "svcd-test-network"
USER: Final = 8645
SECONDS: Final = 60
LISTENING: Final = "--web.listen-address=127.0.0.1:9090"


def run(*command: object, expected: int = 0) -> str:
    """What a program prints, which must end with this status."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout + done.stderr


def inside(*command: str, expected: int = 0) -> str:
    return run("podman", "exec", NODE, *command, expected=expected)


def status(port: int) -> dict[str, str] | None:
    """The status of the node at a published port; None if it does not answer yet."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/rpc/status", timeout=5) as answer:
            return json.load(answer)["status"]  # type: ignore[no-any-return]
    except OSError:
        return None


def page_command(beginning: str) -> list[str]:
    """The words of the command of the page that begins so."""
    [command] = re.findall(rf"^    ({re.escape(beginning)}(?:.*\\\n)*.*)$", PAGE, re.MULTILINE)
    return shlex.split(command.replace("\\\n", " "))


def start(port: int, *options: str, volume: str = "svcd-test", network: bool = True) -> None:
    """The page's devnet, with a port, a name and a volume of the test's own; without ``network`` a node of mainnet."""
    words = page_command("podman run --detach --name node")
    assert words[-2:] == [IMAGE, "--network=devnet"]
    own = {
        "node": NODE,
        "svcd:/var/lib/svcd": f"{volume}:/var/lib/svcd",
        "127.0.0.1:8645:8645": f"127.0.0.1:{port}:8645",
    }
    assert own.keys() <= set(words)
    words = [own.get(word, word) for word in words[: None if network else -1]]
    run(*words[:2], *OPTIONS, *options, *words[2:])


def remove() -> None:
    # One after the other: the network belongs to a container, which cannot go while another one is in it.
    for name in (NODE, NETWORK):
        subprocess.run(["podman", "rm", "--force", "--ignore", "--time", "15", name], capture_output=True, check=False)


def stopped() -> int:
    """Stop the node; its exit status."""
    run("podman", "stop", "--time", "30", NODE)
    return int(run("podman", "inspect", "--format", "{{.State.ExitCode}}", NODE))


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    """The image of the commit, loaded as the page says."""
    [archive] = release.packages().glob("*.oci.tar")
    [words] = re.findall(r"^    (podman pull docker-archive:)(\S+)$", PAGE, re.MULTILINE)
    assert words[1] == archive.name
    remove()
    run(*shlex.split(f"{words[0]}{archive}"))
    assert archive.stat().st_size < 120_000_000


@pytest.fixture
def port() -> Iterator[int]:
    """A port for a node, which is removed with its volume."""
    yield free_port()
    remove()
    subprocess.run(["podman", "volume", "rm", "--force", "svcd-test"], capture_output=True, check=False)


def test_the_page_s_devnet_answers_and_a_restart_keeps_the_chain(port: int) -> None:
    start(port)
    wait_until(lambda: status(port) is not None, "the status of the node")
    assert "SVC-DEVNET" in inside("svc", "status")
    inside("svc", "node", "mine", "3")
    tip = inside("svc", "block", "3", "--json")
    run("podman", "restart", "--time", "30", NODE)
    wait_until(lambda: (status(port) or {}).get("height") == "3", "the chain after a restart")
    assert stopped() == 0
    remove()
    start(port)
    wait_until(lambda: (status(port) or {}).get("height") == "3", "the chain in a new container")
    assert inside("svc", "block", "3", "--json") == tip
    inside("svc", "node", "backup", "/var/lib/svcd/backup-1")
    assert "Traceback" not in run("podman", "logs", NODE)


def test_the_node_has_no_rights(port: int) -> None:
    start(port)
    wait_until(lambda: status(port) is not None, "the status of the node")
    process = run("podman", "inspect", "--format", "{{.State.Pid}}", NODE).strip()
    known = dict(re.findall(r"^(\w+):\s*(.*)$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE))
    assert known["Uid"].split() == known["Gid"].split() == [str(USER)] * 4
    assert {known[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert known["NoNewPrivs"] == "1"
    assert re.search(r"^Max core file size +0 +0 ", Path(f"/proc/{process}/limits").read_text(), re.MULTILINE)
    for path in ("/etc/x", "/opt/svcd/x", "/usr/bin/x"):
        assert "Read-only file system" in inside("touch", path, expected=1)


def test_a_node_that_was_killed_is_started_again(port: int) -> None:
    [option] = set(re.findall(r"`(--restart\s+always)`", PAGE))
    start(port, *option.split())
    wait_until(lambda: status(port) is not None, "the status of the node")
    first = run("podman", "inspect", "--format", "{{.State.Pid}}", NODE).strip()
    os.kill(int(first), signal.SIGKILL)
    wait_until(lambda: run("podman", "inspect", "--format", "{{.State.Pid}}", NODE).strip() not in (first, "0"), "it")
    wait_until(lambda: status(port) is not None, "the status of the node after a kill")
    assert stopped() == 0


def test_the_health_check_is_ready(port: int) -> None:
    start(port)
    wait_until(lambda: status(port) is not None, "the status of the node")
    run("podman", "healthcheck", "run", NODE)
    assert json.loads(inside("svcd-ready"))["ok"]


def test_a_node_that_has_met_no_other_is_not_healthy(port: int) -> None:
    start(port, network=False)
    wait_until(lambda: status(port) is not None, "the status of the node")
    run("podman", "healthcheck", "run", NODE, expected=1)
    assert not json.loads(inside("svcd-ready", expected=1))["ok"]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder of 12 MiB that belongs to the node's user."""
    run("mount", "-t", "tmpfs", "-o", f"size=12m,uid={USER},gid={USER},mode=700", "tmpfs", tmp_path)
    yield tmp_path
    remove()
    run("umount", tmp_path)


def test_a_full_volume_is_told_in_a_sentence_and_the_node_goes_on_when_there_is_room(small: Path, port: int) -> None:
    start(port, volume=str(small))
    wait_until(lambda: status(port) is not None, "the status of the node")
    inside("svc", "node", "mine", "1")
    assert "No space left" in run("dd", "if=/dev/zero", f"of={small}/filler", "bs=4096", expected=1)
    told = inside("svc", "node", "mine", "300", expected=1)
    assert "the node cannot write to its disk at present; nothing has changed, so try again later" in told
    assert "database or disk is full" in inside("svcd-ready", expected=1)
    before = (status(port) or {})["height"]
    (small / "filler").unlink()
    wait_until(lambda: subprocess.run(["podman", "exec", NODE, "svcd-ready"], check=False).returncode == 0, "health")
    inside("svc", "node", "mine", "1")
    assert int((status(port) or {})["height"]) == int(before) + 1
    assert stopped() == 0


def test_a_folder_of_another_user_is_refused_in_a_line(tmp_path: Path, port: int) -> None:
    tmp_path.chmod(0o700)
    start(port, volume=str(tmp_path))
    assert run("podman", "wait", NODE).strip() == "1"
    log = run("podman", "logs", NODE)
    assert "svcd: the data directory /var/lib/svcd cannot be used: Permission denied" in log
    assert "Traceback" not in log


# --- compose.yaml ---


def services() -> dict[str, Any]:
    content = (ROOT / "conf" / "compose.yaml").read_text(encoding="utf-8").replace("${SVCD_NAME:?", "${")
    return yaml.safe_load(re.sub(r"\$\{[^}]*\}", "node.example.org", content))["services"]  # type: ignore[no-any-return]


def as_podman(service: dict[str, Any]) -> list[str]:
    """The options of `podman run` that a service of compose.yaml stands for; each key must be known here."""
    words: list[str] = []
    for key, value in service.items():
        match key:
            case "read_only":
                words += ["--read-only"] if value else []
            case "tmpfs" | "cap_drop" | "security_opt":
                words += [f"--{key.replace('_', '-')}={each}" for each in value]
            case "stop_grace_period":
                words += [f"--stop-timeout={value.removesuffix('s')}"]
            case "healthcheck":
                words += [f"--health-cmd={json.dumps(value['test'])}", f"--health-interval={value['interval']}"]
                words += [f"--health-timeout={value['timeout']}", f"--health-retries={value['retries']}"]
                words += [f"--health-start-period={value['start_period']}"]
            case "image" | "command" | "volumes" | "network_mode":
                pass
            # The engine of the test is not asked to restart, pull, or allow more open files than the sandbox.
            case "restart" | "pull_policy" | "ulimits":
                pass
            case _:
                raise AssertionError(f"compose.yaml: the test does not know {key}")
    return words


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder /srv/svcd of the page, made by the page's commands, with a certificate for the name."""
    [block] = re.findall(r"((?:^    .*\n)+)", PAGE[PAGE.index("    mkdir -p /srv/svcd") :], re.MULTILINE)[:1]
    commands = block.replace("/srv/svcd", str(tmp_path / "srv")).replace(" conf/", f" {ROOT}/conf/")
    run("bash", "-euc", commands)
    run(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=node.example.org"),
        *("-keyout", tmp_path / "privkey.pem", "-out", tmp_path / "fullchain.pem"),
    )
    return tmp_path / "srv"


def edited(source: Path, target: Path, **paths: Path) -> Path:
    """A configuration with the paths of the test's files in the place of those in a container."""
    text = source.read_text(encoding="utf-8")
    for name, path in paths.items():
        text, count = re.subn(rf"/etc/[\w./-]*/{re.escape(name.replace('_', '-'))}\.\w+", str(path), text)
        assert count, f"{source}: {name}"
    target.write_text(text, encoding="utf-8")
    return target


def test_nginx_and_prometheus_of_compose_reach_the_node(folder: Path, port: int) -> None:
    node = services()["node"]
    # The network of a container stands for that of the computer.
    run(
        *("podman", "run", "--detach", "--name", NETWORK, "--entrypoint=sleep", f"--publish=127.0.0.1:{port}:443"),
        *(*OPTIONS, IMAGE, "infinity"),
    )
    own = [each.replace("data:", "svcd-test:").replace("./", f"{folder}/") for each in node["volumes"]]
    volumes = [f"--volume={each}" for each in own]
    run(
        *("podman", "run", "--detach", "--name", NODE, f"--network=container:{NETWORK}"),
        *(*OPTIONS, *as_podman(node), *volumes, node["image"], *node["command"], "--network=devnet"),
    )
    process = run("podman", "inspect", "--format", "{{.State.Pid}}", NETWORK).strip()
    join = ("nsenter", "--target", process, "--net")
    site = edited(
        folder / "nginx.conf",
        folder / "site.conf",
        fullchain=folder.parent / "fullchain.pem",
        privkey=folder.parent / "privkey.pem",
    )
    (folder / "whole.conf").write_text(f"pid {folder}/pid; daemon off; events {{}} http {{ include {site}; }}")
    rules = edited(
        folder / "prometheus.yml",
        folder / "here.yml",
        svcd_rules=folder / "prometheus-rules.yml",
        svcd=folder / "prometheus.token",
    )
    commands = (
        ("nginx", "-c", folder / "whole.conf"),
        ("prometheus", f"--config.file={rules}", f"--storage.tsdb.path={folder}/metrics", LISTENING),
    )
    assert LISTENING in services()["prometheus"]["command"]
    quiet = subprocess.DEVNULL
    programs = [subprocess.Popen([*join, *map(str, each)], stdout=quiet, stderr=quiet) for each in commands]
    ask = ("curl", "--silent", "--insecure", "--resolve", f"node.example.org:{port}:127.0.0.1")
    status_of = (*ask, f"https://node.example.org:{port}/rpc/status")
    up = (*join, "curl", "--silent", "http://127.0.0.1:9090/api/v1/query?query=up")
    try:
        answers(status_of, lambda answer: answer["ok"])
        answers(up, lambda answer: [each["value"][1] for each in answer["data"]["result"]] == ["1"])
        assert '"name":"SvcdDown"' in run(*join, "curl", "--silent", "http://127.0.0.1:9090/api/v1/rules")
        run("podman", "restart", "--time", "30", NODE)
        answers(status_of, lambda answer: answer["ok"])
        assert stopped() == 0
    finally:
        for program in programs:
            program.terminate()
            program.wait(SECONDS)


def answers(command: tuple[str, ...], expected: Any) -> None:
    """Repeat a request until the answer is as expected."""
    deadline = time.monotonic() + SECONDS
    printed = ""
    while time.monotonic() < deadline:
        printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        try:
            if expected(json.loads(printed)):
                return
        except (ValueError, KeyError):
            pass
        time.sleep(0.5)
    raise AssertionError(f"{' '.join(command)}: {printed}")
