"""A machine's own public addresses, with a second one that it has for the test where root may give it one."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from svcd.net.addresses import AddressPolicy, BadAddress
from svcd.net.own import OwnAddresses

PUBLIC = "198.41.0.200"
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="only root can give the machine an address, with iproute2"
)


@pytest.fixture
def _has_a_public_address() -> Iterator[None]:
    subprocess.run(["ip", "address", "add", f"{PUBLIC}/32", "dev", "lo"], check=True)
    yield
    subprocess.run(["ip", "address", "del", f"{PUBLIC}/32", "dev", "lo"], check=True)


@needs_root
@pytest.mark.usefixtures("_has_a_public_address")
def test_an_address_of_an_interface_is_our_own() -> None:
    assert ip_address(PUBLIC) in OwnAddresses()
    with pytest.raises(BadAddress, match=rf"^{PUBLIC} is an address of this node$"):
        AddressPolicy(own=OwnAddresses()).check(ip_address(PUBLIC))


@pytest.mark.parametrize("address", [PUBLIC, "2606:4700::6810:84e5"])
def test_addresses_of_others_are_not(address: str) -> None:
    assert ip_address(address) not in OwnAddresses()
    AddressPolicy(own=OwnAddresses()).check(ip_address(address))


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.1"])
def test_what_is_not_public_has_rules_of_its_own(address: str) -> None:
    assert ip_address(address) not in OwnAddresses([ip_address(address)])


def test_an_address_that_only_the_router_knows_is_named() -> None:
    assert ip_address(PUBLIC) in OwnAddresses([ip_address(PUBLIC)])
