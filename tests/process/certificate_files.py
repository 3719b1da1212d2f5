"""Key and certificate of an `ssl:` endpoint, in files that a test renews."""

import os
import time
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from twisted.internet.endpoints import quoteStringArgument

from svcd.endpoint_description import EndpointDescription
from svcd.process.certificates import ServerCertificate, ServerCertificates
from tests.net.certificates import Signed, make_authority, sign


class CertificateFiles:
    """The files in a folder; ``authority`` has signed the certificate."""

    def __init__(self, folder: Path, *, days: int = 90) -> None:
        folder.mkdir()
        self.later = 0.0
        """By how many seconds the clock of the node is ahead."""
        self.authority = make_authority("The authority of the tests")
        self.certificate, self.key = folder / "cert.pem", folder / "key.pem"
        self.signed = self.write(days=days)

    def write(self, *, days: int, begins: int = -1, chain: bool = False) -> Signed:
        """A new pair, valid from and up to so many days from now; with the authority behind it in a ``chain``."""
        signed = self.signed = sign("localhost", "127.0.0.1", by=self.authority, days=(begins, days))
        self._replace(self.certificate, signed.pem + (self.authority.pem if chain else b""))
        self.write_key(signed)
        return signed

    def write_key(self, signed: Signed) -> None:
        pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
        self._replace(self.key, signed.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))

    @property
    def ends(self) -> str:
        """The end of the certificate in Unix milliseconds."""
        return str(int(self.signed.certificate.not_valid_after_utc.timestamp() * 1000))

    def endpoint(self, port: int = 0) -> str:
        key, certificate = quoteStringArgument(str(self.key)), quoteStringArgument(str(self.certificate))
        return f"ssl:{port}:interface=127.0.0.1:privateKey={key}:certKey={certificate}"

    def loaded(self) -> ServerCertificates:
        """As a node has it, which listens there."""
        endpoint = self.endpoint()
        arguments = EndpointDescription.parse(endpoint).arguments
        return ServerCertificates({endpoint: ServerCertificate(endpoint, arguments)}, lambda: time.time() + self.later)

    def arguments(self) -> str:
        """What an endpoint with TLS has besides its address."""
        return self.endpoint().partition("127.0.0.1:")[2]

    def _replace(self, path: Path, content: bytes) -> None:
        """As programs that renew certificates do: another file takes the name."""
        new = path.with_suffix(".new")
        new.write_bytes(content)
        os.replace(new, path)
