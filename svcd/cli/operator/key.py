"""`svc node key …`: the block key of a node, in an encrypted keyfile."""

from contextlib import closing
from pathlib import Path
from typing import Final

import apsw
import click

from svcd.chain.address import decode_address, encode_address, key_hash
from svcd.chain.errors import Corrupt
from svcd.chain.params import MAINNET, NetworkParams
from svcd.chain.signature import public_key_of
from svcd.cli import options
from svcd.cli.errors import CommandError
from svcd.cli.operator.database import CHAIN_FILE
from svcd.cli.operator.verify_chain import network_of
from svcd.cli.prompts import PasswordSource
from svcd.cli.rendering import property_table
from svcd.cli.secure_files import (
    read_secret,
    read_secret_text,
    read_seed,
    refuse_root,
    replace_file,
    require_absent,
    write_new_file,
)
from svcd.cli.session import Session
from svcd.keyfile import Keyfile, parse, render, seal, unseal
from svcd.seed_file import SeedFileError, SeedKind, is_encrypted, parse_copy
from svcd.store.database import DatabaseError, open_reader
from svcd.store.offline_database import Inspector

DEFAULT_FILE: Final = "operator.key"

_key_file_option = click.option(
    "--key-file",
    metavar="NAME",
    default=DEFAULT_FILE,
    show_default=True,
    help="The file of the key, as [participation] keyFile names it: absolute, or relative to the data directory.",
)
_password_option = click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the password from a file of mode 0600 instead of asking for it.",
)


@click.group()
def key() -> None:
    """Make, encrypt, import or show the key that signs a node's blocks and receives their rewards.

    The node needs the password at its start: see `svc help block-key`.

    \b
    Example:
      svc node key encrypt --data-dir /var/lib/svcd
      svc node key address --data-dir /var/lib/svcd
    """


@key.command()
@options.network_option
@_key_file_option
@_password_option
@options.operator_option
@options.json_option
@click.pass_obj
def new(session: Session, key_file: str, password_file: Path | None) -> None:
    """Make a new block key in an encrypted keyfile, before the first start of a node.

    An existing file is never overwritten. Keep a copy of the file and the password: without both, the rewards are lost.
    The network is that of the chain beside the file; before there is one, --network names it, or else it is mainnet.

    \b
    Example:
      svc node key new --data-dir /var/lib/svcd
      svc node key new --network devnet --password-file password
    """
    _write_new(session, key_file, session.runtime.random(32), password_file)


@key.command()
@options.network_option
@_key_file_option
@_password_option
@options.operator_option
@options.json_option
@click.pass_obj
def encrypt(session: Session, key_file: str, password_file: Path | None) -> None:
    """Replace a block key that is not encrypted by an encrypted keyfile of the same key.

    A running node is not affected; it needs the password at its next start. The old content of the file may remain on
    the disk and in backups: if somebody may read those, make a new key with `svc node key new`. The network is that of
    the chain beside the file.

    \b
    Example:
      svc node key encrypt --data-dir /var/lib/svcd
      svc node key encrypt --network devnet --password-file password
    """
    path = _key_path(session, key_file)
    password = PasswordSource(password_file, {}, session.runtime.random).new()
    sealed = _sealed(session, path, read_seed(path), password)
    replace_file(path, render(sealed))
    _print(session, sealed, key_file)


@key.command("import")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the digits from a file of mode 0600 instead of asking for them.",
)
@options.network_option
@_key_file_option
@_password_option
@options.operator_option
@options.json_option
@click.pass_obj
def import_(session: Session, source: Path | None, key_file: str, password_file: Path | None) -> None:
    """Make the encrypted keyfile of a block key from its 64 hex digits, such as those of a copy on paper.

    The digits may be in groups, and the checksum of the key (sha256:…) may follow. Without it nothing shows a wrong
    digit, which gives another key: compare the address. An existing file is never overwritten.

    \b
    Example:
      svc node key import --data-dir /var/lib/svcd
      svc node key import --from digits --network devnet
    """
    try:
        if source is None:
            typed = click.prompt("The 64 hex digits of the key, and its checksum", hide_input=True, err=True)
            copied = parse_copy(typed, SeedKind.BLOCK, "what you typed")
        else:
            copied = parse_copy(read_secret_text(source), SeedKind.BLOCK, str(source))
    except SeedFileError as error:
        raise CommandError(str(error)) from None
    _write_new(session, key_file, copied.seed, password_file)
    if not copied.is_checked:
        click.echo("There was no checksum: compare the address with that of your rewards.", err=True)


@key.command()
@options.network_option
@_key_file_option
@options.operator_option
@options.json_option
@click.pass_obj
def address(session: Session, key_file: str) -> None:
    """Print the address that receives the rewards, which needs no password.

    The network is that of an encrypted keyfile, or of the chain beside the file; --network shows the address of the
    same key on another one. `svc node status` shows the address of a running node's key.

    \b
    Example:
      svc node key address --data-dir /var/lib/svcd
    """
    path = _key_path(session, key_file)
    content = read_secret(path)
    if is_encrypted(content):
        keyfile = parse(content, session.networks)
        hashed = decode_address(keyfile.address, keyfile.params.address_prefix)
        found = encode_address(hashed, (session.network or keyfile.params).address_prefix)
    else:
        params = session.network or _network(session, path)
        found = encode_address(key_hash(public_key_of(read_seed(path))), params.address_prefix)
    session.print_result({"address": found, "keyFile": key_file}, found)


def _key_path(session: Session, key_file: str) -> Path:
    """The path of the key file."""
    path = Path(session.data_dir) / key_file
    try:
        refuse_root(path.parent)
    except (FileNotFoundError, NotADirectoryError):
        raise CommandError(f"there is no folder {path.parent}; give the data directory of a node") from None
    except OSError as error:
        raise CommandError(f"the folder {path.parent} cannot be used: {error.strerror}") from None
    return path


def _network(session: Session, path: Path) -> NetworkParams:
    """The network of the chain beside the key file at ``path``, which --network must not contradict.

    Without a chain it is that of --network, or mainnet.
    """
    chain = path.with_name(CHAIN_FILE)
    if not chain.is_file():
        return session.network or MAINNET
    try:
        with closing(open_reader(chain)) as connection:
            found = network_of(Inspector(connection), session.networks)
    except (apsw.Error, Corrupt, DatabaseError) as error:
        raise CommandError(f"the network of the node cannot be read from {chain}: {error}") from None
    if session.network not in (None, found):
        raise CommandError(f"{chain} is of the network {found.name}; leave --network out, or name that one")
    return found


def _write_new(session: Session, key_file: str, seed: bytes, password_file: Path | None) -> None:
    """Write the new keyfile of ``seed``, and print what it is."""
    path = _key_path(session, key_file)
    require_absent(path, "--key-file")
    password = PasswordSource(password_file, {}, session.runtime.random).new()
    sealed = _sealed(session, path, seed, password)
    write_new_file(path, render(sealed), "--key-file")
    _print(session, sealed, key_file)


def _sealed(session: Session, path: Path, seed: bytes, password: str) -> Keyfile:
    """The keyfile for ``path``, which is opened once before it replaces anything."""
    params = _network(session, path)
    sealed = seal(seed, password, params=params, random=session.runtime.random)
    if unseal(parse(render(sealed), (params,)), password) != seed:
        raise CommandError("the new keyfile does not contain the key; nothing was written")
    return sealed


def _print(session: Session, keyfile: Keyfile, key_file: str) -> None:
    record: dict[str, object] = {"address": keyfile.address, "network": keyfile.params.name, "keyFile": key_file}
    rows = [("address", keyfile.address), ("network", keyfile.params.name), ("key file", key_file)]
    session.print_result(record, f"{property_table(rows)}\n\n{_ADVICE}")


_ADVICE: Final = (
    "The node needs the password at its start: [participation] keyPasswordFile, --key-password-fd, or a prompt. Keep a"
    " copy of the file and the password; svc wallet import --from can open it."
)
