"""The configuration: defaults, layers, and one sentence for everything that can be wrong."""

import ipaddress
import os
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactor

from svcd.chain.params import DEVNET, MAINNET
from svcd.chain.value_types import BadValue
from svcd.cli.operator.database import CHAIN_FILE
from svcd.cli.operator.devnet import CONFIG as DEVNET_CONFIG
from svcd.commerce.webhook_database import FILE as WEBHOOKS_FILE
from svcd.config import loader
from svcd.config.layers import ConfigError, Layer, camel, from_assignment, from_option, merged
from svcd.config.loader import load
from svcd.config.network_file import render_network_file
from svcd.config.schema import Commerce, Config, MerchantSettings
from svcd.config.server_endpoint import ServerEndpoint
from svcd.config.types import unix_milliseconds
from svcd.endpoint_description import EndpointDescription
from svcd.p2p.snapshot_start import StartMode
from svcd.store.mempool_journal import FILE as JOURNAL_FILE
from svcd.store.mempool_journal import NEW_FILE as NEW_JOURNAL
from tests.process.certificate_files import CertificateFiles

CONF = Path(__file__).parent.parent / "conf"
SHOP = "svc1qqr0t67zeqfa0ed44hudd8s2a88ysuh7ytvpxz4"
OTHER_SHOP = "svc1qdcchhntg885gwuu4gyd50v4cn546ulxt8l45rt"
TOKEN, SECRET = "t" * 32, "s" * 32


def from_text(folder: Path, text: str, **environment: str) -> Config:
    file = folder / "svcd.toml"
    file.write_text(text)
    return load(file, environment=environment)


def refusal(folder: Path, text: str, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        from_text(folder, text, **environment)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{folder}/", "")


def set_to(*assignments: str) -> Config:
    return load(overrides=[from_assignment(assignment) for assignment in assignments])


# Defaults and the example files


def test_the_example_with_every_key_enabled_is_the_defaults(tmp_path: Path) -> None:
    example = re.sub(r"^#(?=\w+ = )", "", (CONF / "svcd.toml").read_text(), flags=re.M)
    assert from_text(tmp_path, example) == load()


def test_the_example_as_it_stands_is_the_defaults() -> None:
    assert load(CONF / "svcd.toml") == load()


def keys_of(cls: type) -> list[str]:
    found = []
    for attribute in attrs.fields(cls):
        if attribute.name != "own_network":
            found += keys_of(attribute.type) if attrs.has(attribute.type) else [camel(attribute.name)]
    return found


def test_the_example_shows_every_key_once() -> None:
    shown = re.findall(r"^#(\w+) = ", (CONF / "svcd.toml").read_text(), flags=re.M)
    assert sorted(shown) == sorted(keys_of(Config))


def test_defaults_of_mainnet() -> None:
    config = load()
    assert (config.network, config.http.listen) == ("mainnet", "tcp:8645:interface=127.0.0.1")
    assert config.data_dir == Path.cwd() / "data"
    assert not config.participation.enabled
    assert not config.participation.alone
    assert not config.p2p.allow_private


def test_all_blocks_are_kept_unless_a_number_is_set() -> None:
    assert load().chain.keep_blocks == 0
    assert set_to("chain.keepBlocks=0").chain.keep_blocks == 0
    assert set_to("chain.keepBlocks=10080").chain.keep_blocks == 10_080


def test_each_start_mode_is_accepted_and_automatic_is_the_default() -> None:
    assert StartMode(load().chain.start) is StartMode.AUTOMATIC
    assert [set_to(f"chain.start={mode}").chain.start for mode in StartMode] == list(StartMode)


def test_an_expected_block_is_read_in_lower_case() -> None:
    assert load().chain.expect == ""
    assert set_to(f"chain.expect=7:{'AB' * 32}").chain.expect == f"7:{'ab' * 32}"


def test_defaults_of_devnet() -> None:
    config = set_to("network=devnet")
    assert config.http.listen == "tcp:18645:interface=127.0.0.1"
    assert config.participation.alone
    assert config.p2p.allow_private
    assert not config.participation.on_demand


def test_defaults_of_devnet_give_way_to_the_file(tmp_path: Path) -> None:
    config = from_text(tmp_path, 'network = "devnet"\n[participation]\nalone = false')
    assert not config.participation.alone


def test_the_devnet_file(tmp_path: Path) -> None:
    for name, secret in (("manage-token", TOKEN), ("signing-secret", SECRET)):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text(secret + "\n")
    config = load(DEVNET_CONFIG, overrides=[from_option("--data-dir", ("dataDir",), str(tmp_path))])
    assert config.network == "devnet"
    assert config.participation.on_demand
    assert config.participation.only_on_demand
    assert config.limits.exempt == (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
    assert config.commerce.problem is None
    assert config.commerce.webhooks.manage_token == TOKEN


# Layers


def test_a_later_layer_wins_and_leaves_the_other_keys_alone(tmp_path: Path) -> None:
    file = tmp_path / "svcd.toml"
    file.write_text("[p2p]\noutbound = 3\nmaxInbound = 5")
    config = load(file, overrides=[from_assignment("p2p.outbound=4"), from_assignment("p2p.outbound=6")])
    assert (config.p2p.outbound, config.p2p.max_inbound) == (6, 5)


@pytest.mark.parametrize(
    ("assignment", "section", "value"),
    [
        ("http.listen=tcp:80", "http", {"listen": "tcp:80"}),
        ('http.listen="tcp:80"', "http", {"listen": "tcp:80"}),
        ("p2p.enabled=false", "p2p", {"enabled": False}),
        ("p2p.outbound=4", "p2p", {"outbound": 4}),
        ('p2p.seeds=["http://a"]', "p2p", {"seeds": ["http://a"]}),
        ("commerce.webhooks.manageToken=a=b", "commerce", {"webhooks": {"manageToken": "a=b"}}),
        ("dataDir=", "dataDir", ""),
        ("dataDir=1\nnetwork = 2", "dataDir", "1\nnetwork = 2"),
    ],
)
def test_assignments_are_toml_or_else_plain_strings(assignment: str, section: str, value: object) -> None:
    assert from_assignment(assignment).values == {section: value}


@pytest.mark.parametrize("assignment", ["http.listen", "=1", "http..listen=1", ""])
def test_an_assignment_without_key_or_value_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigError, match=r"must be written section\.key=value"):
        from_assignment(assignment)


def test_a_relative_data_dir_counts_from_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert set_to("dataDir=chain").data_dir == tmp_path / "chain"
    assert set_to("dataDir=~/chain").data_dir == Path("/home/ada/chain")


# What is wrong is said in one sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[http]\nlisten = 'tcp:99999'", '[http] listen = "tcp:99999": the port must be from 0 to 65535'),
        (
            "[http]\nlisten = 'tpc:80'",
            '[http] listen = "tpc:80": must be a Twisted endpoint such as "tcp:8645:interface=127.0.0.1" or '
            '"unix:/run/svcd.sock"',
        ),
        (
            "[http]\nlisten = 'systemd:domain=INET:name=svcd'",
            "[http] listen = \"systemd:domain=INET:name=svcd\": systemd passed no such socket ('svcd'); is "
            "svcd.socket running?",
        ),
        (
            "[http]\nlisten = 'ssl:443:privateKey=/no/key'",
            '[http] listen = "ssl:443:privateKey=/no/key": /no/key: No such file or directory',
        ),
        (
            f"[http]\nlisten = 'ssl:443:privateKey={__file__}'",
            f'[http] listen = "ssl:443:privateKey={__file__}": privateKey and certKey must be a key and its '
            "certificate in PEM",
        ),
        ("[http]\nlsten = 1", "[http] lsten is not known; did you mean listen?"),
        ("[http]\nallowed_hosts = []", "[http] allowed_hosts is not known; did you mean allowedHosts?"),
        ("[operator]\nx = 1", "[operator] x is not known; there are listen, tokenFile, healthListen"),
        ("[htp]\nlisten = 1", "section [htp] is not known; did you mean http?"),
        ("[htp]", "section [htp] is not known; did you mean http?"),
        ("datadir = 'x'", "datadir is not known; did you mean dataDir?"),
        ("[commerce.webhook]\nenabled = true", "section [commerce.webhook] is not known; did you mean webhooks?"),
        ("http = 3", "http = 3: must be a section with keys of its own"),
        (
            "network = 'main'",
            'network = "main": must be "mainnet", "devnet", or the file of a network, such as "festival.toml"',
        ),
        ("dataDir = ''", 'dataDir = "": must name a folder'),
        (
            "[participation]\npayTo = 'svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc'",
            '[participation] payTo = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc": it must be an address of this '
            "network: 43 characters that begin with svc1q",
        ),
        ("[participation]\npayTo = 7", "[participation] payTo = 7: must be a string in quotes"),
        (
            "[participation]\nsweepAbove = 10000",
            '[participation] sweepAbove = 10000: must be an amount of coins in quotes, such as "10000", and at '
            'least "1"',
        ),
        (
            "[participation]\nsweepAbove = '0.5'",
            '[participation] sweepAbove = "0.5": must be an amount of coins in quotes, such as "10000", and at '
            'least "1"',
        ),
        (
            "[participation]\nsweepAbove = 'a lot'",
            '[participation] sweepAbove = "a lot": must be an amount of coins in quotes, such as "10000", and at '
            'least "1"',
        ),
        ("[participation]\nkeyFile = ''", '[participation] keyFile = "": must name a file'),
        ("[operator]\ntokenFile = ''", '[operator] tokenFile = "": must name a file'),
        ('[participation]\nkeyFile = "a\\u0000"', '[participation] keyFile = "a\\u0000": must name a file'),
        ("dataDir = 3", "dataDir = 3: must be a string in quotes"),
        ("[p2p]\nenabled = 1", "[p2p] enabled = 1: must be true or false, without quotes"),
        (
            "[chain]\nkeepBlocks = 10079",
            "[chain] keepBlocks = 10079: must be 0 or an integer of at least 10080, without quotes",
        ),
        (
            "[chain]\nkeepBlocks = false",
            "[chain] keepBlocks = false: must be 0 or an integer of at least 10080, without quotes",
        ),
        *(
            (
                f"[chain]\nexpect = '{text}'",
                f'[chain] expect = "{text}": must be the height of a block, a colon and the 64 hex digits of its hash, '
                "as the explorer of a node that you trust shows them, or empty",
            )
            for text in ("7", "7:abcd", "0:" + 64 * "a", "-1:" + 64 * "a", 64 * "a", "7: " + 63 * "a")
        ),
        ("[p2p]\noutbound = true", "[p2p] outbound = true: must be an integer from 0 to 64, without quotes"),
        ("[p2p]\noutbound = 65", "[p2p] outbound = 65: must be an integer from 0 to 64, without quotes"),
        ("[p2p]\noutbound = 1.0", "[p2p] outbound = 1.0: must be an integer from 0 to 64, without quotes"),
        ("[p2p]\nseeds = 'http://a'", '[p2p] seeds = "http://a": must be a list in brackets, such as ["…", "…"]'),
        (
            "[p2p]\nseeds = ['http://a/b']",
            '[p2p] seeds = ["http://a/b"]: must end after the host or port, without a slash, path or query',
        ),
        (
            "[http]\nallowedHosts = ['a:80']",
            '[http] allowedHosts = ["a:80"]: must be a host name or IP address without a port, such as '
            '"node.example.org"',
        ),
        (
            "[pages]\nreturnHosts = ['https://a']",
            '[pages] returnHosts = ["https://a"]: must be a host as in an https:// address, such as '
            '"shop.example.org" or "localhost:8443"',
        ),
        (
            f"network = 'devnet'\n[pages]\nrecipients = ['{SHOP}']",
            f'[pages] recipients = ["{SHOP}"]: '
            "each recipient must be an address of this network: 44 characters that begin with svcd1q",
        ),
        (
            "[pages]\nshopNames = 'Tea'",
            '[pages] shopNames = "Tea": must be a table of addresses and names, such as { "svc1q…" = "Tea & Cake" }',
        ),
        (
            f"[pages.shopNames]\n{SHOP} = ' Tea'",
            "[pages] shopNames = (not shown): each name must have 1 to 40 characters, without spaces around it",
        ),
        (
            f"[pages.shopNames]\n{SHOP} = 'Tea\\u200b'".replace("'", '"'),
            "[pages] shopNames = (not shown): each name must not have U+200B (ZERO WIDTH SPACE) in line 1, column 4; "
            "nobody sees it: remove it, or type the text again",
        ),
        (
            f"network = 'devnet'\n[pages.shopNames]\n{SHOP} = 'Tea'",
            "[pages] shopNames = (not shown): "
            "each recipient must be an address of this network: 44 characters that begin with svcd1q",
        ),
        (
            f"[pages]\nrecipients = ['{OTHER_SHOP}']\n[pages.shopNames]\n{SHOP} = 'Tea'",
            f"[pages] shopNames = (not shown): {SHOP} is not among the recipients of the links of this site, "
            "so its name would not be shown",
        ),
        (
            "[limits]\nexempt = ['127.0.0.1/8']",
            '[limits] exempt = ["127.0.0.1/8"]: must be an address range such as "127.0.0.0/8" or "::1/128" '
            "(127.0.0.1/8 has host bits set)",
        ),
        (
            "[log]\nlevel = 'loud'",
            '[log] level = "loud": must be "debug" or "info" or "warn" or "error" or "critical"',
        ),
        (
            "[participation]\nevery = 10",
            "[participation] every = 10: works with onDemand = true only",
        ),
        (
            "[participation]\nonDemand = true",
            '[participation] onDemand = true: works with network = "devnet" only',
        ),
        (
            "[commerce.webhooks]\nmaxTtlSeconds = 60",
            "[commerce.webhooks] maxTtlSeconds = 60: must not be less than defaultTtlSeconds, 86400",
        ),
        (
            "[commerce.webhooks]\ndefaultTtlSeconds = 604800\nmaxTtlSeconds = 604799",
            "[commerce.webhooks] maxTtlSeconds = 604799: must not be less than defaultTtlSeconds, 604800",
        ),
        (
            "[commerce.webhooks]\nmanageToken = 5",
            "[commerce.webhooks] manageToken = (not shown): must be a string in quotes",
        ),
    ],
)
def test_a_bad_setting_is_named_with_its_place_and_what_would_be_right(
    tmp_path: Path, text: str, sentence: str
) -> None:
    assert refusal(tmp_path, text).split(": ", 1)[1] == sentence


def test_a_sentence_begins_with_where_the_setting_came_from(tmp_path: Path) -> None:
    assert refusal(tmp_path, "[p2p]\noutbound = 99").startswith("svcd.toml: [p2p] outbound = 99: ")
    with pytest.raises(ConfigError, match=r"^--set p2p\.outbound: \[p2p\] outbound = 99: "):
        set_to("p2p.outbound=99")
    with pytest.raises(ConfigError, match=r"^--listen: \[http\] listen = "):
        load(overrides=[from_option("--listen", ("http", "listen"), "x")])


def test_a_long_value_is_cut(tmp_path: Path) -> None:
    assert len(refusal(tmp_path, f"[http]\nlisten = '{'x' * 10_000}'")) < 300


def test_a_syntax_error_names_the_line(tmp_path: Path) -> None:
    assert (
        refusal(tmp_path, "[http]\nlisten = tcp")
        == "svcd.toml: is not valid TOML: Invalid value (at line 2, column 10)"
    )


def test_a_file_that_is_not_text_or_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"# \xe4")
    with pytest.raises(ConfigError, match=r"latin\.toml: must be UTF-8 text; the byte at offset 2 is not"):
        load(tmp_path / "latin.toml")
    with pytest.raises(ConfigError, match=r"none\.toml: the configuration file cannot be read: No such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"the configuration file cannot be read: Is a directory"):
        load(tmp_path)


# Kinds of values


@pytest.mark.parametrize(
    "endpoint",
    ["tcp:8645", "tcp:0", "tcp:port=80:interface=127.0.0.1", "tcp6:8645:interface=\\:\\:1"],
)
def test_endpoints_that_twisted_knows(endpoint: str) -> None:
    assert load(overrides=[from_option("--listen", ("http", "listen"), endpoint)]).http.listen == endpoint


@pytest.mark.parametrize(
    "endpoint",
    ["", "tcp", "tcp:x", "tcp:-1", "tcp:65536", "tcp:port=65536", "tcp:80:interfce=::1", "unix:/a:mode=9", "unix:/a\\"],
)
def test_endpoints_that_twisted_does_not_know(endpoint: str) -> None:
    with pytest.raises(ConfigError):
        load(overrides=[from_option("--listen", ("http", "listen"), endpoint)])


@pytest.mark.parametrize(
    ("section", "key", "name"),
    [("http", "listen", "listen"), ("p2p", "listen", "listen"), ("operator", "healthListen", "health_listen")],
)
def test_a_public_unix_socket_is_refused(section: str, key: str, name: str) -> None:
    """Its clients have no addresses, and rates, connections and bans are by address."""
    with pytest.raises(ConfigError, match="must not be a Unix socket: all who come by it look alike"):
        set_to(f"{section}.{key}=unix:/run/s:mode=600")
    # Which sockets systemd hands over is known to a service of it only, so these are judged without being read.
    for endpoint in ("systemd:domain=UNIX:name=svcd", "systemd:UNIX:0"):
        config, settings = load(), merged([from_option("--set", (section, key), endpoint)])
        changed = attrs.evolve(config, **{section: attrs.evolve(getattr(config, section), **{name: endpoint})})
        with pytest.raises(ConfigError, match="must not be a Unix socket"):
            loader.check(changed, settings, {})


@pytest.mark.parametrize(
    ("section", "key", "name"),
    [
        ("http", "listen", "listen"),
        ("p2p", "listen", "listen"),
        ("operator", "listen", "listen"),
        ("operator", "healthListen", "health_listen"),
    ],
)
def test_two_sockets_of_systemd_with_one_name_are_refused(section: str, key: str, name: str) -> None:
    """Nobody would answer what comes to the first of them, and nobody would refuse it either."""
    endpoint = "systemd:domain=INET:name=svcd"
    config, settings = load(), merged([from_option("--set", (section, key), endpoint)])
    changed = attrs.evolve(config, **{section: attrs.evolve(getattr(config, section), **{name: endpoint})})
    loader.check(changed, settings, {"LISTEN_FDNAMES": "svcd:other:other"})
    with pytest.raises(ConfigError, match="systemd passes 2 sockets of that name, and the node would serve only one"):
        loader.check(changed, settings, {"LISTEN_FDNAMES": "svcd:other:svcd"})


def test_a_certificate_and_the_key_of_another_one_are_refused(tmp_path: Path) -> None:
    files, others = CertificateFiles(tmp_path / "tls"), CertificateFiles(tmp_path / "others")
    pair = "ssl:443:privateKey={}:certKey={}"
    assert ServerEndpoint().read(pair.format(files.key, files.certificate))
    with pytest.raises(BadValue, match="privateKey is not the key of the certificate in certKey"):
        ServerEndpoint().read(pair.format(others.key, files.certificate))


def test_tls_on_a_socket_of_systemd() -> None:
    """What Twisted knows of it, and the arguments of TLS, which it knows on `ssl:` alone."""
    plain = "systemd:domain=INET6:name=a\\:b"
    described = EndpointDescription.parse(f"{plain}:privateKey=k\\:1:certKey=c")
    assert described.for_twisted == (plain, "ssl:0:privateKey=k\\:1:certKey=c")
    for endpoint in (plain, "ssl:443:privateKey=k", "tcp:80", ""):
        assert EndpointDescription.parse(endpoint).for_twisted == (endpoint,)


def test_checking_an_endpoint_leaves_the_reactor_uninstalled() -> None:
    program = (
        "import sys; from svcd.config.loader import load; load(); sys.exit('twisted.internet.reactor' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("url", ["", "https://node.example.org", "http://[::1]:8645"])
def test_public_urls(url: str) -> None:
    assert load(overrides=[from_option("x", ("http", "publicUrl"), url)]).http.public_url == url


def test_a_url_is_kept_in_its_canonical_form() -> None:
    config = set_to('http.publicUrl="HTTPS://Node.Example.ORG:443"', 'p2p.seeds=["http://[2001:DB8::1]:80"]')
    assert config.http.public_url == "https://node.example.org"
    assert config.p2p.seeds == ("http://[2001:db8::1]",)


@pytest.mark.parametrize("url", ["http://a/b", "http://user@a", "ftp://a", "http://a:65536", "http://a b"])
def test_urls_that_are_no_base(url: str) -> None:
    """All forms: tests/net/test_targets.py."""
    with pytest.raises(ConfigError, match=r": must (begin|end|be|have|not have) "):
        load(overrides=[from_option("x", ("http", "publicUrl"), url)])


def test_the_file_of_a_network_is_beside_the_configuration(tmp_path: Path) -> None:
    own = attrs.evolve(MAINNET, name="festival", network_id=4711, chain_id="FESTIVAL", address_prefix="fest")
    (tmp_path / "festival.toml").write_text(render_network_file(own))
    config = from_text(tmp_path, 'network = "festival.toml"')
    assert (config.params, config.network) == (own, str(tmp_path / "festival.toml"))
    assert config.data_dir == Path.cwd() / "data"
    assert config.http.listen == load().http.listen
    assert set_to(f"network={tmp_path}/festival.toml").params == own
    assert from_text(tmp_path, 'network = "devnet"').params == DEVNET


def test_the_file_of_a_network_is_checked(tmp_path: Path) -> None:
    own = attrs.evolve(MAINNET, name="festival", network_id=4711, chain_id="FESTIVAL", address_prefix="fest")
    assert refusal(tmp_path, 'network = "festival.toml"').startswith("festival.toml: the network file cannot be read: ")
    (tmp_path / "festival.toml").write_text(render_network_file(own).replace("slotSeconds = 10", "slotSeconds = 0"))
    told = refusal(tmp_path, 'network = "festival.toml"')
    assert told == "festival.toml, line 19: [rules] slotSeconds = 0: must be an integer from 1 to 600, without quotes"
    (tmp_path / "festival.toml").write_text(
        render_network_file(own).replace('minimumFee = "0.0001"', 'minimumFee = "0.001"')
    )
    told = refusal(tmp_path, 'network = "festival.toml"')
    other = attrs.evolve(own, minimum_fee=10 * own.minimum_fee).genesis_hash.hex()
    assert f'[genesis] hash = "{own.genesis_hash.hex()}": the rules of the file give {other}: with another rule' in told
    (tmp_path / "festival.toml").write_text(render_network_file(own))
    told = refusal(tmp_path, 'network = "festival.toml"\n[participation]\npayTo = "svc1q"')
    assert "address of this network: 44 characters that begin with fest1q" in told
    told = refusal(tmp_path, 'network = "festival.toml"\n[participation]\nonDemand = true')
    assert told.endswith('works with network = "devnet" only')


def test_hosts_are_lower_case_and_networks_are_values() -> None:
    config = set_to('http.allowedHosts=["Node.Example.org", "::1"]', 'http.trustedProxies=["10.0.0.0/8", "::1"]')
    assert config.http.allowed_hosts == ("node.example.org", "::1")
    assert config.http.trusted_proxies == (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("::1/128"))


def test_networks_for_callbacks() -> None:
    config = set_to('commerce.webhooks.callbackNetworks=["203.0.113.7/32", "100.64.0.0/10"]')
    assert config.commerce.webhooks.callback_networks == (
        ipaddress.ip_network("203.0.113.7/32"),
        ipaddress.ip_network("100.64.0.0/10"),
    )
    with pytest.raises(ConfigError, match=r"callbackNetworks = .*: must be an address range such as "):
        set_to('commerce.webhooks.callbackNetworks=["shop.internal"]')


# The operator's interface

OWN_SOCKET = "unix:address=/d/operator.sock:mode=600:lockfile=0"


def test_the_operator_listens_on_a_socket_in_the_data_directory() -> None:
    socket = "unix:address=/d/a\\:b/operator.sock:mode=600:lockfile=0"
    config = set_to("dataDir=/d/a:b")
    assert (config.operator_socket, config.operator_port) == (socket, "")


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp:8646:interface=127.0.0.1",
        "tcp:8646:127.0.0.1",
        "tcp6:8646:interface=\\:\\:1",
        "tcp6:8646:interface=\\:\\:ffff\\:127.0.0.1",
    ],
)
def test_operator_s_ports_nobody_else_can_reach(endpoint: str) -> None:
    """The socket is there all the same: what asks it goes on to work."""
    config = set_to("dataDir=/d", f"operator.listen='{endpoint}'")
    assert (config.operator_socket, config.operator_port) == (OWN_SOCKET, endpoint)


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp:8646",
        "tcp:8646:interface=0.0.0.0",
        "tcp:8646:interface=localhost",
        "tcp6:8646",
        "tcp6:8646:interface=\\:\\:ffff\\:192.0.2.1",
        "stdio:",
    ],
)
def test_a_public_operator_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="must be a Unix socket or on loopback"):
        set_to(f"operator.listen='{endpoint}'")


def test_a_socket_of_the_operator_is_open_to_its_owner_only() -> None:
    """It asks for no token; Twisted's own default lets everybody on the computer in."""
    config = set_to("operator.listen=unix:/run/svcd.sock")
    assert (config.operator_socket, config.operator_port) == ("unix:/run/svcd.sock:mode=600", "")
    assert set_to("operator.listen=unix:a\\:mode").operator_socket == "unix:a\\:mode:mode=600"
    for endpoint in ("unix:/run/svcd.sock:mode=660", "unix:/run/svcd.sock:640:lockfile=0"):
        assert set_to(f"operator.listen='{endpoint}'").operator_socket == endpoint
    for mode in ("mode=666", "mode=602", "777"):
        with pytest.raises(ConfigError, match="must not be open to everybody: mode=600 is for its owner"):
            set_to(f"operator.listen=unix:/run/svcd.sock:{mode}")


@pytest.mark.parametrize("folder", ["/d/a=b", "/d/a:b", "/d/a\\", "/d/\\:=", "/d/mode=777:x"])
def test_a_data_directory_of_any_name_has_its_socket(folder: str) -> None:
    reactor = MemoryReactor()  # type: ignore[no-untyped-call]
    listening = serverFromString(reactor, set_to(f"dataDir='{folder}'").operator_socket)
    listening.listen(Factory())
    ((address, _, _, mode, _),) = reactor.unixServers
    assert (address, mode) == (f"{folder}/operator.sock", 0o600)


@pytest.mark.parametrize(
    "endpoint", ["unix:/s\\\\:mode=600", "unix:/a\\=b:640", "unix:mode=600:/s", "unix:address=/a=b"]
)
def test_the_parts_of_an_endpoint_are_those_that_twisted_reads(endpoint: str) -> None:
    reactor = MemoryReactor()  # type: ignore[no-untyped-call]
    serverFromString(reactor, endpoint).listen(Factory())
    ((address, _, _, mode, _),) = reactor.unixServers
    described = EndpointDescription.parse(endpoint)
    named = described.arguments
    assert (described.kind, named["address"], int(named.get("mode", "666"), 8)) == ("unix", address, mode)


@pytest.mark.parametrize("endpoint", ["unix:", "unix:address=", r"unix:\u0000svcd", r"unix:\u0000svcd:mode=600"])
def test_a_socket_of_the_operator_without_a_file_is_refused(endpoint: str) -> None:
    """Linux lets everybody on the computer connect to it, whatever its mode."""
    with pytest.raises(ConfigError, match="must name a file: everybody on this computer can open"):
        set_to(f'operator.listen="{endpoint}"')


def test_names_of_the_operator_s_port() -> None:
    port = "operator.listen=tcp:8646:interface=127.0.0.1"
    assert set_to(port).operator_hosts == {"localhost", "127.0.0.1", "[::1]"}
    assert set_to(port, 'http.allowedHosts=["Node.lan", "fd00::1"]').operator_hosts == {"node.lan", "[fd00::1]"}


def test_a_socket_path_longer_than_the_system_allows_is_refused_with_the_setting_to_change() -> None:
    longest = "/" + "d" * (107 - len("//operator.sock"))
    assert set_to(f"dataDir={longest}").data_dir == Path(longest)
    with pytest.raises(ConfigError, match=r"dataDir = .*: the socket's path has 108 bytes and may have 107"):
        set_to(f"dataDir={longest}d")
    with pytest.raises(ConfigError, match=r"\[operator\] listen = .*: the socket's path has 108 bytes"):
        set_to(f"operator.listen=unix:/{'d' * 107}")


# Files in the data directory


OWN_DATABASES = [
    f"{name}{ending}"
    for name in (CHAIN_FILE, WEBHOOKS_FILE)
    for ending in ("", "-wal", "-shm", "-open", "-journal", ".new", ".new-wal", ".old-1")
]
OWN_FILES = [
    *("node.key", "node.key.new", JOURNAL_FILE, NEW_JOURNAL, "peers.json", "peers.json.new", "operator.sock", "lock"),
    *OWN_DATABASES,
]
MADE = ["participation.keyFile", "operator.tokenFile"]
SECRETS = ("manageToken", "previousManageToken", "readOnlyToken", "signingSecret", "previousSigningSecret")
READ = [f"commerce.webhooks.{key}File" for key in ("database", *SECRETS)]


@pytest.mark.parametrize("setting", [*MADE, *READ, "commerce.webhooks.extraCaFile", "participation.keyPasswordFile"])
@pytest.mark.parametrize("name", [*OWN_FILES, "./lock", "keys/../node.key", "/d/peers.json", "../d/lock"])
def test_a_setting_that_names_a_file_of_the_node_is_refused(setting: str, name: str) -> None:
    place = os.path.normpath(f"/d/{name}") if not name.startswith("/") else name
    with pytest.raises(ConfigError, match=r"File = .*: must name a file of its own[^;]*; the node uses /d/") as error:
        set_to("dataDir=/d", f"{setting}={name}")
    assert str(error.value).endswith(f"; the node uses {place} for something else")


def test_every_setting_that_names_a_file_is_checked(tmp_path: Path) -> None:
    """Those of sections that there may be several of, too; the error names the section."""
    files = {name for name in keys_of(Config) if name.endswith("File")}
    assert files == {setting.rpartition(".")[2] for setting in [*MADE, *READ]} | {"extraCaFile", "keyPasswordFile"}
    previous = ("previousTokenFile", "previousSigningSecretFile")
    for key in ("tokenFile", "readOnlyTokenFile", "signingSecretFile", *previous):
        names = {"tokenFile": "token", "signingSecretFile": "secret"} | {key: "node.key"}
        section = "\n".join(f'{name} = "{value}"' for name, value in names.items())
        sentence = refusal(tmp_path, f'dataDir = "/d"\n[[commerce.merchants]]\nname = "books"\n{section}')
        assert sentence.endswith(
            f'number 1, {key} = "node.key": must name a file of its own; the node uses /d/node.key for something else'
        )


@pytest.mark.parametrize("setting", READ)
@pytest.mark.parametrize("name", ["operator.key", "operator.token", "operator.key.new"])
def test_a_key_that_the_node_makes_is_no_secret_of_a_merchant(setting: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"must name a file of its own; the node uses /d/{name} for something else"):
        set_to("dataDir=/d", f"{setting}={name}")


@pytest.mark.parametrize("setting", [*MADE, *READ, "commerce.webhooks.extraCaFile", "participation.keyPasswordFile"])
def test_a_name_that_no_file_can_have_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"File = .*: must name a file$"):
        set_to(f'{setting}="a\\u0000b"')


def test_a_file_that_is_only_read_may_have_two_uses(tmp_path: Path) -> None:
    secret_file(tmp_path)
    config = load(overrides=[with_webhooks(tmp_path, signingSecretFile="secret", previousSigningSecretFile="secret")])
    assert config.commerce.webhooks.previous_signing_secret == SECRET


def test_a_link_to_a_file_of_the_node_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    (tmp_path / "key").symlink_to("data/peers.json")
    for name in (f"{tmp_path}/link/chain.sqlite", f"{tmp_path}/key"):
        with pytest.raises(ConfigError, match="must name a file of its own"):
            set_to(f"dataDir={tmp_path}/data", f"participation.keyFile={name}")
    with pytest.raises(ConfigError, match="must name a file of its own"):
        set_to(f"dataDir={tmp_path}/link", f"participation.keyFile={tmp_path}/data/lock")


@pytest.mark.parametrize("name", ["node.key", JOURNAL_FILE, "operator.key", "peers.json"])
def test_the_operator_s_socket_in_a_file_of_the_node_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as error:
        set_to("dataDir=/d", f"operator.listen=unix:/d/{name}")
    assert str(error.value).endswith(
        f'must name a file of its own, such as "unix:/d/operator.sock"; the node uses /d/{name} for something else'
    )
    assert set_to("dataDir=/d", "operator.listen=unix:/d/operator.sock").operator_socket


@pytest.mark.parametrize(
    ("assignments", "blamed"),
    [
        (("participation.keyFile=operator.token",), "participation.keyFile"),
        (("operator.tokenFile=operator.key",), "operator.tokenFile"),
        (("operator.tokenFile=secret", "participation.keyFile=./secret"), "operator.tokenFile"),
        (("operator.tokenFile=secret.new", "participation.keyFile=secret"), "operator.tokenFile"),
        (("operator.tokenFile=operator.key.new",), "operator.tokenFile"),
    ],
)
def test_the_key_and_the_token_in_one_file_are_refused(assignments: tuple[str, ...], blamed: str) -> None:
    """Each is written under another name first, which ends in `.new`."""
    with pytest.raises(ConfigError, match=rf'^--set {blamed}: .*: must name a file of its own, such as "operator\.'):
        set_to(*assignments)


@pytest.mark.parametrize(
    "name", ["my.key", "keys/operator.key", "/etc/svcd/node.key", "operator.key", "keys/chain.sqlite", "mempool.key"]
)
def test_a_key_in_a_file_of_its_own_is_taken(name: str) -> None:
    assert set_to("dataDir=/d", f"participation.keyFile={name}").participation.key_file == name


# Secrets


def with_webhooks(folder: Path, **settings: str) -> Layer:
    return Layer("test", {"dataDir": str(folder), "commerce": {"webhooks": {"enabled": True, **settings}}})


def secret_file(folder: Path, content: bytes = SECRET.encode(), mode: int = 0o600) -> Path:
    file = folder / "secret"
    file.write_bytes(content)
    file.chmod(mode)
    return file


def test_a_secret_file_counts_from_the_data_directory(tmp_path: Path) -> None:
    secret_file(tmp_path, SECRET.encode() + b"\n")
    for name in ("secret", str(tmp_path / "secret")):
        config = load(overrides=[with_webhooks(tmp_path, signingSecretFile=name, previousSigningSecretFile=name)])
        assert config.commerce.webhooks.signing_secret == SECRET
        assert config.commerce.webhooks.previous_signing_secret == SECRET


def test_secrets_from_the_environment_take_the_place_of_those_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "svcd.toml"
    file.write_text("[commerce.webhooks]\nenabled = true\nmanageToken = 'other'\nsigningSecretFile = '/none'")
    config = load(
        file,
        environment={
            "SVCD_COMMERCE_WEBHOOKS_MANAGE_TOKEN": TOKEN,
            "SVCD_COMMERCE_WEBHOOKS_SIGNING_SECRET": SECRET,
        },
    )
    assert (config.commerce.webhooks.manage_token, config.commerce.webhooks.signing_secret) == (TOKEN, SECRET)


def test_the_database_of_webhooks_is_a_secret(tmp_path: Path) -> None:
    """Its connection URI may contain a password."""
    uri = "postgresql://svcd:hunter2@db.example.org/svcd"
    file = secret_file(tmp_path, uri.encode())
    for settings in ({"database": uri}, {"databaseFile": str(file)}):
        config = load(overrides=[with_webhooks(tmp_path, **settings)])
        assert config.commerce.webhooks.database == uri
        assert "hunter2" not in repr(config)
    for settings in ({"database": f"mysql{uri}"}, {"database": uri, "databaseFile": "secret"}, {"databse": uri}):
        with pytest.raises(ConfigError) as error:
            load(overrides=[with_webhooks(tmp_path, **settings)])
        assert "hunter2" not in str(error.value)
    with pytest.raises(ConfigError, match=r"database = \(not shown\): must be a connection URI of PostgreSQL such as"):
        load(overrides=[with_webhooks(tmp_path, database="svcd")])


def test_a_secret_given_twice_is_refused(tmp_path: Path) -> None:
    secret_file(tmp_path)
    with pytest.raises(ConfigError, match=r"manageTokenFile = \"secret\": manageToken is set too; keep one of the two"):
        load(overrides=[with_webhooks(tmp_path, manageToken=TOKEN, manageTokenFile="secret")])


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o777])
def test_a_secret_file_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    file = secret_file(tmp_path, mode=mode)
    with pytest.raises(ConfigError, match=rf"is open to others \(mode {mode:04o}\); run: chmod 600 {file}$"):
        load(overrides=[with_webhooks(tmp_path, signingSecretFile="secret")])


def test_a_credential_of_systemd_may_show_its_acl_as_group_bits(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    file = str(secret_file(credentials, mode=0o440))
    environment = {"CREDENTIALS_DIRECTORY": str(credentials)}
    config = load(overrides=[with_webhooks(tmp_path, signingSecretFile=file)], environment=environment)
    assert config.commerce.webhooks.signing_secret == SECRET
    for other in (tmp_path, tmp_path / "cred"):
        with pytest.raises(ConfigError, match="is open to others"):
            load(
                overrides=[with_webhooks(tmp_path, signingSecretFile=file)],
                environment={"CREDENTIALS_DIRECTORY": str(other)},
            )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"x" * 4097, "the file has more than 4096 bytes; it must contain only the secret"),
        (b"", "the file must have one line and contain only the secret"),
        (b"\xff" * 32, "the file must be UTF-8 text; the byte at offset 0 is not"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    secret_file(tmp_path, content)
    with pytest.raises(ConfigError, match=reason):
        load(overrides=[with_webhooks(tmp_path, signingSecretFile="secret")])


def test_a_missing_secret_file_is_refused_only_where_webhooks_are_enabled(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{tmp_path}/none cannot be read: No such file or directory"):
        load(overrides=[with_webhooks(tmp_path, signingSecretFile="none")])
    config = set_to("commerce.webhooks.signingSecretFile=none")
    assert config.commerce.webhooks.signing_secret == ""


def test_no_secret_shows_in_a_repr() -> None:
    shown = repr(load(overrides=[with_webhooks(Path(), manageToken=TOKEN, signingSecret=SECRET)]))
    assert TOKEN not in shown
    assert SECRET not in shown


@pytest.mark.parametrize(
    ("token", "secret", "problem"),
    [
        (TOKEN, SECRET, None),
        ("", SECRET, "[commerce.webhooks] manageToken must have at least 32 characters and has 0"),
        (TOKEN, SECRET[1:], "[commerce.webhooks] signingSecret must have at least 32 characters and has 31"),
        (TOKEN, TOKEN, "[commerce.webhooks] manageToken and signingSecret must differ"),
        (
            "t t" * 32,
            SECRET,
            "[commerce.webhooks] manageToken must be printable ASCII without blanks, to fit into a header",
        ),
    ],
)
def test_webhooks_that_cannot_work_say_why(token: str, secret: str, problem: str | None) -> None:
    config = load(overrides=[with_webhooks(Path(), manageToken=token, signingSecret=secret)])
    assert config.commerce.problem == problem


def test_webhooks_that_nobody_wants_are_no_problem() -> None:
    assert Commerce().problem is None


@pytest.mark.parametrize(
    ("previous", "problem"),
    [
        ("", None),
        (SECRET[:-1] + "!", None),
        ("short", "[commerce.webhooks] previousSigningSecret must have at least 32 characters, or none"),
        (TOKEN, "[commerce.webhooks] manageToken and previousSigningSecret must differ"),
    ],
)
def test_a_previous_secret_is_as_good_as_the_present_one(previous: str, problem: str | None) -> None:
    settings = with_webhooks(Path(), manageToken=TOKEN, signingSecret=SECRET, previousSigningSecret=previous)
    assert load(overrides=[settings]).commerce.problem == problem


# Several merchants

BOOKS = """
[[commerce.merchants]]
name = "books"
tokenFile = "books-token"
signingSecretFile = "books-secret"
"""


def merchants_in(folder: Path, text: str = "", **secrets: str) -> Config:
    """A configuration with the merchant "books", what ``text`` adds, and these contents of files."""
    for name, content in {"books_token": "b" * 32, "books_secret": "c" * 32, **secrets}.items():
        file = folder / name.replace("_", "-")
        file.touch(mode=0o600)
        file.write_text(content)
    return from_text(folder, f"dataDir = '{folder}'\n{BOOKS}\n{text}\n[commerce.webhooks]\nenabled = true\n")


def test_listed_merchants_need_no_other(tmp_path: Path) -> None:
    config = merchants_in(tmp_path, 'previousSigningSecretFile = "old"', old="o" * 32)
    assert config.commerce.problem is None
    (books,) = config.commerce.all_merchants
    assert (books.name, books.token, books.signing_secret) == ("books", "b" * 32, "c" * 32)
    assert books.previous_signing_secret == "o" * 32
    for secret in ("b" * 32, "c" * 32, "o" * 32):
        assert secret not in repr(config)


def test_a_merchant_has_a_previous_token_with_an_end_and_a_read_only_one(tmp_path: Path) -> None:
    text = 'previousTokenFile = "old"\npreviousTokenUntil = {}\nreadOnlyTokenFile = "reader"'
    for until in ('"2026-12-01T01:00:00+01:00"', "2026-12-01T00:00:00Z"):
        (books,) = merchants_in(tmp_path, text.format(until), old="o" * 32, reader="r" * 32).commerce.all_merchants
        assert (books.previous_token, books.read_only_token) == ("o" * 32, "r" * 32)
        assert books.previous_token_until == "2026-12-01T00:00:00Z"
    assert unix_milliseconds(books.previous_token_until) == 1_796_083_200_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('previousTokenFile = "old"', 'previousTokenFile = "old": needs previousTokenUntil, the time at which'),
        ('previousTokenUntil = "2026-12-01T00:00:00"', "must be a date and time with its offset, such as"),
        (
            'previousTokenUntil = "2026-12-01T00:00:00Z"',
            'previousTokenUntil = "2026-12-01T00:00:00Z": ends no token, because none is given: remove it, or give',
        ),
        ('previousTokenUntil = "soon"', "must be a date and time with its offset, such as"),
        ("previousTokenUntil = 7", "must be a date and time with its offset, such as"),
    ],
)
def test_a_previous_token_without_an_end_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        merchants_in(tmp_path, text, old="o" * 32)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("short", "the readOnlyToken of the merchant books must have at least 32 characters and has 5"),
        ("t t" * 32, "the readOnlyToken of the merchant books must be printable ASCII without blanks, to fit into"),
        ("b" * 32, "the readOnlyToken of the merchant books must differ from the token of the merchant books"),
    ],
)
def test_a_read_only_token_is_a_token_of_its_own(tmp_path: Path, content: str, problem: str) -> None:
    config = merchants_in(tmp_path, 'readOnlyTokenFile = "reader"', reader=content)
    assert (config.commerce.problem or "").startswith(problem)


def test_the_one_token_goes_on_as_the_merchant_default(tmp_path: Path) -> None:
    config = merchants_in(tmp_path)
    secrets = {"SVCD_COMMERCE_WEBHOOKS_MANAGE_TOKEN": TOKEN, "SVCD_COMMERCE_WEBHOOKS_SIGNING_SECRET": SECRET}
    config = load(tmp_path / "svcd.toml", environment=secrets)
    assert [merchant.name for merchant in config.commerce.all_merchants] == ["default", "books"]
    assert (config.commerce.all_merchants[0].token, config.commerce.all_merchants[0].signing_secret) == (TOKEN, SECRET)
    assert config.commerce.problem is None
    assert [merchant.name for merchant in load().commerce.all_merchants] == ["default"]


def test_links_of_the_site_have_the_recipients_of_the_merchants(tmp_path: Path) -> None:
    books, own = f'recipients = ["{SHOP}"]', OTHER_SHOP
    assert merchants_in(tmp_path, books).link_recipients == {SHOP}
    assert merchants_in(tmp_path).link_recipients == frozenset(), "it may be paid at any address"
    token = f'{books}\n[[commerce.merchants]]\nname = "b"\ntokenFile = "b-token"\nsigningSecretFile = "b-secret"'
    both = merchants_in(tmp_path, token, b_token="d" * 32, b_secret="e" * 32)
    assert both.link_recipients == frozenset()
    listed = f'{token}\n[pages]\nrecipients = ["{own}"]\nreturnHosts = ["Shop.example:8443"]'
    config = merchants_in(tmp_path, listed, b_token="d" * 32, b_secret="e" * 32)
    assert config.link_recipients == {own}
    assert config.pages.return_hosts == ("shop.example:8443",)
    named = merchants_in(tmp_path, f'{books}\n[pages.shopNames]\n{SHOP} = "Tea & Cake ☕"')
    assert named.pages.shop_names == {SHOP: "Tea & Cake ☕"}
    assert load().link_recipients == frozenset()


@pytest.mark.parametrize(
    ("text", "secrets", "problem"),
    [
        ("", {"books_token": "short"}, "the token of the merchant books must have at least 32 characters and has 5"),
        (
            "",
            {"books_secret": "short"},
            "the signingSecret of the merchant books must have at least 32 characters and has 5",
        ),
        (
            "",
            {"books_token": "t t" * 32},
            "the token of the merchant books must be printable ASCII without blanks, to fit into a header",
        ),
        (
            "",
            {"books_secret": "b" * 32},
            "the signingSecret of the merchant books must differ from the token of the merchant books",
        ),
        ('previousSigningSecretFile = "books-secret"', {}, None),
        (
            'previousSigningSecretFile = "old"',
            {"old": "b" * 32},
            "the previousSigningSecret of the merchant books must differ from the token of the merchant books",
        ),
        (
            BOOKS.replace("books", "music"),
            {"music_token": "m" * 32, "music_secret": "c" * 32},
            "the signingSecret of the merchant music must differ from the signingSecret of the merchant books",
        ),
        (
            BOOKS.replace("books", "music"),
            {"music_token": "b" * 32, "music_secret": "n" * 32},
            "the token of the merchant music must differ from the token of the merchant books",
        ),
    ],
)
def test_merchants_that_could_be_taken_for_each_other_are_a_problem(
    tmp_path: Path, text: str, secrets: dict[str, str], problem: str | None
) -> None:
    assert merchants_in(tmp_path, text, **secrets).commerce.problem == problem


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('name = "books"', "", "[[commerce.merchants]] number 1, name is missing"),
        ('name = "books"', 'name = "Books"', 'number 1, name = "Books": must be 1 to 32 lower-case letters, digits'),
        ('"books-token"', "3", "[[commerce.merchants]] number 1, tokenFile = 3: must be a string in quotes"),
        ("tokenFile", "token", "[[commerce.merchants]] number 1, token is not known; did you mean tokenFile?"),
        ("\n[[", f"{BOOKS}\n[[", 'number 2, name = "books": another merchant has this name'),
        (
            'name = "books"',
            'name = "books"\nrecipients = ["svcd1nonsense"]',
            'number 1, recipients = ["svcd1nonsense"]: each recipient must be an address of this network: 43 ',
        ),
        (BOOKS, "[commerce]\nmerchants = ['x']", '[[commerce.merchants]] number 1 = "x": must be a section with keys'),
        (BOOKS, "[commerce.merchants]\nname = 'x'", "[commerce] merchants = (not shown): must be sections, each with"),
        (
            BOOKS,
            BOOKS * (MerchantSettings.MAX_SECTIONS + 1),
            f"[commerce] merchants = (not shown): there must be at most {MerchantSettings.MAX_SECTIONS}",
        ),
    ],
)
def test_a_wrong_merchant_is_named_by_its_number(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert sentence in refusal(tmp_path, BOOKS.replace(old, new, 1))


def test_two_merchants_named_default_are_refused(tmp_path: Path) -> None:
    renamed = BOOKS.replace('"books"', '"default"')
    assert from_text(tmp_path, renamed).commerce.all_merchants[0].name == "default"
    assert refusal(tmp_path, f"{renamed}\n[commerce.webhooks]\nsigningSecretFile = 'x'").endswith(
        'number 1, name = "default": the settings of [commerce.webhooks] are those of this merchant'
    )


def test_a_secret_file_of_a_merchant_is_guarded_like_the_others(tmp_path: Path) -> None:
    merchants_in(tmp_path)
    (tmp_path / "books-token").chmod(0o640)
    with pytest.raises(ConfigError, match=r"number 1, tokenFile = \"books-token\": .* is open to others \(mode 0640\)"):
        load(tmp_path / "svcd.toml")
    (tmp_path / "books-token").unlink()
    with pytest.raises(ConfigError, match=r"number 1, tokenFile = .* cannot be read: No such file"):
        load(tmp_path / "svcd.toml")
    off = from_assignment("commerce.webhooks.enabled=false")
    assert load(tmp_path / "svcd.toml", overrides=[off]).commerce.problem is None
