"""`svc wallet new|import|export|address`: a key on this computer, its words and its file."""

from pathlib import Path
from typing import Final

import click

from svcd.chain.params import NETWORKS
from svcd.wallet import options, show
from svcd.wallet.derivation import new_words, seed_of_words
from svcd.wallet.disk import read_bounded, read_seed, refuse_existing, write_new
from svcd.wallet.failed import DamagedKeyfile, Failed
from svcd.wallet.keyfile import MAX_FILE_BYTES, Keyfile, parse, render, seal, unseal
from svcd.wallet.passwords import PasswordSource
from svcd.wallet.session import Session
from svcd.wallet.words import ask_words, read_words, show_once

_network_choice = click.Choice(list(NETWORKS))


@click.group()
def wallet() -> None:
    """Keep a key in a file on this computer, and send coins with it.

    The key is sealed by a password and never leaves this computer. Nobody can restore it for you: keep the 24 words
    that it is made from, or a copy of the file and the password.

    \b
    Example:
      svc wallet new --network devnet
      svc wallet address
      svc wallet send svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5 --reference order-17
      svc wallet history
    """


@wallet.command()
@click.option("--network", type=_network_choice, default="mainnet", show_default=True, help="Where it is used.")
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
def new(session: Session, network: str, words_to: Path | None, keyfile: Path, password_file: Path | None) -> None:
    """Make 24 random words and from them a key, and write the key to a keyfile.

    At a terminal the words are shown, once, and the keyfile is written when you have typed two of them. Elsewhere they
    are shown to nobody unless --words-to names a file for them. An existing file is never written over.

    \b
    Example:
      svc wallet new
      svc wallet new --network devnet --keyfile test-wallet.json
      svc wallet new --words-to /media/safe/words.txt --password-file password
    """
    refuse_existing(keyfile)
    if words_to is not None:
        refuse_existing(words_to, "--words-to")
    outside = session.outside
    words = new_words(outside.random)
    password = PasswordSource(password_file, outside.environment).new()
    if words_to is not None:
        write_new(words_to, f"{' '.join(words)}\n".encode("ascii"), "--words-to")
        advice = _IN_FILE.format(words_to)
    elif outside.attended():
        show_once(words, outside.random)
        advice = _ON_PAPER
    else:
        advice = _UNSEEN
    sealed = seal(seed_of_words(words), password, params=NETWORKS[network], random=outside.random)
    write_new(keyfile, render(sealed))
    session.show(_described(sealed, keyfile), f"{_table(sealed, keyfile)}\n\n{advice}")


@wallet.command("import")
@click.option("--words", is_flag=True, help="Ask for the 24 words.")
@click.option(
    "--words-from", type=click.Path(path_type=Path), metavar="FILE", help="Read the 24 words from a file of mode 0600."
)
@click.option("--from", "source", type=click.Path(path_type=Path), metavar="FILE", help="Take another keyfile.")
@click.option(
    "--operator-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Take the key that a node is paid with for blocks: operator.key in its data directory.",
)
@click.option("--network", type=_network_choice, help="Where words or key are used.  [default: mainnet]")
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
    network: str | None,
    keyfile: Path,
    password_file: Path | None,
) -> None:
    """Make a keyfile from 24 words, from the key of a node, or from a keyfile of the browser wallet or elsewhere.

    Words and the key of a node get a new password. A keyfile keeps its own: it is copied once the password has opened
    it. An existing file is never written over.

    \b
    Example:
      svc wallet import --words
      svc wallet import --words-from words.txt --network devnet
      svc wallet import --from ~/Downloads/svc-wallet.json
      svc wallet import --operator-key data/operator.key
    """
    if words + (words_from is not None) + (source is not None) + (operator_key is not None) != 1:
        raise click.UsageError("give one of --words, --words-from FILE, --from FILE and --operator-key FILE")
    refuse_existing(keyfile)
    password = PasswordSource(password_file, session.outside.environment)
    if source is not None:
        sealed = load_keyfile(source)
        if network not in (None, sealed.params.name):
            raise Failed(f"{source} is a keyfile of {sealed.params.name}; for {network}, import its words")
        unseal(sealed, password.existing())
    else:
        seed = read_seed(operator_key) if operator_key else _seed_of_words_in(words_from)
        params = NETWORKS[network or "mainnet"]
        sealed = seal(seed, password.new(), params=params, random=session.outside.random)
    write_new(keyfile, render(sealed))
    session.show(_described(sealed, keyfile), _table(sealed, keyfile))


def _seed_of_words_in(path: Path | None) -> bytes:
    return seed_of_words(ask_words() if path is None else read_words(path))


@wallet.command()
@click.option("--to", type=click.Path(path_type=Path), metavar="FILE", help="Write to a new file of mode 0600.")
@options.keyfile_option
@options.json_option
@click.pass_obj
def export(session: Session, to: Path | None, keyfile: Path) -> None:
    """Print the keyfile, or copy it, to open the wallet elsewhere with the same password.

    The browser wallet and `svc wallet import --from` read it. The words cannot be shown again: the file holds the key
    that was made from them, and no way leads back.

    \b
    Example:
      svc wallet export --to /media/safe/wallet.json
      svc wallet export | ssh other.example "umask 077; cat > wallet.json"
    """
    opened = load_keyfile(keyfile)
    if to is None:
        click.echo(render(opened), nl=False)
    else:
        write_new(to, render(opened), "--to")
        session.show(_described(opened, to), _table(opened, to))
    click.echo(_NO_WORDS, err=True)


@wallet.command()
@options.keyfile_option
@options.json_option
@click.pass_obj
def address(session: Session, keyfile: Path) -> None:
    """Print the address of the wallet, which needs no password.

    \b
    Example:
      svc wallet address
      svc balance "$(svc wallet address)"
    """
    opened = load_keyfile(keyfile)
    session.show(_described(opened, keyfile), opened.address)


def load_keyfile(path: Path) -> Keyfile:
    """The keyfile at ``path``; raises DamagedKeyfile, or Failed if it cannot be read."""
    try:
        return parse(read_bounded(path, MAX_FILE_BYTES))
    except DamagedKeyfile as damaged:
        raise DamagedKeyfile(f"{path}: {damaged}") from None


def _described(keyfile: Keyfile, path: Path) -> dict[str, object]:
    return {"address": keyfile.address, "network": keyfile.params.name, "keyfile": str(path)}


def _table(keyfile: Keyfile, path: Path) -> str:
    return show.table([("address", keyfile.address), ("network", keyfile.params.name), ("keyfile", str(path))])


_LOST: Final = "Without them, what the address holds is lost, and nobody can restore it."
_ON_PAPER: Final = f"Keep the words, or a copy of the keyfile and the password. {_LOST}"
_IN_FILE: Final = f"The 24 words are in {{}}: move it to a safe place away from this computer. {_LOST}"
_UNSEEN: Final = (
    "Keep a copy of the keyfile, and the password: the 24 words were shown to nobody, since this is no terminal"
    f" (--words-to writes them to a file). {_LOST}"
)
_NO_WORDS: Final = (
    "This is the keyfile; the password opens it. The 24 words cannot be shown again: it holds only the key that was"
    " made from them."
)
