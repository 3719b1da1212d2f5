"""The source of the password: the file, then the environment, then a prompt."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from svcd.cli.errors import CommandError
from svcd.cli.prompts import PasswordSource


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a password."""
    path = tmp_path / "password"
    path.write_text("from the file\n")
    path.chmod(0o600)
    return path


def typed(source: PasswordSource, *lines: str, new: bool = False) -> tuple[str, list[str]]:
    """The password of a source with a user who types these lines, and the questions; a CommandError is its sentence."""
    with CliRunner().isolation("".join(f"{line}\n" for line in lines)) as (_, err, *_):
        try:
            password = source.new() if new else source.existing()
        except CommandError as error:
            password = str(error)
        return password, err.getvalue().decode().splitlines()


ENVIRONMENT = {"SVC_WALLET_PASSWORD": "from the environment"}
STRONG = "from the keyboard"


def test_the_password_file_has_precedence(file: Path) -> None:
    assert typed(PasswordSource(file, ENVIRONMENT)) == ("from the file", [])
    assert typed(PasswordSource(file, ENVIRONMENT), new=True) == ("from the file", [])


def test_the_environment_comes_second() -> None:
    assert typed(PasswordSource(None, ENVIRONMENT))[0] == "from the environment"
    assert typed(PasswordSource(None, ENVIRONMENT), new=True)[0] == "from the environment"


@pytest.mark.parametrize("environment", [{}, {"SVC_WALLET_PASSWORD": ""}])
def test_the_prompt_comes_last_and_repeats_a_new_password(environment: dict[str, str]) -> None:
    source = PasswordSource(None, environment)
    assert typed(source, STRONG) == (STRONG, ["Password of the wallet: "])
    new = ["New password, at least 10 characters: ", "Repeat the password: "]
    assert typed(source, STRONG, STRONG, new=True) == (STRONG, new)
    differ = [*new, "Error: The two entered values do not match.", *new]
    assert typed(source, STRONG, "another one", STRONG, STRONG, new=True) == (STRONG, differ)


def test_a_weak_password_is_refused_before_it_is_repeated() -> None:
    sentence, asked = typed(PasswordSource(None, {}), "aaaaaaaaaaaa", new=True)
    assert sentence == "the password repeats the same characters; choose for example six random words"
    assert asked == ["New password, at least 10 characters: "]


def test_a_new_password_has_ten_characters(file: Path) -> None:
    file.write_text("too short")
    assert PasswordSource(file, {}).existing() == "too short"
    with pytest.raises(CommandError, match="the password has 9 characters; choose one of at least 10"):
        PasswordSource(file, {}).new()


@pytest.mark.parametrize(
    ("content", "password"),
    [
        *((b"plain\n", "plain"), (b"dos\r\n", "dos"), (b"bare", "bare"), (b" spaces \n", " spaces ")),
        *((b"end\n\n", "end"), ("ü".encode(), "ü")),
    ],
)
def test_the_line_end_is_stripped(file: Path, content: bytes, password: str) -> None:
    file.write_bytes(content)
    assert PasswordSource(file, {}).existing() == password


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines\n", b"\ntwo"])
def test_a_password_file_has_one_line(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(CommandError, match="must have one line and contain only the password"):
        PasswordSource(file, {}).existing()


def test_a_password_file_is_utf8(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(CommandError, match="must be UTF-8 text"):
        PasswordSource(file, {}).existing()
