"""A certificate is renewed while the node listens, and a broken one is never used."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.threads import deferToThread
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from svcd.node.threads import InlineWorker
from svcd.process.certificates import CertificateError, ServerCertificate, ServerCertificates
from svcd.process.endpoints import ServerEndpoints
from tests.process.certificate_files import CertificateFiles
from tests.support import result_of

DAY = 86_400


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(tmp_path / "tls")


@pytest.fixture
def logged() -> Iterator[Callable[[], list[str]]]:
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    yield lambda: [formatEvent(event) for event in events]
    globalLogPublisher.removeObserver(events.append)


def the_one(certificates: ServerCertificates) -> ServerCertificate:
    (certificate,) = certificates.by_endpoint.values()
    return certificate


def renew(certificates: ServerCertificates) -> None:
    result_of(Deferred.fromCoroutine(certificates.renew(InlineWorker())))


def test_changed_files_are_loaded_once(files: CertificateFiles, logged: Callable[[], list[str]]) -> None:
    certificates = files.loaded()
    before = the_one(certificates).getContext()
    renew(certificates)
    assert the_one(certificates).getContext() is before
    files.write(days=60)
    renew(certificates)
    after = the_one(certificates).getContext()
    assert after is not before
    renew(certificates)
    assert the_one(certificates).getContext() is after
    assert logged() == [f"the certificate {files.certificate} has been renewed"]


def test_a_broken_pair_leaves_the_old_one_and_is_logged_once(
    files: CertificateFiles, logged: Callable[[], list[str]]
) -> None:
    certificates, old = files.loaded(), files.signed
    before = the_one(certificates).getContext()
    # The new certificate, and the key not yet.
    new = files.write(days=60)
    files.write_key(old)
    for _ in range(3):
        renew(certificates)
    assert the_one(certificates).getContext() is before
    (line,) = logged()
    assert line.startswith("the certificate in use stays, because the new one cannot be used: ")
    files.write_key(new)
    renew(certificates)
    assert the_one(certificates).getContext() is not before


def test_a_missing_file_is_logged_once_each_time_it_goes(
    files: CertificateFiles, logged: Callable[[], list[str]]
) -> None:
    certificates = files.loaded()
    before = the_one(certificates).getContext()
    certificate = Path(files.certificate)
    away = certificate.with_suffix(".away")
    for times in (1, 2):
        certificate.rename(away)
        for _ in range(3):
            renew(certificates)
        assert len(logged()) == times
        assert logged()[-1].endswith("no such file or directory")
        away.rename(certificate)
        renew(certificates)
    assert the_one(certificates).getContext() is before


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (lambda files: files.key.unlink(), "key.pem: no such file or directory"),
        (lambda files: files.key.write_text("no key"), "are no certificate and its key in PEM"),
        (lambda files: files.certificate.write_text(""), "are no certificate and its key in PEM"),
        (lambda files: files.write_key(CertificateFiles(files.key.parent / "other").signed), "key values mismatch"),
    ],
)
def test_an_unusable_certificate_has_one_sentence(
    files: CertificateFiles, broken: Callable[[CertificateFiles], object], why: str
) -> None:
    broken(files)
    with pytest.raises(CertificateError, match=why):
        files.loaded()


def test_an_alarm_comes_14_and_3_days_before_the_end(files: CertificateFiles) -> None:
    certificates = files.loaded()
    ends = the_one(certificates).loaded.ends
    assert ends - time.time() == pytest.approx(90 * DAY, abs=600)
    assert certificates.alarm(ends - 14 * DAY - 1) == ""
    assert (
        certificates.alarm(ends - 14 * DAY)
        == f"the certificate {files.certificate} ends in less than 14 days: renew it"
    )
    assert certificates.alarm(ends - 3 * DAY).endswith("ends in less than 3 days: renew it")
    assert certificates.alarm(ends).endswith("has ended: clients refuse it")
    files.write(days=200)
    renew(certificates)
    assert certificates.alarm(ends) == ""


@pytest.mark.socket
@pytest.mark.parametrize("chain", [False, True])
async def test_each_connection_gets_the_newest_certificate(files: CertificateFiles, chain: bool) -> None:
    files.write(days=90, chain=chain)
    certificates = files.loaded()
    factory = Factory.forProtocol(Protocol)
    factory.noisy = False
    (endpoint,) = certificates.by_endpoint
    server = ServerEndpoints(reactor, [endpoint]).server(endpoint, the_one(certificates))
    port = await server.listen(factory)
    context = ssl.create_default_context(cadata=files.authority.pem.decode())

    def certificate_of_server() -> tuple[bytes, int]:
        address = "127.0.0.1", port.getHost().port
        with (
            socket.create_connection(address, timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            sent = getattr(tls._sslobj, "get_unverified_chain", list)()
            return tls.getpeercert(binary_form=True) or b"", len(sent)

    try:
        first, sent = await deferToThread(certificate_of_server)
        assert ssl.DER_cert_to_PEM_cert(first).encode() == files.signed.pem
        # Python 3.13 and newer show what the server has sent.
        assert sent in (0, 2 if chain else 1)
        files.write(days=60, chain=chain)
        await certificates.renew(InlineWorker())
        second, _ = await deferToThread(certificate_of_server)
        assert ssl.DER_cert_to_PEM_cert(second).encode() == files.signed.pem
        assert first != second
    finally:
        await port.stopListening()
