"""Opens keyfiles: remembers which ones the password has verified, and encrypts weaker ones anew."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

import click

from svcd.cli.errors import CommandError, MissingFile
from svcd.cli.remembered import Remembered
from svcd.cli.secure_files import lock_file, read_bounded, read_secret, replace_file
from svcd.cli.session import Runtime, Session
from svcd.keyfile import MAX_FILE_BYTES, Keyfile, parse, render, seal, unseal
from svcd.keyfile_errors import DamagedKeyfile, KeyfileError, UnknownNetwork

_VERIFIED: Final = "verified-keyfiles"


def read_keyfile(session: Session, path: Path, *, private: bool = True) -> Keyfile:
    """The keyfile at ``path``, of any network that the command knows; raises KeyfileError, or CommandError.

    CommandError is raised if it cannot be read and, if it is to be ``private``, if others can read or change the file;
    a download need not be private.
    """
    read = read_secret if private else read_bounded
    try:
        return parse(read(path, MAX_FILE_BYTES), session.networks)
    except UnknownNetwork as unknown:
        raise UnknownNetwork(f"{path}: {unknown}") from None
    except DamagedKeyfile as damaged:
        raise DamagedKeyfile(f"{path}: {damaged}") from None


def load_keyfile(session: Session, path: Path) -> Keyfile:
    """The private keyfile at ``path``; raises CommandError too if ``--network`` names another network than its own."""
    try:
        keyfile = read_keyfile(session, path)
    except MissingFile as missing:
        raise CommandError(f"{missing}; make one with `svc wallet new`, or name it with --keyfile") from None
    if session.network is not None and session.network.genesis_hash != keyfile.params.genesis_hash:
        raise CommandError(
            f"{path} is a keyfile for {keyfile.params.name}, and not for {session.network.name}: choose another wallet"
            f" with --keyfile, or copy its key for {session.network.name} with svc wallet import --from"
        )
    return keyfile


def is_verified(runtime: Runtime, keyfile: Keyfile) -> bool:
    """Whether the user has decrypted exactly this file before, so that its address is known to be that of its key."""
    return _digest(keyfile) in Remembered.of(runtime.environ, _VERIFIED)


def remember_verified(runtime: Runtime, keyfile: Keyfile) -> None:
    """Remember that ``keyfile`` was decrypted, or has just been made."""
    Remembered.of(runtime.environ, _VERIFIED).add(_digest(keyfile))


def unlock(runtime: Runtime, path: Path, keyfile: Keyfile, password: str) -> bytes:
    """The seed in the ``keyfile`` at ``path``; raises CommandError or KeyfileError.

    A file that costs less to guess than a new one is encrypted anew when the command ends.
    """
    seed = unseal(keyfile, password)
    remember_verified(runtime, keyfile)
    if keyfile.kdf.outdated:
        # Not before: until then the command may hold the lock on the file that is there now.
        click.get_current_context().call_on_close(_renewing(runtime, path, keyfile, password))
    return seed


def renewed(runtime: Runtime, keyfile: Keyfile, password: str) -> Keyfile:
    """``keyfile``, or if its KDF is outdated the same seed encrypted anew; raises KeyfileError."""
    if not keyfile.kdf.outdated:
        return keyfile
    return seal(unseal(keyfile, password), password, params=keyfile.params, random=runtime.random)


def _renewing(runtime: Runtime, path: Path, keyfile: Keyfile, password: str) -> Callable[[], None]:
    def renew() -> None:
        anew = renewed(runtime, keyfile, password)
        try:
            with lock_file(path, f"another svc is using {path}"):
                if parse(read_secret(path, MAX_FILE_BYTES), (keyfile.params,)) != keyfile:
                    return
                # A symbolic link stays one, so that its target keeps the signed transfers of both.
                replace_file(path.resolve(), render(anew))
        except (CommandError, KeyfileError) as error:
            click.echo(
                f"Warning: {path} is weaker than a new keyfile, and was not encrypted anew: {error}.",
                err=True,
            )
            return
        remember_verified(runtime, anew)
        click.echo(f"{path} was encrypted anew, so that guessing its password costs more.", err=True)

    return renew


def _digest(keyfile: Keyfile) -> str:
    return sha256(render(keyfile)).hexdigest()
