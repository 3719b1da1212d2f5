"""The installed `svc` as a process, with real sockets and signals, and its shell completion."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import socketserver
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from svcd.chain.params import DEVNET
from tests.as_root import OWNER, give_to_owner, needs_root
from tests.cli.terminal import ADDRESS, KEYFILE, OTHER
from tests.programs import needs

pytestmark = pytest.mark.socket

SVC = str(Path(sys.executable).parent / "svc")
DEADLINE = 120.0
CLEAN_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("SVC_", "SVCD_"))}
NAMED = {"chainId": DEVNET.chain_id, "networkId": 2, "genesisHash": DEVNET.genesis_hash.hex()}


def answers() -> dict[str, Any]:
    """The responses of a devnet node on which the wallet has 10 coins."""
    status = {**NAMED, "syncState": "synced", "time": str(int(time.time() * 1000)), "height": "7", "slot": "14"}
    status |= {"hash": "ab" * 32, "nodeId": "svcnode_1", "softwareVersion": "0.0.1", "protocolVersion": "1.0"}
    return {
        "/rpc/status": {"status": status},
        "/rpc/consensus": {"consensus": {**NAMED, "minimumFee": "10000", "accountMinimum": "1000000"}},
        "/rpc/fees": {"fees": {"suggestedFee": "10000"}},
        f"/rpc/balance/{ADDRESS}": {
            "account": {
                "address": ADDRESS,
                "balance": "1000000000",
                "nonce": "0",
                "pendingNonce": "0",
                "pendingBalance": "1000000000",
            }
        },
        "/operator/status": {"status": {"height": "7"}},
        "/operator/faucet": {"txid": "cd" * 32},
        "/operator/backup": {"height": "7", "hash": "ab" * 32, "files": {"chain.sqlite": "1000"}},
    }


class Answering(BaseHTTPRequestHandler):
    """Responds by path; a block hangs until the client disconnects, a backup until the test continues."""

    def do_GET(self) -> None:
        if self.path.startswith("/rpc/block"):
            self.server.hanging.set()  # type: ignore[attr-defined]
            self.connection.recv(1)
            return
        members = answers()[self.path]
        if self.path == "/operator/backup":
            members["path"] = json.loads(self.server.posted)["path"]  # type: ignore[attr-defined]
        body = json.dumps({"ok": True, **members}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.server.posted = self.rfile.read(int(self.headers["Content-Length"]))  # type: ignore[attr-defined]
        if self.path == "/operator/backup":
            self.server.copied.wait(DEADLINE)  # type: ignore[attr-defined]
        self.do_GET()

    def log_message(self, *_args: object) -> None:
        pass

    def address_string(self) -> str:
        return "client"


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def serving(server: Any) -> Iterator[Any]:
    server.hanging, server.copied = threading.Event(), threading.Event()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def url() -> Iterator[tuple[str, Any]]:
    """A node at a TCP port: its URL and its server."""
    for server in serving(ThreadingHTTPServer(("127.0.0.1", 0), Answering)):
        yield f"http://127.0.0.1:{server.server_address[1]}", server


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[tuple[Path, Any]]:
    """A node's data directory with its socket, and the server behind it."""
    for server in serving(UnixServer(str(tmp_path / "operator.sock"), Answering)):
        yield tmp_path, server


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts `svc` with these arguments in an empty folder."""
    processes: list[tuple[subprocess.Popen[str], threading.Timer]] = []

    def begin(*words: str) -> "subprocess.Popen[str]":
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        (folder / "wallet.json").touch(0o600)
        (folder / "wallet.json").write_bytes(KEYFILE)
        (folder / "wallet.json").chmod(0o600)
        process = subprocess.Popen(
            [SVC, *words],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=CLEAN_ENVIRONMENT,
        )
        # Whatever a test waits for has happened by then.
        timer = threading.Timer(DEADLINE, process.kill)
        timer.start()
        processes.append((process, timer))
        return process

    yield begin
    for process, timer in processes:
        timer.cancel()
        process.kill()
        process.communicate()


def outcome(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    out, err = process.communicate()
    return process.returncode, out, err


def asked(process: "subprocess.Popen[str]", question: str) -> None:
    """Wait until the process has printed the question."""
    assert process.stderr is not None
    said = ""
    while question not in said:
        character = process.stderr.read(1)
        assert character, said
        said += character


Start = Callable[..., "subprocess.Popen[str]"]


def answered(folder: Path) -> str:
    """What a backup into the folder prints."""
    return f"""\
folder        {folder}
tip           7, {"ab" * 32}
chain.sqlite  0.0 MiB

The keys (operator.key, node.key) are not included: keep copies of them in a safe place.
"""


def test_status_over_tcp(start: Start, url: tuple[str, Any]) -> None:
    status, out, err = outcome(start("status", "--url", url[0]))
    assert (status, err) == (0, "")
    assert "network  SVC-DEVNET (network id 2)" in out.splitlines()


LOADED = """
import atexit, sys
from svcd.cli.main import main
atexit.register(lambda: print("loaded", *sys.modules, file=sys.stderr))
main()
"""


def loaded(*words: str) -> set[str]:
    """The modules that `svc` has imported by the end of a command."""
    command = [sys.executable, "-c", LOADED, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=CLEAN_ENVIRONMENT, timeout=DEADLINE, check=True)
    said, *modules = done.stderr.split()
    assert said == "loaded"
    return set(modules)


NOT_FOR_EACH_COMMAND = {
    *("twisted", "zope.interface", "treq", "klein", "werkzeug", "OpenSSL", "cryptography", "argon2", "apsw"),
    *("psycopg", "asyncio", "concurrent.futures", "httpx", "prometheus_client", "segno", "mnemonic", "multiprocessing"),
    *("svcd.keyfile", "svcd.store", "svcd.node", "svcd.web", "svcd.interfaces", "svcd.commerce", "svcd.light"),
    *("svcd.cli.wallet", "svcd.cli.merchant", "svcd.cli.operator", "svcd.cli.prompts", "svcd.cli.reactor"),
}
"""What takes time to import, and is for some commands only."""


@pytest.mark.parametrize("group", ["", "wallet", "webhook", "node", "db"])
def test_the_help_of_a_group_imports_none_of_its_commands(group: str) -> None:
    not_for_help = {*NOT_FOR_EACH_COMMAND, "nacl", "svcd.chain.transaction", "svcd.cli.chain_commands"}
    assert loaded(*group.split(), "--help") & not_for_help == set()


def test_status_imports_only_what_it_needs(url: tuple[str, Any]) -> None:
    """docs/performance.md has the times of status and help."""
    asked = loaded("status", "--url", url[0])
    assert "svcd.cli.chain_commands" in asked
    assert asked & NOT_FOR_EACH_COMMAND == set()


def test_status_over_the_unix_socket(start: Start, data_dir: tuple[Path, Any]) -> None:
    assert outcome(start("node", "status", "--data-dir", str(data_dir[0]))) == (0, "height  7\n", "")


@needs_root
def test_root_takes_a_socket_of_the_directory_s_owner(start: Start, data_dir: tuple[Path, Any]) -> None:
    give_to_owner(data_dir[0])
    assert outcome(start("node", "status", "--data-dir", str(data_dir[0])))[0] == 0


def linked(data: Path, socket: Path) -> None:
    (data / "operator.sock").symlink_to(socket)


def named_twice(data: Path, socket: Path) -> None:
    (data / "operator.sock").hardlink_to(socket)


def of_a_third_user(data: Path, socket: Path) -> None:
    socket.rename(data / "operator.sock")
    os.chown(data / "operator.sock", OWNER[0] + 1, OWNER[1])


def a_file(data: Path, _socket: Path) -> None:
    (data / "operator.sock").write_text("")


@needs_root
@pytest.mark.parametrize("put", [linked, named_twice, of_a_third_user, a_file])
def test_root_gives_no_order_to_a_program_that_the_node_s_user_has_put_there(
    start: Start, data_dir: tuple[Path, Any], put: Callable[[Path, Path], None]
) -> None:
    data = data_dir[0] / "data"
    data.mkdir()
    give_to_owner(data)
    put(data, data_dir[0] / "operator.sock")
    status, out, err = outcome(start("node", "faucet", OTHER, "1", "--data-dir", str(data)))
    assert (status, out) == (1, "")
    assert err.startswith(f"Error: root does not connect to {data}/operator.sock: it must be a socket of the directory")
    assert not hasattr(data_dir[1], "posted")


def test_a_body_over_the_unix_socket(start: Start, data_dir: tuple[Path, Any]) -> None:
    folder, server = data_dir
    status, out, err = outcome(start("node", "faucet", OTHER, "2.50", "--json", "--data-dir", str(folder)))
    assert (status, json.loads(out), err) == (0, {"txid": "cd" * 32}, "")
    assert json.loads(server.posted) == {"recipient": OTHER, "amount": "2.5"}


def test_backup_progress_at_a_terminal(data_dir: tuple[Path, Any]) -> None:
    folder, server = data_dir
    (folder / "chain.sqlite").write_bytes(bytes(1000))
    partial = folder / "copy.partial"
    partial.mkdir()
    (partial / "chain.sqlite").write_bytes(bytes(480))
    ours, theirs = pty.openpty()
    command = [SVC, "node", "backup", str(folder / "copy"), "--data-dir", str(folder)]
    process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    timer = threading.Timer(DEADLINE, process.kill)
    timer.start()
    said = b""
    while b"48%" not in said:
        said += os.read(ours, 1024)
    server.copied.set()
    assert outcome(process)[:2] == (0, answered(folder / "copy"))
    timer.cancel()
    with suppress(OSError):
        while piece := os.read(ours, 1024):
            said += piece
    os.close(ours)
    assert b"100%" in said
    assert said.endswith(b"\n")


def test_failures_are_one_line_and_status_1(start: Start, tmp_path: Path) -> None:
    assert outcome(start("node", "status", "--data-dir", str(tmp_path))) == (
        1,
        "",
        f"Error: cannot connect to {tmp_path}/operator.sock: no such file or directory; is the node running?"
        " Give its data directory with --data-dir or SVCD_DATA_DIR\n",
    )


PRINTING = [("status",), ("status", "--json"), ("help",), ("--help",), ("--version",), ("network", "show", "devnet")]


def printing(words: tuple[str, ...], url: str, *, stdout: Any, redirection: str = "") -> tuple[int, str]:
    """Exit status and standard error of `svc`, as a shell redirects its standard output."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" "$@" {redirection}', SVC, "--url", url, *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=CLEAN_ENVIRONMENT,
        text=True,
        timeout=DEADLINE,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", PRINTING)
@pytest.mark.parametrize(
    ("redirection", "reason"), [(">/dev/full", "no space left on device"), (">&-", "bad file descriptor")]
)
def test_output_that_nobody_gets_is_a_failure_of_one_line(
    url: tuple[str, Any], words: tuple[str, ...], redirection: str, reason: str
) -> None:
    assert printing(words, url[0], stdout=subprocess.DEVNULL, redirection=redirection) == (
        1,
        f"Error: standard output cannot be written: {reason}; what the command has done is not undone\n",
    )


@pytest.mark.parametrize("words", PRINTING)
def test_a_reader_that_has_gone_ends_a_command_like_sigpipe(url: tuple[str, Any], words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as stdout:
        assert printing(words, url[0], stdout=stdout) == (128 + signal.SIGPIPE, "")


IGNORANT = """
from contextlib import suppress
from svcd.cli.standard_output import checked_output
with checked_output():
    for _ in range(2):
        with suppress(OSError):
            print("lost", flush=True)
"""


def test_a_failure_that_a_command_ignores_is_its_failure_all_the_same() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-c", IGNORANT], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, "no space left on device" in done.stderr) == (1, True)


def test_ctrl_c_ends_a_prompt(start: Start, url: tuple[str, Any]) -> None:
    process = start("wallet", "send", OTHER, "1", "--url", url[0])
    asked(process, "[y/N]: ")
    process.send_signal(signal.SIGINT)
    assert outcome(process) == (1, "", "Aborted!\n")


def test_sigterm_ends_a_prompt(start: Start, url: tuple[str, Any]) -> None:
    process = start("wallet", "send", OTHER, "1", "--url", url[0])
    asked(process, "[y/N]: ")
    process.send_signal(signal.SIGTERM)
    assert outcome(process)[0] == -signal.SIGTERM


def test_ctrl_c_ends_a_request(start: Start, url: tuple[str, Any]) -> None:
    process = start("block", "1", "--url", url[0])
    assert url[1].hanging.wait(DEADLINE)
    process.send_signal(signal.SIGINT)
    assert outcome(process) == (1, "", "\nAborted!\n")


STUCK = """
import os, signal, click
from twisted.internet.defer import Deferred
from svcd.cli.reactor import run_in_reactor

async def work(reactor):
    reactor.callWhenRunning(os.kill, os.getpid(), signal.SIGINT)
    await Deferred()

try:
    run_in_reactor(work)
except click.Abort:
    print("aborted")
"""


def test_ctrl_c_ends_a_command_without_network_activity() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "aborted\n", "")


DUMPABLE = """
import ctypes, resource
from svcd.cli.main import system_runtime
system_runtime().forbid_core_dumps()
print(resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""


def test_a_crash_of_the_wallet_writes_no_core_dump() -> None:
    done = subprocess.run([sys.executable, "-c", DUMPABLE], capture_output=True, text=True, timeout=DEADLINE)
    assert (done.stdout, done.stderr) == ("(0, 0) 0\n", "")


def read_until(terminal: int, text: bytes, said: bytes = b"") -> bytes:
    """What a process writes to its terminal, up to a text."""
    while text not in said:
        said += os.read(terminal, 1024)
    return said


def signalled(process: "subprocess.Popen[str]", terminal: int, number: int) -> bytes:
    """What a process writes to its terminal when it is aborted by a signal.

    One that comes between Python's last look and read(2) has no effect before the next line or the next signal.
    """
    process.send_signal(number)
    said = b""
    while b"Aborted!" not in said:
        ready, _, _ = select.select([terminal], [], [], 5)
        if ready:
            said += os.read(terminal, 1024)
        else:
            process.send_signal(number)
    return said


@pytest.mark.parametrize("end", ["answers", "SIGINT", "SIGQUIT", "SIGTERM"])
def test_new_words_are_on_a_screen_of_their_own(tmp_path: Path, end: str) -> None:
    (tmp_path / "password").touch(0o600)
    (tmp_path / "password").write_text("correct horse battery staple")
    ours, theirs = pty.openpty()
    command = [SVC, "wallet", "new", "--network", "devnet", "--password-file", "password"]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, text=True, cwd=tmp_path, start_new_session=True
    )
    os.close(theirs)
    timer = threading.Timer(DEADLINE, process.kill)
    timer.start()
    shown = read_until(ours, b"Press Enter once they are on paper")
    before, _, screen = shown.partition(b"\x1b[?1049h\x1b[H\x1b[2J")
    words = dict(re.findall(r"([0-9]+) ([a-z]+)", screen.decode().partition("send them.")[2]))
    assert len(words) == 24
    assert before == b""
    if end == "answers":
        os.write(ours, b"\n")
        asked = read_until(ours, b"from your copy: ")
        cleared, _, question = asked.partition(b"\x1b[H\x1b[2J\x1b[?1049l")
        # Not by looking for the words: "word" and "copy" may be among them.
        assert cleared == b"\r\n"
        assert re.fullmatch(rb"Type word [0-9]+ from your copy: ", question)
        for turn in (1, 2):
            place = re.findall(rb"Type word ([0-9]+) from your copy: ", question)[-1].decode()
            os.write(ours, f"{words[place]}\n".encode())
            if turn == 1:
                question = read_until(ours, b"from your copy: ")
        assert outcome(process)[0] == 0
        assert (tmp_path / "wallet.json").exists()
    else:
        left = signalled(process, ours, signal.Signals[end])
        assert b"\x1b[H\x1b[2J\x1b[?1049l" in left.partition(b"Aborted!")[0]
        assert outcome(process)[0] == 1
        assert not (tmp_path / "wallet.json").exists()
    timer.cancel()
    os.close(ours)


SEEN = """
from svcd.cli.main import system_runtime
runtime = system_runtime()
print(runtime.interactive(), runtime.stderr_is_terminal(), runtime.terminal_width())
"""


def test_a_terminal_is_detected_with_its_width() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 57, 0, 0))
    unsized = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-c", SEEN]
    done = subprocess.run(command, stdin=theirs, stdout=theirs, stderr=theirs, env=unsized, timeout=DEADLINE)
    os.close(theirs)
    with os.fdopen(ours, "rb") as terminal:
        assert (done.returncode, terminal.readline()) == (0, b"True True 57\r\n")


def test_pipes_are_not_terminals() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SEEN], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE
    )
    assert (done.stdout, done.stderr) == ("False False None\n", "")


def completion(shell: str, kind: str, *words: str) -> str:
    """The output of `svc` for a shell that completes these words."""
    line = " ".join(["svc", *words])
    position = str(len(words))
    typed = words[-1] if words else ""
    env = CLEAN_ENVIRONMENT | {"_SVC_COMPLETE": f"{shell}_{kind}", "COMP_WORDS": line}
    env |= {"COMP_CWORD": typed if shell == "fish" else position}
    done = subprocess.run([SVC], capture_output=True, text=True, env=env, timeout=DEADLINE, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_and_networks_are_completed(shell: str) -> None:
    commands = completion(shell, "complete", "wallet", "")
    assert all(name in commands for name in ("new", "import", "export", "address", "send", "pay", "history"))
    assert "devnet" in completion(shell, "complete", "wallet", "new", "--network", "d")
    assert "--since-height" in completion(shell, "complete", "verify", "--since")
    assert "watch" in completion(shell, "complete", "webhook", "w")
    states = completion(shell, "complete", "webhook", "list", "--state", "confirm")
    assert "confirming" in states
    assert "pending" not in states
    assert "payment.dropped" in completion(shell, "complete", "webhook", "register", "--event", "payment.d")
    topics = completion(shell, "complete", "help", "paym")
    assert "payment-proof" in topics
    assert "payments" in topics
    assert "peers" not in topics


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    script = completion(shell, "source")
    assert f"_SVC_COMPLETE={shell}_complete" in script


TYPED_IN_ZSH = r"""
zmodload zsh/zpty
zpty typed 'zsh -fi'
zpty -w typed 'tell() { print -r -- $BUFFER > $TOLD; BUFFER=exit; zle accept-line }'
zpty -w typed 'zle -N tell; bindkey "^T" tell; autoload -U compinit; compinit -Du'
zpty -w typed $LINE
zpty -w typed "PS1='typed''here '"
zpty -rm typed seen '*typedhere *'
zpty -nw typed $'svc wallet exp\t\x14'
while zpty -r typed seen; do :; done
cat $TOLD
"""
"""zsh completes only where somebody types: another zsh does, and prints what its line has become."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "arguments", "ask", "answer"),
    [
        pytest.param(
            "bash",
            ("--norc", "-euc"),
            "COMP_WORDS=(svc wallet exp) COMP_CWORD=2; _svc_completion svc exp wallet\n"
            "echo ${COMPREPLY[@]}; complete -p svc",
            "export\ncomplete -o nosort -F _svc_completion svc\n",
            marks=needs("bash"),
        ),
        pytest.param("zsh", ("-fec",), TYPED_IN_ZSH, "svc wallet export \n", marks=needs("zsh")),
        pytest.param(
            "fish",
            ("--no-config", "-c"),
            "complete -C 'svc wallet exp'",
            "export\tPrint the keyfile\n",
            marks=needs("fish"),
        ),
    ],
)
def test_a_shell_with_the_line_of_the_page_completes(
    shell: str, arguments: tuple[str, ...], ask: str, answer: str, tmp_path: Path
) -> None:
    page = Path(__file__).parents[2].joinpath("docs", "command-line.md").read_text(encoding="utf-8")
    [line] = [line.strip() for line in page.splitlines() if f"_SVC_COMPLETE={shell}_source" in line]
    env = {"PATH": f"{Path(SVC).parent}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb"}
    done = subprocess.run(
        [shell, *arguments, ask if shell == "zsh" else f"{line}\n{ask}"],
        capture_output=True,
        text=True,
        env=CLEAN_ENVIRONMENT | env | {"LINE": line, "TOLD": str(tmp_path / "told")},
        timeout=DEADLINE,
        check=False,
    )
    assert (done.stdout, done.stderr) == (answer, "")
