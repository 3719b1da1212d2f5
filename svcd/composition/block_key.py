"""The node's block key in an encrypted keyfile, unlocked before the reactor runs (docs/block-key.md).

The password comes from a file descriptor (`--key-password-fd`), else from a file or a credential of systemd
(`[participation] keyPasswordFile`), else from a prompt. It is in no setting, environment variable, log or exception.
"""

from collections.abc import Callable, Mapping
from typing import Final

from attrs import frozen

from svcd.chain.address import decode_address, encode_address
from svcd.chain.params import NetworkParams, known_networks
from svcd.chain.value_types import BadValue
from svcd.config.loader import credentials_directory, read_secret_file
from svcd.config.schema import Config
from svcd.keyfile import Keyfile, parse, unseal
from svcd.keyfile_errors import KeyfileError, UnknownNetwork
from svcd.seed_file import SeedFileError, is_encrypted, read_private
from svcd.visible_text import BadText, line_of

EXIT_STATUS: Final = 78
"""The exit status of a node whose key stays locked: EX_CONFIG of sysexits.h, after which systemd starts it no more."""
_MAX_PASSWORD_BYTES: Final = 4096


class KeyLocked(Exception):
    """The block key cannot be unlocked; the text is one sentence, which never contains the password."""


@frozen
class KeyPassword:
    """Where the password of the block key comes from."""

    descriptor: int | None
    """A file descriptor of this process, which is read to its end and closed."""
    environment: Mapping[str, str]
    """Names the folder with the credentials of systemd."""
    prompt: Callable[[str], str] | None
    """Asks a question at the terminal, without echo; None where no user sees it. Raises EOFError for no answer."""

    def is_set(self, config: Config) -> bool:
        """Whether a descriptor or a file is set."""
        return self.descriptor is not None or bool(config.participation.key_password_file)

    def password(self, config: Config) -> str:
        """The password; raises KeyLocked."""
        file = config.participation.key_password_file
        if self.descriptor is not None:
            return _password_in(self._from_descriptor(self.descriptor), f"--key-password-fd {self.descriptor}")
        if file:
            try:
                content = read_secret_file(config.data_dir / file, credentials_directory(self.environment))
            except BadValue as error:
                raise KeyLocked(f'[participation] keyPasswordFile = "{file}": {error}') from None
            return _password_in(content, f'[participation] keyPasswordFile = "{file}"')
        path = config.data_dir / config.participation.key_file
        if self.prompt is None:
            raise KeyLocked(
                f"{path} is encrypted, and there is no terminal to ask for its password: set [participation] "
                "keyPasswordFile, or give --key-password-fd"
            )
        try:
            return self.prompt(f"Password of {path}: ")
        except EOFError:
            raise KeyLocked(f"{path} is encrypted, and no password was given") from None

    def _from_descriptor(self, descriptor: int) -> bytes:
        try:
            with open(descriptor, "rb") as stream:
                content = stream.read(_MAX_PASSWORD_BYTES + 1)
        except OSError as error:
            raise KeyLocked(
                f"--key-password-fd {descriptor} cannot be read: {error.strerror}; open it for the node, such as "
                f"{descriptor}<password-file in a shell"
            ) from None
        if len(content) > _MAX_PASSWORD_BYTES:
            raise KeyLocked(f"--key-password-fd {descriptor}: more than {_MAX_PASSWORD_BYTES} bytes; give the password")
        return content


def unlock(config: Config, source: KeyPassword) -> bytes | None:
    """The 32-byte seed in the encrypted key file; None for a key file that is not encrypted, or not there yet.

    Deriving the key from the password takes about a second.

    Raises:
        KeyLocked: there is no password or a wrong one, the file is damaged or of another network, or a password is set
            for a key that is not encrypted.
    """
    path = config.data_dir / config.participation.key_file
    try:
        content = read_private(path)
    except (OSError, SeedFileError):
        # None to unlock. If it cannot be read either when the node loads it, that says why.
        content = b""
    if not is_encrypted(content):
        if source.is_set(config):
            if content:
                raise KeyLocked(
                    f"a password is set for {path}, which is not encrypted: run svc node key encrypt, or set "
                    "no password"
                )
            raise KeyLocked(
                f"a password is set for {path}, which is not a key file: run svc node key new, or set no password"
            )
        return None
    own = f"the node for {config.params.name}: make a key with svc node key new --network {config.network}"
    try:
        keyfile = parse(content, known_networks(config.params))
        if not _may_sign(keyfile, config.params):
            raise KeyLocked(f"{path}: the key is for {keyfile.params.name} and {own}")
        return unseal(keyfile, source.password(config))
    except UnknownNetwork as unknown:
        raise KeyLocked(f"{path}: {unknown}, and {own}") from None
    except KeyfileError as error:
        raise KeyLocked(f"{path}: {error}") from None


def _may_sign(keyfile: Keyfile, params: NetworkParams) -> bool:
    """Whether a key is for the node's network, or for another one and the node's network has it as a producer.

    Producers make their keys before there is the file of the network, which has their addresses.
    """
    if keyfile.params.genesis_hash == params.genesis_hash:
        return True
    address = encode_address(decode_address(keyfile.address, keyfile.params.address_prefix), params.address_prefix)
    return any(address in producers for producers in (params.producers, *(each.producers for each in params.changes)))


def _password_in(content: bytes, origin: str) -> str:
    """The only line of ``content``, without its end."""
    try:
        return line_of(content, "the password")
    except BadText as error:
        raise KeyLocked(f"{origin}: the file {error}") from None
