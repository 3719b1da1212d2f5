"""Every setting of the node with its default on mainnet; conf/svcd.toml explains them, and docs/settings.md lists them.

In the TOML file the keys are camelCase (`dataDir`), here snake_case. A relative file name counts from the data
directory: `config.data_dir / config.participation.key_file` is right for relative and absolute ones alike.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar

from attrs import field, frozen
from twisted.internet.endpoints import quoteStringArgument

from svcd.chain.params import NETWORKS as NETWORK_PARAMS
from svcd.chain.params import NetworkParams
from svcd.chain.units import BASE_UNITS_PER_COIN
from svcd.chain.value_types import Between, Coins, ListOf, String
from svcd.config import types
from svcd.config.server_endpoint import ServerEndpoint, owner_only
from svcd.config.types import OneOf
from svcd.ip_addresses import IPNetwork
from svcd.limits import IDLE_CONNECTIONS, MANY_WATCHES, MEMPOOL_FLOOD, TOO_MANY_REQUESTS, Limit

NETWORKS = ("mainnet", "devnet")
LEVELS = ("debug", "info", "warn", "error", "critical")
SECRET_LENGTH = 32
DEFAULT_MERCHANT = "default"
"""The merchant of ``manageToken`` and ``signingSecret``."""
OPERATOR_SOCKET = "operator.sock"
"""The file name of the operator's socket in the data directory."""
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
"""The Host names accepted at the operator's port, unless others are configured."""

DEFAULTS: dict[str, dict[str, object]] = {
    "mainnet": {"dataDir": "data"},
    "devnet": {
        "dataDir": "data",
        "http": {"listen": "tcp:18645:interface=127.0.0.1"},
        "p2p": {"allowPrivate": True},
        "participation": {"alone": True, "sweepAbove": "100"},
    },
}
"""The defaults that depend on the network, in the file's form; others are defaults of their fields."""

# Twisted has no annotation of it.
_quote: Callable[[str], str] = quoteStringArgument
_TOKEN = re.compile(r"[!-~]+")


@frozen
class Http:
    """The public HTTP server."""

    listen: Annotated[str, ServerEndpoint()] = "tcp:8645:interface=127.0.0.1"
    public_url: Annotated[str, types.BaseUrl(may_be_empty=True)] = ""
    allowed_hosts: Annotated[tuple[str, ...], ListOf(types.HostName())] = ()
    trusted_proxies: Annotated[tuple[IPNetwork, ...], ListOf(types.Cidr())] = ()


@frozen
class P2p:
    """Other nodes."""

    enabled: Annotated[bool, types.Boolean()] = True
    listen: Annotated[str, ServerEndpoint(may_be_empty=True)] = ""
    public_url: Annotated[str, types.BaseUrl(may_be_empty=True)] = ""
    seeds: Annotated[tuple[str, ...], ListOf(types.BaseUrl())] = ()
    outbound: Annotated[int, Between(0, 64)] = 8
    max_inbound: Annotated[int, Between(0, 10_000)] = 64
    allow_private: Annotated[bool, types.Boolean()] = False


@frozen
class Participation:
    """Production of blocks."""

    enabled: Annotated[bool, types.Boolean()] = False
    alone: Annotated[bool, types.Boolean()] = False
    workers: Annotated[int, Between(1, 256)] = 1
    key_file: Annotated[str, types.FileName()] = "operator.key"
    key_password_file: Annotated[str, types.FileName(may_be_empty=True)] = ""
    pay_to: Annotated[str, String()] = ""
    sweep_above: Annotated[int, Coins(BASE_UNITS_PER_COIN)] = 10_000 * BASE_UNITS_PER_COIN
    """Base units."""
    on_demand: Annotated[bool, types.Boolean()] = False
    every: Annotated[int, Between(0, 3_600)] = 0
    """Seconds after which a block is made in spite of ``on_demand``; 0 for never."""

    @property
    def only_on_demand(self) -> bool:
        """Whether there is no block that the operator does not ask for."""
        return self.on_demand and not self.every


MIN_KEPT_BLOCKS = 10_080
"""The fewest blocks that a node keeps: those of a week, more than any watch looks back, and than any reorganisation."""


@frozen
class ChainSettings:
    """The blocks of the chain."""

    keep_blocks: Annotated[int, types.ZeroOrAtLeast(MIN_KEPT_BLOCKS)] = 0
    """How many of the newest are kept whole; 0 for all."""
    start: Annotated[str, OneOf(("automatic", "blocks", "snapshot"))] = "automatic"
    """How a node without a chain begins; see :class:`svcd.p2p.snapshot_start.StartMode`."""
    expect: Annotated[str, types.BlockAtHeight()] = ""
    """The height and hash of a block that the chain must have, ``HEIGHT:HASH``; empty for none."""


@frozen
class MempoolSettings:
    """Transfers that wait for a block."""

    max_transactions: Annotated[int, Between(1, 10_000_000)] = 50_000
    max_bytes: Annotated[int, Between(1 << 20, 1 << 36)] = 64 << 20


@frozen
class Limits:
    """Limits for one client and for all together; 0 switches off a rate or a number of connections.

    svcd/web/rate_limits.py enforces the rates, svcd/web/connections.py the numbers of connections.
    """

    requests_per_second: Annotated[int, Between(0, 1_000_000)] = 100
    broadcasts_per_second: Annotated[int, Between(0, 1_000_000)] = 20
    webhooks_per_second: Annotated[int, Between(0, 1_000_000)] = 20
    proofs_per_second: Annotated[int, Between(0, 1_000_000)] = 5
    peer_posts_per_second: Annotated[int, Between(0, 1_000_000)] = 200
    burst_seconds: Annotated[int, Between(1, 3600)] = 10
    connections: Annotated[int, Between(0, 1_000_000)] = 1_000
    connections_per_client: Annotated[int, Between(0, 1_000_000)] = 64
    header_seconds: Annotated[int, Between(1, 3600)] = 10
    request_seconds: Annotated[int, Between(1, 3600)] = 30
    answer_seconds: Annotated[int, Between(1, 3600)] = 60
    idle_seconds: Annotated[int, Between(1, 3600)] = 60
    drain_seconds: Annotated[int, Between(0, 3600)] = 10
    exempt: Annotated[tuple[IPNetwork, ...], ListOf(types.Cidr())] = ()

    @property
    def rates(self) -> dict[str, float]:
        """Requests per second, by the name of the token bucket that a route draws from."""
        return {
            "read": self.requests_per_second,
            "broadcast": self.broadcasts_per_second,
            "webhooks": self.webhooks_per_second,
            "proofs": self.proofs_per_second,
            "p2p": self.peer_posts_per_second,
        }


@frozen
class CommerceWebhooks:
    """Callbacks to merchants. A secret never appears in a repr."""

    enabled: Annotated[bool, types.Boolean()] = False
    database: Annotated[str, types.Secret()] = field(default="", repr=False)
    """The connection URI of PostgreSQL; "" for a file in the data directory."""
    database_file: Annotated[str, types.FileName(may_be_empty=True)] = ""
    manage_token: Annotated[str, types.Secret()] = field(default="", repr=False)
    manage_token_file: Annotated[str, types.FileName(may_be_empty=True)] = ""
    previous_manage_token: Annotated[str, types.Secret()] = field(default="", repr=False)
    previous_manage_token_file: Annotated[str, types.FileName(may_be_empty=True)] = ""
    previous_manage_token_until: Annotated[str, types.Moment()] = ""
    read_only_token: Annotated[str, types.Secret()] = field(default="", repr=False)
    read_only_token_file: Annotated[str, types.FileName(may_be_empty=True)] = ""
    signing_secret: Annotated[str, types.Secret()] = field(default="", repr=False)
    signing_secret_file: Annotated[str, types.FileName(may_be_empty=True)] = ""
    previous_signing_secret: Annotated[str, types.Secret()] = field(default="", repr=False)
    previous_signing_secret_file: Annotated[str, types.FileName(may_be_empty=True)] = ""
    default_ttl_seconds: Annotated[int, Between(60, 604_800)] = 86_400
    max_ttl_seconds: Annotated[int, Between(60, 604_800)] = 604_800
    allow_http_callbacks: Annotated[bool, types.Boolean()] = False
    allow_private_callbacks: Annotated[bool, types.Boolean()] = False
    callback_networks: Annotated[tuple[IPNetwork, ...], ListOf(types.Cidr())] = ()
    confirming_events: Annotated[str, OneOf(("every-depth", "first"))] = "every-depth"
    max_watches: Annotated[int, Between(1, 10_000_000)] = 500_000
    max_watches_per_host: Annotated[int, Between(1, 10_000_000)] = 200_000
    keep_days: Annotated[int, Between(0, 365)] = 7
    extra_ca_file: Annotated[str, types.FileName(may_be_empty=True)] = ""

    @property
    def names_merchant(self) -> bool:
        """Whether these settings name the secrets of the merchant "default"."""
        tokens = self.manage_token, self.manage_token_file, self.read_only_token, self.read_only_token_file
        secrets = self.signing_secret, self.signing_secret_file
        previous = self.previous_manage_token, self.previous_signing_secret
        return any((*tokens, *secrets, *previous, self.previous_manage_token_file, self.previous_signing_secret_file))

    @property
    def problem(self) -> str | None:
        """Why enabled webhooks must answer 503, in one sentence; None if they work or are not enabled."""
        if not self.enabled:
            return None
        for key, secret in (("manageToken", self.manage_token), ("signingSecret", self.signing_secret)):
            if len(secret) < SECRET_LENGTH:
                return f"[commerce.webhooks] {key} must have at least {SECRET_LENGTH} characters and has {len(secret)}"
        optional = (("previousManageToken", self.previous_manage_token), ("readOnlyToken", self.read_only_token))
        for key, secret in optional:
            if secret and len(secret) < SECRET_LENGTH:
                return f"[commerce.webhooks] {key} must have at least {SECRET_LENGTH} characters, or none"
        for key, token in (("manageToken", self.manage_token), *optional):
            if token and not _TOKEN.fullmatch(token):
                return f"[commerce.webhooks] {key} must be printable ASCII without blanks, to fit into a header"
        if self.manage_token == self.signing_secret:
            return "[commerce.webhooks] manageToken and signingSecret must differ"
        if self.previous_signing_secret and len(self.previous_signing_secret) < SECRET_LENGTH:
            return f"[commerce.webhooks] previousSigningSecret must have at least {SECRET_LENGTH} characters, or none"
        if self.previous_signing_secret == self.manage_token:
            return "[commerce.webhooks] manageToken and previousSigningSecret must differ"
        return None


@frozen
class MerchantSettings:
    """One of several merchants that use the webhooks of this node. A secret never appears in a repr."""

    MAX_SECTIONS: ClassVar[int] = 100

    name: Annotated[str, types.MerchantName()]
    token_file: Annotated[str, types.FileName()]
    signing_secret_file: Annotated[str, types.FileName()]
    previous_token_file: Annotated[str, types.FileName(may_be_empty=True)] = ""
    previous_token_until: Annotated[str, types.Moment()] = ""
    """When the previous token ends."""
    read_only_token_file: Annotated[str, types.FileName(may_be_empty=True)] = ""
    previous_signing_secret_file: Annotated[str, types.FileName(may_be_empty=True)] = ""
    recipients: Annotated[tuple[str, ...], ListOf(String())] = ()
    """The addresses whose payments the merchant may watch; empty for all."""
    # Read from the files:
    token: str = field(default="", repr=False)
    previous_token: str = field(default="", repr=False)
    read_only_token: str = field(default="", repr=False)
    signing_secret: str = field(default="", repr=False)
    previous_signing_secret: str = field(default="", repr=False)

    @property
    def secrets(self) -> tuple[tuple[str, str], ...]:
        """The secrets that are set, by the names of their keys."""
        optional = (
            ("previousToken", self.previous_token),
            ("readOnlyToken", self.read_only_token),
            ("previousSigningSecret", self.previous_signing_secret),
        )
        required = (("token", self.token), ("signingSecret", self.signing_secret))
        return (*required, *((name, secret) for name, secret in optional if secret))

    @property
    def problem(self) -> str | None:
        """One sentence that says which of its secrets is wrong and why; None if none is."""
        for key, secret in self.secrets:
            if len(secret) < SECRET_LENGTH:
                which = f"the {key} of the merchant {self.name}"
                return f"{which} must have at least {SECRET_LENGTH} characters and has {len(secret)}"
            if key.lower().endswith("token") and not _TOKEN.fullmatch(secret):
                which = f"the {key} of the merchant {self.name}"
                return f"{which} must be printable ASCII without blanks, to fit into a header"
        return None


@frozen
class Commerce:
    """Payments."""

    webhooks: CommerceWebhooks = CommerceWebhooks()
    merchants: tuple[MerchantSettings, ...] = ()

    @property
    def all_merchants(self) -> tuple[MerchantSettings, ...]:
        """The listed merchants and the one of the settings of webhooks."""
        hooks = self.webhooks
        if self.merchants and not hooks.names_merchant:
            return self.merchants
        default = MerchantSettings(
            name=DEFAULT_MERCHANT,
            token_file=hooks.manage_token_file,
            signing_secret_file=hooks.signing_secret_file,
            token=hooks.manage_token,
            previous_token=hooks.previous_manage_token,
            previous_token_until=hooks.previous_manage_token_until,
            read_only_token=hooks.read_only_token,
            signing_secret=hooks.signing_secret,
            previous_signing_secret=hooks.previous_signing_secret,
        )
        return (default, *self.merchants)

    @property
    def problem(self) -> str | None:
        """Why enabled webhooks must answer 503, in one sentence; None if they work or are not enabled."""
        if not self.webhooks.enabled:
            return None
        if (not self.merchants or self.webhooks.names_merchant) and (problem := self.webhooks.problem):
            return problem
        owners: dict[str, str] = {}
        for merchant in self.all_merchants:
            if problem := merchant.problem:
                return problem
            for key, secret in merchant.secrets:
                if (key, secret) in (
                    ("previousSigningSecret", merchant.signing_secret),
                    ("previousToken", merchant.token),
                ):
                    continue
                which = f"the {key} of the merchant {merchant.name}"
                if secret in owners:
                    return f"{which} must differ from {owners[secret]}"
                owners[secret] = which
        return None

    @property
    def refusal(self) -> str:
        """Why the routes of webhooks answer 503, in one sentence without details; "" where webhooks work."""
        if not self.webhooks.enabled:
            return "webhooks are not enabled on this node"
        return "webhooks are misconfigured on this node; its log has the reason" if self.problem else ""


@frozen
class Pages:
    """The checkout and the wallet page."""

    recipients: Annotated[tuple[str, ...], ListOf(String())] = ()
    """The recipients of the payment links of this site; empty: see ``Config.link_recipients``."""
    return_hosts: Annotated[tuple[str, ...], ListOf(types.WebHost())] = ()
    """The hosts to which such links lead back; empty for any."""
    only: Annotated[bool, types.Boolean()] = False
    """Whether other links are refused."""
    shop_names: Annotated[Mapping[str, str], types.ShopNames()] = MappingProxyType({})
    """The name of the shop of each recipient, for the checkout."""


@frozen
class Operator:
    """The operator's own interface, never public."""

    listen: Annotated[str, ServerEndpoint(may_be_empty=True)] = ""
    token_file: Annotated[str, types.FileName()] = "operator.token"  # noqa: S105
    health_listen: Annotated[str, ServerEndpoint(may_be_empty=True)] = ""


@frozen
class Log:
    """The log."""

    format: Annotated[str, OneOf(("text", "json"))] = "text"
    level: Annotated[str, OneOf(LEVELS)] = "info"


@frozen
class Config:
    """All settings of one node."""

    data_dir: Annotated[Path, types.Directory()]
    network: Annotated[str, types.NetworkOrFile(NETWORKS)] = "mainnet"
    """The name of a built-in network, or the path of a network file."""
    http: Http = Http()
    p2p: P2p = P2p()
    participation: Participation = Participation()
    chain: ChainSettings = ChainSettings()
    mempool: MempoolSettings = MempoolSettings()
    limits: Limits = Limits()
    commerce: Commerce = Commerce()
    pages: Pages = Pages()
    operator: Operator = Operator()
    log: Log = Log()
    own_network: NetworkParams | None = None
    """The content of the network file, if there is one; read from it."""

    @property
    def params(self) -> NetworkParams:
        """The rules of the network, and the changes of its producers."""
        return NETWORK_PARAMS[self.network] if self.own_network is None else self.own_network

    @property
    def chain_file(self) -> Path:
        """The database of the chain."""
        return self.data_dir / "chain.sqlite"

    @property
    def link_recipients(self) -> frozenset[str]:
        """The recipients of the payment links of this site: those of the pages' settings or of the merchants.

        Empty for any: a merchant that lists none may be paid at any address.
        """
        merchants = self.commerce.all_merchants
        if self.pages.recipients or not all(merchant.recipients for merchant in merchants):
            return frozenset(self.pages.recipients)
        return frozenset(recipient for merchant in merchants for recipient in merchant.recipients)

    @property
    def configured_limits(self) -> tuple[Limit, ...]:
        """The limits that the configuration sets."""
        limits, mempool, webhooks = self.limits, self.mempool, self.commerce.webhooks
        return (
            Limit("connections", limits.connections, "connections", IDLE_CONNECTIONS, "limits.connections"),
            Limit(
                "connections of one client",
                limits.connections_per_client,
                "connections",
                "One client takes all connections",
                "limits.connectionsPerClient",
            ),
            Limit(
                "time for a request's headers",
                limits.header_seconds,
                "seconds",
                "A request sent byte by byte, to hold a connection",
                "limits.headerSeconds",
            ),
            Limit(
                "time for a whole request",
                limits.request_seconds,
                "seconds",
                "A request sent byte by byte, to hold a connection",
                "limits.requestSeconds",
            ),
            Limit(
                "time to take an answer",
                limits.answer_seconds,
                "seconds",
                "Requests without reading the answers, to fill memory",
                "limits.answerSeconds",
            ),
            Limit("time between two requests", limits.idle_seconds, "seconds", IDLE_CONNECTIONS, "limits.idleSeconds"),
            *(
                Limit(name, rate, "requests/s", TOO_MANY_REQUESTS, f"limits.{key}")
                for name, rate, key in (
                    ("requests that read", limits.requests_per_second, "requestsPerSecond"),
                    ("requests to POST /rpc/broadcast", limits.broadcasts_per_second, "broadcastsPerSecond"),
                    ("requests to webhook routes", limits.webhooks_per_second, "webhooksPerSecond"),
                    ("requests to /rpc/proof", limits.proofs_per_second, "proofsPerSecond"),
                    ("requests to /p2p", limits.peer_posts_per_second, "peerPostsPerSecond"),
                )
            ),
            Limit("burst of a rate", limits.burst_seconds, "seconds", TOO_MANY_REQUESTS, "limits.burstSeconds"),
            Limit("waiting transfers", mempool.max_transactions, "transfers", MEMPOOL_FLOOD, "mempool.maxTransactions"),
            Limit("size of waiting transfers", mempool.max_bytes, "bytes", MEMPOOL_FLOOD, "mempool.maxBytes"),
            Limit(
                "time a watch may last",
                webhooks.max_ttl_seconds,
                "seconds",
                MANY_WATCHES,
                "commerce.webhooks.maxTtlSeconds",
            ),
            *(
                Limit(
                    f"unconfirmed watches of a merchant{where}",
                    maximum,
                    "watches",
                    MANY_WATCHES,
                    f"commerce.webhooks.{key}",
                )
                for where, maximum, key in (
                    ("", webhooks.max_watches, "maxWatches"),
                    (" for one host", webhooks.max_watches_per_host, "maxWatchesPerHost"),
                )
            ),
        )

    @property
    def operator_socket(self) -> str:
        """The operator's Unix socket, which needs no token; open to its owner only unless configured otherwise.

        Without a lock file: that holds a process id, and the next process in a container may have the same one.
        """
        own = owner_only(self.operator.listen)
        in_data_dir = _quote(str(self.data_dir / OPERATOR_SOCKET))
        # As a named argument: a "=" in an unnamed path would end a name.
        return own if own.startswith("unix:") else f"unix:address={in_data_dir}:mode=600:lockfile=0"

    @property
    def operator_port(self) -> str:
        """An additional TCP endpoint, which needs the token; "" for none."""
        return "" if self.operator.listen.startswith("unix:") else self.operator.listen

    @property
    def operator_hosts(self) -> frozenset[str]:
        """The Host headers accepted at the operator's port, IPv6 addresses in brackets."""
        hosts = self.http.allowed_hosts or LOOPBACK_HOSTS
        return frozenset(f"[{host}]" if ":" in host else host for host in hosts)

    @property
    def extra_ca_file(self) -> Path | None:
        """The file of an additional certificate authority for callbacks; a relative name is in the data directory."""
        name = self.commerce.webhooks.extra_ca_file
        return self.data_dir / name if name else None
