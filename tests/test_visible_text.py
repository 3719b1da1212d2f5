"""What people see of a text, and the files that they write: one answer of every reader to what they cannot see."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.params import DEVNET
from svcd.cli.merchant.payments import read_saved_response
from svcd.cli.prices import read_prices
from svcd.cli.secure_files import read_bounded, read_secret_line, read_secret_text, read_seed
from svcd.cli.wallet.page_check import PAGE, POLICY, parse_hashes
from svcd.cli.wallet.prompts import read_words
from svcd.commerce.payment_request import FORBIDDEN_IN_LABEL
from svcd.composition.block_key import KeyPassword
from svcd.config.layers import ConfigError
from svcd.config.loader import load
from svcd.config.network_file import read_network_file
from svcd.keyfile import parse
from svcd.pages.texts import load as load_texts
from svcd.seed_file import SeedKind, is_encrypted, load_or_make, load_or_make_token, render_seed
from svcd.store.postgresql import read_address
from svcd.visible_text import BadText, line_of, shown, text_of, visible
from tests.cli.terminal import KEYFILE
from tests.cli.wallet.test_mnemonic import WORDS
from tests.test_network_file import TEXT as NETWORK

VECTORS = Path(__file__).parent / "vectors"
TEXTS = json.loads((VECTORS / "visible.json").read_text("utf-8"))["texts"]
LINES = json.loads((VECTORS / "secret_lines.json").read_text("utf-8"))["cases"]
MARK = b"\xef\xbb\xbf"
SECRET = b"correct-horse-battery-staple-4711"
WEBHOOKS = b'[commerce.webhooks]\nenabled = true\nmanageTokenFile = "token"\nsigningSecretFile = "secret"\n'


def config_with(secret: bytes, folder: Path) -> Any:
    """The configuration of a node with this content of the file of its signing secret."""
    for name, content in (("svcd.toml", WEBHOOKS), ("token", b"t" * 32), ("secret", secret)):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    (folder / "svcd.toml").write_bytes(b'dataDir = "%s"\n' % os.fsencode(folder) + WEBHOOKS)
    return load(folder / "svcd.toml").commerce.webhooks.signing_secret


def key_password(file: Path) -> str:
    """The password of the block key in a file, as the node reads it at its start."""
    return KeyPassword(descriptor=os.open(file, os.O_RDONLY), environment={}, prompt=None).password(load())


def texts_with(file: Path) -> Any:
    """A language of the pages in a file."""
    (file.parent / "en.json").write_bytes(file.read_bytes())
    file.unlink()
    return load_texts(file.parent).choose(b"en").language


HASHES = f"{64 * 'a'}  {PAGE} {POLICY}\n{64 * 'b'}  {PAGE} en\n".encode()
ENGLISH = Path(__file__).parents[1] / "svcd" / "pages" / "texts" / "en.json"
LINE_READERS: Mapping[str, tuple[bytes, Callable[[Path], Any]]] = {
    "secret of the node": (SECRET, lambda file: config_with(file.read_bytes(), file.parent)),
    "password of the block key": (SECRET, key_password),
    "password or token of svc": (SECRET, lambda file: read_secret_line(file, "the password")),
    "token of the operator": (b"5a" * 32 + b"\n", lambda file: load_or_make_token(file, os.urandom)),
}
TEXT_READERS: Mapping[str, tuple[bytes, Callable[[Path], Any]]] = {
    "configuration": (b'network = "devnet"\n[log]\nlevel = "warn"\n', lambda file: load(file).log.level),
    "network": (NETWORK.encode(), lambda file: read_network_file(file).genesis_hash),
    "key": (render_seed(SECRET[:32], SeedKind.BLOCK), lambda file: load_or_make(file, SeedKind.BLOCK, os.urandom)),
    "key for svc": (render_seed(SECRET[:32], SeedKind.BLOCK), read_seed),
    "keyfile": (KEYFILE, lambda file: parse(file.read_bytes(), (DEVNET,)).address),
    "digits of a key": (b"5a" * 32 + b"\n", read_secret_text),
    "words": ("\n".join(WORDS).encode(), read_words),
    "prices": (b"time,EUR\n2026-11-30,0.48\n", lambda file: read_prices(file).prices),
    "hashes of the wallet's page": (HASHES, lambda file: parse_hashes(read_bounded(file, 4096), file)),
}
READERS = {**LINE_READERS, **TEXT_READERS}


def written(folder: Path, content: bytes) -> Path:
    file = folder / "written"
    file.write_bytes(content)
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("name", READERS)
def test_a_byte_order_mark_and_the_lines_of_windows_are_no_part_of_any_file(tmp_path: Path, name: str) -> None:
    content, read = READERS[name]
    value = read(written(tmp_path, content))
    assert read(written(tmp_path, MARK + content)) == value
    assert read(written(tmp_path, content.rstrip(b"\n").replace(b"\n", b"\r\n") + b"\r\n")) == value


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("character", "told"),
    [
        ("\u200b", "U+200B (ZERO WIDTH SPACE)"),
        ("\ufeff", "U+FEFF (ZERO WIDTH NO-BREAK SPACE)"),
        ("\u202e", "U+202E (RIGHT-TO-LEFT OVERRIDE)"),
        ("\x00", "U+0000 (NULL)"),
    ],
)
def test_what_nobody_sees_is_refused_by_its_name_and_its_place_in_any_file(
    tmp_path: Path, name: str, character: str, told: str
) -> None:
    content, read = READERS[name]
    changed = content[:3] + character.encode() + content[3:]
    with pytest.raises(Exception, match="must not have ") as refused:
        read(written(tmp_path, changed))
    assert f"must not have {told} in line 1, column 4; " in str(refused.value)
    assert ("a byte order mark is accepted only at the beginning" in str(refused.value)) is (character == "\ufeff")
    assert SECRET.decode() not in str(refused.value)


@pytest.mark.parametrize("name", READERS)
def test_another_encoding_is_refused_by_its_name_in_any_file(tmp_path: Path, name: str) -> None:
    content, read = READERS[name]
    for encoding in ("utf-16-le", "utf-16-be"):
        with pytest.raises(Exception, match="must be UTF-8 text, and is UTF-16: save it as UTF-8"):
            read(written(tmp_path, f"\ufeff{content.decode()}".encode(encoding)))


@pytest.mark.parametrize("name", LINE_READERS)
def test_a_second_line_is_refused_where_one_is_meant(tmp_path: Path, name: str) -> None:
    content, read = LINE_READERS[name]
    with pytest.raises(Exception, match="must have one line and contain only the "):
        read(written(tmp_path, content + b"\nanother"))


def test_files_of_programs_may_have_a_byte_order_mark_too(tmp_path: Path) -> None:
    assert read_saved_response(written(tmp_path, MARK + b'{"ok": true}')) == b'{"ok": true}'
    assert texts_with(written(tmp_path, MARK + ENGLISH.read_bytes())) == "en"
    assert is_encrypted(MARK + b"  {")
    uri = b"postgresql://svcd@db/svcd\n"
    assert read_address(written(tmp_path, MARK + uri)) == read_address(written(tmp_path, uri)) is not None


def accepted(content: bytes) -> str:
    """The secret in a file; "" if there is none."""
    try:
        return line_of(content, "the secret").strip(" ")
    except BadText:
        return ""


@pytest.mark.parametrize("case", LINES, ids=lambda case: case["name"])
def test_the_text_of_a_secrets_file(case: dict[str, str | None]) -> None:
    content, secret = str(case["text"]).encode(), case["secret"]
    if secret is None:
        assert not accepted(content)
    else:
        assert accepted(content) == secret


@given(st.binary())
def test_what_is_read_is_visible(content: bytes) -> None:
    try:
        text = text_of(content)
    except BadText:
        return
    assert all(visible(line) == line for line in text.replace("\t", " ").split("\n"))


def test_a_secret_in_the_environment_or_the_configuration_is_no_exception(tmp_path: Path) -> None:
    file = written(tmp_path, b'[commerce.webhooks]\nsigningSecret = "correct-horse\\u200b"\n')
    told = r"signingSecret = \(not shown\): must not have U\+200B \(ZERO WIDTH SPACE\) in line "
    environment = {"SVCD_COMMERCE_WEBHOOKS_SIGNING_SECRET": f"{SECRET.decode()}\u200b"}
    for sources in ({"environment": environment}, {"file": file}):
        with pytest.raises(ConfigError, match=told):
            load(**sources)


def test_an_emoji_in_a_comment_is_no_fault() -> None:
    assert text_of("# \u2764\ufe0f \U0001f469\u200d\U0001f680\u00a0\n".encode()).startswith("#")


@pytest.mark.parametrize("comment", ["\u0645\u06cc\u200c\u062e\u0648", "\u05d0\u200f!", "1\ufe0f\u20e3"])
def test_a_comment_may_be_in_any_script(comment: str) -> None:
    assert comment in text_of(f"# {comment}\n".encode())


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case["name"])
def test_texts(case: dict[str, str]) -> None:
    assert visible(case["text"]) == case["shown"]


@given(st.text())
def test_no_bidi_or_invisible_character_remains(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert not set(shown) & set("\u200b\u200c\u2060\ufeff\u00ad\u3164\n")
    assert not any(c < " " or "\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069" for c in shown)


@given(st.from_regex(f"[{FORBIDDEN_IN_LABEL}]", fullmatch=True))
def test_characters_forbidden_in_labels_are_escaped(odd: str) -> None:
    assert visible(f"a{odd}b") == f"a\\u{{{ord(odd):x}}}b"


def test_the_text_of_somebody_else_in_a_sentence_is_short_and_visible() -> None:
    assert shown("no, and this is why") == "no, and this is why"
    assert shown("a" * 1_000) == "a" * 1_000
    assert shown("a" * 1_001) == "a" * 999 + "…"
    assert shown("\x1b" * 3_000_000, 9) == r"\u{1b}\u…"
