"""The files of keys and of the operator's token: made once, for their owner only, and refused when they are damaged."""

import os
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.seed_file import (
    CopiedSeed,
    SeedFileError,
    SeedKind,
    load_or_make,
    load_or_make_token,
    parse_copy,
    parse_seed,
    render_seed,
)

SEED = bytes(range(32))
FILE = render_seed(SEED, SeedKind.BLOCK)


@pytest.fixture
def seed_file(tmp_path: Path) -> Path:
    return tmp_path / "operator.key"


def no_random(size: int) -> bytes:
    pytest.fail("a seed that exists was made anew")


def write(seed_file: Path, text: bytes, mode: int = 0o600) -> None:
    seed_file.write_bytes(text)
    seed_file.chmod(mode)


def mode(seed_file: Path) -> int:
    return stat.S_IMODE(seed_file.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_seed_is_made_once_and_found_again(seed_file: Path) -> None:
    asked: list[int] = []

    def random(size: int) -> bytes:
        asked.append(size)
        return SEED

    assert load_or_make(seed_file, SeedKind.BLOCK, random) == SEED
    assert asked == [32]
    assert seed_file.read_bytes() == FILE
    assert load_or_make(seed_file, SeedKind.BLOCK, no_random) == SEED


@pytest.mark.parametrize("umask", [0o000, 0o022], indirect=True)
def test_a_new_seed_is_readable_by_its_owner_only(seed_file: Path, umask: int) -> None:
    load_or_make(seed_file, SeedKind.BLOCK, lambda size: SEED)
    assert mode(seed_file) == 0o600


def test_nothing_else_is_left_in_the_folder(seed_file: Path) -> None:
    load_or_make(seed_file, SeedKind.BLOCK, lambda size: SEED)
    assert list(seed_file.parent.iterdir()) == [seed_file]


def test_files_left_by_a_crash_are_replaced(seed_file: Path) -> None:
    partial = seed_file.with_name("operator.key.new")
    write(partial, b"00", 0o644)
    assert load_or_make(seed_file, SeedKind.BLOCK, lambda size: SEED) == SEED
    assert mode(seed_file) == 0o600
    assert not partial.exists()


@pytest.mark.parametrize("text", [FILE, FILE[:-1]])
def test_a_seed_with_or_without_the_end_of_its_last_line(seed_file: Path, text: bytes) -> None:
    write(seed_file, text)
    assert load_or_make(seed_file, SeedKind.BLOCK, no_random) == SEED


@pytest.mark.parametrize("permissions", [0o640, 0o604, 0o660, 0o601, 0o644])
def test_a_seed_that_others_may_read_is_refused(seed_file: Path, permissions: int) -> None:
    write(seed_file, FILE, permissions)
    with pytest.raises(SeedFileError) as refusal:
        load_or_make(seed_file, SeedKind.BLOCK, no_random)
    assert str(refusal.value) == f"{seed_file} can be read by others than its owner: run chmod 600 {seed_file}"


@pytest.mark.parametrize("permissions", [0o600, 0o400, 0o700])
def test_a_seed_that_nobody_else_may_read_is_taken(seed_file: Path, permissions: int) -> None:
    write(seed_file, FILE, permissions)
    assert load_or_make(seed_file, SeedKind.BLOCK, no_random) == SEED


TOLD_LACKS = (
    "{path} lacks the second line, the checksum of the key: svc node key import makes an encrypted key of its digits, "
    "or move it away for a new key"
)
TOLD_FORM = (
    "{path} must contain two lines, the block key of 64 lower-case hex digits and its checksum: restore it, or move it "
    "away for a new key"
)
TOLD_DAMAGED = (
    "{path} is damaged, because the block key in it does not have its checksum: restore it, or move it away for a new "
    "key"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", TOLD_FORM),
        (b"\n", TOLD_FORM),
        (FILE[1:], TOLD_FORM),
        (b"0" + FILE, TOLD_FORM),
        (FILE + b"\n", TOLD_FORM),
        (FILE[:-2], TOLD_FORM),
        (FILE.upper(), TOLD_FORM),
        (b" " + FILE, TOLD_FORM),
        (
            SEED,
            "{path} must not have U+0000 (NULL) in line 1, column 1; nobody sees it: remove it, or type the text again"
            "; restore it, or move it away for a new key",
        ),
        (
            b"\xff" * 64,
            "{path} must be UTF-8 text; the byte at offset 0 is not; restore it, or move it away for a new key",
        ),
        ("\N{FULLWIDTH DIGIT ONE}".encode() * 64 + FILE[64:], TOLD_FORM),
        (FILE[:64], TOLD_LACKS),
        (FILE[:65], TOLD_LACKS),
        (FILE.replace(b"0", b"1", 1), TOLD_DAMAGED),
        (render_seed(bytes(32), SeedKind.BLOCK)[:64] + FILE[64:], TOLD_DAMAGED),
        (render_seed(SEED, SeedKind.NODE), "{path} contains a node key, and must contain the block key: restore it"),
    ],
)
def test_a_file_that_holds_no_seed_is_refused_and_kept(seed_file: Path, text: bytes, told: str) -> None:
    write(seed_file, text)
    with pytest.raises(SeedFileError) as refusal:
        load_or_make(seed_file, SeedKind.BLOCK, no_random)
    assert str(refusal.value) == told.format(path=seed_file)
    assert seed_file.read_bytes() == text


@given(st.binary(min_size=32, max_size=32), st.sampled_from(SeedKind), st.integers(0, 88), st.integers(0, 7))
def test_a_flipped_bit_is_refused(seed: bytes, kind: SeedKind, at: int, bit: int) -> None:
    file = bytearray(render_seed(seed, kind))
    assert len(file) == 89
    assert parse_seed(bytes(file), kind, Path("node.key")) == seed
    file[at] ^= 1 << bit
    with pytest.raises(SeedFileError, match=r"^node\.key (is damaged|must contain|lacks|must be UTF-8|must not have)"):
        parse_seed(bytes(file), kind, Path("node.key"))


def test_the_checksum_is_the_documented_one() -> None:
    """docs/block-key.md "The file": so a person can make the file of a key on paper."""
    whole = sha256(b"svcd block key: " + SEED.hex().encode()).hexdigest()
    assert f"{SEED.hex()}\nsha256:{whole[:16]}\n".encode() == FILE


CHECKSUM = FILE.decode().split()[1]
GROUPS = " ".join(SEED.hex()[at : at + 8].upper() for at in range(0, 64, 8))


@pytest.mark.parametrize(
    ("text", "is_checked"),
    [(FILE.decode(), True), (SEED.hex(), False), (GROUPS, False), (f" {GROUPS}\n{CHECKSUM.upper()}\r\n", True)],
)
def test_digits_from_paper(text: str, is_checked: bool) -> None:
    assert parse_copy(text, SeedKind.BLOCK, "paper") == CopiedSeed(SEED, is_checked)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "paper must have the 64 hex digits of a block key, and may have its checksum"),
        (GROUPS[1:], "paper must have the 64 hex digits of a block key, and may have its checksum"),
        (f"{CHECKSUM} {GROUPS}", "paper must have the 64 hex digits of a block key, and may have its checksum"),
        (f"1{GROUPS[1:]} {CHECKSUM}", "paper has a wrong digit, or the checksum of another key: compare it with the "),
        (
            render_seed(SEED, SeedKind.NODE).decode(),
            "paper has a wrong digit, or the checksum of another ",
        ),
    ],
)
def test_digits_from_paper_that_are_wrong(text: str, told: str) -> None:
    with pytest.raises(SeedFileError) as refusal:
        parse_copy(text, SeedKind.BLOCK, "paper")
    assert str(refusal.value).startswith(told)


def test_a_seed_in_a_folder_that_is_missing_is_refused(tmp_path: Path) -> None:
    seed_file = tmp_path / "none" / "operator.key"
    with pytest.raises(SeedFileError) as refusal:
        load_or_make(seed_file, SeedKind.BLOCK, lambda size: SEED)
    assert str(refusal.value) == (
        f"{seed_file} cannot be read or made: No such file or directory; it must be in a folder that exists and be "
        "open to the user that runs the node"
    )


def test_a_seed_below_a_file_is_refused(seed_file: Path) -> None:
    seed_file.write_text("a file")
    with pytest.raises(SeedFileError, match=r"operator\.key/key cannot be read or made: Not a directory; "):
        load_or_make(seed_file / "key", SeedKind.BLOCK, lambda size: SEED)


def test_a_folder_and_a_pipe_are_no_seeds(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for seed_file in (tmp_path, tmp_path / "pipe", Path("/")):
        with pytest.raises(SeedFileError) as refusal:
            load_or_make(seed_file, SeedKind.BLOCK, no_random)
        assert str(refusal.value) == f"{seed_file} is not a file: name one, or a place where one can be made"


def test_a_token_is_one_line(seed_file: Path) -> None:
    assert load_or_make_token(seed_file, lambda size: SEED) == SEED.hex()
    assert seed_file.read_text() == f"{SEED.hex()}\n"
    assert load_or_make_token(seed_file, no_random) == SEED.hex()
    write(seed_file, b"secret\n")
    with pytest.raises(SeedFileError) as refusal:
        load_or_make_token(seed_file, no_random)
    assert str(refusal.value) == (
        f"{seed_file} must contain 64 lower-case hex digits: restore it, or move it away for another"
    )
