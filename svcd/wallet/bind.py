"""Where a receiver of callbacks listens: an address, a port, and the certificate for TLS."""

import re
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificates
from twisted.internet.ssl import CertificateOptions

from svcd.wallet.disk import read_bounded
from svcd.wallet.failed import Failed

_PLACE: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)):([0-9]{1,5})")
_MAX_PEM_BYTES: Final = 256 * 1024


@frozen
class Bind:
    """The address and port to listen at; port 0 takes a free one."""

    host: str
    port: int

    def url(self, port: int, scheme: str) -> str:
        """What callbacks are sent to."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}/"


def bind(text: str) -> Bind:
    """The place in ``127.0.0.1:8080`` or ``[::1]:8080``; raises ValueError."""
    match = _PLACE.fullmatch(text)
    try:
        if match is not None and int(match[3]) <= 65535:
            address = ip_address(match[1] or match[2])
            # An IPv4-mapped address is the same place, and Python's versions differ in how they write it.
            mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
            return Bind(str(mapped or address), int(match[3]))
    except ValueError:
        pass
    raise ValueError("must be an address and a port, such as 127.0.0.1:8080 or [::1]:8080")


def tls_options(certificate: Path, key: Path) -> CertificateOptions:
    """What a TLS server listens with, from PEM files; certificates after the first are its chain. Raises Failed."""
    try:
        first, *chain = load_pem_x509_certificates(read_bounded(certificate, _MAX_PEM_BYTES))
    except ValueError:
        raise Failed(f"{certificate} holds no certificate in PEM form that can be read") from None
    try:
        private = load_pem_private_key(read_bounded(key, _MAX_PEM_BYTES), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Failed(f"{key} holds no private key in PEM form without a password") from None
    if private.public_key() != first.public_key():
        raise Failed(f"the key in {key} is not that of the first certificate in {certificate}")
    # Any: Twisted's annotations know only the types of pyOpenSSL, which takes these as well.
    given: dict[str, Any] = {"privateKey": private, "certificate": first, "extraCertChain": chain}
    return CertificateOptions(acceptableProtocols=[b"http/1.1"], **given)
