"""A network of your own: its file, or what `svc network show --json` prints of it (docs/own-network.md).

The genesis hash follows from the rules (docs/protocol.md 5), and a file whose rules give another one than it says is
refused: so everything that is computed from the rules belongs to the network whose hash a user was given.
"""

import tomllib
from os import PathLike
from pathlib import Path

from svc_pay._svcd.chain.encoding import parse_json
from svc_pay._svcd.chain.errors import RuleViolation
from svc_pay._svcd.chain.network_rules import MAX_FILE_BYTES, BadNetwork, params_in_file, params_in_json
from svc_pay._svcd.chain.params import NetworkParams
from svc_pay._svcd.visible_text import BadText, decoded, text_of
from svc_pay.chain import NETWORKS, Network
from svc_pay.errors import InvalidInput


def read_network(path: str | PathLike[str]) -> Network:
    """The network of a file, which is TOML if its name ends with ``.toml``, and else JSON; raises InvalidInput."""
    file = Path(path)
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{file}: the file of the network cannot be read: {error.strerror}") from error
    try:
        if len(content) > MAX_FILE_BYTES:
            raise InvalidInput(f"a network file has at most {MAX_FILE_BYTES} bytes")
        return _in_toml(text_of(content)) if file.suffix == ".toml" else parse_network(decoded(content))
    except (BadText, InvalidInput) as error:
        raise InvalidInput(f"{file}: {error}") from None


def parse_network(text: str) -> Network:
    """The network that `svc network show --json` has printed; raises InvalidInput."""
    given: object = text
    if not isinstance(given, str):
        raise InvalidInput("give the text that svc network show --json prints")
    try:
        value = parse_json(text.removeprefix("\ufeff").encode("utf-8", "surrogatepass"), counted=False)
        return _network(*params_in_json(value))
    except RuleViolation as violation:
        raise InvalidInput(f"this is not what svc network show --json prints: {violation.detail}") from None
    except BadNetwork as error:
        raise InvalidInput(str(error)) from None


def _in_toml(text: str) -> Network:
    try:
        return _network(*params_in_file(tomllib.loads(text)))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"this is not TOML: {error}") from None
    except BadNetwork as error:
        raise InvalidInput(str(error)) from None


def _network(params: NetworkParams, stated: str) -> Network:
    """The network, if the rules give the genesis hash that is ``stated``; raises InvalidInput."""
    given = params.genesis_hash.hex()
    if given != stated:
        raise InvalidInput(
            f"the file says that the genesis hash is {stated}, and its rules give {given}: get the file of the"
            " network again from those who founded it"
        )
    return next((network for network in NETWORKS if network.rules is params), Network(params))
