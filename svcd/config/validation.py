"""Validation of settings against each other."""

import ipaddress
import os
from collections.abc import Mapping, Sequence

from svcd.chain.address import decode_address
from svcd.chain.errors import RuleViolation
from svcd.config.layers import Settings
from svcd.config.schema import DEFAULT_MERCHANT, OPERATOR_SOCKET, Config
from svcd.config.types import endpoint_parts

# sockaddr_un.sun_path has 108 bytes on Linux, the last one a zero (unix(7)).
_SOCKET_PATH_BYTES = 107
_DATABASES = [f"{name}.sqlite{part}" for name in ("chain", "webhooks") for part in ("", "-open", "-shm", "-wal")]
_FILES = (*_DATABASES, "lock", "node.key", "peers.json", OPERATOR_SOCKET)
"""Files of the data directory whose names cannot be configured."""


def check(config: Config, settings: Settings, environment: Mapping[str, str]) -> None:
    """Validate the combination of settings; ``environment`` names the sockets that systemd passes on.

    Raises:
        ConfigError: two settings contradict each other, two files would be one, the operator's interface would be
            public, or the public one under no limits.
    """
    if config.participation.on_demand and config.network != "devnet":
        raise settings.problem(("participation", "onDemand"), 'works with network = "devnet" only')
    _check_lifetimes(config, settings)
    _check_merchants(config, settings)
    _check_files(config, settings)
    _check_public(config, settings)
    _check_passed_sockets(config, settings, environment.get("LISTEN_FDNAMES", "").split(":"))
    _check_operator(config, settings)


def _check_lifetimes(config: Config, settings: Settings) -> None:
    default, longest = config.commerce.webhooks.default_ttl_seconds, config.commerce.webhooks.max_ttl_seconds
    # maxTtlSeconds was set: its default is the maximum.
    if default > longest:
        key = ("commerce", "webhooks", "maxTtlSeconds")
        raise settings.problem(key, f"must not be less than defaultTtlSeconds, {default}")


def _check_merchants(config: Config, settings: Settings) -> None:
    names = {DEFAULT_MERCHANT} if config.commerce.webhooks.names_merchant else set()
    for number, merchant in enumerate(config.commerce.merchants):
        at = ("commerce", "merchants", number)
        if merchant.name in names:
            reason = "the settings of [commerce.webhooks] are those of this merchant"
            other = "another merchant has this name"
            raise settings.problem((*at, "name"), reason if merchant.name == DEFAULT_MERCHANT else other)
        names.add(merchant.name)
        for recipient in merchant.recipients:
            try:
                decode_address(recipient, config.params.address_prefix, "each recipient")
            except RuleViolation as error:
                raise settings.problem((*at, "recipients"), str(error)) from error


def _check_files(config: Config, settings: Settings) -> None:
    folder = config.data_dir
    taken = {os.path.normpath(folder / name) for name in _FILES}
    secrets = {
        ("operator", "tokenFile"): config.operator.token_file,
        ("participation", "keyFile"): config.participation.key_file,
    }
    # The configured one comes last: the error must name a setting that the operator has set.
    for setting in sorted(secrets, key=settings.has):
        place = os.path.normpath(folder / secrets[setting])
        if place in taken:
            raise settings.problem(setting, f"must name another file, for the node has something else in {place}")
        taken.add(place)


def _check_public(config: Config, settings: Settings) -> None:
    for section, endpoint in (("http", config.http.listen), ("p2p", config.p2p.listen)):
        kind, arguments = endpoint_parts(endpoint)
        if kind == "unix" or (kind == "systemd" and arguments.get("domain") == "UNIX"):
            raise settings.problem(
                (section, "listen"),
                "must not be a Unix socket: all who come by it look alike, so that nobody would be under a limit; "
                'let the proxy come to a port, such as "tcp:8645:interface=127.0.0.1"',
            )


def _check_passed_sockets(config: Config, settings: Settings, names: Sequence[str]) -> None:
    """Of several sockets with one name Twisted serves one; connections to the others would never be answered."""
    listening = {"http": config.http.listen, "p2p": config.p2p.listen, "operator": config.operator_port}
    for section, endpoint in listening.items():
        kind, arguments = endpoint_parts(endpoint)
        many = names.count(arguments.get("name", ""))
        if kind == "systemd" and many > 1:
            raise settings.problem(
                (section, "listen"),
                f"systemd hands over {many} sockets of that name, and one would be served: leave one ListenStream= in "
                'the .socket unit, such as "[::]:8645" for all addresses of IPv4 and IPv6',
            )


def _check_operator(config: Config, settings: Settings) -> None:
    _, socket = endpoint_parts(config.operator_socket)
    if socket["address"].startswith("\0") or not socket["address"]:
        raise settings.problem(
            ("operator", "listen"), "must name a file: everybody on this computer can open a socket without one"
        )
    length = len(socket["address"].encode())
    if length > _SOCKET_PATH_BYTES:
        at = ("dataDir",) if config.operator_port or not config.operator.listen else ("operator", "listen")
        raise settings.problem(at, f"the socket's path has {length} bytes and may have {_SOCKET_PATH_BYTES}")
    if int(socket["mode"], 8) & 0o007:
        raise settings.problem(
            ("operator", "listen"), "must not be open to everybody: mode=600 is for its owner, mode=660 for a group too"
        )
    kind, arguments = endpoint_parts(config.operator_port)
    if kind not in ("", "systemd") and not _is_loopback(arguments.get("interface", "")):
        raise settings.problem(
            ("operator", "listen"),
            'must be a Unix socket or on loopback, such as "tcp:8646:interface=127.0.0.1", for it is never public',
        )


def _is_loopback(interface: str) -> bool:
    try:
        address = ipaddress.ip_address(interface)
    except ValueError:
        return False
    # Python 3.13 and newer look into an IPv4-mapped address by themselves.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
