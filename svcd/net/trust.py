"""TLS trust: the certificate authorities of the system, and those in one more file if the operator configures it."""

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

_NO_ROOTS: Final = trustRootFromCertificates([])


@implementer(IPolicyForHTTPS)
class Trust:
    """Makes TLS connections that verify the certificate: signed by an authority in ``context``, for the host's name.

    Twisted's own policy loads the system's authorities again for every host, which blocks the reactor for some
    milliseconds and takes more than half a MiB. Here they are loaded once and shared.
    """

    def __init__(self, context: SSL.Context) -> None:
        self._context = context

    def creatorForNetloc(self, hostname: bytes, port: int) -> "_SharedContext":
        """Return the creator of connections to ``hostname``; raises ValueError for an invalid name (IDNA)."""
        by_name = optionsForClientTLS(hostname.decode("ascii"), trustRoot=_NO_ROOTS)
        return _SharedContext(by_name, self._context)


@implementer(IOpenSSLClientConnectionCreator)
class _SharedContext:
    # Any: mypy takes a zope interface's first parameter for self.
    def __init__(self, by_name: Any, context: SSL.Context) -> None:
        self._by_name = by_name
        self._context = context

    def clientConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Return a connection that verifies the host's name, in the shared context instead of an empty one.

        ClientTLSOptions of Twisted 26.10.0 verifies by a callback of the connection, not of its context, so that
        `set_context` of pyOpenSSL keeps it.
        """
        connection: SSL.Connection = self._by_name.clientConnectionForTLS(protocol)
        connection.set_context(self._context)
        return connection


class TrustError(ValueError):
    """A file of certificates cannot be used; the text is a sentence for the operator."""


def load_trust(extra_ca_file: Path | None = None) -> Trust:
    """Trust the authorities of the system, and those in a PEM file; raises TrustError."""
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
        raise TrustError(f"{path} must contain certificates in PEM form ({error})") from error
    return [crypto.X509.from_cryptography(certificate) for certificate in certificates]
