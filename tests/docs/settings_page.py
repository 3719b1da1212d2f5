"""docs/settings.md, made of the schema of the configuration and of the sentences in conf/svcd.toml.

`make docs` writes the page again.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import attrs
from attrs import frozen

from svcd.chain.units import format_amount
from svcd.chain.value_types import Between, Coins, ListOf, String
from svcd.config.layers import camel
from svcd.config.schema import DEFAULTS, Config, MerchantSettings
from svcd.config.sections import type_of
from svcd.config.server_endpoint import ServerEndpoint
from svcd.config.types import (
    BaseUrl,
    BlockAtHeight,
    Boolean,
    Directory,
    FileName,
    MerchantName,
    Moment,
    NetworkOrFile,
    OneOf,
    Secret,
    ShopNames,
    ZeroOrAtLeast,
)

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "settings.md"
MERCHANTS: Final = "[commerce.merchants]"
"""Between the brackets of the section that may be repeated."""
_EXAMPLE: Final = re.compile(r"# (\w+) = .* # (.+)")
_BEGINNING: Final = """\
# Settings

Every setting of a node, with its default and what it accepts. This page is generated from the schema of the
configuration and from [`conf/svcd.toml`](../conf/svcd.toml), which has the same sentences.

Settings come from these sources, of which later ones win:

1. the defaults of the network;
2. the file: `--config`, or `conf/svcd.toml` below the working directory if it exists. Copy the one of this repository,
   or edit `/etc/svcd/svcd.toml` of the Debian package, and remove the `#` of a key to change it;
3. two environment variables for secrets, `SVCD_COMMERCE_WEBHOOKS_MANAGE_TOKEN` and
   `SVCD_COMMERCE_WEBHOOKS_SIGNING_SECRET`, for `manageToken` and `signingSecret` of `[commerce.webhooks]`;
4. the [command line](#options-of-twistd-svcd): `--set section.key=value` sets any key.

If a setting is invalid, the node does not start. It prints one line that names the file, the section and the key, and
says what would be right. In a clone, for example:

```sh
export PATH="$PWD/.venv/bin:$PATH"
printf '[http]\\nlisten = 8645\\n' >wrong.toml
twistd -n --pidfile= svcd --config wrong.toml 2>&1 || true
```

```text
svcd: wrong.toml: [http] listen = 8645: must be a string in quotes
```

File names are relative to the data directory, `dataDir` itself to the working directory. No setting may name a file
that the node uses for something else, such as `mempool.journal` or `node.key`. Some settings take effect at a
[reload](#reloading), the others at a restart.
"""
_ABOUT: Final = {
    "": "[own-network.md](own-network.md) describes the file of a network.",
    "http": "[Behind a proxy](operations.md#behind-a-proxy) says how to set up TLS.",
    "p2p": """\
To join a network, name one or more of its nodes in `seeds`, and keep `alone` of `[participation]` false (on devnet set
it to false): then the node counts as synced, and makes blocks, only after it has met another node. If others should
call this node, its public URL is exactly the one at which they reach it: a node that answers at one URL and names
another is not accepted as a peer. A node without a public URL calls others and is not called.
[peers.md](peers.md#two-nodes-on-one-computer) runs two nodes on one computer.""",
    "participation": "[The block key](block-key.md): how to encrypt it, and what sweeping costs.",
    "pages": "[Forged links](pages.md#forged-links) says what these settings prevent.",
    "chain": """\
See [Starting from a snapshot](storage.md#starting-from-a-snapshot) and
[Keeping only the newest blocks](storage.md#keeping-only-the-newest-blocks).""",
    "limits": """\
Rates are per second and client (an IPv4 address, a /56 of IPv6 addresses), times in seconds; 0 disables a rate or a
connection limit. [http.md](http.md) describes their effect on clients, [threats.md](threats.md) their purpose, and
[limits.md](limits.md) lists all limits.""",
    MERCHANTS: """\
A merchant in addition to the one of `[commerce.webhooks]`, which is named `default`
([webhook-reference.md](webhook-reference.md#several-merchants)). The section may be repeated.""",
    "commerce.webhooks": """\
[webhooks.md](webhooks.md) explains webhooks; see also [Webhooks on PostgreSQL](scaling.md#webhooks-on-postgresql).
The node resolves the names of receivers and peers as absolute names, without the search domains of this machine. A name
in `/etc/hosts` is found only if it ends in a dot there: `10.0.0.7 shop.internal.` Before it calls IPv6 addresses, it
also resolves `ipv4only.arpa`, at most every 10 minutes, to learn whether this network reaches IPv4 through a translator
(NAT64, RFC 7050).""",
    "operator": "See [operator-api.md](operator-api.md).",
    "log": "See [Logs](troubleshooting.md#logs).",
}
"""What stands before the table of a section: what no single key says, and where to read on."""

_ENDING: Final = """
## Reloading

Edit the configuration file and the files with tokens and secrets, and then:

    $ svc node reload --data-dir /var/lib/svcd
    added music
    changed books: token, previousToken
    set [log] level

`systemctl reload svcd.service` runs this command. SIGHUP to the node's process does the same, and the answer is in the
log; but a node in the foreground (`twistd -n`) stops when its terminal is closed. The node checks the whole
configuration as at a start. If anything is wrong, such as a token file that others can read, nothing changes, and one
sentence says why. These settings change:

| setting | from when |
|---|---|
| `[[commerce.merchants]]`, and the tokens and secrets of `[commerce.webhooks]` | tokens and recipients from the next \
request, signing secrets from the next attempt of a delivery |
| `[limits]` | the next request; numbers of connections from the next connection. Every client may use its whole burst \
again |
| `[pages]` | the next page |
| `[log] level` | at once, unless twistd writes the log (`--syslog`, `--logger`) |
| keys and certificates of endpoints with TLS | the next connection |

The answer names every other setting that differs; it needs a restart. A credential of systemd is copied at the start,
so a changed one needs a restart, too: keep tokens and secrets that you want to reload in the data directory instead.
Bans are not in the configuration: `svc node peers ban` and `unban` change them at once. Where several nodes share a
PostgreSQL, reload each; until then the log of each names the nodes that differ.

**If you remove a merchant**, its tokens get 401 at once, but its events are kept for 7 days. They are sent, with all
their attempts, if a reload adds the merchant again meanwhile; answer and log say how many there are. To deliver a
merchant's events first, replace its token, and remove the merchant when they have been delivered.

## Options of `twistd svcd`

    twistd -n --pidfile= svcd [options]

The program is `/opt/svcd/bin/twistd`, in a clone `.venv/bin/twistd`. `-n` keeps the process in the foreground, and
`--pidfile=` disables the pid file: the lock in the data directory prevents a second node.

| option | |
|---|---|
| `--config FILE` | configuration file; by default `conf/svcd.toml` below the working directory, if it exists |
| `--data-dir DIR` | folder of the chain, the keys and the operator's socket |
| `--network NETWORK` | `mainnet`, `devnet`, or the [file of another network](own-network.md) |
| `--listen ENDPOINT` | the public port: a Twisted endpoint such as `tcp:8645:interface=127.0.0.1` |
| `--operator-listen ENDPOINT` | the operator's interface: a Unix socket or a port on loopback |
| `--key-password-fd N` | read the password of an encrypted [block key](block-key.md) from the open file descriptor N |
| `--greeting TEXT` | print this text once the node answers; with `[log] format = "json"` as the message of a line |
| `--set section.key=value` | any key of the configuration; may be repeated |

A port below 1024 needs a socket that systemd passes to the node ([Without a proxy](operations.md#without-a-proxy)), or
the capability `CAP_NET_BIND_SERVICE`, from `AmbientCapabilities=` of a unit or from setpriv(1).
[troubleshooting.md](troubleshooting.md#when-it-does-not-start) has the exit statuses.
"""

_KINDS: Final = {
    BaseUrl: "URL",
    BlockAtHeight: "`HEIGHT:HASH`",
    Boolean: "`true`, `false`",
    Directory: "folder",
    FileName: "file",
    ListOf: "list",
    MerchantName: "1 to 32 lower-case letters, digits and hyphens",
    Moment: "date and time",
    NetworkOrFile: "name or file",
    ServerEndpoint: "endpoint",
    String: "string",
    Secret: "string",
    ShopNames: "table of addresses and names",
}


@frozen
class Setting:
    """A row of the page."""

    section: str
    """Between the brackets of the file; "" for the keys before the first section."""
    key: str
    default: str
    accepts: str

    @property
    def name(self) -> tuple[str, str]:
        """Section and key, by which conf/svcd.toml explains it."""
        return self.section, self.key


def settings(cls: Any = Config, section: str = "") -> Iterator[Setting]:
    """Every setting of a class of the schema, and of the sections in it."""
    for attribute in attrs.fields(cls):
        key = camel(attribute.name)
        inner = f"{section}.{key}".strip(".")
        if attribute.name == "merchants":
            yield Setting(section, key, "`[]`", "sections")
            yield from settings(MerchantSettings, MERCHANTS)
        elif type_of(attribute.type) is not None:
            yield Setting(section, key, _default(section, key, attribute), _accepted(type_of(attribute.type)))
        elif attrs.has(attribute.type):
            yield from settings(attribute.type, inner)


def _default(section: str, key: str, attribute: Any) -> str:
    if attribute.default is attrs.NOTHING and key not in DEFAULTS["mainnet"]:
        return "required"
    own = DEFAULTS["mainnet"].get(key) if attribute.default is attrs.NOTHING else attribute.default
    in_coins = any(isinstance(mark, Coins) for mark in get_args(attribute.type))
    text = _toml(format_amount(own) if in_coins else own)
    on_devnet = DEFAULTS["devnet"].get(section)
    if isinstance(on_devnet, dict) and key in on_devnet:
        return f"`{text}`; on devnet `{_toml(on_devnet[key])}`"
    return f"`{text}`"


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_toml(key)} = {_toml(each)}' for key, each in value.items())}}}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f'"{value}"'


def _accepted(kind: object) -> str:
    match kind:
        case Between(low, high):
            return f"{low} to {high}"
        case ZeroOrAtLeast(minimum):
            return f"0, or {minimum} and more"
        case Coins(minimum):
            return f'coins, `"{format_amount(minimum)}"` and more'
        case OneOf(words):
            return ", ".join(f'`"{word}"`' for word in words)
        case _:
            return _KINDS[type(kind)]


def sentences() -> dict[tuple[str, str], str]:
    """What conf/svcd.toml says of each setting."""
    found: dict[tuple[str, str], str] = {}
    section, said = "", list[str]()
    for line in (ROOT / "conf" / "svcd.toml").read_text(encoding="utf-8").partition("\n\n")[2].splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif example := _EXAMPLE.fullmatch(line):
            found[MERCHANTS, example[1]] = example[2]
        elif line.startswith("# "):
            said += [] if line.startswith("# [[") else [line[2:]]
        elif line.startswith("#"):
            found[section, line[1:].partition(" = ")[0]] = " ".join(said)
            said.clear()
    return found


def page() -> str:
    """The text of the page."""
    said = sentences()
    parts, section = [_BEGINNING], None
    for setting in settings():
        if setting.section != section:
            section = setting.section
            about = f"\n{_ABOUT[section]}\n" if section in _ABOUT else ""
            heading = f"[{section}]" if section else "Before the first section"
            parts.append(f"\n## {heading}\n{about}\n| key | default | accepts | |\n|---|---|---|---|\n")
        text = said[setting.name].replace("|", "\\|")
        parts.append(f"| `{setting.key}` | {setting.default} | {setting.accepts} | {text} |\n")
    return "".join([*parts, _ENDING])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
