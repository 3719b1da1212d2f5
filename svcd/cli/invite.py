"""`svc network invite`: checks what a new member will be told, and prints it."""

import re
from typing import Final

import click
from attrs import evolve, frozen

from svcd.chain.address import NODE_ID_PATTERN
from svcd.chain.network_rules import MAX_FILE_BYTES
from svcd.chain.params import NETWORKS, NetworkParams
from svcd.cli import options
from svcd.cli.answers import ResponseObject, invalid_response
from svcd.cli.errors import CommandError
from svcd.cli.http_client import NodeClient, public_endpoint
from svcd.cli.invitation import Invitation, Seed, invitation_text
from svcd.cli.session import Session
from svcd.config.layers import ConfigError
from svcd.config.network_file import parse_network_file
from svcd.net.addresses import AddressPolicy, BadAddress
from svcd.net.targets import BadTarget, Endpoint, Rules, Target

_SECONDS: Final = 10.0
"""How long a seed or the site of the file may take to answer."""
_FILE_URLS: Final = Rules(name="the URL", max_length=2048, allow_http=True, allow_private=True, setting="", bare=False)
_PUBLIC_NAMES: Final = Rules.for_peers(allow_private=False)
_NODE_ID: Final = re.compile(NODE_ID_PATTERN)
_REPOSITORY: Final = re.compile("[A-Za-z0-9/.~][!-~]*")


def _repository(text: str) -> str:
    if not _REPOSITORY.fullmatch(text):
        raise ValueError("must be a URL that git can clone, such as https://git.example.org/svcd")
    return text


@click.command()
@click.argument("network", metavar="FILE", type=options.NETWORK)
@click.option(
    "--seed",
    "seeds",
    metavar="URL",
    multiple=True,
    callback=lambda context, parameter, values: tuple(
        options.validated(Endpoint)(context, parameter, value) for value in values
    ),
    help="A node that new members call first, such as http://festival.example.org:8645; repeat it.  [default: the "
    "publicUrl of this node]",
)
@click.option(
    "--repository",
    metavar="URL",
    callback=options.validated(_repository),
    help="Where the members clone svcd from; without it, tell them in another way.",
)
@click.option(
    "--file-url",
    metavar="URL",
    callback=options.validated(_FILE_URLS.parse),
    help="Where FILE is on the web; without it, the invitation contains the rules.",
)
@click.option(
    "--allow-private",
    is_flag=True,
    help="Invite to addresses that cannot be reached from outside: all nodes are on this computer or in its network.",
)
@click.option(
    "--unchecked",
    is_flag=True,
    help="Do not call this node at its own publicUrl, which some routers do not allow from inside.",
)
@options.operator_option
@options.json_option
@click.pass_obj
def invite(
    session: Session,
    /,
    network: NetworkParams,
    seeds: tuple[Endpoint, ...],
    repository: str | None,
    file_url: Target | None,
    allow_private: bool,
    unchecked: bool,
) -> None:
    """Print an invitation to the network of FILE, to be sent by mail or chat.

    It contains the rules, the nodes that a new member calls first with their node ids, and the commands that
    start a node on Debian or in a clone. It has no secrets; but an attacker who changes it on its way can lead your
    member to another network, so compare the genesis hash, and the changes hash if the network has a list of producers,
    by telephone or face to face.

    Run it beside a node of the network, which --data-dir names. It checks that this node has the genesis hash and the
    changes of producers of FILE, that all seeds answer at the URLs that they name as their own and have the same ones,
    and that these URLs can be reached from outside.

    \b
    Example:
      svc network invite festival.toml --repository https://git.example.org/svcd
      svc --data-dir /var/lib/svcd network invite /etc/svcd/network.toml
      svc network invite festival.toml --allow-private >invitation.txt
    """
    if network in NETWORKS.values():
        raise click.UsageError(f"{network.name} is built into svcd: name the file of a network of your own")
    own = session.operator().get("/operator/status").object("status")
    _check_hashes(network, own, f"the node in {session.data_dir}")
    node_id = _node_id(own)
    endpoint = _endpoint(own) if "endpoint" in own else None
    if not seeds and endpoint is None:
        raise CommandError(
            "this node has no publicUrl: set it in [http] to the URL at which members reach the node, or name another "
            "node with --seed"
        )
    alarms = own.object("alarms")
    unreachable = alarms.text("unreachable") if "unreachable" in alarms else ""
    checks = _Checks(session, network, node_id, endpoint, allow_private, unchecked, unreachable)
    invitation = Invitation(
        params=network,
        node_id=node_id,
        seeds=tuple(map(checks.seed, dict.fromkeys(seeds or filter(None, [endpoint])))),
        file_url="" if file_url is None else checks.file_url(file_url),
        repository=repository or "",
    )
    session.print_result(_record(invitation), invitation_text(invitation).rstrip("\n"))


def _node_id(status: ResponseObject) -> str:
    """The name of a node's key, which stands among commands for a shell; raises NoValidResponse."""
    return status.identifier("nodeId", _NODE_ID, "svcnode_ and 32 lower-case hex digits")


def _endpoint(status: ResponseObject) -> Endpoint:
    """The URL that a node names as its own; raises NoValidResponse."""
    try:
        return Endpoint(status.text("endpoint"))
    except BadTarget as error:
        raise invalid_response(str(error)) from None


def _record(invitation: Invitation) -> dict[str, object]:
    return {
        "network": invitation.params.name,
        "genesisHash": invitation.params.genesis_hash.hex(),
        "changesHash": invitation.params.changes_hash.hex(),
        "nodeId": invitation.node_id,
        "seeds": [{"url": seed.url, "nodeId": seed.node_id} for seed in invitation.seeds],
        "program": invitation.program,
        "rules": invitation.rules,
        "compare": invitation.compare,
        "clone": invitation.clone,
        "debian": invitation.debian,
    }


def _check_hashes(params: NetworkParams, status: ResponseObject, what: str) -> None:
    """Raise CommandError if a node does not run with the file; ``status`` is its own or the operator's."""
    found = status.hash("genesisHash")
    if found != params.genesis_hash.hex():
        raise CommandError(
            f"{what} is on {status.text('chainId')} with the genesis hash {found}, and the file is that of "
            f"{params.chain_id} with {params.genesis_hash.hex()}: name the file with which the node runs"
        )
    if params.producers and status.hash("changesHash") != params.changes_hash.hex():
        raise CommandError(f"{what} has other changes of the producers than the file: all nodes need the newest file")


@frozen
class _Checks:
    """What must be true of an invitation; ``node_id``, ``endpoint`` and ``unreachable`` are those of the own node."""

    session: Session
    params: NetworkParams
    node_id: str
    endpoint: Endpoint | None
    allow_private: bool
    unchecked: bool
    unreachable: str

    def seed(self, url: Endpoint) -> Seed:
        """The seed, if members can use it; raises CommandError."""
        own = url == self.endpoint
        within = self._within(url)
        if own and self.unreachable:
            raise CommandError(self.unreachable)
        if own and self.unchecked:
            return Seed(url, self.node_id, within)
        hint = "members could not either"
        if own:
            hint += "; if only this computer cannot, as behind some routers, repeat the command with --unchecked"
        status = self._client(url, hint).get("/p2p/status").object("status")
        _check_hashes(self.params, status, f"the node at {url}")
        named = status.text("endpoint")
        if named != url:
            raise CommandError(
                f"the node at {url} names {named or 'no URL'} as its own, so that other nodes do not take it for a "
                "peer there: set its publicUrl to the URL that members use, and give the same one here"
            )
        found = _node_id(status)
        if own and found != self.node_id:
            raise CommandError(
                f"another node, {found}, answers at {url}, which this node names as its own: correct its publicUrl or "
                "the way to it"
            )
        return Seed(url, found, within)

    def _within(self, url: Endpoint) -> str:
        """From where alone the URL leads to a node, "" for everywhere; raises CommandError if it may not be so."""
        problem, within = _place(url)
        if not problem:
            return ""
        if not within:
            raise CommandError(f"no other node calls {url}, because {problem}: choose an address that members reach")
        if not self.allow_private:
            raise CommandError(
                f"members elsewhere cannot reach {url}, because {problem}: give a public URL, or --allow-private if "
                "all nodes are on this computer or in its local network"
            )
        return within

    def file_url(self, url: Target) -> str:
        """The URL, if the file of this network is there; raises CommandError."""
        fetched = self._client(url.origin, "members could not either").fetch("GET", url.path, max_bytes=MAX_FILE_BYTES)
        if fetched.status != 200:
            raise CommandError(f"{url.url} answers with HTTP status {fetched.status} instead of the file")
        try:
            there = parse_network_file(fetched.body, url.url)
        except ConfigError as error:
            raise CommandError(str(error)) from None
        if there.genesis_hash != self.params.genesis_hash:
            raise CommandError(f"{url.url} has another file: its genesis hash is {there.genesis_hash.hex()}")
        if there.changes_hash != self.params.changes_hash:
            raise CommandError(f"{url.url} has other changes of the producers than the file: put the newest file there")
        return url.url

    def _client(self, url: str, hint: str) -> NodeClient:
        runtime = self.session.runtime
        # What is read is public, and a member reads the same: no warning of http.
        return NodeClient(
            runtime.connect, evolve(public_endpoint(url), hint=hint, timeout=_SECONDS), clock=runtime.clock
        )


def _place(url: Endpoint) -> tuple[str, str]:
    """Why the URL does not lead to a node from everywhere, and from where it does; "" twice if it does."""
    address = url.address
    if address is None:
        try:
            _PUBLIC_NAMES.parse(url)
        except BadTarget:
            here = url.host == "localhost" or url.host.endswith(".localhost")
            return f"{url.host} is not a public name", "on the computer itself" if here else "in its local network"
        return "", ""
    try:
        AddressPolicy().check(address)
    except BadAddress as error:
        places = {
            "loopback": "on the computer itself",
            "private": "in its local network",
            "link-local": "in its local network",
        }
        return str(error), places.get(error.category, "")
    return "", ""
