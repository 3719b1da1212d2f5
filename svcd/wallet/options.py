"""Options and arguments that several commands share, each judged before anything else happens."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from svcd.chain.address import decode_address
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NETWORKS
from svcd.wallet.places import public_place
from svcd.wallet.session import Session

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_NEGATIVE: Final = re.compile(r"-[0-9.]+")


class WithNumbers(click.Command):
    """A command with numbers among its arguments: ``-1`` is a wrong one of them, and no unknown option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take options and arguments apart; raises click.UsageError."""
        # Only then, for otherwise a misspelled option would be an argument too, and the hint at the right one be lost.
        ctx.ignore_unknown_options = any(map(_NEGATIVE.fullmatch, args))
        return super().parse_args(ctx, args)


def judged(parse: Callable[[str], T]) -> Callable[[click.Context, click.Parameter, str | None], T | None]:
    """A click callback that gives what ``parse`` makes of a value; its sentence becomes a usage error."""

    def judge(_context: click.Context, _parameter: click.Parameter, value: str | None) -> T | None:
        if value is None:
            return None
        try:
            return parse(value)
        except (RuleViolation, ValueError) as error:
            raise click.BadParameter(str(error)) from None

    return judge


def address(text: str) -> str:
    """An address of any network that is known; raises RuleViolation or ValueError."""
    for params in NETWORKS.values():
        if text.startswith(f"{params.address_prefix}1"):
            decode_address(text, params.address_prefix)
            return text
    starts = " or ".join(f"{params.address_prefix}1q on {params.name}" for params in NETWORKS.values())
    raise ValueError(f"an address begins with {starts}")


def integer(low: int, high: int = MAX_INTEGER) -> Callable[[str], int]:
    """What reads an integer within bounds, both included; it raises ValueError."""

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
    """The base of a node's URL; raises ValueError."""
    return public_place(text).base


def node_option(command: F) -> F:
    """``--url`` behind the command's name, where it wins over one in front of it and over SVCD_URL."""
    return click.option(
        "--url",
        metavar="URL",
        expose_value=False,
        callback=_into_session("url", url),
        help="The node to ask.  [env var: SVCD_URL; default: http://127.0.0.1:8645]",
    )(command)


def operator_option(command: F) -> F:
    """``--data-dir`` behind the command's name, where it wins over one in front of it and over SVCD_DATA_DIR."""
    return click.option(
        "--data-dir",
        metavar="DIR",
        expose_value=False,
        callback=_into_session("data_dir", str),
        help="The node's data directory, which holds its operator socket.  [env var: SVCD_DATA_DIR; default: data]",
    )(command)


def json_option(command: F) -> F:
    """``--json``."""
    return click.option(
        "--json",
        is_flag=True,
        default=None,
        expose_value=False,
        callback=_into_session("as_json", bool),
        help="Print JSON, for programs.",
    )(command)


def keyfile_option(command: F) -> F:
    """``--keyfile``, given to the command as ``keyfile``."""
    return click.option(
        "--keyfile",
        type=click.Path(path_type=Path),
        default="wallet.json",
        envvar="SVC_WALLET",
        show_envvar=True,
        show_default=True,
        metavar="FILE",
        help="The file that holds the key.",
    )(command)


def password_option(command: F) -> F:
    """``--password-file``, given to the command as ``password_file``."""
    return click.option(
        "--password-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Read the password from a file of mode 0600; SVC_WALLET_PASSWORD may hold it instead.",
    )(command)


def _into_session(name: str, parse: Callable[[Any], object]) -> Callable[[click.Context, click.Parameter, Any], None]:
    """A callback that keeps an option in the session if it is given."""

    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        session = context.find_object(Session)
        if value is not None and session is not None:
            setattr(session, name, judged(parse)(context, parameter, value))

    return keep
