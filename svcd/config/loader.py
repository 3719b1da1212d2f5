"""Loads a `Config` from the layers of settings, or fails with one sentence that names the wrong setting."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from svcd.chain.address import decode_address
from svcd.chain.errors import RuleViolation
from svcd.chain.value_types import BadValue
from svcd.config.files import check_files
from svcd.config.layers import KeyPath, Layer, Settings, from_environment, from_file, merged
from svcd.config.network_file import read_network_file
from svcd.config.schema import DEFAULT_MERCHANT, DEFAULTS, Config, MerchantSettings
from svcd.config.sections import structured
from svcd.config.types import NETWORK_FILE
from svcd.endpoint_description import EndpointDescription
from svcd.ip_addresses import parse_address
from svcd.visible_text import BadText, line_of

# sockaddr_un.sun_path has 108 bytes on Linux, the last one a zero (unix(7)).
_SOCKET_PATH_BYTES = 107
_ENDS_NOTHING = "ends no token, because none is given: remove it, or give the previous token too"
_NO_END = 'needs {}, the time at which the token ends, such as "2026-12-01T00:00:00Z"'


def check(config: Config, settings: Settings, environment: Mapping[str, str]) -> None:
    """Validate the combination of settings; ``environment`` names the sockets that systemd passes on.

    Raises:
        ConfigError: two settings contradict each other, two files would be one, the operator's interface would be
            public, or the public one under no limits.
    """
    if config.participation.on_demand and config.network != "devnet":
        raise settings.problem(("participation", "onDemand"), 'works with network = "devnet" only')
    if config.participation.every and not config.participation.on_demand:
        raise settings.problem(("participation", "every"), "works with onDemand = true only")
    _check_pay_to(config, settings)
    _check_lifetimes(config, settings)
    _check_merchants(config, settings)
    check_files(config, settings)
    _check_previous_tokens(config, settings)
    _check_public(config, settings)
    _check_passed_sockets(config, settings, environment.get("LISTEN_FDNAMES", "").split(":"))
    _check_operator(config, settings)


def _check_pay_to(config: Config, settings: Settings) -> None:
    if not config.participation.pay_to:
        return
    try:
        decode_address(config.participation.pay_to, config.params.address_prefix, "it")
    except RuleViolation as error:
        raise settings.problem(("participation", "payTo"), str(error)) from error


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
        _check_recipients(merchant.recipients, config, settings, (*at, "recipients"))
    _check_recipients(config.pages.recipients, config, settings, ("pages", "recipients"))
    _check_recipients(config.pages.shop_names, config, settings, ("pages", "shopNames"))
    listed = config.link_recipients
    for recipient in config.pages.shop_names:
        if listed and recipient not in listed:
            reason = (
                f"{recipient} is not among the recipients of the links of this site, so its name would not be shown"
            )
            raise settings.problem(("pages", "shopNames"), reason)


def _check_previous_tokens(config: Config, settings: Settings) -> None:
    hooks, at = config.commerce.webhooks, ("commerce", "webhooks")
    given = [
        key
        for key, value in (
            ("previousManageToken", hooks.previous_manage_token),
            ("previousManageTokenFile", hooks.previous_manage_token_file),
        )
        if value
    ]
    _check_previous_token(settings, at, given, "previousManageTokenUntil", hooks.previous_manage_token_until)
    for number, merchant in enumerate(config.commerce.merchants):
        given = ["previousTokenFile"] if merchant.previous_token_file else []
        of_merchant = ("commerce", "merchants", number)
        _check_previous_token(settings, of_merchant, given, "previousTokenUntil", merchant.previous_token_until)


def _check_previous_token(settings: Settings, at: KeyPath, given: Sequence[str], until_key: str, until: object) -> None:
    """Refuse a previous token without its end, and an end without a token; ``given`` are the token's settings."""
    if given and not until:
        raise settings.problem((*at, given[0]), _NO_END.format(until_key))
    if until and not given:
        raise settings.problem((*at, until_key), _ENDS_NOTHING)


def _check_recipients(recipients: Iterable[str], config: Config, settings: Settings, at: tuple[str | int, ...]) -> None:
    for recipient in recipients:
        try:
            decode_address(recipient, config.params.address_prefix, "each recipient")
        except RuleViolation as error:
            raise settings.problem(at, str(error)) from error


def _check_public(config: Config, settings: Settings) -> None:
    settings_of = {
        ("http", "listen"): config.http.listen,
        ("p2p", "listen"): config.p2p.listen,
        ("operator", "healthListen"): config.operator.health_listen,
    }
    for setting, endpoint in settings_of.items():
        described = EndpointDescription.parse(endpoint)
        if described.kind == "unix" or (described.kind, described.arguments.get("domain")) == ("systemd", "UNIX"):
            raise settings.problem(
                setting,
                "must not be a Unix socket: all who come by it look alike, so that nobody would be under a limit; "
                'let the proxy come to a port, such as "tcp:8645:interface=127.0.0.1"',
            )


def _check_passed_sockets(config: Config, settings: Settings, names: Sequence[str]) -> None:
    """Of several sockets with one name Twisted serves one; connections to the others would never be answered."""
    listening = {
        ("http", "listen"): config.http.listen,
        ("p2p", "listen"): config.p2p.listen,
        ("operator", "listen"): config.operator_port,
        ("operator", "healthListen"): config.operator.health_listen,
    }
    for setting, endpoint in listening.items():
        described = EndpointDescription.parse(endpoint)
        many = names.count(described.arguments.get("name", ""))
        if described.kind == "systemd" and many > 1:
            raise settings.problem(
                setting,
                f"systemd passes {many} sockets of that name, and the node would serve only one: leave one "
                'ListenStream= in the .socket unit, such as "[::]:8645" for all addresses of IPv4 and IPv6',
            )


def _check_operator(config: Config, settings: Settings) -> None:
    socket = EndpointDescription.parse(config.operator_socket).arguments
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
    port = EndpointDescription.parse(config.operator_port)
    if port.kind not in ("", "systemd") and not _is_loopback(port.arguments.get("interface", "")):
        raise settings.problem(
            ("operator", "listen"),
            'must be a Unix socket or on loopback, such as "tcp:8646:interface=127.0.0.1": it must never be public',
        )


def _is_loopback(interface: str) -> bool:
    address = parse_address(interface)
    return address is not None and address.is_loopback


_MAX_SECRET_BYTES = 4096


def load(
    file: Path | None = None, *, overrides: Sequence[Layer] = (), environment: Mapping[str, str] | None = None
) -> Config:
    """Load the configuration: defaults, then the file, the environment and the command line; later layers win.

    Args:
        file: the TOML file, if there is one.
        overrides: settings from the command line, in order.
        environment: the process's environment variables.

    Raises:
        ConfigError: a setting is wrong; loading has no side effects.
    """
    environment = environment or {}
    layers = [
        *([with_network_file(from_file(file), file.absolute().parent)] if file else []),
        *from_environment(environment),
        *overrides,
    ]
    network = merged(layers).values.get("network")
    defaults = DEFAULTS["devnet" if network == "devnet" else "mainnet"]
    settings = merged([Layer("built-in default", defaults), *layers])
    config = structured(settings, Config)
    if config.network.endswith(NETWORK_FILE):
        config = attrs.evolve(config, own_network=read_network_file(Path(config.network)))
    check(config, settings, environment)
    return _with_secrets(config, settings, environment)


def with_network_file(layer: Layer, folder: Path) -> Layer:
    """The settings of one source, with the network file, if they name one, as a path from ``folder``."""
    network = layer.values.get("network")
    if not isinstance(network, str) or not network.endswith(NETWORK_FILE):
        return layer
    return attrs.evolve(layer, values={**layer.values, "network": str(folder / network)})


def _with_secrets(config: Config, settings: Settings, environment: Mapping[str, str]) -> Config:
    """Return the configuration with the secrets of merchants read from their files, if webhooks are enabled.

    Raises:
        ConfigError: a secret is given twice, or its file is missing, not text, too long or readable by others.
    """
    webhooks = config.commerce.webhooks
    if not webhooks.enabled:
        return config
    credentials = credentials_directory(environment)

    def secret(key: str, given: str, file: str) -> str:
        at = ("commerce", "webhooks", f"{key}File")
        if given and file:
            raise settings.problem(at, f"{key} is set too; keep one of the two")
        return _secret(config.data_dir / file, settings, at, credentials) if file else given

    read = attrs.evolve(
        webhooks,
        database=_database(secret("database", webhooks.database, webhooks.database_file), settings),
        manage_token=secret("manageToken", webhooks.manage_token, webhooks.manage_token_file),
        previous_manage_token=secret(
            "previousManageToken", webhooks.previous_manage_token, webhooks.previous_manage_token_file
        ),
        read_only_token=secret("readOnlyToken", webhooks.read_only_token, webhooks.read_only_token_file),
        signing_secret=secret("signingSecret", webhooks.signing_secret, webhooks.signing_secret_file),
        previous_signing_secret=secret(
            "previousSigningSecret", webhooks.previous_signing_secret, webhooks.previous_signing_secret_file
        ),
    )

    def merchant_with_secrets(number: int, merchant: MerchantSettings) -> MerchantSettings:
        def secret_in(key: str, file: str) -> str:
            at = ("commerce", "merchants", number, key)
            return _secret(config.data_dir / file, settings, at, credentials) if file else ""

        return attrs.evolve(
            merchant,
            token=secret_in("tokenFile", merchant.token_file),
            previous_token=secret_in("previousTokenFile", merchant.previous_token_file),
            read_only_token=secret_in("readOnlyTokenFile", merchant.read_only_token_file),
            signing_secret=secret_in("signingSecretFile", merchant.signing_secret_file),
            previous_signing_secret=secret_in("previousSigningSecretFile", merchant.previous_signing_secret_file),
        )

    merchants = tuple(merchant_with_secrets(*numbered) for numbered in enumerate(config.commerce.merchants))
    return attrs.evolve(config, commerce=attrs.evolve(config.commerce, webhooks=read, merchants=merchants))


def _database(uri: str, settings: Settings) -> str:
    """The connection URI of PostgreSQL, or "".

    Raises:
        ConfigError: it is of another kind of database.
    """
    if uri and not uri.startswith(("postgresql://", "postgres://")):
        key = "database" if settings.has(("commerce", "webhooks", "database")) else "databaseFile"
        raise settings.problem(
            ("commerce", "webhooks", key),
            'must be a connection URI of PostgreSQL such as "postgresql:///svcd", or empty for webhooks.sqlite in the '
            "data directory",
        )
    return uri


def credentials_directory(environment: Mapping[str, str]) -> Path | None:
    """The folder with the credentials that systemd hands over, if there is one."""
    return Path(environment["CREDENTIALS_DIRECTORY"]) if "CREDENTIALS_DIRECTORY" in environment else None


def read_secret_file(path: Path, credentials: Path | None) -> bytes:
    """The bytes of a small file with a secret, which only its owner may read, or which is in ``credentials``.

    Raises:
        BadValue: the file is missing, too long or readable by others.
    """
    try:
        # systemd shows a credential as 0440 where it grants access by an ACL (its issue 29435); the folder is private.
        guarded = credentials is not None and path.resolve().parent == credentials.resolve()
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            content = file.read(_MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise BadValue(f"{path} cannot be read: {error.strerror}") from error
    if mode & 0o077 and not guarded:
        raise BadValue(f"{path} is open to others (mode {mode:04o}); run: chmod 600 {path}")
    if len(content) > _MAX_SECRET_BYTES:
        raise BadValue(f"the file has more than {_MAX_SECRET_BYTES} bytes; it must contain only the secret")
    return content


def _secret(path: Path, settings: Settings, at: KeyPath, credentials: Path | None) -> str:
    try:
        return line_of(read_secret_file(path, credentials), "the secret").strip(" ")
    except BadValue as error:
        raise settings.problem(at, str(error)) from error
    except BadText as error:
        raise settings.problem(at, f"the file {error}") from error
