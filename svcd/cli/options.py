"""Options and argument types shared by several commands; each value is validated before the command runs."""

import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from svcd.chain.address import decode_address
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NETWORKS, NetworkParams
from svcd.cli.http_client import public_endpoint
from svcd.cli.session import Session
from svcd.visible_text import visible

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_NEGATIVE: Final = re.compile(r"-[0-9.]+")


class NumericCommand(click.Command):
    """A command with numeric arguments, to which ``-1`` is an invalid number instead of an unknown option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse options and arguments; raises click.UsageError."""
        # Only with a negative number: otherwise click's suggestion for a misspelled option would be lost.
        ctx.ignore_unknown_options = any(map(_NEGATIVE.fullmatch, args))
        return super().parse_args(ctx, args)


class NetworkType(click.ParamType[NetworkParams]):
    """The name of a built-in network, or the file of another one; the value is its parameters."""

    name = "network"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so, or else files."""
        names = [CompletionItem(name) for name in NETWORKS if name.startswith(incomplete)]
        return names or [CompletionItem(incomplete, type="file")]

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> NetworkParams:
        """Read the file; raises click.ClickException, or click.BadParameter for what is neither name nor file."""
        if isinstance(value, NetworkParams):
            return value
        text = str(value)
        if text in NETWORKS:
            return NETWORKS[text]
        if not text.endswith(".toml"):
            names = ", ".join(NETWORKS)
            self.fail(f"{text!r} must be {names} or the file of a network, such as festival.toml", param, ctx)
        # Only for a file: what reads it takes longer to import than most commands run.
        from svcd.config.layers import ConfigError
        from svcd.config.network_file import read_network_file

        try:
            return read_network_file(Path(text))
        except ConfigError as error:
            # Options before the command are read before its failures are printed.
            raise click.ClickException(visible(str(error))) from None


NETWORK: Final = NetworkType()


def validated(parse: Callable[[str], T]) -> Callable[[click.Context, click.Parameter, str | None], T | None]:
    """A click callback that parses a value; the sentence of a RuleViolation or ValueError becomes a usage error."""

    def callback(_context: click.Context, parameter: click.Parameter, value: str | None) -> T | None:
        if value is None:
            return None
        try:
            return parse(value)
        except (RuleViolation, ValueError) as error:
            # Click would name an optional argument with the brackets of its usage line.
            hint = f"'{parameter.human_readable_name}'" if isinstance(parameter, click.Argument) else None
            raise click.BadParameter(str(error), param_hint=hint) from None

    return callback


def address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A click callback for an address of a network that the command knows."""
    session = context.find_object(Session)
    networks = tuple(NETWORKS.values()) if session is None else session.meant
    return validated(partial(_parse_address, networks))(context, parameter, value)


def _parse_address(networks: Iterable[NetworkParams], text: str) -> str:
    for params in networks:
        if text.startswith(f"{params.address_prefix}1"):
            decode_address(text, params.address_prefix)
            return text
    starts = ", ".join(f"{params.address_prefix}1q on {params.name}" for params in networks)
    raise ValueError(f"an address begins with {starts}; for another network name its file with --network")


def integer(low: int, high: int = MAX_INTEGER) -> Callable[[str], int]:
    """A parser of integers from ``low`` to ``high``, both included, which raises ValueError."""

    def parse(text: str) -> int:
        if re.fullmatch("[0-9]{1,16}", text) and low <= int(text) <= high:
            return int(text)
        raise ValueError(f"must be an integer from {low} to {high}")

    return parse


def txid(text: str) -> str:
    """A transaction id in either case; raises ValueError."""
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise ValueError("a transaction id is 64 hex digits")
    return text.lower()


def seed(text: str) -> str:
    """The seed of a devnet key; raises ValueError."""
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise ValueError("a seed is 64 lower-case hex digits")
    return text


def url(text: str) -> str:
    """The URL of a node, without a trailing slash; raises ValueError."""
    return public_endpoint(text).base_url


def network_option(command: F) -> F:
    """``--network`` after the command, which overrides ``--network`` before it and SVC_NETWORK.

    The options of nodes and keyfiles have it with them; a command with both has it once.
    """
    if any(parameter.name == "network" for parameter in getattr(command, "__click_params__", ())):
        return command
    return click.option(
        "--network",
        metavar="NETWORK",
        type=NETWORK,
        expose_value=False,
        # An address among the arguments may be of this network.
        is_eager=True,
        callback=_network_into_session,
        help="mainnet, devnet, or the file of another network; a new key is for mainnet without it.  [env var:"
        " SVC_NETWORK]",
    )(command)


def _network_into_session(context: click.Context, _: click.Parameter, value: NetworkParams | None) -> None:
    session = context.find_object(Session)
    if value is not None and session is not None:
        session.network = value


def node_option(command: F) -> F:
    """``--url`` after the command, which overrides ``--url`` before it and SVCD_URL."""
    return click.option(
        "--url",
        metavar="URL",
        expose_value=False,
        callback=_into_session("url", url),
        help="The node to ask.  [env var: SVCD_URL; default: http://127.0.0.1:8645]",
    )(network_option(command))


def nodes_option(command: F) -> F:
    """``--url``, which may be repeated with ``--trustless``, and the parameters ``trustless`` and ``minimum_work``."""
    url_option = click.option(
        "--url",
        metavar="URL",
        multiple=True,
        expose_value=False,
        callback=_into_urls,
        help="The node to ask; with --trustless, repeat it for each.  [env var: SVCD_URL; default:"
        " http://127.0.0.1:8645]",
    )
    trustless = click.option(
        "--trustless",
        is_flag=True,
        help="Believe no node: check the answer against the chain, and the chain from its genesis block on.",
    )
    minimum_work = click.option(
        "--minimum-work",
        metavar="HASHES",
        callback=validated(integer(0)),
        help="Refuse a chain with less work, such as what an earlier check has shown.",
    )
    return url_option(trustless(minimum_work(network_option(command))))


def check_one_node(session: Session, *, trustless: bool) -> None:
    """Raise click.UsageError if several nodes were given and one is asked."""
    if len(session.urls) > 1 and not trustless:
        raise click.UsageError("several --url options need --trustless; without it, give only one")


def _into_urls(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> None:
    session = context.find_object(Session)
    if values and session is not None:
        given = [validated(url)(context, parameter, value) for value in values]
        session.urls = tuple(each for each in given if each is not None)
        session.url = session.urls[0]


def operator_option(command: F) -> F:
    """``--data-dir`` after the command, which overrides ``--data-dir`` before it and SVCD_DATA_DIR."""
    return click.option(
        "--data-dir",
        metavar="DIR",
        expose_value=False,
        callback=_into_session("data_dir", str),
        help="The node's data directory, which holds its operator socket.  [env var: SVCD_DATA_DIR; default: data]",
    )(command)


def confirmations_option(description: str) -> Callable[[F], F]:
    """``--confirmations`` of a command, an integer; ``description`` says in its help what needs them."""
    # Here, since most commands and the help need nothing of payments, which take 30 ms to import.
    from svcd.commerce.payment_request import DEFAULT_CONFIRMATIONS, MAX_CONFIRMATIONS

    return click.option(
        "--confirmations",
        metavar="N",
        default=str(DEFAULT_CONFIRMATIONS),
        show_default=True,
        callback=validated(integer(1, MAX_CONFIRMATIONS)),
        help=description,
    )


def since_height_option(command: F) -> F:
    """``--since-height``, the lowest height of a payment that counts."""
    return click.option(
        "--since-height",
        metavar="H",
        callback=validated(integer(0)),
        help="Ignore payments in blocks below this height.",
    )(command)


def insecure_http_option(command: F) -> F:
    """``--insecure-http``, which sets ``Session.insecure_http``."""
    return click.option(
        "--insecure-http",
        is_flag=True,
        default=None,
        expose_value=False,
        callback=_into_session("insecure_http", bool),
        help="Send the token over http:// to another host too, where others on the way can read it.",
    )(command)


def json_option(command: F) -> F:
    """``--json``, which sets ``Session.as_json``."""
    return click.option(
        "--json",
        is_flag=True,
        default=None,
        expose_value=False,
        callback=_into_session("as_json", bool),
        help="Print JSON, for programs.",
    )(command)


def keyfile_option(command: F) -> F:
    """``--keyfile``, the parameter ``keyfile``."""
    return click.option(
        "--keyfile",
        type=click.Path(path_type=Path),
        default="wallet.json",
        envvar="SVC_WALLET",
        show_envvar=True,
        show_default=True,
        metavar="FILE",
        help="The file that contains the key.",
    )(network_option(command))


def password_option(command: F) -> F:
    """``--password-file``, the parameter ``password_file``."""
    return click.option(
        "--password-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Read the password from a file of mode 0600; SVC_WALLET_PASSWORD may contain it instead.",
    )(command)


def _into_session(name: str, parse: Callable[[Any], object]) -> Callable[[click.Context, click.Parameter, Any], None]:
    """A click callback that stores an option, if given, in the session."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        session = context.find_object(Session)
        if value is not None and session is not None:
            setattr(session, name, validated(parse)(context, parameter, value))

    return callback
