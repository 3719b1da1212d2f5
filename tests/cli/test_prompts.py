"""The source of the password: the file, then the environment, then a prompt."""

from pathlib import Path

import pytest

from svcd.cli import prompts
from svcd.cli.errors import CommandError
from svcd.cli.prompts import PasswordSource


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a password."""
    path = tmp_path / "password"
    path.write_text("from the file\n")
    path.chmod(0o600)
    return path


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each prompt, whether the password was to be repeated."""
    twice_each: list[bool] = []

    def ask(_question: str, *, twice: bool) -> str:
        twice_each.append(twice)
        return "from the keyboard"

    monkeypatch.setattr(prompts, "prompt_password", ask)
    return twice_each


ENVIRONMENT = {"SVC_WALLET_PASSWORD": "from the environment"}


def test_the_password_file_has_precedence(file: Path, asked: list[bool]) -> None:
    assert PasswordSource(file, ENVIRONMENT).existing() == "from the file"
    assert PasswordSource(file, ENVIRONMENT).new() == "from the file"
    assert asked == []


def test_the_environment_comes_second(asked: list[bool]) -> None:
    assert PasswordSource(None, ENVIRONMENT).existing() == "from the environment"
    assert PasswordSource(None, ENVIRONMENT).new() == "from the environment"
    assert asked == []


@pytest.mark.parametrize("environment", [{}, {"SVC_WALLET_PASSWORD": ""}])
def test_the_prompt_comes_last_and_repeats_a_new_password(asked: list[bool], environment: dict[str, str]) -> None:
    assert PasswordSource(None, environment).existing() == "from the keyboard"
    assert PasswordSource(None, environment).new() == "from the keyboard"
    assert asked == [False, True]


def test_a_new_password_has_ten_characters(file: Path) -> None:
    file.write_text("too short")
    assert PasswordSource(file, {}).existing() == "too short"
    with pytest.raises(CommandError, match="the password has 9 characters; choose one of at least 10"):
        PasswordSource(file, {}).new()


@pytest.mark.parametrize(
    ("content", "password"),
    [(b"plain\n", "plain"), (b"dos\r\n", "dos"), (b"bare", "bare"), (b" spaces \n", " spaces "), ("ü".encode(), "ü")],
)
def test_the_line_end_is_stripped(file: Path, content: bytes, password: str) -> None:
    file.write_bytes(content)
    assert PasswordSource(file, {}).existing() == password


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines\n", b"two\n\n"])
def test_a_password_file_has_one_line(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(CommandError, match="must have one line and contain only the password"):
        PasswordSource(file, {}).existing()


def test_a_password_file_is_utf8(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(CommandError, match="must be UTF-8 text"):
        PasswordSource(file, {}).existing()
