"""Networks, addresses, amounts and references: those of svcd, with the errors of this package."""

from hashlib import sha256
from ipaddress import ip_address
from operator import attrgetter
from typing import Final

from attrs import field, frozen

from svc_pay._svcd.chain import params, transaction, units
from svc_pay._svcd.chain.address import decode_address
from svc_pay._svcd.chain.encoding import MAX_INTEGER
from svc_pay._svcd.chain.errors import RuleViolation
from svc_pay._svcd.chain.units import format_amount as format_amount
from svc_pay._svcd.chain.units import format_coins as format_coins
from svc_pay.errors import InvalidInput

COIN: Final = units.BASE_UNITS_PER_COIN
"""Base units of one coin."""
MINIMUM_FEE: Final = params.MAINNET.minimum_fee
"""The smallest fee of a transfer on mainnet and devnet, in base units."""
MAX_CONFIRMATIONS: Final = 1000


@frozen
class Network:
    """A network, whose values never change: mainnet, devnet, or what :func:`svc_pay.read_network` has read."""

    rules: params.NetworkParams = field(repr=attrgetter("name"), eq=attrgetter("genesis_hash"))
    """All rules, and the changes of producers."""

    @property
    def name(self) -> str:
        """What this computer calls it."""
        return self.rules.name

    @property
    def unit(self) -> str:
        """What its coins are called, for :func:`format_coins`."""
        return self.rules.unit

    @property
    def network_id(self) -> int:
        """Its number in every transfer."""
        return self.rules.network_id

    @property
    def chain_id(self) -> str:
        """The name of its chain."""
        return self.rules.chain_id

    @property
    def prefix(self) -> str:
        """The beginning of its addresses."""
        return self.rules.address_prefix

    @property
    def genesis_hash(self) -> str:
        """64 hex characters."""
        return self.rules.genesis_hash.hex()


MAINNET: Final = Network(params.MAINNET)
DEVNET: Final = Network(params.DEVNET)
NETWORKS: Final = (MAINNET, DEVNET)
"""The networks that are built in."""


# Amounts


def parse_amount(coins: str) -> int:
    """The base units of a decimal number of coins such as ``"25"`` or ``"0.5"``; raises InvalidInput."""
    try:
        return units.parse_amount(coins)
    except RuleViolation as violation:
        raise InvalidInput(violation.detail) from None


def check_amount(units: object) -> int:
    """``units`` if it is a possible amount in base units; raises InvalidInput."""
    return check_number(units, "amount", least=1)


def check_number(value: object, name: str, *, least: int = 0, greatest: int = MAX_INTEGER) -> int:
    """``value`` if it is an integer in this range; raises InvalidInput."""
    if type(value) is not int or not least <= value <= greatest:
        raise InvalidInput(f"{name} must be an integer from {least} to {greatest}")
    return value


# References and addresses


def check_reference(reference: str) -> str:
    """``reference`` if an order can have it; raises InvalidInput."""
    try:
        found = transaction.check_reference(reference)
    except RuleViolation:
        found = ""
    # URLs drop such path segments.
    if found in ("", ".", ".."):
        raise InvalidInput("a reference is 1 to 64 of the characters A-Z a-z 0-9 . _ : -, and not . or ..")
    return found


def refund_reference(reference: str | None, txid: str) -> str:
    """The reference that `svc wallet refund` gives the refund of a payment."""
    if reference is None:
        return f"refund:{txid[:32]}"
    if len(reference) <= 57:
        return f"refund:{reference}"
    return f"refund:{reference[:40]}.{sha256(reference.encode('ascii')).hexdigest()[:16]}"


def network_of(address: str) -> Network:
    """The network of an address of mainnet or devnet; raises InvalidInput for every other text."""
    for network in NETWORKS:
        if isinstance(address, str) and address.startswith(f"{network.prefix}1"):
            check_address(address, network)
            return network
    raise InvalidInput(
        "an address begins with svc1q, or svcd1q on devnet, and 38 more lower-case characters follow; of a network of"
        " your own, give the network, too"
    )


def check_address(address: str, network: Network) -> str:
    """``address`` if it is one of ``network``; raises InvalidInput."""
    key_hash_of(address, network)
    return address


def key_hash_of(address: str, network: Network) -> bytes:
    """The 20-byte key hash in an address of ``network``; raises InvalidInput."""
    try:
        return decode_address(address, network.prefix, "it")
    except RuleViolation as violation:
        shown = f"{str(address)[:90]!r}"
        raise InvalidInput(f"{shown} is not an address of {network.name}: {violation.detail}") from None


# Hosts


def is_loopback(host: str) -> bool:
    """Whether a host of a URL is this computer."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
