"""Which addresses are this machine's own: asked of the kernel, in a network where the test may add one."""

import os
import subprocess
import sys
from ipaddress import ip_address

import pytest

from svcd.net.addresses import AddressPolicy
from svcd.net.own_addresses import OwnAddresses
from tests.programs import needs

OWN = "198.41.0.200"
ASKING = f"""
from ipaddress import ip_address
from svcd.net.addresses import AddressPolicy, BadAddress
from svcd.net.own_addresses import OwnAddresses
try:
    AddressPolicy(own=OwnAddresses()).check(ip_address("{OWN}"))
except BadAddress as error:
    print(error)
"""
# In a namespace: to every other program on the machine its network would seem to have changed.
WITH_THE_ADDRESS = f'ip link set lo up && ip address add {OWN}/32 dev lo && exec "$0" -c "$1"'
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a network of its own")


@needs_root
@needs("ip", "unshare")
@pytest.mark.socket
def test_an_address_of_an_interface_is_our_own() -> None:
    command = ["unshare", "--net", "sh", "-c", WITH_THE_ADDRESS, sys.executable, ASKING]
    asked = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert asked.stdout == f"{OWN} is an address of this node\n"


@pytest.mark.parametrize("address", [OWN, "2606:4700::6810:84e5"])
def test_addresses_of_others_are_not(address: str) -> None:
    assert ip_address(address) not in OwnAddresses()
    AddressPolicy(own=OwnAddresses()).check(ip_address(address))


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.1"])
def test_what_is_not_public_has_rules_of_its_own(address: str) -> None:
    assert ip_address(address) not in OwnAddresses([ip_address(address)])


def test_an_address_that_only_the_router_knows_is_named() -> None:
    assert ip_address(OWN) in OwnAddresses([ip_address(OWN)])
