"""Which addresses may be called: every network at both its ends, and one address beyond each."""

from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.net.addresses import (
    AddressPolicy,
    BadAddress,
    category_of,
    ipv4_inside,
    may_be_translated,
    parse_literal,
    text_of,
    untranslated,
)

PUBLIC = AddressPolicy()
LENIENT = AddressPolicy(allow_private=True)

NEVER = {
    "0.0.0.0/8": "reserved",
    "100.64.0.0/10": "reserved",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "reserved",
    "192.31.196.0/24": "reserved",
    "192.52.193.0/24": "reserved",
    "192.88.99.0/24": "reserved",
    "192.175.48.0/24": "reserved",
    "198.18.0.0/15": "reserved",
    "198.51.100.0/24": "reserved",
    "203.0.113.0/24": "reserved",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
    "169.254.169.254/32": "metadata",
    "169.254.170.2/32": "metadata",
    "169.254.170.23/32": "metadata",
    "192.0.0.192/32": "metadata",
    "168.63.129.16/32": "metadata",
    "100.100.100.200/32": "metadata",
    "::/128": "reserved",
    "::2/127": "embedded-ipv4",
    "::ffff:0:0/96": "embedded-ipv4",
    "::ffff:0:0:0/96": "embedded-ipv4",
    "64:ff9b:1::/48": "embedded-ipv4",
    "2001::/32": "embedded-ipv4",
    "2002::/16": "embedded-ipv4",
    "2001:2::/48": "reserved",
    "2001:1ff::/32": "reserved",
    "2001:db8::/32": "reserved",
    "2620:4f:8000::/48": "reserved",
    "3fff::/20": "reserved",
    "4000::/3": "reserved",
    "1fff::/16": "reserved",
    "5f00::/16": "reserved",
    "100::/64": "reserved",
    "fec0::/10": "reserved",
    "ff00::/8": "multicast",
    "fd00:ec2::254/128": "metadata",
    "fd00:ec2::23/128": "metadata",
    "fd20:ce::254/128": "metadata",
}
PRIVATE = {
    "10.0.0.0/8": "private",
    "172.16.0.0/12": "private",
    "192.168.0.0/16": "private",
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local",
    "::1/128": "loopback",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
}
ALWAYS = [
    "1.0.0.0",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "191.255.255.255",
    "192.0.1.0",
    "192.0.3.0",
    "192.31.195.255",
    "192.31.197.0",
    "192.52.192.255",
    "192.52.194.0",
    "192.88.98.255",
    "192.88.100.0",
    "192.167.255.255",
    "192.169.0.0",
    "192.175.47.255",
    "192.175.49.0",
    "198.17.255.255",
    "198.20.0.0",
    "198.51.99.255",
    "198.51.101.0",
    "203.0.112.255",
    "203.0.114.0",
    "223.255.255.255",
    "168.63.129.15",
    "168.63.129.17",
    "2000::",
    "2001:200::",
    "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
    "2001:db9::",
    "2001:ffff::",
    "2003::",
    "2606:4700::1111",
    "2620:4f:7fff::",
    "2620:4f:8001::",
    "3ffe:ffff::",
    "3fff:1000::",
]


def ends(network: str) -> list[str]:
    parsed: IPv4Network | IPv6Network = ip_network(network)
    return [str(parsed[0]), str(parsed[-1])]


@pytest.mark.parametrize("policy", [PUBLIC, LENIENT])
@pytest.mark.parametrize(
    ("address", "category"), [(end, category) for network, category in NEVER.items() for end in ends(network)]
)
def test_a_special_address_may_never_be_called(policy: AddressPolicy, address: str, category: str) -> None:
    with pytest.raises(BadAddress) as refused:
        policy.check(ip_address(address))
    assert refused.value.category == category
    assert str(refused.value).startswith(f"{text_of(ip_address(address))} ")


@pytest.mark.parametrize(
    ("address", "category"), [(end, category) for network, category in PRIVATE.items() for end in ends(network)]
)
def test_a_private_address_may_be_called_if_the_operator_says_so(address: str, category: str) -> None:
    LENIENT.check(ip_address(address))
    with pytest.raises(BadAddress) as refused:
        PUBLIC.check(ip_address(address))
    assert refused.value.category == category


@pytest.mark.parametrize("policy", [PUBLIC, LENIENT])
@pytest.mark.parametrize("address", ALWAYS)
def test_a_public_address_may_be_called(policy: AddressPolicy, address: str) -> None:
    policy.check(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "2606:4700::5efe:127.0.0.1",
        "2606:4700::200:5efe:10.0.0.1",
        "fe80::5efe:192.168.0.1",
    ],
)
def test_an_ipv4_address_in_an_interface_id_is_found(address: str) -> None:
    with pytest.raises(BadAddress) as refused:
        LENIENT.check(ip_address(address))
    assert refused.value.category == "embedded-ipv4"


def test_an_interface_id_that_only_looks_alike_is_no_ipv4_address() -> None:
    LENIENT.check(ip_address("2606:4700::1:5efe:7f00:1"))


def test_a_scope_id_is_refused() -> None:
    with pytest.raises(BadAddress) as refused:
        LENIENT.check(ip_address("fe80::1%eth0"))
    assert refused.value.category == "scope"


@pytest.mark.parametrize("allow_private", [False, True])
def test_the_node_does_not_call_itself(allow_private: bool) -> None:
    own = frozenset(map(ip_address, ("198.41.0.4", "192.168.1.7", "2606:4700::7")))
    policy = AddressPolicy(allow_private=allow_private, own=own)
    for address in own:
        with pytest.raises(BadAddress) as refused:
            policy.check(address)
        assert refused.value.category == "own"
    policy.check(ip_address("198.41.0.5"))


# Networks that the operator names

SETTING = "[commerce.webhooks] callbackNetworks"
EVERYWHERE = AddressPolicy(
    networks=(ip_network("0.0.0.0/0"), ip_network("::/0")),
    setting=SETTING,
    own=frozenset(map(ip_address, ("198.41.0.4", "2606:4700::7"))),
)
"""Every network is named; what it refuses is refused always."""


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("198.41.0.4", "198.41.0.4/32"),
        ("2606:4700::7", "2606:4700::/64"),
        ("203.0.113.7", "203.0.113.7/32"),
        ("100.64.0.1", "100.64.0.0/10"),
        ("10.1.2.3", "10.1.2.0/24"),
        ("127.0.0.1", "127.0.0.1/32"),
        ("169.254.7.7", "169.254.0.0/16"),
        ("::1", "::1/128"),
        ("fd12::7", "fd12::/64"),
        ("fe80::7", "fe80::/64"),
    ],
)
def test_a_named_network_is_admitted_and_nothing_beyond(address: str, network: str) -> None:
    EVERYWHERE.check(ip_address(address))
    named = AddressPolicy(networks=(ip_network(network),), setting=SETTING, own=EVERYWHERE.own)
    named.check(ip_address(address))
    elsewhere = AddressPolicy(networks=(ip_network("10.1.3.0/24"),), setting=SETTING, own=EVERYWHERE.own)
    with pytest.raises(BadAddress) as refused:
        elsewhere.check(ip_address(address))
    assert refused.value.setting == SETTING


@pytest.mark.parametrize(
    "address",
    [
        *(end for network, category in NEVER.items() if category != "reserved" for end in ends(network)),
        *("2606:4700::5efe:127.0.0.1", "fe80::1%eth0"),
    ],
)
def test_no_name_admits_metadata_multicast_or_a_hidden_address(address: str) -> None:
    with pytest.raises(BadAddress) as refused:
        EVERYWHERE.check(ip_address(address))
    assert refused.value.setting == ""


def test_a_host_that_is_a_literal_is_checked_and_a_name_passes() -> None:
    PUBLIC.check_host("shop.example.com")
    PUBLIC.check_host("2606:4700::1111")
    with pytest.raises(BadAddress):
        PUBLIC.check_host("127.0.0.1")
    with pytest.raises(BadAddress):
        PUBLIC.check_host("::ffff:7f00:1")


@given(st.ip_addresses(v=6))
def test_the_text_of_an_address_is_read_as_that_address_and_is_short(address: IPv6Address) -> None:
    text = text_of(address)
    assert IPv6Address(text) == address
    assert text == text.lower()
    # Apart from the addresses that hold an IPv4 one, all versions of Python agree.
    if address.ipv4_mapped is None:
        assert text == str(address)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("1:0:0:0:2:0:0:3", "1::2:0:0:3"),
        ("2001:db8:1:0:0:0:0:1", "2001:db8:1::1"),
        ("1:2:0:0:3:4:5:6", "1:2::3:4:5:6"),
        ("1:2:0:3:4:5:6:7", "1:2:0:3:4:5:6:7"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("8.8.8.8", "8.8.8.8"),
    ],
)
def test_the_longest_run_of_zeros_is_left_out(address: str, text: str) -> None:
    assert text_of(ip_address(address)) == text


def test_the_sentence_of_a_refusal_and_its_setting() -> None:
    with pytest.raises(BadAddress) as caught:
        PUBLIC.check(ip_address("10.0.0.1"))
    assert str(caught.value) == "10.0.0.1 is an address of a private network"
    assert BadAddress(ip_address("10.0.0.1"), "private").setting == ""


# Translators (NAT64)


@pytest.mark.parametrize(
    ("address", "could_be"),
    [
        ("2606:4700::1111", True),
        ("fd00::1", True),
        ("64:ff9b:1::1", True),
        ("64:ff9b::808:808", False),
        ("fe80::1", False),
        ("8.8.8.8", False),
    ],
)
def test_an_address_that_could_be_below_a_translator_s_prefix(address: str, could_be: bool) -> None:
    assert may_be_translated(ip_address(address)) is could_be


RFC_6052 = {
    "2001:db8::/32": "2001:db8:c000:221::",
    "2001:db8:100::/40": "2001:db8:1c0:2:21::",
    "2001:db8:122::/48": "2001:db8:122:c000:2:2100::",
    "2001:db8:122:300::/56": "2001:db8:122:3c0:0:221::",
    "2001:db8:122:344::/64": "2001:db8:122:344:c0:2:2100::",
    "2001:db8:122:344::/96": "2001:db8:122:344::192.0.2.33",
}
"""RFC 6052 section 2.4: 192.0.2.33 under a prefix of every length."""


@pytest.mark.parametrize(("prefix", "address"), RFC_6052.items())
def test_the_examples_of_rfc_6052(prefix: str, address: str) -> None:
    assert ipv4_inside(ip_address(address), IPv6Network(prefix)) == ip_address("192.0.2.33")
    assert ipv4_inside(ip_address("2001:db9::"), IPv6Network(prefix)) is None
    assert ipv4_inside(ip_address("192.0.2.33"), IPv6Network(prefix)) is None


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("64:ff9b::808:808", "8.8.8.8"),
        ("2a02:898:146:64::808:808", "8.8.8.8"),
        ("2a02:898:146:65::808:808", "2a02:898:146:65::808:808"),
        ("64:ff9b::7f00:1", "64:ff9b::7f00:1"),
        ("2a02:898:146:64::a00:1", "2a02:898:146:64::a00:1"),
        ("2606:4700::1111", "2606:4700::1111"),
        ("8.8.8.8", "8.8.8.8"),
    ],
)
def test_a_public_host_behind_a_translator_counts_by_its_ipv4_address(address: str, counted: str) -> None:
    assert untranslated(ip_address(address), [IPv6Network("2a02:898:146:64::/96")]) == ip_address(counted)


TRANSLATORS = [
    *["64:ff9b::/96", "64:ff9b:1::/48", "64:ff9b:1:fffe::/64", "64:ff9b:1:2::/96"],
    *["2a02:898::/32", "2a02:898:100::/40", "2a02:898:146::/48", "2a02:898:146:100::/56", "2a02:898:146:64::/64"],
    "2a02:898:146:64::/96",
]
INSIDE = {
    "10.1.2.3": "private",
    "172.16.0.1": "private",
    "192.168.0.1": "private",
    "127.0.0.1": "loopback",
    "169.254.1.1": "link-local",
    "169.254.169.254": "metadata",
    "169.254.170.2": "metadata",
    "192.0.0.192": "metadata",
    "168.63.129.16": "metadata",
    "100.100.100.200": "metadata",
    "100.64.0.1": "reserved",
    "224.0.0.1": "multicast",
    "198.41.0.200": "own",
}
TRANSLATED_OWN = frozenset({ip_address("198.41.0.200")})


def translated(ipv4: str, prefix: str) -> IPv6Address:
    """What a translator with ``prefix`` makes of an IPv4 address, with RFC 6052's rules written the other way round."""
    network = IPv6Network(prefix)
    octets = network.network_address.packed
    if network.prefixlen == 96:
        return IPv6Address(octets[:12] + ip_address(ipv4).packed)
    filled = octets[: network.prefixlen // 8] + ip_address(ipv4).packed
    return IPv6Address((filled[:8] + b"\0" + filled[8:]).ljust(16, b"\0"))


@pytest.mark.parametrize("allow_private", [False, True])
@pytest.mark.parametrize("prefix", TRANSLATORS)
@pytest.mark.parametrize("ipv4", INSIDE)
def test_behind_a_translator_the_ipv4_address_counts(ipv4: str, prefix: str, allow_private: bool) -> None:
    policy = AddressPolicy(allow_private=allow_private, own=TRANSLATED_OWN)
    policy.check(translated("8.8.8.8", prefix), [IPv6Network(prefix)])
    address = translated(ipv4, prefix)
    if allow_private and INSIDE[ipv4] == "private":
        policy.check(address, [IPv6Network(prefix)])
        return
    with pytest.raises(BadAddress) as refused:
        policy.check(address, [IPv6Network(prefix)])
    assert refused.value.category == INSIDE[ipv4]
    assert str(refused.value).startswith(f"{text_of(address)} leads by NAT64 to {ipv4}, which is ")


@pytest.mark.parametrize("ipv4", INSIDE)
def test_behind_a_translator_a_network_is_named_by_its_ipv4_addresses(ipv4: str) -> None:
    prefix = IPv6Network("2a02:898:146:64::/96")
    policy = AddressPolicy(networks=(IPv4Network("0.0.0.0/0"),), setting=SETTING, own=TRANSLATED_OWN)
    address = translated(ipv4, str(prefix))
    if INSIDE[ipv4] in ("private", "reserved", "own"):
        policy.check(address, [prefix])
        with pytest.raises(BadAddress) as refused:
            AddressPolicy(setting=SETTING, own=TRANSLATED_OWN).check(address, [prefix])
        assert refused.value.setting == SETTING
        return
    with pytest.raises(BadAddress) as refused:
        policy.check(address, [prefix])
    assert (refused.value.category, refused.value.setting) == (INSIDE[ipv4], "")


def test_the_well_known_prefix_need_not_be_discovered() -> None:
    PUBLIC.check(translated("8.8.8.8", "64:ff9b::/96"))
    for ipv4, category in INSIDE.items():
        with pytest.raises(BadAddress) as refused:
            AddressPolicy(own=TRANSLATED_OWN).check(translated(ipv4, "64:ff9b::/96"))
        assert refused.value.category == category


@pytest.mark.parametrize("policy", [PUBLIC, LENIENT])
@pytest.mark.parametrize("known", [[], ["64:ff9b:1:3::/96"], ["2a02:898:146:64::/96"]])
def test_a_local_prefix_that_was_not_discovered_is_refused(policy: AddressPolicy, known: list[str]) -> None:
    with pytest.raises(BadAddress) as refused:
        policy.check(translated("8.8.8.8", "64:ff9b:1:2::/96"), map(IPv6Network, known))
    assert refused.value.category == "embedded-ipv4"


@pytest.mark.parametrize(
    ("prefix", "category"),
    [
        ("fd00:64::/96", "private"),
        ("fe80::/96", "link-local"),
        ("ff02::/96", "multicast"),
        ("::ffff:0:0/96", "embedded-ipv4"),
        ("2002::/32", "embedded-ipv4"),
    ],
)
def test_no_prefix_makes_a_special_address_public(prefix: str, category: str) -> None:
    """The answer of a name server must not open the operator's own networks."""
    with pytest.raises(BadAddress) as refused:
        PUBLIC.check(translated("8.8.8.8", prefix), [IPv6Network(prefix)])
    assert refused.value.category == category


def test_a_private_prefix_hides_no_metadata() -> None:
    prefix = IPv6Network("fd00:64::/96")
    LENIENT.check(translated("8.8.8.8", "fd00:64::/96"), [prefix])
    with pytest.raises(BadAddress) as refused:
        LENIENT.check(translated("169.254.169.254", "fd00:64::/96"), [prefix])
    assert refused.value.category == "metadata"


@given(st.ip_addresses())
def test_addresses_that_python_calls_private_are_not_public(address: object) -> None:
    """The standard library's list is no substitute for ours, yet nothing on it is missing here."""
    literal = parse_literal(str(address))
    assert literal is not None
    if not literal.is_global or literal.is_multicast:
        assert category_of(literal) != "public"
