"""The form of the settings, and the button that tries them."""

import json
import logging
import re
import socket
import ssl
import time
from contextlib import suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Event, Thread

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding, NoEncryption, PrivateFormat,
)
from django.db import OperationalError
from django.utils.timezone import now
from pretix.base.models import LogEntry
from svc_pay import DEVNET, Client, NodeUnreachable

from pretix_svc_pay import node, views
from pretix_svc_pay.node import open_transport

from .running import ORGANIZER, free_port, fresh_key


@pytest.fixture
def form(shop, devnet):
    """``form(button, field=value…)`` submits the form of right settings with these changes: what the page says then."""
    browser = shop.staff()
    url = f"/control/event{shop.base}settings/payment/svc_pay"

    def submit(button="test", **changes):
        values = {
            "_enabled": "on", "node_url": devnet.url, "public_node_url": devnet.url,
            "token": devnet.secret("manage-token"), "signing_secret": devnet.secret("signing-secret"),
            "recipient": ORGANIZER.address(DEVNET), "confirmations": "3", "minutes": "60", "rate": "0.48",
            "rate_url": "", "rate_path": "", "rate_max_age": "60", "network": "", "_restrict_to_sales_channels": "web",
            **changes,
        }
        target = f"/control/event{shop.base}svc_pay/test/" if button == "test" else url
        given = {f"payment_svc_pay_{name}": value for name, value in values.items() if value is not None}
        return browser.post(target, given, follow=True).content.decode()

    submit.get = lambda: browser.get(url).content.decode()
    return submit


def test_right_settings(form):
    page = form()
    for sentence in (
        "The node answers, and knows the address.",
        "The node accepts the management token.",
        "The public URL leads to a node of this network.",
        "The events of the node arrive, and are signed with the right secret.",
        "At 0.48 EUR for a coin, 1 EUR is 2.08333334 SVC.",
    ):
        assert sentence in page
    assert "alert-danger" not in page


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"token": "t" * 40}, "The node refuses the management token"),
        ({"signing_secret": "s" * 40}, "its signing secret is another one"),
        ({"node_url": None}, "This field is required."),
        ({"node_url": "node.example"}, "the URL of a node begins with http:// or https://"),
        ({"node_url": "http://node.example"}, "the token would cross the network unencrypted"),
        ({"public_node_url": "http://127.0.0.1:1"}, "so buyers get a button that does nothing"),
        ({"recipient": "svcd1nobody"}, "address"),
        ({"recipient": fresh_key().address(DEVNET)}, None),
        ({"rate": "0"}, "0 is not a rate: give a number above 0 with a point, such as 0.48."),
        ({"rate": "0,48"}, "0,48 is not a rate: give a number above 0 with a point, such as 0.48."),
        ({"rate": ""}, "Give a fixed rate, such as 0.48, or the URL of a rate."),
        ({"rate": "", "rate_url": "https://rates.example/", "rate_path": ""}, "The path of the rate in the JSON is missing."),
        ({"rate_url": "https://rates.example/", "rate_path": "EUR"}, "Give a fixed rate or a URL, not both."),
        ({"rate": "", "rate_url": "http://127.0.0.1:1/", "rate_path": "EUR"}, "There is no rate, so nothing is sold for coins"),
        ({"network": "{}"}, "network"),
        ({"confirmations": "0"}, "greater than or equal to 1"),
    ],
)
def test_wrong_settings(form, changes, sentence):
    page = form(**changes)
    if sentence is None:
        # One coin is enough for a new address.
        assert "The node answers, and knows the address." in page
    else:
        assert sentence in page
        assert "alert-danger" in page or "has-error" in page


def test_a_node_that_is_not_there(form):
    assert "The node does not answer, so nothing else of it was tried" in form(node_url=f"http://127.0.0.1:{free_port()}")


def test_a_url_that_is_not_a_nodes(form, shop, devnet):
    for url in (f"{devnet.url}/explorer", f"{shop.url}{shop.base}".rstrip("/")):
        page = form(node_url=url, public_node_url=url)
        sentence = re.escape(url) + r" does not answer like a svcd node \(status 40[45]\): check the URL\."
        said = re.findall(r"[^<>]*(?:cannot be used|a button that does nothing)[^<>]*", page)
        assert len(said) == 2
        assert all(re.search(sentence, each) for each in said), said


def test_secrets_are_on_no_page_and_in_no_log(form, shop, devnet, caplog):
    secrets = [devnet.secret("manage-token"), devnet.secret("signing-secret")]
    pages = [form("save"), form(), form("save", recipient="nobody"), form(token="t" * 40), form.get()]
    secrets.append("t" * 40)
    logged = LogEntry.objects.filter(event=shop.event)
    for entry in logged:
        pages.append(entry.data)
    changed = [json.loads(entry.data)["new_values"] for entry in logged.filter(action_type="pretix.event.payment.provider")]
    assert "********" in [values.get("payment_svc_pay_token") for values in changed]
    pages.append(caplog.text)
    for secret in secrets:
        assert not any(secret in page for page in pages)


def test_the_form_keeps_secrets_that_were_not_typed_again(form, shop, devnet):
    form("save")
    form("save", token="*****", signing_secret="*****", minutes="30")
    shop.event.settings.flush()
    settings = shop.event.settings
    assert settings.payment_svc_pay_token == devnet.secret("manage-token")
    assert settings.payment_svc_pay_signing_secret == devnet.secret("signing-secret")
    assert settings.payment_svc_pay_minutes == "30"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://10.0.0.7", "http://[::1]:1", "http://localhost:1"])
def test_private_networks_need_the_word_of_the_administrator(settings, url):
    settings.ALLOW_HTTP_TO_PRIVATE_NETWORKS = False
    with httpx.Client(transport=open_transport(url)) as client:
        with pytest.raises(httpx.ConnectError, match="allow_http_to_private_networks"):
            client.get(url)
    settings.ALLOW_HTTP_TO_PRIVATE_NETWORKS = True
    assert open_transport(url) is None


def test_a_private_node_and_a_private_rate_are_not_called(form, settings):
    settings.ALLOW_HTTP_TO_PRIVATE_NETWORKS = False
    page = form()
    assert "The node does not answer, so nothing else of it was tried" in page
    assert "the host is in a private network" in page
    page = form(rate="", rate_url="https://localhost/", rate_path="EUR")
    assert "the server of the rate does not answer: the host is in a private network" in page


class Answering(BaseHTTPRequestHandler):
    """Answers every request, and keeps what was asked."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers["Host"]))
        body = b'{"EUR": 0.48}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    """An HTTP server on this computer."""
    server = HTTPServer(("127.0.0.1", 0), Answering)
    server.asked = []
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def names(monkeypatch):
    """A name server that answers each question about example.org with the next one of these addresses."""
    answers, look_up = [], socket.getaddrinfo

    def answer(host, *given, **named):
        return look_up(answers.pop(0) if host == "shop.example.org" else host, *given, **named)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    # 127.0.0.1 is the only address here that can be called, so it stands for a public one.
    monkeypatch.setattr(node, "should_block_access", lambda address: (address[0] != "127.0.0.1", None))
    return answers


def test_the_address_that_was_checked_is_the_one_that_is_called(settings, server, names):
    settings.ALLOW_HTTP_TO_PRIVATE_NETWORKS = False
    url = f"http://shop.example.org:{server.server_port}/rate"
    names += ["127.0.0.1", "127.0.0.2"]
    with httpx.Client(transport=open_transport(url)) as client:
        assert client.get(url).status_code == 200
    assert names == ["127.0.0.2"]
    assert server.asked == [("/rate", f"shop.example.org:{server.server_port}")]
    with httpx.Client(transport=open_transport(url)) as client:
        with pytest.raises(httpx.ConnectError, match="private network"):
            client.get(url)
    assert len(server.asked) == 1


@pytest.mark.parametrize(("name", "right"), [("shop.example.org", True), ("other.example.org", False)])
def test_a_certificate_is_checked_against_the_name(settings, server, names, monkeypatch, tmp_path, name, right):
    settings.ALLOW_HTTP_TO_PRIVATE_NETWORKS = False
    key = ec.generate_private_key(ec.SECP256R1())
    owner = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder().subject_name(owner).issuer_name(owner).public_key(key.public_key())
        .serial_number(1).not_valid_before(now() - timedelta(days=1)).not_valid_after(now() + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False).sign(key, hashes.SHA256())
    )
    (tmp_path / "certificate").write_bytes(certificate.public_bytes(Encoding.PEM))
    (tmp_path / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate"))
    url = f"https://shop.example.org:{server.server_port}/"
    names.append("127.0.0.1")
    with httpx.Client(transport=open_transport(url)) as client:
        if right:
            assert client.get(url).status_code == 200
        else:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                client.get(url)


@pytest.mark.parametrize("proxied", [False, True])
def test_a_server_that_sends_byte_after_byte_does_not_hold_a_worker(settings, names, monkeypatch, proxied):
    """The timeouts of httpx are for single steps, of which an endless header has any number."""
    settings.ALLOW_HTTP_TO_PRIVATE_NETWORKS = False
    over = Event()

    def drip(listener):
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-A: ")
            while not over.wait(0.05):
                connection.sendall(b"a")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=drip, args=[listener])
        thread.start()
        url = f"http://shop.example.org:{listener.getsockname()[1]}"
        if proxied:
            monkeypatch.setenv("http_proxy", f"127.0.0.1:{listener.getsockname()[1]}")
        names.append("127.0.0.1")
        began = time.monotonic()
        with Client(url, timeout=0.5, transport=open_transport(url)) as client:
            with pytest.raises(NodeUnreachable):
                client.block_hash(1)
        assert time.monotonic() - began < 10
        over.set()
        thread.join()


def test_a_proxy_decides_which_addresses_are_called(settings, server, monkeypatch):
    settings.ALLOW_HTTP_TO_PRIVATE_NETWORKS = False
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{server.server_port}")
    monkeypatch.setenv("no_proxy", "localhost")
    with httpx.Client(transport=open_transport("http://node.invalid/")) as client:
        assert client.get("http://node.invalid/a").status_code == 200
    assert server.asked == [("http://node.invalid/a", "node.invalid")]
    with httpx.Client(transport=open_transport("http://localhost/")) as client:
        with pytest.raises(httpx.ConnectError, match="private network"):
            client.get("http://localhost/")


def test_the_key_in_the_url_of_a_rate_is_in_no_log(shop, server, caplog):
    shop.set(rate="", rate_url=f"http://127.0.0.1:{server.server_port}/?key=a-secret-key", rate_path="EUR")
    with caplog.at_level(logging.DEBUG):
        assert shop.attempt(shop.order()).rate == "0.48"
    assert server.asked
    assert "perform_order" in caplog.text
    assert "a-secret-key" not in caplog.text


@pytest.mark.parametrize(("node_url", "codes"), [("", 1), ("http://127.0.0.1:8645", 1), ("https://node.example", 2)])
def test_an_order_begins_with_the_way_to_pay_that_works_in_every_browser(make_shop, node_url, codes):
    shop = make_shop(public_node_url=node_url)
    browser = shop.browser()
    order = shop.order(browser)
    page = browser.get(f"{shop.base}order/{order.code}/{order.secret}/").content.decode()
    # A phone without a wallet app opens the code of a page, and this computer is no page to it.
    assert page.count("svc-pay-code") == codes
    assert ("Pay with your browser" in page, "<summary>Pay with a wallet app</summary>" in page) == (node_url != "",) * 2
    if node_url:
        assert page.index("Pay with your browser") < page.index("svc-pay-code")
        assert page.index("Pay with a wallet app</summary>") < page.index("Open your wallet")


def test_the_page_of_an_order_may_ask_the_node_and_no_other(make_shop):
    shop = make_shop(public_node_url="https://node.example/behind/a/path/")
    browser = shop.browser()
    order = shop.order(browser)
    policy = browser.get(f"{shop.base}order/{order.code}/{order.secret}/").headers["Content-Security-Policy"]
    allowed = next(part.split()[1:] for part in policy.split(";") if part.split()[0] == "connect-src")
    assert [source for source in allowed if "node.example" in source] == ["https://node.example"]
    assert "data-node-url=\"https://node.example/behind/a/path/rpc/commerce/payment/" in shop.page


def test_nothing_is_sold_without_a_rate(make_shop):
    shop = make_shop(rate="", rate_url="http://127.0.0.1:1/", rate_path="EUR")
    order = shop.order()
    assert order.payments.get().state == "failed"
    assert "There is no current rate for coins" in shop.page


def test_an_event_that_finds_the_database_locked_is_sent_again(shop, devnet, monkeypatch):
    attempt, taken, take = shop.attempt(shop.order()), [], views.take

    def locked_once(attempt, event):
        taken.append(event.name)
        if len(taken) == 1:
            raise OperationalError("database is locked")
        return take(attempt, event)

    monkeypatch.setattr(views, "take", locked_once)
    shop.pay(attempt)
    shop.becomes(attempt, "n", "pending")
    assert taken[:2] == ["payment.pending"] * 2
