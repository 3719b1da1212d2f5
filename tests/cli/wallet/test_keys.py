"""Creating, importing and exporting wallets."""

import json
import re
import stat
from pathlib import Path

import pytest

from svcd.chain.params import DEVNET, MAINNET
from svcd.cli.secure_files import lock_file
from svcd.cli.wallet.mnemonic import generate_mnemonic, seed_from_mnemonic
from svcd.keyfile import ARGON2ID, Argon2id, Pbkdf2, parse, render, seal, unseal
from svcd.seed_file import SeedKind, load_or_make
from tests.cli.terminal import ADDRESS, KEYFILE, OTHER, PASSWORD, SEED, Terminal

KNOWN = {"SVC_WALLET_PASSWORD": PASSWORD}
WORDS = generate_mnemonic(lambda size: bytes(range(size)))
"""Those that the terminal's randomness gives."""


# new


def test_new_writes_a_private_keyfile(terminal: Terminal) -> None:
    told = terminal.ok("wallet", "new", "--network", "devnet", typed="twenty-one letters\ntwenty-one letters\n")
    path = terminal.folder / "wallet.json"
    keyfile = parse(path.read_bytes())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert unseal(keyfile, "twenty-one letters") == seed_from_mnemonic(WORDS)
    assert keyfile.address in told.out
    assert "Keep a copy" in told.out


def test_new_does_not_show_the_words_without_a_terminal(terminal: Terminal) -> None:
    told = terminal.ok("wallet", "new", env=KNOWN)
    assert "the 24 words were not shown, because this is not a terminal (--words-to writes them to a file)" in told.out
    assert " ".join(WORDS[:2]) not in told.out + told.err
    assert f"1 {WORDS[0]}" not in told.err


def test_new_shows_the_words_once_and_confirms_two_of_them(terminal: Terminal) -> None:
    terminal.interactive = True
    told = terminal.ok("wallet", "new", env=KNOWN, typed=f"\nwrong\n{WORDS[0]}\n {WORDS[2].upper()} \n")
    assert all(f"{place:>2} {word}" in told.err for place, word in enumerate(WORDS, 1))
    assert "They are shown only once" in told.err
    assert "That is not word 1; check your copy" in told.err
    assert "Type word 3 from your copy" in told.err
    assert not any(f"{place:>2} {word}" in told.out for place, word in enumerate(WORDS, 1))
    assert "Keep the words, or a copy of the keyfile and the password" in told.out
    keyfile = parse((terminal.folder / "wallet.json").read_bytes())
    assert unseal(keyfile, PASSWORD) == seed_from_mnemonic(WORDS)


def test_no_keyfile_is_written_before_the_words_are_confirmed(terminal: Terminal) -> None:
    terminal.interactive = True
    result = terminal.invoke("wallet", "new", env=KNOWN, typed=f"\n{WORDS[0]}\nwrong\n")
    assert result.exit_code == 1
    assert result.stderr.endswith("Aborted!\n")
    assert list(terminal.folder.iterdir()) == []


def test_new_writes_the_words_to_a_private_file(terminal: Terminal) -> None:
    terminal.interactive = True
    told = terminal.ok("wallet", "new", "--words-to", "words", env=KNOWN)
    path = terminal.folder / "words"
    assert path.read_text() == " ".join(WORDS) + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "The 24 words are in words: move it to a safe place" in told.out
    (terminal.folder / "wallet.json").unlink()
    sentence = "words exists already and is never overwritten; choose another file with --words-to"
    assert terminal.failure("wallet", "new", "--words-to", "words", env=KNOWN) == sentence
    assert not (terminal.folder / "wallet.json").exists()


# import


def test_import_prompts_for_words(terminal: Terminal) -> None:
    typed = f"{' '.join(WORDS)}\ntwenty-one letters\ntwenty-one letters\n"
    told = json.loads(terminal.ok("wallet", "import", "--words", "--network", "devnet", "--json", typed=typed).out)
    keyfile = parse((terminal.folder / "wallet.json").read_bytes())
    assert told == {"address": keyfile.address, "network": "devnet", "keyfile": "wallet.json"}
    assert unseal(keyfile, "twenty-one letters") == seed_from_mnemonic(WORDS)


def test_import_from_a_words_file_restores_the_wallet(terminal: Terminal) -> None:
    made = terminal.ok("wallet", "new", "--words-to", "words", "--json", env=KNOWN).out
    again = terminal.ok("wallet", "import", "--words-from", "words", "--keyfile", "again.json", "--json", env=KNOWN).out
    assert json.loads(again)["address"] == json.loads(made)["address"]


def test_import_rejects_wrong_words_and_readable_files(terminal: Terminal) -> None:
    path = terminal.folder / "words"
    path.write_text(" ".join(WORDS[:23]))
    assert terminal.failure("wallet", "import", "--words-from", "words", env=KNOWN).startswith(
        "words is open to others"
    )
    path.chmod(0o600)
    sentence = terminal.failure("wallet", "import", "--words-from", "words", env=KNOWN)
    assert sentence == "a wallet has 24 words, not 23; separate them with spaces"
    path.write_bytes("ä".encode())
    assert "must be ASCII text and contain only the 24 words" in terminal.failure(
        "wallet", "import", "--words-from", "words", env=KNOWN
    )
    assert [path.name for path in terminal.folder.iterdir()] == ["words"]


def test_import_copies_a_keyfile_with_its_password(terminal: Terminal, wallet: Path) -> None:
    wallet.rename(terminal.folder / "browser.json")
    words = ("wallet", "import", "--from", "browser.json")
    assert terminal.failure(*words, typed="another password\n").startswith("the password does not decrypt")
    assert not wallet.exists()
    terminal.ok(*words, env=KNOWN)
    assert wallet.read_bytes() == KEYFILE


def test_import_copies_a_key_for_another_network(terminal: Terminal, wallet: Path) -> None:
    wallet.rename(terminal.folder / "browser.json")
    words = ("wallet", "import", "--from", "browser.json", "--network", "mainnet")
    assert terminal.failure(*words, typed="another password\n").startswith("the password does not decrypt")
    assert "network  mainnet\n" in terminal.ok(*words, env=KNOWN).out
    copied = parse(wallet.read_bytes())
    assert (copied.params, copied.public_key) == (MAINNET, parse(KEYFILE).public_key)
    assert unseal(copied, PASSWORD) == unseal(parse(KEYFILE), PASSWORD)


def test_import_reads_the_operator_key(terminal: Terminal) -> None:
    seed = bytes(range(32))
    load_or_make(terminal.folder / "operator.key", SeedKind.BLOCK, lambda _: seed)
    words = ("wallet", "import", "--operator-key", "operator.key", "--network", "devnet")
    terminal.ok(*words, typed="twenty-one letters\ntwenty-one letters\n")
    keyfile = parse((terminal.folder / "wallet.json").read_bytes())
    assert (unseal(keyfile, "twenty-one letters"), keyfile.params) == (seed, DEVNET)


@pytest.mark.parametrize("content", ["", "ab" * 31, "AB" * 32, "ab" * 32 + "\nab", " " + "ab" * 32])
def test_import_rejects_invalid_operator_keys(terminal: Terminal, content: str) -> None:
    path = terminal.folder / "operator.key"
    path.write_text(content)
    words = ("wallet", "import", "--operator-key", "operator.key")
    assert terminal.failure(*words, env=KNOWN).startswith("operator.key is open to others")
    path.chmod(0o600)
    assert "checksum" in terminal.failure(*words, env=KNOWN)
    assert [each.name for each in terminal.folder.iterdir()] == ["operator.key"]


def test_import_needs_one_source_and_an_unused_path(terminal: Terminal, wallet: Path) -> None:
    sentence = "give one of --words, --words-from FILE, --from FILE and --operator-key FILE"
    assert terminal.misuse("wallet", "import") == sentence
    assert terminal.misuse("wallet", "import", "--words", "--from", "x") == sentence
    assert "wallet.json exists already" in terminal.failure("wallet", "import", "--words")


# export


def test_export_prints_or_copies_the_keyfile(terminal: Terminal, wallet: Path) -> None:
    told = terminal.ok("wallet", "export")
    assert told.out.encode() == KEYFILE
    assert "The 24 words cannot be shown again" in told.err
    described = {"address": ADDRESS, "network": "devnet", "keyfile": "copy.json"}
    assert json.loads(terminal.ok("wallet", "export", "--to", "copy.json", "--json").out) == described
    copy = terminal.folder / "copy.json"
    assert (copy.read_bytes(), stat.S_IMODE(copy.stat().st_mode)) == (KEYFILE, 0o600)
    assert "--browser" not in told.err
    sentence = "copy.json exists already and is never overwritten; choose another file with --to"
    assert terminal.failure("wallet", "export", "--to", "copy.json") == sentence


def test_export_for_browsers_encrypts_with_pbkdf2(terminal: Terminal) -> None:
    terminal.ok("wallet", "new", "--network", "devnet", env=KNOWN)
    told = terminal.ok("wallet", "export")
    own = parse(told.out.encode())
    assert isinstance(own.kdf, Argon2id)
    assert "The browser wallet cannot decrypt it; --browser makes a copy that it can." in told.err
    sentence = terminal.failure("wallet", "export", "--browser", env={"SVC_WALLET_PASSWORD": "another one"})
    assert sentence.startswith("the password does not decrypt the keyfile")
    copy = parse(terminal.ok("wallet", "export", "--browser", env=KNOWN).out.encode())
    assert isinstance(copy.kdf, Pbkdf2)
    assert copy.kdf.iterations >= 1_000_000
    assert (copy.address, copy.params) == (own.address, own.params)
    assert unseal(copy, PASSWORD) == unseal(own, PASSWORD)


def test_new_uses_mainnet_by_default(terminal: Terminal) -> None:
    told = json.loads(terminal.ok("wallet", "new", "--keyfile", "mine.json", "--json", env=KNOWN).out)
    assert told["network"] == "mainnet"
    assert told["address"].startswith("svc1q")
    assert told["keyfile"] == "mine.json"
    assert parse((terminal.folder / "mine.json").read_bytes()).address == told["address"]


def test_new_never_overwrites_a_file(terminal: Terminal, wallet: Path) -> None:
    sentence = "wallet.json exists already and is never overwritten; choose another file with --keyfile"
    assert terminal.failure("wallet", "new", env=KNOWN) == sentence
    assert wallet.read_bytes() == KEYFILE


def test_new_requires_a_longer_password(terminal: Terminal) -> None:
    sentence = "the password has 5 characters; choose one of at least 10, for example six random words"
    assert terminal.failure("wallet", "new", env={"SVC_WALLET_PASSWORD": "short"}) == sentence
    # Suggested only where nobody else reads it.
    typed = terminal.failure("wallet", "new", typed="short\nshort\n")
    assert re.fullmatch(re.escape(sentence) + ": [a-z]+( [a-z]+){5}", typed)
    assert list(terminal.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("password", "reason"),
    [
        ("aaaaaaaaaaaa", "repeats the same characters"),
        ("abcdefghijklmnop", "consists of neighbouring letters, digits or keys"),
        ("Password2024!", "consists of common passwords, which are guessed first"),
    ],
)
def test_new_and_import_refuse_passwords_that_are_guessed_first(
    terminal: Terminal, wallet: Path, password: str, reason: str
) -> None:
    wallet.unlink()
    path = terminal.folder / "words"
    path.touch(0o600)
    path.write_text(" ".join(WORDS))
    sentence = f"the password {reason}; choose for example six random words"
    known = {"SVC_WALLET_PASSWORD": password}
    assert terminal.failure("wallet", "new", env=known) == sentence
    assert terminal.failure("wallet", "import", "--words-from", "words", env=known) == sentence
    assert [each.name for each in terminal.folder.iterdir()] == ["words"]


def test_new_prompts_again_if_the_passwords_differ(terminal: Terminal) -> None:
    typed = "twenty-one letters\nother letters\ntwenty-one letters\ntwenty-one letters\n"
    assert "do not match" in terminal.ok("wallet", "new", typed=typed).err
    unseal(parse((terminal.folder / "wallet.json").read_bytes()), "twenty-one letters")


def test_new_rejects_unknown_networks(terminal: Terminal) -> None:
    assert "'testnet' must be mainnet, devnet or the file of a network" in terminal.misuse(
        "wallet", "new", "--network", "testnet"
    )


# address


def test_address_needs_no_password_and_says_what_it_does_not_know(terminal: Terminal, wallet: Path) -> None:
    told = terminal.ok("wallet", "address")
    assert told.out == f"{ADDRESS}\n"
    assert told.err.startswith("Not verified: ")
    described = {"address": ADDRESS, "network": "devnet", "keyfile": "wallet.json", "verified": False}
    assert json.loads(terminal.ok("wallet", "address", "--json").out) == described


def test_address_remembers_what_the_password_has_verified(terminal: Terminal, wallet: Path) -> None:
    assert terminal.failure("wallet", "address", "--verify", typed="another password\n").startswith("the password")
    assert "Not verified" in terminal.ok("wallet", "address").err
    terminal.ok("wallet", "address", "--verify", typed=f"{PASSWORD}\n")
    told = terminal.ok("wallet", "address", "--json")
    assert (json.loads(told.out)["verified"], told.err) == (True, "")
    # It is the content that is known, wherever it lies.
    wallet.rename(terminal.folder / "moved.json")
    assert terminal.ok("wallet", "address", "--keyfile", "moved.json").err == ""
    (terminal.state / "svc" / "verified-keyfiles").write_text("nothing of this\n")
    assert "Not verified" in terminal.ok("wallet", "address", "--keyfile", "moved.json").err


def test_a_file_whose_address_was_exchanged_is_not_verified(terminal: Terminal, wallet: Path) -> None:
    terminal.ok("wallet", "address", "--verify", env=KNOWN)
    # Address and public key of another wallet, so that they fit together.
    terminal.ok("wallet", "new", "--network", "devnet", "--keyfile", "other.json", env=KNOWN)
    own, other = (json.loads((terminal.folder / name).read_bytes()) for name in ("wallet.json", "other.json"))
    wallet.write_text(json.dumps({**own, "address": other["address"], "publicKey": other["publicKey"]}))
    told = terminal.ok("wallet", "address")
    assert told.out == f"{other['address']}\n"
    assert told.err.startswith("Not verified: ")
    assert terminal.failure("wallet", "address", "--verify", env=KNOWN).startswith("the password does not decrypt")


@pytest.mark.parametrize("state", ["", "relative/state", "/proc/nowhere"])
def test_without_a_folder_nothing_is_remembered(terminal: Terminal, wallet: Path, state: str) -> None:
    env = {"XDG_STATE_HOME": state, **KNOWN}
    terminal.ok("wallet", "address", "--verify", env=env)
    assert "Not verified" in terminal.ok("wallet", "address", env=env).err
    assert [each.name for each in terminal.folder.iterdir()] == ["wallet.json"]


def test_new_and_imported_keyfiles_are_verified(terminal: Terminal, wallet: Path) -> None:
    terminal.ok("wallet", "new", "--keyfile", "new.json", env=KNOWN)
    terminal.ok("wallet", "import", "--from", "wallet.json", "--keyfile", "copy.json", env=KNOWN)
    for name in ("new.json", "copy.json"):
        assert terminal.ok("wallet", "address", "--keyfile", name).err == ""


WEAK = render(seal(SEED, PASSWORD, params=DEVNET, random=lambda size: bytes(size), kdf=Pbkdf2(iterations=600_000)))
"""A keyfile that costs less to guess than a new one."""


def test_a_weak_keyfile_is_encrypted_anew_when_it_is_opened(terminal: Terminal, wallet: Path) -> None:
    wallet.write_bytes(WEAK)
    told = terminal.ok("wallet", "address", "--verify", env=KNOWN)
    assert "wallet.json was encrypted anew" in told.err
    anew = parse(wallet.read_bytes())
    assert anew.kdf == ARGON2ID
    assert unseal(anew, PASSWORD) == SEED
    assert stat.S_IMODE(wallet.stat().st_mode) == 0o600
    told = terminal.ok("wallet", "address", "--verify", env=KNOWN)
    assert (told.err, parse(wallet.read_bytes())) == ("", anew)


def test_a_symbolic_link_to_a_weak_keyfile_stays_one(terminal: Terminal, wallet: Path) -> None:
    wallet.write_bytes(WEAK)
    link = wallet.with_name("link.json")
    link.symlink_to(wallet.name)
    told = terminal.ok("wallet", "address", "--verify", "--keyfile", "link.json", env=KNOWN)
    assert "link.json was encrypted anew" in told.err
    assert link.is_symlink()
    assert parse(wallet.read_bytes()).kdf == ARGON2ID


def test_a_weak_keyfile_in_use_stays_as_it_is(terminal: Terminal, wallet: Path) -> None:
    wallet.write_bytes(WEAK)
    with lock_file(wallet, "unused"):
        told = terminal.ok("wallet", "address", "--verify", env=KNOWN)
    assert "was not encrypted anew: another svc is using wallet.json." in told.err
    assert wallet.read_bytes() == WEAK


def test_a_weak_keyfile_is_encrypted_anew_when_it_is_imported(terminal: Terminal, wallet: Path) -> None:
    (terminal.folder / "old.json").write_bytes(WEAK)
    terminal.ok("wallet", "import", "--from", "old.json", "--keyfile", "new.json", env=KNOWN)
    assert parse((terminal.folder / "new.json").read_bytes()).kdf == ARGON2ID


def test_a_keyfile_that_others_may_read_is_refused(terminal: Terminal, wallet: Path) -> None:
    wallet.chmod(0o644)
    for command in (("address",), ("export",), ("send", OTHER, 1)):
        sentence = terminal.failure("wallet", *command, env=KNOWN)
        assert sentence == "wallet.json is open to others (mode 0644); run: chmod 600 wallet.json"


def test_the_password_in_the_environment_is_warned_of_once(terminal: Terminal, wallet: Path) -> None:
    first, second = (terminal.ok("wallet", "address", "--verify", env=KNOWN).err for _ in range(2))
    assert first.startswith("Warning: other programs of this user can read SVC_WALLET_PASSWORD")
    assert "--password-file FILE is safer" in first
    assert second == ""


def test_all_commands_of_the_wallet_forbid_core_dumps(terminal: Terminal, wallet: Path) -> None:
    for command in ("address", "export"):
        terminal.ok("wallet", command)
    assert terminal.core_dumps_forbidden == 2
    terminal.ok("help")
    assert terminal.core_dumps_forbidden == 2


def test_the_keyfile_may_come_from_the_environment(terminal: Terminal, wallet: Path) -> None:
    wallet.rename(terminal.folder / "other.json")
    assert terminal.ok("wallet", "address", env={"SVC_WALLET": "other.json"}).out == f"{ADDRESS}\n"


def test_a_keyfile_must_be_private(terminal: Terminal, wallet: Path) -> None:
    wallet.chmod(0o644)
    for words in (("address",), ("export",), ("history",), ("send", ADDRESS, 1)):
        sentence = terminal.failure("wallet", *words, env=KNOWN)
        assert sentence == "wallet.json is open to others (mode 0644); run: chmod 600 wallet.json"
    wallet.rename(terminal.folder / "download.json")
    terminal.ok("wallet", "import", "--from", "download.json", env=KNOWN)
    assert terminal.ok("wallet", "address").out == f"{ADDRESS}\n"


def test_a_missing_or_damaged_keyfile_is_named(terminal: Terminal, wallet: Path) -> None:
    wallet.write_bytes(KEYFILE[:100])
    assert terminal.failure("wallet", "address").startswith("wallet.json: not a keyfile, or a damaged one: not JSON")
    sentence = (
        "gone.json cannot be read: no such file or directory; make one with `svc wallet new`, or name it with --keyfile"
    )
    assert terminal.failure("wallet", "address", "--keyfile", "gone.json") == sentence
