"""Which password counts: the file's, then the environment's, then the one that is typed."""

from pathlib import Path

import pytest

from svcd.wallet import passwords
from svcd.wallet.failed import Failed
from svcd.wallet.passwords import PasswordSource


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a password."""
    path = tmp_path / "password"
    path.write_text("from the file\n")
    path.chmod(0o600)
    return path


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each prompt was to be answered twice."""
    prompts: list[bool] = []

    def ask(_question: str, *, twice: bool) -> str:
        prompts.append(twice)
        return "from the keyboard"

    monkeypatch.setattr(passwords, "ask_password", ask)
    return prompts


ENVIRONMENT = {"SVC_WALLET_PASSWORD": "from the environment"}


def test_the_file_goes_first(file: Path, asked: list[bool]) -> None:
    assert PasswordSource(file, ENVIRONMENT).existing() == "from the file"
    assert PasswordSource(file, ENVIRONMENT).new() == "from the file"
    assert asked == []


def test_then_the_environment(asked: list[bool]) -> None:
    assert PasswordSource(None, ENVIRONMENT).existing() == "from the environment"
    assert PasswordSource(None, ENVIRONMENT).new() == "from the environment"
    assert asked == []


@pytest.mark.parametrize("environment", [{}, {"SVC_WALLET_PASSWORD": ""}])
def test_then_the_keyboard_twice_for_a_new_one(asked: list[bool], environment: dict[str, str]) -> None:
    assert PasswordSource(None, environment).existing() == "from the keyboard"
    assert PasswordSource(None, environment).new() == "from the keyboard"
    assert asked == [False, True]


def test_a_new_one_has_ten_characters(file: Path) -> None:
    file.write_text("too short")
    assert PasswordSource(file, {}).existing() == "too short"
    with pytest.raises(Failed, match="the password has 9 characters; choose one of at least 10"):
        PasswordSource(file, {}).new()


@pytest.mark.parametrize(
    ("content", "password"),
    [(b"plain\n", "plain"), (b"dos\r\n", "dos"), (b"bare", "bare"), (b" spaces \n", " spaces "), ("ü".encode(), "ü")],
)
def test_the_end_of_the_line_is_no_part_of_it(file: Path, content: bytes, password: str) -> None:
    file.write_bytes(content)
    assert PasswordSource(file, {}).existing() == password


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines\n", b"two\n\n"])
def test_a_file_holds_one_line(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(Failed, match="must hold one line, the password alone"):
        PasswordSource(file, {}).existing()


def test_a_file_holds_text(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(Failed, match="must hold UTF-8 text"):
        PasswordSource(file, {}).existing()
