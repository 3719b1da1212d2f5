"""Completion as the shells ask for it: the protocol of click, through the installed program."""

import subprocess

import pytest

from tests.process_level.running import BIN, DEADLINE, ENVIRONMENT

pytestmark = pytest.mark.slow


def ask(shell: str, kind: str, *words: str) -> str:
    """What `svc` prints when a shell asks what may come after these words."""
    line = " ".join(["svc", *words])
    position = str(len(words))
    typed = words[-1] if words else ""
    env = ENVIRONMENT | {"_SVC_COMPLETE": f"{shell}_{kind}", "COMP_WORDS": line}
    env |= {"COMP_CWORD": typed if shell == "fish" else position}
    done = subprocess.run([BIN / "svc"], capture_output=True, text=True, env=env, timeout=DEADLINE, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_and_networks_are_completed(shell: str) -> None:
    commands = ask(shell, "complete", "wallet", "")
    assert all(name in commands for name in ("new", "import", "export", "address", "send", "pay", "history"))
    assert "devnet" in ask(shell, "complete", "wallet", "new", "--network", "d")
    assert "--since-height" in ask(shell, "complete", "verify", "--since")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    script = ask(shell, "source")
    assert f"_SVC_COMPLETE={shell}_complete" in script
