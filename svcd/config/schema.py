"""Every setting of the node with its default on mainnet; docs/operations.md and conf/svcd.toml explain them.

In the TOML file the keys are camelCase (`dataDir`), here snake_case. A relative file name counts from the data
directory: `config.data_dir / config.participation.key_file` is right for relative and absolute ones alike.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from attrs import field, frozen
from twisted.internet.endpoints import quoteStringArgument

from svcd.chain.params import NETWORKS as NETWORK_PARAMS
from svcd.chain.params import NetworkParams
from svcd.config import kinds
from svcd.config.endpoints import for_its_owner
from svcd.config.kinds import Between, ListOf, OneOf

NETWORKS = ("mainnet", "devnet")
LEVELS = ("debug", "info", "warn", "error", "critical")
SECRET_LENGTH = 32
OPERATOR_SOCKET = "operator.sock"
"""Its name in the data directory."""
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
"""Under which names the operator asks at a port, unless others are set."""

DEFAULTS: dict[str, dict[str, object]] = {
    "mainnet": {"dataDir": "data"},
    "devnet": {
        "dataDir": "data",
        "http": {"listen": "tcp:18645:interface=127.0.0.1"},
        "p2p": {"allowPrivate": True},
        "participation": {"alone": True},
    },
}
"""What a network sets before any file is read, in the file's form; everything else is the default of its field."""

# Twisted has no annotation of it.
_quote: Callable[[str], str] = quoteStringArgument
_TOKEN = re.compile(r"[!-~]+")


@frozen
class Http:
    """The public HTTP server."""

    listen: Annotated[str, kinds.Endpoint()] = "tcp:8645:interface=127.0.0.1"
    public_url: Annotated[str, kinds.BaseUrl(may_be_empty=True)] = ""
    allowed_hosts: Annotated[tuple[str, ...], ListOf(kinds.Host())] = ()
    trusted_proxies: Annotated[tuple[kinds.IPNetwork, ...], ListOf(kinds.Network())] = ()


@frozen
class P2p:
    """Other nodes."""

    enabled: Annotated[bool, kinds.Flag()] = True
    listen: Annotated[str, kinds.Endpoint(may_be_empty=True)] = ""
    public_url: Annotated[str, kinds.BaseUrl(may_be_empty=True)] = ""
    seeds: Annotated[tuple[str, ...], ListOf(kinds.BaseUrl())] = ()
    outbound: Annotated[int, Between(0, 64)] = 8
    max_inbound: Annotated[int, Between(0, 10_000)] = 64
    allow_private: Annotated[bool, kinds.Flag()] = False


@frozen
class Participation:
    """Making blocks."""

    enabled: Annotated[bool, kinds.Flag()] = False
    alone: Annotated[bool, kinds.Flag()] = False
    workers: Annotated[int, Between(1, 256)] = 1
    key_file: Annotated[str, kinds.FileName()] = "operator.key"
    on_demand: Annotated[bool, kinds.Flag()] = False


@frozen
class Mempool:
    """Transfers that wait for a block."""

    max_transactions: Annotated[int, Between(1, 10_000_000)] = 50_000
    max_bytes: Annotated[int, Between(1 << 20, 1 << 36)] = 64 << 20


@frozen
class Limits:
    """What one client, and all of them together, may ask for; 0 switches a rate or a number of connections off."""

    requests_per_second: Annotated[int, Between(0, 1_000_000)] = 100
    broadcasts_per_second: Annotated[int, Between(0, 1_000_000)] = 20
    webhooks_per_second: Annotated[int, Between(0, 1_000_000)] = 20
    peer_posts_per_second: Annotated[int, Between(0, 1_000_000)] = 200
    burst_seconds: Annotated[int, Between(1, 3600)] = 10
    connections: Annotated[int, Between(0, 1_000_000)] = 1_000
    connections_per_client: Annotated[int, Between(0, 1_000_000)] = 64
    header_seconds: Annotated[int, Between(1, 3600)] = 10
    request_seconds: Annotated[int, Between(1, 3600)] = 30
    answer_seconds: Annotated[int, Between(1, 3600)] = 60
    idle_seconds: Annotated[int, Between(1, 3600)] = 60
    drain_seconds: Annotated[int, Between(0, 3600)] = 10
    exempt: Annotated[tuple[kinds.IPNetwork, ...], ListOf(kinds.Network())] = ()

    @property
    def rates(self) -> dict[str, float]:
        """Requests per second by the name of the bucket that a route draws from."""
        return {
            "read": self.requests_per_second,
            "broadcast": self.broadcasts_per_second,
            "webhooks": self.webhooks_per_second,
            "p2p": self.peer_posts_per_second,
        }


@frozen
class CommerceWebhooks:
    """Callbacks to merchants. A secret never appears in a repr."""

    enabled: Annotated[bool, kinds.Flag()] = False
    manage_token: Annotated[str, kinds.Text()] = field(default="", repr=False)
    manage_token_file: Annotated[str, kinds.Text()] = ""
    signing_secret: Annotated[str, kinds.Text()] = field(default="", repr=False)
    signing_secret_file: Annotated[str, kinds.Text()] = ""
    previous_signing_secret: Annotated[str, kinds.Text()] = field(default="", repr=False)
    previous_signing_secret_file: Annotated[str, kinds.Text()] = ""
    default_ttl_seconds: Annotated[int, Between(60, 604_800)] = 86_400
    max_ttl_seconds: Annotated[int, Between(60, 604_800)] = 604_800
    allow_http_callbacks: Annotated[bool, kinds.Flag()] = False
    allow_private_callbacks: Annotated[bool, kinds.Flag()] = False
    confirming_events: Annotated[str, OneOf(("every-depth", "first"))] = "every-depth"
    extra_ca_file: Annotated[str, kinds.Text()] = ""

    @property
    def problem(self) -> str | None:
        """Why enabled webhooks must answer 503, in one sentence; None when they can work or are not wanted."""
        if not self.enabled:
            return None
        for key, secret in (("manageToken", self.manage_token), ("signingSecret", self.signing_secret)):
            if len(secret) < SECRET_LENGTH:
                return f"[commerce.webhooks] {key} must have at least {SECRET_LENGTH} characters and has {len(secret)}"
        if not _TOKEN.fullmatch(self.manage_token):
            return "[commerce.webhooks] manageToken must be printable ASCII without blanks to stand in a header"
        if self.manage_token == self.signing_secret:
            return "[commerce.webhooks] manageToken and signingSecret must differ"
        if self.previous_signing_secret and len(self.previous_signing_secret) < SECRET_LENGTH:
            return f"[commerce.webhooks] previousSigningSecret must have at least {SECRET_LENGTH} characters, or none"
        if self.previous_signing_secret == self.manage_token:
            return "[commerce.webhooks] manageToken and previousSigningSecret must differ"
        return None

    @property
    def refusal(self) -> str:
        """Why the routes of webhooks answer 503, in one sentence for strangers; "" where webhooks work."""
        if not self.enabled:
            return "webhooks are not enabled on this node"
        return "webhooks are not configured rightly on this node; its log says what is wrong" if self.problem else ""


@frozen
class Commerce:
    """Payments."""

    webhooks: CommerceWebhooks = CommerceWebhooks()


@frozen
class Operator:
    """The operator's own interface, never public."""

    listen: Annotated[str, kinds.Endpoint(may_be_empty=True)] = ""
    token_file: Annotated[str, kinds.FileName()] = "operator.token"  # noqa: S105


@frozen
class Log:
    """What is written to the log, and how."""

    format: Annotated[str, OneOf(("text", "json"))] = "text"
    level: Annotated[str, OneOf(LEVELS)] = "info"


@frozen
class Config:
    """All settings of one node."""

    data_dir: Annotated[Path, kinds.Directory()]
    network: Annotated[str, OneOf(NETWORKS)] = "mainnet"
    http: Http = Http()
    p2p: P2p = P2p()
    participation: Participation = Participation()
    mempool: Mempool = Mempool()
    limits: Limits = Limits()
    commerce: Commerce = Commerce()
    operator: Operator = Operator()
    log: Log = Log()

    @property
    def params(self) -> NetworkParams:
        """The rules of the network."""
        return NETWORK_PARAMS[self.network]

    @property
    def chain_file(self) -> Path:
        """The database of the chain."""
        return self.data_dir / "chain.sqlite"

    @property
    def operator_socket(self) -> str:
        """Where the operator's interface asks for no token: a Unix socket, open to its owner only unless set otherwise.

        Without a lock file, for that holds a process id, and in a container the next node may well have the same one.
        """
        own = for_its_owner(self.operator.listen)
        in_data_dir = _quote(str(self.data_dir / OPERATOR_SOCKET))
        # By its name: a path may have a "=" in it, and that would name an argument.
        return own if own.startswith("unix:") else f"unix:address={in_data_dir}:mode=600:lockfile=0"

    @property
    def operator_port(self) -> str:
        """Where it listens besides, and asks for the token; "" = nowhere."""
        return "" if self.operator.listen.startswith("unix:") else self.operator.listen

    @property
    def operator_hosts(self) -> frozenset[str]:
        """The names that a Host header may have at the operator's port, IPv6 addresses in brackets."""
        hosts = self.http.allowed_hosts or LOOPBACK_HOSTS
        return frozenset(f"[{host}]" if ":" in host else host for host in hosts)

    @property
    def extra_ca_file(self) -> Path | None:
        """The file of one more certificate authority that callbacks trust; a relative name is in the data directory."""
        name = self.commerce.webhooks.extra_ca_file
        return self.data_dir / name if name else None

    @property
    def webhooks_problem(self) -> str | None:
        """Why enabled webhook routes must answer 503, in one sentence; None when nothing is wrong."""
        return self.commerce.webhooks.problem
