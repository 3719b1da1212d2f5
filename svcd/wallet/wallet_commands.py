"""`svc wallet …`: a key on this computer, and transfers signed with it."""

from pathlib import Path

import click

from svcd.chain.params import NETWORKS
from svcd.chain.transaction import check_reference
from svcd.chain.units import parse_amount
from svcd.wallet import options, show
from svcd.wallet.disk import read_bounded, refuse_existing, write_new
from svcd.wallet.failed import DamagedKeyfile
from svcd.wallet.keyfile import MAX_FILE_BYTES, Keyfile, parse, render, seal, unseal
from svcd.wallet.passwords import PasswordSource
from svcd.wallet.payment import Payment, pay
from svcd.wallet.sending import Wish
from svcd.wallet.session import Session


@click.group()
def wallet() -> None:
    """Keep a key in a file on this computer, and send coins with it.

    The key is sealed by a password and never leaves this computer. Nobody can restore it: keep a copy of the file, and
    the password.
    """


@wallet.command()
@click.option("--network", type=click.Choice(list(NETWORKS)), default="mainnet", show_default=True)
@options.keyfile_option
@options.password_option
@options.json_option
@click.pass_obj
def new(session: Session, network: str, keyfile: Path, password_file: Path | None) -> None:
    """Make a new random key and write it to a keyfile.

    An existing file is never written over.

    \b
    Example:
      svc wallet new
      svc wallet new --network devnet --keyfile test-wallet.json
    """
    refuse_existing(keyfile)
    outside = session.outside
    password = PasswordSource(password_file, outside.environment).new()
    sealed = seal(outside.random(32), password, params=NETWORKS[network], random=outside.random)
    write_new(keyfile, render(sealed))
    session.show(_described(sealed, keyfile), f"{_table(sealed, keyfile)}\n\n{_ADVICE}")


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
    opened = _load(keyfile)
    session.show(_described(opened, keyfile), opened.address)


@wallet.command(cls=options.WithNumbers)
@click.argument("recipient", callback=options.judged(options.address))
@click.argument("amount", callback=options.judged(parse_amount))
@click.option("--reference", metavar="TEXT", callback=options.judged(check_reference), help="The order's reference.")
@click.option(
    "--fee",
    metavar="COINS",
    callback=options.judged(parse_amount),
    help="What to pay the block's producer.  [default: the network's minimum]",
)
@click.option(
    "--nonce",
    metavar="N",
    callback=options.judged(options.integer(0)),
    help="The transfer's number.  [default: the next one, from the node]",
)
@click.option("--yes", is_flag=True, help="Do not ask before signing.")
@options.keyfile_option
@options.password_option
@options.node_option
@options.json_option
@click.pass_obj
def send(
    session: Session,
    recipient: str,
    amount: int,
    reference: str | None,
    fee: int | None,
    nonce: int | None,
    yes: bool,
    keyfile: Path,
    password_file: Path | None,
) -> None:
    """Send AMOUNT coins to RECIPIENT.

    The transfer is shown and signed only after your yes. The key never leaves this computer: the node gets the signed
    transfer. A transfer with the same --nonce as one that waits takes its place if its fee is 10 % higher.

    \b
    Example:
      svc wallet send svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5 --reference order-17
    """
    wish = Wish(recipient=recipient, amount=amount, reference=reference, fee=fee, nonce=nonce)
    opened = _load(keyfile)
    source = PasswordSource(password_file, session.outside.environment)
    payment = Payment(opened, wish, lambda: unseal(opened, source.existing()), asked=not yes)
    sent = session.with_node(lambda reach: pay(reach, payment))
    session.show(sent.as_json(), sent.as_text())


def _load(path: Path) -> Keyfile:
    try:
        return parse(read_bounded(path, MAX_FILE_BYTES))
    except DamagedKeyfile as damaged:
        raise DamagedKeyfile(f"{path}: {damaged}") from None


def _described(keyfile: Keyfile, path: Path) -> dict[str, object]:
    return {"address": keyfile.address, "network": keyfile.params.name, "keyfile": str(path)}


def _table(keyfile: Keyfile, path: Path) -> str:
    return show.table([("address", keyfile.address), ("network", keyfile.params.name), ("keyfile", str(path))])


_ADVICE = (
    "Keep a copy of the keyfile, and the password: without both, what the address holds is lost, and nobody can"
    " restore it."
)
