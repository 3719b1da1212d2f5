"""The invitation that a member of a network sends to a new member: what to get, to run and to compare.

Every line that matters survives mail and chat: ASCII, nothing indented, and whatever a shell gets is between two lines
of three backquotes.
"""

import json
import shlex
from typing import Final

from attrs import frozen

from svcd.chain.params import NetworkParams
from svcd.config.network_file import render_network_file
from svcd.config.types import NETWORK_FILE

PORT: Final = 8645
ADDRESS: Final = "<ADDRESS>"
"""What the reader replaces. No host has such a name, so a node that gets it unreplaced does not start, and says why."""


@frozen
class Seed:
    """A node that a new member calls first, and the name of its key."""

    url: str
    node_id: str
    within: str = ""
    """Where alone the URL leads to it, such as "in its local network"; "" for everywhere."""


@frozen(kw_only=True)
class Invitation:
    """What a new member needs to know."""

    params: NetworkParams
    node_id: str
    """The name of the key of the inviting node."""
    seeds: tuple[Seed, ...]
    file_url: str = ""
    """Where the file of the network is; "" if the invitation contains it."""
    repository: str = ""
    """What `git clone` takes; "" if the inviting member gives it by other means."""

    @property
    def file(self) -> str:
        """The name of the file of the network."""
        return f"{self.params.name}{NETWORK_FILE}"

    @property
    def private(self) -> bool:
        """Whether the nodes may have to call private addresses."""
        return any(seed.within for seed in self.seeds)

    @property
    def program(self) -> str:
        """Clones the program into the folder svcd; "" if the invitation does not say from where."""
        return f"git clone {shlex.quote(self.repository)} svcd" if self.repository else ""

    @property
    def rules(self) -> str:
        """Writes the file of the network."""
        if self.file_url:
            return f"curl -fsS -o {self.file} \\\n{shlex.quote(self.file_url)}"
        return f"cat >{self.file} <<'END'\n{without_comments(self.params)}END"

    @property
    def compare(self) -> str:
        """Installs the program in its clone, and shows what the file of the network says."""
        return f"make -C svcd .venv/installed &&\nsvcd/.venv/bin/svc network show {self.file} |\ngrep hash"

    @property
    def data_dir(self) -> str:
        """The data directory of a node without root, whose name no other folder is likely to have."""
        return f"{self.params.name}-data"

    @property
    def clone(self) -> str:
        """Starts a node in a clone in which the program is installed, without root."""
        private = " --set=p2p.allowPrivate=true" if self.private else ""
        return (
            "svcd/.venv/bin/twistd -n --pidfile= svcd \\\n"
            f"--network={self.file} --data-dir={self.data_dir} \\\n"
            f"--listen=tcp:{PORT} \\\n"
            f"--set='http.publicUrl=\"http://{ADDRESS}:{PORT}\"' \\\n"
            f"--set='p2p.seeds={self._seeds}'{private}"
        )

    @property
    def debian(self) -> str:
        """Installs a node with systemd, as root."""
        private = " \\\n'allowPrivate = true'" if self.private else ""
        return (
            "python3 -m venv /opt/svcd && /opt/svcd/bin/pip install ./svcd &&\n"
            "/opt/svcd/bin/twistd --help >/dev/null &&\n"
            "ln -sf /opt/svcd/bin/svc /usr/local/bin/svc &&\n"
            "mkdir /etc/svcd &&\n"
            f"install -m 644 {self.file} /etc/svcd/network.toml &&\n"
            "printf '%s\\n' 'network = \"network.toml\"' \\\n"
            f"'[http]' 'publicUrl = \"http://{ADDRESS}:{PORT}\"' \\\n"
            f"'[p2p]' 'seeds = {self._seeds}'{private} \\\n"
            ">/etc/svcd/svcd.toml &&\n"
            "(cd svcd/systemd &&\n"
            "install -m 644 svcd.service svcd.socket /etc/systemd/system/) &&\n"
            "mkdir -p /etc/systemd/system/svcd.socket.d &&\n"
            f"printf '%s\\n' '[Socket]' ListenStream= ListenStream=0.0.0.0:{PORT} \\\n"
            ">/etc/systemd/system/svcd.socket.d/public.conf &&\n"
            "systemctl daemon-reload &&\n"
            "systemctl enable --now svcd.socket svcd.service"
        )

    @property
    def _seeds(self) -> str:
        urls = ",\n".join(json.dumps(seed.url) for seed in self.seeds)
        return f"[{urls}]"


def without_comments(params: NetworkParams) -> str:
    """The file of a network without its comments: a mail program would wrap them, and half a comment is no comment."""
    lines = map(str.strip, render_network_file(params).splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))


def invitation_text(invitation: Invitation) -> str:
    """The invitation in the order in which its reader needs it."""
    params = invitation.params
    first = "this one" if len(invitation.seeds) == 1 else "these"
    compared = "the genesis hash and the changes hash" if params.producers else "the genesis hash"
    return f"""\
You are invited to the network {params.name}
({params.chain_id}, network id {params.network_id}, addresses {params.address_prefix}1q...,
coins {params.unit}).

Its genesis hash, which distinguishes it from every other network:

{params.genesis_hash.hex()}
{_changes(params)}
The key of the node that invites you has the name

{invitation.node_id}

Your node calls {first} first:

{"".join(map(_seed, invitation.seeds))}1. GET THE PROGRAM. It needs git, make and Python 3.11 or newer with
venv; on Debian and Ubuntu: apt install git make python3-venv
{_program(invitation)}

2. GET THE RULES, in the same folder. The file has no secrets.

{_fenced(invitation.rules)}

3. COMPARE. This installs the program in its folder, and shows what
the file says:

{_fenced(invitation.compare)}

Read {compared} to the member who
invites you, by telephone or face to face: an attacker who can change this
message can change the hashes at its top too. If a hash differs, stop here.

4. START A NODE. Replace {ADDRESS} by the address or the name at which
other computers reach yours, and open port {PORT} to them; if the port
is taken, write another one in each place. If they cannot reach your
computer, write "" in the place of the URL: your node works then, and
no other node calls it.

Without root, in this terminal, until Ctrl-C:

{_fenced(invitation.clone)}

Or on Debian 12 or 13 or Ubuntu 24.04 that has no svcd, as root, with
systemd, now and whenever the computer starts:

{_fenced(invitation.debian)}

5. CHECK. Within a minute your node has the nodes above as peers, under
the names (svcnode_...) that stand there:

{_fenced(f"svcd/.venv/bin/svc --data-dir {invitation.data_dir} node peers")}

or, with systemd:

{_fenced("svc --data-dir /var/lib/svcd node peers")}

and it is on the page /peers of theirs. "svc help own-network" has the
rest: a wallet, making blocks, backups, and what a payment is worth.
"""


def _changes(params: NetworkParams) -> str:
    if not params.producers:
        return ""
    return f"""
Its changes hash, over all changes of its list of producers:

{params.changes_hash.hex()}
"""


def _seed(seed: Seed) -> str:
    within = f"(This address leads to it only {seed.within}.)\n" if seed.within else ""
    return f"{seed.url}\n{seed.node_id}\n{within}\n"


def _program(invitation: Invitation) -> str:
    if invitation.program:
        return f"Then, in a new folder:\n\n{_fenced(invitation.program)}"
    return (
        "Clone its repository into the folder svcd in a new folder, and stay\n"
        "in the new one; the member who invites you gives its address."
    )


def _fenced(commands: str) -> str:
    return f"```\n{commands}\n```"
