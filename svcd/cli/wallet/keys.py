"""`svc wallet new|import|export|address`: the key of a wallet, its words and its keyfile."""

import time
from pathlib import Path
from typing import Final

import click

from svcd.chain.params import MAINNET
from svcd.cli import options
from svcd.cli.prompts import PasswordSource
from svcd.cli.rendering import property_table
from svcd.cli.secure_files import read_seed, require_absent, write_new_file
from svcd.cli.session import Session
from svcd.cli.wallet.mnemonic import generate_mnemonic, seed_from_mnemonic
from svcd.cli.wallet.prompts import prompt_words, read_words, show_words_once
from svcd.cli.wallet.unlocking import (
    is_verified,
    load_keyfile,
    read_keyfile,
    remember_verified,
    renewed,
    unlock,
)
from svcd.keyfile import (
    Keyfile,
    Pbkdf2,
    calibrated_pbkdf2,
    render,
    seal,
    unseal,
)


@click.command()
@click.option(
    "--words-to",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the words to a new file of mode 0600 instead of showing them.",
)
@options.keyfile_option
@options.password_option
@options.json_option
@click.pass_obj
def new(session: Session, words_to: Path | None, keyfile: Path, password_file: Path | None) -> None:
    """Generate 24 random words, derive a key from them, and write the key to a keyfile.

    At a terminal the words are shown once, and the keyfile is written after you have typed two of them. Elsewhere they
    are not shown; --words-to writes them to a file. Existing files are never overwritten.

    \b
    Example:
      svc wallet new
      svc wallet new --network devnet --keyfile test-wallet.json
      svc wallet new --words-to /media/safe/words.txt --password-file password
    """
    require_absent(keyfile)
    if words_to is not None:
        require_absent(words_to, "--words-to")
    runtime = session.runtime
    words = generate_mnemonic(runtime.random)
    password = PasswordSource(password_file, runtime.environ, runtime.random).new()
    if words_to is not None:
        write_new_file(words_to, f"{' '.join(words)}\n".encode("ascii"), "--words-to")
        advice = _WORDS_IN_FILE.format(words_to)
    elif runtime.interactive():
        show_words_once(words, runtime.random)
        advice = _WORDS_ON_PAPER
    else:
        advice = _WORDS_NOT_SHOWN
    sealed = seal(seed_from_mnemonic(words), password, params=session.network or MAINNET, random=runtime.random)
    write_new_file(keyfile, render(sealed))
    remember_verified(runtime, sealed)
    session.print_result(_as_json(sealed, keyfile), f"{_as_text(sealed, keyfile)}\n\n{advice}")


@click.command("import")
@click.option("--words", is_flag=True, help="Prompt for the 24 words.")
@click.option(
    "--words-from", type=click.Path(path_type=Path), metavar="FILE", help="Read the 24 words from a file of mode 0600."
)
@click.option("--from", "source", type=click.Path(path_type=Path), metavar="FILE", help="Copy another keyfile.")
@click.option(
    "--operator-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Import the key that earns a node's block rewards: operator.key in its data directory.",
)
@options.keyfile_option
@options.password_option
@options.json_option
@click.pass_obj
def import_(
    session: Session,
    words: bool,
    words_from: Path | None,
    source: Path | None,
    operator_key: Path | None,
    keyfile: Path,
    password_file: Path | None,
) -> None:
    """Create a keyfile from 24 words, from a node's key, or from a keyfile of the browser wallet or another computer.

    Words and a node's key get a new password. A keyfile keeps its password: it is copied after the password has
    opened it. With --network the copy is for that network, where the same key has another address. Existing files are
    never overwritten.

    \b
    Example:
      svc wallet import --words
      svc wallet import --words-from words.txt --network devnet
      svc wallet import --from ~/Downloads/svc-wallet.json
      svc wallet import --from anna/operator.key --network festival.toml
      svc wallet import --operator-key data/operator.key
    """
    if words + (words_from is not None) + (source is not None) + (operator_key is not None) != 1:
        raise click.UsageError("give one of --words, --words-from FILE, --from FILE and --operator-key FILE")
    require_absent(keyfile)
    password = PasswordSource(password_file, session.runtime.environ, session.runtime.random)
    if source is not None:
        sealed = read_keyfile(session, source, private=False)
        known = password.existing()
        seed = unseal(sealed, known)
        if session.network is None or session.network.genesis_hash == sealed.params.genesis_hash:
            sealed = renewed(session.runtime, sealed, known)
        else:
            sealed = seal(seed, known, params=session.network, random=session.runtime.random)
    else:
        if operator_key is not None:
            seed = read_seed(operator_key)
        else:
            seed = seed_from_mnemonic(prompt_words() if words_from is None else read_words(words_from))
        sealed = seal(seed, password.new(), params=session.network or MAINNET, random=session.runtime.random)
    write_new_file(keyfile, render(sealed))
    remember_verified(session.runtime, sealed)
    session.print_result(_as_json(sealed, keyfile), _as_text(sealed, keyfile))


@click.command()
@click.option("--to", type=click.Path(path_type=Path), metavar="FILE", help="Write to a new file of mode 0600.")
@click.option(
    "--browser",
    is_flag=True,
    help="Encrypt the copy as the browser wallet can decrypt it, with PBKDF2 in place of Argon2id; needs the password.",
)
@options.keyfile_option
@options.password_option
@options.json_option
@click.pass_obj
def export(session: Session, to: Path | None, browser: bool, keyfile: Path, password_file: Path | None) -> None:
    """Print the keyfile, or copy it, to open the wallet elsewhere with the same password.

    `svc wallet import --from` can read it, and with --browser the browser wallet. The words cannot be shown again: the
    file contains the key derived from them, and the derivation cannot be reversed.

    \b
    Example:
      svc wallet export --to /media/safe/wallet.json
      svc wallet export --browser --to for-the-browser.json
      svc wallet export | ssh other.example "umask 077; cat > wallet.json"
    """
    if to is not None:
        require_absent(to, "--to")
    opened = load_keyfile(session, keyfile)
    if browser:
        password = PasswordSource(password_file, session.runtime.environ).existing()
        seed = unlock(session.runtime, keyfile, opened, password)
        kdf = calibrated_pbkdf2(time.perf_counter)
        opened = seal(seed, password, params=opened.params, random=session.runtime.random, kdf=kdf)
    if to is None:
        click.echo(render(opened), nl=False)
    else:
        write_new_file(to, render(opened), "--to")
        session.print_result(_as_json(opened, to), _as_text(opened, to))
    click.echo(_NO_WORDS if isinstance(opened.kdf, Pbkdf2) else f"{_NO_WORDS} {_NOT_FOR_BROWSERS}", err=True)


@click.command()
@click.option("--verify", is_flag=True, help="Ask for the password, to verify that the address is that of the key.")
@options.keyfile_option
@options.password_option
@options.json_option
@click.pass_obj
def address(session: Session, verify: bool, keyfile: Path, password_file: Path | None) -> None:
    """Print the address of the wallet.

    That needs no password. But only the password proves that the file is unchanged and that the address belongs to
    its key. Until it has decrypted the file on this computer once, a warning says that the address is not verified.

    \b
    Example:
      svc wallet address
      svc wallet address --verify
      svc balance "$(svc wallet address)"
    """
    opened = load_keyfile(session, keyfile)
    if verify:
        password = PasswordSource(password_file, session.runtime.environ).existing()
        unlock(session.runtime, keyfile, opened, password)
    verified = verify or is_verified(session.runtime, opened)
    if not verified:
        click.echo(_NOT_VERIFIED, err=True)
    session.print_result({**_as_json(opened, keyfile), "verified": verified}, opened.address)


def _as_json(keyfile: Keyfile, path: Path) -> dict[str, object]:
    return {"address": keyfile.address, "network": keyfile.params.name, "keyfile": str(path)}


def _as_text(keyfile: Keyfile, path: Path) -> str:
    return property_table([("address", keyfile.address), ("network", keyfile.params.name), ("keyfile", str(path))])


_LOSS: Final = "Without them the coins at the address are lost, and nobody can restore them."
_WORDS_ON_PAPER: Final = f"Keep the words, or a copy of the keyfile and the password. {_LOSS}"
_WORDS_IN_FILE: Final = f"The 24 words are in {{}}: move it to a safe place away from this computer. {_LOSS}"
_WORDS_NOT_SHOWN: Final = (
    "Keep a copy of the keyfile and the password: the 24 words were not shown, because this is not a terminal"
    f" (--words-to writes them to a file). {_LOSS}"
)
_NOT_VERIFIED: Final = (
    "Not verified: the password has not decrypted this file on this computer yet, so the address may not be that of the"
    " key. `svc wallet address --verify` asks for the password."
)
_NOT_FOR_BROWSERS: Final = "The browser wallet cannot decrypt it; --browser makes a copy that it can."
_NO_WORDS: Final = (
    "This is the keyfile; the password decrypts it. The 24 words cannot be shown again: the file contains only the key"
    " derived from them."
)
