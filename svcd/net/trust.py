"""Whose certificates are believed: those of the system's authorities, and of one more file if the operator says so."""

# mypy: allow-untyped-calls
# ruff: noqa: N802

from pathlib import Path
from typing import Any, Final, cast

from cryptography.x509 import load_pem_x509_certificates
from OpenSSL import SSL, crypto
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.ssl import CertificateOptions, optionsForClientTLS, platformTrust, trustRootFromCertificates
from twisted.protocols.tls import TLSMemoryBIOProtocol
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer  # type: ignore[import-untyped]

_NOBODY: Final = trustRootFromCertificates([])


@implementer(IPolicyForHTTPS)
class Trust:
    """Makes TLS connections whose certificate is checked: by an authority in ``context``, and for the host's name.

    Twisted's own policy loads the system's authorities again for every host, which holds up the reactor for some
    milliseconds and takes more than half a MiB. Here they are loaded once, and shared.
    """

    def __init__(self, context: SSL.Context) -> None:
        self._context = context

    def creatorForNetloc(self, hostname: bytes, port: int) -> "_SharedContext":
        """What makes connections to ``hostname``; raises ValueError for a name that breaks the rules of IDNA."""
        by_name = optionsForClientTLS(hostname.decode("ascii"), trustRoot=_NOBODY)
        return _SharedContext(by_name, self._context)


@implementer(IOpenSSLClientConnectionCreator)
class _SharedContext:
    # Any: mypy takes a zope interface's first parameter for self.
    def __init__(self, by_name: Any, context: SSL.Context) -> None:
        self._by_name = by_name
        self._context = context

    def clientConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """A connection that demands a certificate for the name, which so far nobody is trusted to have signed."""
        connection: SSL.Connection = self._by_name.clientConnectionForTLS(protocol)
        connection.set_context(self._context)
        return connection


class TrustError(ValueError):
    """The certificates of a file cannot be had; the text is a sentence for the operator."""


def load_trust(extra_ca_file: Path | None = None) -> Trust:
    """Trust in the authorities of the system, and in those of a PEM file; raises TrustError."""
    context = CertificateOptions(trustRoot=platformTrust()).getContext()
    store = cast(crypto.X509Store, context.get_cert_store())
    if extra_ca_file is not None:
        for certificate in _read_certificates(extra_ca_file):
            store.add_cert(certificate)
    return Trust(context)


def _read_certificates(path: Path) -> list[crypto.X509]:
    try:
        certificates = load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise TrustError(f"{path} must be a file that the node can read: {error.strerror}") from error
    except ValueError as error:
        raise TrustError(f"{path} must hold certificates in PEM form ({error})") from error
    return [crypto.X509.from_cryptography(certificate) for certificate in certificates]
