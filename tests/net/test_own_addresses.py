"""Which addresses are this machine's own: asked of the kernel, in a network where the test may add some."""

import errno
import os
import socket
import subprocess
import sys
from ipaddress import ip_address

import pytest

from svcd.net.addresses import AddressPolicy
from svcd.net.own_addresses import OwnAddresses
from tests.programs import needs

OWN, OWN_6 = "198.41.0.200", "2a00:1450::1"
OTHERS = ["8.8.8.8", "198.41.0.210", "2606:4700::6810:84e5", "2a00:1450::9"]
# In a namespace: to every other program on the machine its network would seem to have changed.
NETWORK = """
set -e
echo $0 >/proc/sys/net/ipv4/ip_nonlocal_bind
echo $0 >/proc/sys/net/ipv6/ip_nonlocal_bind
ip link set lo up
ip link add cable type veth peer name end
ip link set cable up
ip link set end up
ip route add default dev cable
ip -6 route add default dev cable
exec "$@"
"""
ASKING = """
import os, subprocess, sys
from ipaddress import ip_address
from svcd.net.addresses import AddressPolicy, BadAddress
from svcd.net.own_addresses import OwnAddresses

policy = AddressPolicy(own=OwnAddresses())
for word in sys.argv[1:]:
    if word.startswith("ip "):
        subprocess.run(word, shell=True, check=True)
        continue
    os.seteuid(65534)
    try:
        policy.check(ip_address(word))
        print(word)
    except BadAddress as error:
        print(error)
    os.seteuid(0)
"""
WAYS = {
    "the first of a network": (OWN, f"ip address add {OWN}/24 dev cable"),
    "another of a network": (OWN, f"ip address add 198.41.0.1/24 dev cable && ip address add {OWN}/24 dev cable"),
    "keepalived's": (OWN, f"ip address add 198.41.0.1/24 dev cable && ip address add {OWN}/32 dev cable"),
    "on loopback": (OWN, f"ip address add {OWN}/32 dev lo"),
    "in a range": (OWN, f"ip route add local {OWN}/30 dev lo"),
    "the first of a network of IPv6": (OWN_6, f"ip address add {OWN_6}/64 dev cable nodad"),
    "another of a network of IPv6": (
        OWN_6,
        f"ip address add 2a00:1450::2/64 dev cable nodad && ip address add {OWN_6}/64 dev cable nodad",
    ),
    # It is no source of connections to others.
    "keepalived's of IPv6": (
        OWN_6,
        f"ip address add 2a00:1450::2/64 dev cable nodad && ip address add {OWN_6}/128 dev cable nodad preferred_lft 0",
    ),
    "on loopback of IPv6": (OWN_6, f"ip address add {OWN_6}/128 dev lo nodad"),
}
"""How an address may become the machine's."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a network of its own")
nonlocal_bind = pytest.mark.parametrize("nonlocal_bind", [False, True], ids=["usual", "nonlocal-bind"])


def asked(nonlocal_bind: bool, *words: str) -> list[str]:
    """The answers of a process without rights about addresses in a network of its own; other words are commands.

    With ``nonlocal_bind`` a socket can be bound to any address, as keepalived needs it.
    """
    command = ["unshare", "--net", "sh", "-c", NETWORK, f"{nonlocal_bind:d}", sys.executable, "-c", ASKING, *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout.splitlines()


@needs_root
@needs("ip", "unshare")
@pytest.mark.socket
@nonlocal_bind
@pytest.mark.parametrize("way", WAYS)
def test_an_address_of_an_interface_is_our_own(way: str, nonlocal_bind: bool) -> None:
    address, command = WAYS[way]
    assert asked(nonlocal_bind, address, command, address, *OTHERS) == [
        address,
        f"{address} is an address of this node",
        *OTHERS,
    ]


@needs_root
@needs("ip", "unshare")
@pytest.mark.socket
@nonlocal_bind
def test_an_address_that_moves_to_another_machine_and_back(nonlocal_bind: bool) -> None:
    add, remove = (f"ip address {what} {OWN}/32 dev cable" for what in ("add", "del"))
    own = f"{OWN} is an address of this node"
    assert asked(nonlocal_bind, add, OWN, remove, OWN, add, OWN) == [own, OWN, own]


@needs_root
@needs("ip", "unshare")
@pytest.mark.socket
def test_a_machine_without_ipv6_has_no_address_of_it() -> None:
    off = "ip link set lo down && echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6"
    assert asked(True, off, OWN_6, OWN) == [OWN_6, OWN]


def test_a_kernel_without_ipv6_has_no_address_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(family: int, _: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(socket, "socket", make)
    error = errno.EAFNOSUPPORT
    assert ip_address(OWN_6) not in OwnAddresses()
    # An address of our own must not be called because it could not be recognised.
    error = errno.EMFILE
    with pytest.raises(OSError, match="Too many open files"):
        assert ip_address(OWN_6) not in OwnAddresses()


@pytest.mark.parametrize("address", [OWN, "2606:4700::6810:84e5"])
def test_addresses_of_others_are_not(address: str) -> None:
    assert ip_address(address) not in OwnAddresses()
    AddressPolicy(own=OwnAddresses()).check(ip_address(address))


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.1"])
def test_addresses_that_are_not_public_are_no_own_addresses(address: str) -> None:
    assert ip_address(address) not in OwnAddresses([ip_address(address)])


def test_an_address_that_only_the_router_knows_is_named() -> None:
    assert ip_address(OWN) in OwnAddresses([ip_address(OWN)])
