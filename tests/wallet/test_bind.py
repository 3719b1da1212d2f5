"""Where a receiver listens."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from svcd.wallet.bind import Bind, bind, tls_options
from svcd.wallet.failed import Failed
from tests.net.certificates import Signed, make_authority, sign


@pytest.mark.parametrize(
    ("text", "place", "url"),
    [
        ("127.0.0.1:8080", Bind("127.0.0.1", 8080), "http://127.0.0.1:9/"),
        ("0.0.0.0:0", Bind("0.0.0.0", 0), "http://0.0.0.0:9/"),  # noqa: S104
        ("[::ffff:127.0.0.1]:8080", Bind("127.0.0.1", 8080), "http://127.0.0.1:9/"),
        ("[::1]:65535", Bind("::1", 65535), "http://[::1]:9/"),
    ],
)
def test_a_place(text: str, place: Bind, url: str) -> None:
    assert bind(text) == place
    assert place.url(9, "http") == url


@pytest.mark.parametrize(
    "text", ["", "8080", "127.0.0.1", "::1:8080", "[127.0.0.1", "1.2.3:80", "localhost:80", "1.2.3.4:65536"]
)
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 127\.0\.0\.1:8080 or \[::1\]:8080"):
        bind(text)


def write_key(path: Path, signed: Signed, password: bytes | None = None) -> Path:
    """The private key as a PEM file."""
    sealed = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(signed.key.private_bytes(pem, pkcs8, sealed))
    return path


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate with its chain; the key is beside it."""
    authority = make_authority("An authority")
    signed = sign("localhost", by=authority)
    write_key(tmp_path / "key.pem", signed)
    path = tmp_path / "certificate.pem"
    path.write_bytes(signed.pem + authority.pem)
    return path


def test_a_certificate_with_its_chain(certificate: Path) -> None:
    options = tls_options(certificate, certificate.parent / "key.pem")
    assert len(options.extraCertChain) == 1
    options.getContext()


def test_files_that_do_not_fit(certificate: Path, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    with pytest.raises(Failed, match=r"key\.pem holds no certificate in PEM form"):
        tls_options(key, key)
    with pytest.raises(Failed, match=r"certificate\.pem holds no private key in PEM form without a password"):
        tls_options(certificate, certificate)
    with pytest.raises(Failed, match="cannot be read: no such file or directory"):
        tls_options(tmp_path / "gone.pem", key)
    other = write_key(tmp_path / "other.pem", make_authority("Another one"))
    with pytest.raises(Failed, match=r"the key in .*other\.pem is not that of the first certificate"):
        tls_options(certificate, other)
    sealed = write_key(tmp_path / "sealed.pem", make_authority("A third one"), b"password")
    with pytest.raises(Failed, match="without a password"):
        tls_options(certificate, sealed)
