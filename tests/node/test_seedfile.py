"""Secret seeds in files of their owner."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from svcd.node.seedfile import SeedFileError, load_or_make, load_or_make_token

SEED = bytes(range(32))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "operator.key"


def no_random(size: int) -> bytes:
    pytest.fail("a seed that exists was made anew")


def write(path: Path, text: bytes, mode: int = 0o600) -> None:
    path.write_bytes(text)
    path.chmod(mode)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_seed_is_made_once_and_found_again(path: Path) -> None:
    asked: list[int] = []

    def random(size: int) -> bytes:
        asked.append(size)
        return SEED

    assert load_or_make(path, random) == SEED
    assert asked == [32]
    assert path.read_text() == SEED.hex() + "\n"
    assert load_or_make(path, no_random) == SEED


@pytest.mark.parametrize("umask", [0o000, 0o022], indirect=True)
def test_a_new_seed_is_readable_by_its_owner_only(path: Path, umask: int) -> None:
    load_or_make(path, lambda size: SEED)
    assert mode(path) == 0o600


def test_nothing_else_is_left_in_the_folder(path: Path) -> None:
    load_or_make(path, lambda size: SEED)
    assert list(path.parent.iterdir()) == [path]


def test_what_a_crash_left_behind_is_replaced(path: Path) -> None:
    partial = path.with_name("operator.key.new")
    write(partial, b"00", 0o644)
    assert load_or_make(path, lambda size: SEED) == SEED
    assert mode(path) == 0o600
    assert not partial.exists()


@pytest.mark.parametrize("text", [SEED.hex(), SEED.hex() + "\n"])
def test_a_seed_with_or_without_the_end_of_its_line(path: Path, text: str) -> None:
    write(path, text.encode())
    assert load_or_make(path, no_random) == SEED


@pytest.mark.parametrize("permissions", [0o640, 0o604, 0o660, 0o601, 0o644])
def test_a_seed_that_others_may_read_is_refused(path: Path, permissions: int) -> None:
    write(path, SEED.hex().encode(), permissions)
    with pytest.raises(SeedFileError) as refusal:
        load_or_make(path, no_random)
    assert str(refusal.value) == f"{path} can be read by others than its owner: run chmod 600 {path}"


@pytest.mark.parametrize("permissions", [0o600, 0o400, 0o700])
def test_a_seed_that_nobody_else_may_read_is_taken(path: Path, permissions: int) -> None:
    write(path, SEED.hex().encode(), permissions)
    assert load_or_make(path, no_random) == SEED


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        SEED.hex()[:-1].encode(),
        SEED.hex().encode() + b"0",
        SEED.hex().encode() + b"\n\n",
        SEED.hex().upper().encode(),
        b" " + SEED.hex().encode(),
        SEED,
        b"\xff" * 64,
        "\N{FULLWIDTH DIGIT ONE}".encode() * 64,
    ],
)
def test_a_file_that_holds_no_seed_is_refused_and_kept(path: Path, text: bytes) -> None:
    write(path, text)
    with pytest.raises(SeedFileError) as refusal:
        load_or_make(path, no_random)
    assert str(refusal.value) == (
        f"{path} must hold 64 lower-case hex characters: restore it, or move it away for a new key"
    )
    assert path.read_bytes() == text


def test_a_seed_in_a_folder_that_is_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none" / "operator.key"
    with pytest.raises(SeedFileError) as refusal:
        load_or_make(path, lambda size: SEED)
    assert str(refusal.value) == (
        f"{path} cannot be read or made: No such file or directory; it must be in a folder that exists and be open to "
        "the user that runs the node"
    )


def test_a_seed_below_a_file_is_refused(path: Path) -> None:
    path.write_text("a file")
    with pytest.raises(SeedFileError, match=r"operator\.key/key cannot be read or made: Not a directory; "):
        load_or_make(path / "key", lambda size: SEED)


def test_a_folder_and_a_pipe_are_no_seeds(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/")):
        with pytest.raises(SeedFileError) as refusal:
            load_or_make(path, no_random)
        assert str(refusal.value) == f"{path} is not a file: name one, or a place where one can be made"


def test_a_token_is_the_seed_in_hex(path: Path) -> None:
    assert load_or_make_token(path, lambda size: SEED) == SEED.hex()
    assert load_or_make_token(path, no_random) == SEED.hex()
    assert load_or_make(path, no_random) == SEED
