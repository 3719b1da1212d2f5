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
from svcd.process.endpoints import server_endpoint
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
    certificate = the_one(certificates)
    ends = certificate.loaded.ends
    assert ends - time.time() == pytest.approx(90 * DAY, abs=600)
    assert certificate.alarm(ends - 14 * DAY - 1) == ""
    assert certificate.alarm(ends - 14 * DAY) == (
        f"the certificate {files.certificate} ends in less than 14 days: renew it"
    )
    assert certificate.alarm(ends - 3 * DAY).endswith("ends in less than 3 days: renew it")
    files.later = 91 * DAY
    assert certificates.alarm().endswith("has ended: clients refuse it")
    files.write(days=200)
    renew(certificates)
    assert certificates.alarm() == ""


@pytest.mark.parametrize(
    ("days", "begins", "why"), [(-1, -30, "has ended"), (60, 1, "is not valid yet")], ids=["ended", "not begun"]
)
def test_a_valid_certificate_stays_in_the_place_of_one_that_clients_refuse(
    files: CertificateFiles, logged: Callable[[], list[str]], days: int, begins: int, why: str
) -> None:
    """As when the links of a program that renews certificates lead to an old pair."""
    certificates = files.loaded()
    before = the_one(certificates).getContext()
    files.write(days=days, begins=begins)
    for _ in range(3):
        renew(certificates)
    assert the_one(certificates).getContext() is before
    assert logged() == [
        "the certificate in use stays, because the new one cannot be used: "
        f"{files.certificate} {why}, and the certificate in use is valid"
    ]
    with pytest.raises(CertificateError, match=why):
        certificates.load()
    files.later = 2 * DAY
    renew(certificates)
    assert (the_one(certificates).getContext() is before) == (why == "has ended"), "by then the other one has begun"


def test_among_certificates_that_have_ended_the_newest_is_used(files: CertificateFiles) -> None:
    """At least its key is the one that the operator means."""
    files.write(days=-10, begins=-30)
    certificates = files.loaded()
    before = the_one(certificates).getContext()
    files.write(days=-1, begins=-30)
    renew(certificates)
    assert the_one(certificates).getContext() is not before


def test_a_clock_that_is_ahead_replaces_no_certificate_by_one_that_ends_earlier(files: CertificateFiles) -> None:
    certificates = files.loaded()
    before = the_one(certificates).getContext()
    files.later = 91 * DAY
    files.write(days=-1, begins=-30)
    renew(certificates)
    files.later = 0
    renew(certificates)
    assert the_one(certificates).getContext() is before


@pytest.mark.socket
@pytest.mark.parametrize("chain", [False, True])
async def test_each_connection_gets_the_newest_certificate(files: CertificateFiles, chain: bool) -> None:
    files.write(days=90, chain=chain)
    certificates = files.loaded()
    factory = Factory.forProtocol(Protocol)
    factory.noisy = False
    (endpoint,) = certificates.by_endpoint
    server = server_endpoint(reactor, endpoint, the_one(certificates))
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
