"""Endpoints with TLS whose certificate is renewed while the node listens (docs/operations.md "Certificates").

Twisted reads the files of an endpoint once. Here each connection takes the newest certificate that was loaded. A pair
of files that cannot be used leaves the last one in place, and so does a certificate that clients refuse while they
accept the last one.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from attrs import define, field, frozen
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificates
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLContextFactory
from twisted.internet.ssl import CertificateOptions, DiffieHellmanParameters
from twisted.logger import Logger
from twisted.python.filepath import FilePath
from zope.interface import implementer  # type: ignore[import-untyped]

from svcd.interfaces import Worker

CHECK_SECONDS: Final = 60.0
"""Seconds from one look at the files to the next."""
WARN_DAYS: Final = (3, 14)
"""How many days before the end of a certificate its alarms begin, the last one first."""
_DAY: Final = 86_400
_MORE: Final = ("extraCertChain", "dhParameters")
"""The arguments with further files."""


class CertificateError(Exception):
    """A key or certificate cannot be used; the text is one clause that says which and why."""


@frozen
class LoadedCertificate:
    """A certificate with its key, ready for use."""

    context: SSL.Context
    begins: float
    """The beginning of its validity in Unix seconds."""
    ends: float
    """The end of it in Unix seconds."""
    files: Sequence[tuple[int, int, int]]
    """What the files were when they were read; another file, or a newer one, differs in it."""

    def is_valid(self, now: float) -> bool:
        """Whether it has begun and has not ended at ``now``, in Unix seconds."""
        return self.begins <= now < self.ends


@implementer(IOpenSSLContextFactory)
@define(eq=False)
class ServerCertificate:
    """The certificate of one endpoint with TLS; also the context factory of that endpoint.

    ``endpoint`` is its description, and ``arguments`` has the arguments of that by name.

    Raises:
        CertificateError: the files cannot be used.
    """

    endpoint: str
    arguments: Mapping[str, str]
    loaded: LoadedCertificate = field(init=False)
    _refused: object = field(init=False, default=None)
    """The state of files that could not be used, or why there is none."""

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.loaded = self.load()

    @property
    def key_file(self) -> str:
        """The path of the private key; Twisted's default is for an endpoint that names none."""
        return self.arguments.get("privateKey", "server.pem")

    @property
    def certificate_file(self) -> str:
        """The path of the certificate, which may be in the file of the key."""
        return self.arguments.get("certKey", self.key_file)

    def getContext(self) -> SSL.Context:  # noqa: N802
        """The context for the next connection (twisted.internet.interfaces.IOpenSSLContextFactory)."""
        return self.loaded.context

    def load(self) -> LoadedCertificate:
        """Read the files; blocks, and changes nothing. Raises CertificateError."""
        try:
            files = self._files()
            certificate, *chain = load_pem_x509_certificates(_read(self.certificate_file))
            if "extraCertChain" in self.arguments:
                chain = load_pem_x509_certificates(_read(self.arguments["extraCertChain"]))
            key: Any = load_pem_private_key(_read(self.key_file), None)
            own: Any = certificate
            others: Any = chain
            options = CertificateOptions(key, own, extraCertChain=others, **self._more_options())
            context = options.getContext()
        except OSError as error:
            raise CertificateError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from error
        except (SSL.Error, UnsupportedAlgorithm, TypeError, ValueError) as error:
            raise CertificateError(
                f"{self.certificate_file} and {self.key_file} are no certificate and its key in PEM ({_reason(error)})"
            ) from error
        begins, ends = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
        return LoadedCertificate(context, begins, ends, files)

    def load_better(self, now: float) -> LoadedCertificate:
        """Read the files again; blocks, and changes nothing.

        Raises CertificateError, also if the new one is not valid at ``now``, in Unix seconds, while the one in use is
        valid or ends later: a clock that is ahead must not replace a certificate by an older one.
        """
        loaded = self.load()
        if not loaded.is_valid(now) and (self.loaded.is_valid(now) or loaded.ends < self.loaded.ends):
            what = "has ended" if now >= loaded.ends else "is not valid yet"
            better = "is valid" if self.loaded.is_valid(now) else "ends later"
            raise CertificateError(f"{self.certificate_file} {what}, and the certificate in use {better}")
        return loaded

    def use(self, loaded: LoadedCertificate) -> bool:
        """Use a certificate for new connections; whether it is another one than before."""
        changed, self.loaded = loaded.files != self.loaded.files, loaded
        return changed

    def renew(self, now: float) -> LoadedCertificate | None:
        """The certificate if the files have changed since it was loaded, else None; blocks.

        Files that cannot be used at ``now``, in Unix seconds, are logged once, and tried again: a program that renews a
        certificate writes key and certificate one after the other.
        """
        files: object
        try:
            files = self._files()
        except OSError as error:
            files = str(error)
        if files == self.loaded.files:
            self._refused = None
            return None
        is_logged, self._refused = files == self._refused, files
        try:
            loaded = self.load_better(now)
        except CertificateError as error:
            if not is_logged:
                self._log.warn(
                    "the certificate in use stays, because the new one cannot be used: {why}", why=str(error)
                )
            return None
        self._refused = None
        return loaded

    def alarm(self, now: float) -> str:
        """A sentence if the certificate ends soon or has ended at ``now``, in Unix seconds; "" if not."""
        remaining = self.loaded.ends - now
        if remaining <= 0:
            return f"the certificate {self.certificate_file} has ended: clients refuse it"
        for days in WARN_DAYS:
            if remaining <= days * _DAY:
                return f"the certificate {self.certificate_file} ends in less than {days} days: renew it"
        return ""

    def _more_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if "sslmethod" in self.arguments:
            options["method"] = getattr(SSL, self.arguments["sslmethod"])
        if "dhParameters" in self.arguments:
            options["dhParameters"] = DiffieHellmanParameters.fromFile(  # type: ignore[no-untyped-call]
                FilePath(self.arguments["dhParameters"])
            )
        return options

    def _files(self) -> list[tuple[int, int, int]]:
        paths = [
            self.key_file,
            self.certificate_file,
            *(self.arguments[name] for name in _MORE if name in self.arguments),
        ]
        status = [os.stat(path) for path in paths]
        return [(each.st_ino, each.st_mtime_ns, each.st_size) for each in status]


@frozen
class ServerCertificates:
    """The certificates of all endpoints with TLS, by the descriptions of these."""

    by_endpoint: Mapping[str, ServerCertificate]
    now: Callable[[], float]
    """The Unix time in seconds."""

    _log: ClassVar[Logger] = Logger()

    def load(self) -> Sequence[LoadedCertificate]:
        """Read all files again; blocks, and changes nothing. Raises CertificateError as :meth:`load_better` does."""
        return [each.load_better(self.now()) for each in self.by_endpoint.values()]

    def use(self, loaded: Sequence[LoadedCertificate]) -> list[ServerCertificate]:
        """Use what :meth:`load` has returned; returns those that are other ones than before."""
        pairs = zip(self.by_endpoint.values(), loaded, strict=True)
        return [certificate for certificate, new in pairs if certificate.use(new)]

    async def renew(self, worker: Worker) -> None:
        """Use the certificates whose files have changed, which are read in ``worker``."""
        for each in self.by_endpoint.values():
            loaded = await worker.run(each.renew, self.now())
            if loaded is not None and each.use(loaded):
                self._log.info("the certificate {file} has been renewed", file=each.certificate_file)

    def alarm(self) -> str:
        """A sentence about a certificate that ends soon or has ended; "" for none."""
        return next((alarm for each in self.by_endpoint.values() if (alarm := each.alarm(self.now()))), "")


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _reason(error: Exception) -> str:
    """The library's own words, of which OpenSSL has a list of (library, function, reason)."""
    found = error.args[0] if error.args else ""
    if isinstance(found, list):
        return ", ".join(str(each[-1]) for each in found) or "no reason is known"
    return str(found) or type(error).__name__
