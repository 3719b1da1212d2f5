"""`svc webhook listen`: receives callbacks for testing, verifies, prints and acknowledges them until Ctrl-C."""

# Twisted's web server is not annotated, and its attributes use camelCase.
# mypy: allow-untyped-calls
# ruff: noqa: N815

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final

import click
from attrs import field, frozen
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificates
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.ssl import CertificateOptions
from twisted.web.resource import Resource

from svcd.cli import options
from svcd.cli.answers import ResponseObject, dumps, parse_object
from svcd.cli.errors import CommandError, NoValidResponse
from svcd.cli.merchant.story import subject_of
from svcd.cli.rendering import confirmations_of, format_time
from svcd.cli.secure_files import read_bounded, read_secret_line
from svcd.cli.session import Session
from svcd.commerce.signing import BadSignature, verify
from svcd.interfaces import Clock
from svcd.visible_text import visible
from svcd.web.connections import BodyCaps, SiteLimits, UnreadBudget
from svcd.web.rate_limits import Clients
from svcd.web.responses import HttpError, method_not_allowed
from svcd.web.site import Site
from svcd.web.slow_path import Request

MAX_BODY_BYTES: Final = 16 * 1024
"""Four times the size of a node's largest event."""
REMEMBERED_EVENTS: Final = 10_000
"""Event ids kept to detect repeated deliveries."""
MIN_SECRET: Final = 32
"""Characters in a node's signing secret, at least."""
DRAIN_SECONDS: Final = 2.0
"""How long open requests may take after Ctrl-C."""

_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)):([0-9]{1,5})")
_MAX_PEM_BYTES: Final = 256 * 1024
_OK: Final = b'{"ok":true}'


@frozen
class ListenAddress:
    """An IP address and a TCP port; port 0 chooses a free one."""

    host: str
    port: int

    def url(self, port: int, scheme: str) -> str:
        """The callback URL, with the actual ``port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}/"


def parse_listen_address(text: str) -> ListenAddress:
    """The address and port in ``127.0.0.1:8080`` or ``[::1]:8080``; raises ValueError."""
    match = _ADDRESS.fullmatch(text)
    try:
        if match is not None and int(match[3]) <= 65535:
            address = ip_address(match[1] or match[2])
            # Python versions differ in how they print IPv4-mapped addresses.
            mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
            return ListenAddress(str(mapped or address), int(match[3]))
    except ValueError:
        pass
    raise ValueError("must be an address and a port, such as 127.0.0.1:8080 or [::1]:8080")


def tls_options(certificate: Path, key: Path) -> CertificateOptions:
    """A TLS server's options from PEM files; further certificates are the chain. Raises CommandError."""
    try:
        first, *chain = load_pem_x509_certificates(read_bounded(certificate, _MAX_PEM_BYTES))
    except ValueError:
        raise CommandError(f"{certificate} does not contain a valid certificate in PEM format") from None
    try:
        private = load_pem_private_key(read_bounded(key, _MAX_PEM_BYTES), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise CommandError(f"{key} does not contain an unencrypted private key in PEM format") from None
    if private.public_key() != first.public_key():
        raise CommandError(f"the key in {key} does not belong to the first certificate in {certificate}")
    # Any: Twisted's annotations only allow the types of pyOpenSSL, but it takes these as well.
    given: dict[str, Any] = {"privateKey": private, "certificate": first, "extraCertChain": chain}
    return CertificateOptions(acceptableProtocols=[b"http/1.1"], **given)


class InvalidEvent(Exception):
    """The body is signed, but is not an event of svcd."""


@frozen
class ReceivedEvent:
    """The fields of an event that are printed, and its body."""

    id: str
    name: str
    payment: str
    """Reference, state and confirmations; empty for an event that is not about a payment."""
    subject: str
    """What a mismatched transfer or an alarm is about; empty for other events."""
    synced: bool
    """Whether the node's chain was the network's."""
    body: ResponseObject

    def line(self, now: float, *, repeated: bool) -> str:
        """The event in one line; ``now`` is the Unix time in seconds, ``repeated`` marks a repeated delivery."""
        notes = [self.subject, "" if self.synced else "the node is not synced", "again" if repeated else ""]
        parts = [format_time(int(now * 1000)), self.name, self.payment, self.id, *notes]
        return "  ".join(filter(None, parts))

    def json(self) -> str:
        """The body on one line, in ASCII."""
        return dumps(self.body)


def check_signature(body: bytes, *, timestamp: str, signature: str, secrets: Sequence[str], now: int) -> None:
    """Check that one of ``secrets`` signed ``body`` at about ``now``, in Unix seconds; raises BadSignature."""
    *others, last = secrets
    for secret in others:
        with suppress(BadSignature):
            verify(body, timestamp=timestamp, signature=signature, secret=secret, now=now)
            return
    verify(body, timestamp=timestamp, signature=signature, secret=last, now=now)


def parse_event(body: bytes, unit: str) -> ReceivedEvent:
    """The event in a signed body (docs/webhook-reference.md), with coins called ``unit``; raises InvalidEvent."""
    try:
        return _event(parse_object(body, "the body"), unit)
    except NoValidResponse as error:
        raise InvalidEvent(f"the body is signed but is not an event: {error}") from None


def _event(event: ResponseObject, unit: str) -> ReceivedEvent:
    name = event.text("event")
    return ReceivedEvent(
        id=event.text("id"),
        name=name,
        payment=_payment(event.object("payment")) if name.startswith("payment.") else "",
        subject=subject_of(event, unit),
        synced="node" not in event or event.object("node").flag("synced"),
        body=event,
    )


def _payment(payment: ResponseObject) -> str:
    confirmations = confirmations_of(payment.count("confirmations"), payment.count("requiredConfirmations"))
    return f"{payment.text('reference')}  {payment.text('state')} {confirmations}"


@frozen
class ListenerOutput:
    """Where received events and rejected callbacks are printed."""

    event: Callable[[ReceivedEvent, bool, float], None]
    """Called with an event, whether it is repeated, and the Unix time in seconds; may raise OSError."""
    rejected: Callable[[str], None]


class CallbackResource(Resource):
    """Answers POST requests: 200 to an event, 401 to a bad signature, 400 to a signed body that is not an event."""

    isLeaf = True

    def __init__(self, secrets: Sequence[str], *, unit: str, clock: Clock, output: ListenerOutput) -> None:
        super().__init__()
        self._secrets = secrets
        self._unit = unit
        self._clock = clock
        self._output = output
        self._seen: dict[str, None] = {}

    def render(self, request: Request) -> bytes:
        """Verify and print the event; raises HttpError."""
        if request.method != b"POST":
            raise method_not_allowed(["POST"])
        try:
            event = self._verified_event(request, request.content.read())
        except BadSignature as error:
            raise self._rejection(401, str(error)) from None
        except InvalidEvent as error:
            raise self._rejection(400, str(error)) from None
        repeated = event.id in self._seen
        try:
            self._output.event(event, repeated, self._clock.seconds())
        except OSError as error:
            raise HttpError(503, "the listener cannot print events any more; try again later") from error
        self._remember(event.id)
        request.setHeader(b"Content-Type", b"application/json")
        return _OK

    def _verified_event(self, request: Request, body: bytes) -> ReceivedEvent:
        timestamp, signature = (_single_header(request, name) for name in ("X-Svc-Timestamp", "X-Svc-Signature"))
        now = int(self._clock.seconds())
        check_signature(body, timestamp=timestamp, signature=signature, secrets=self._secrets, now=now)
        return parse_event(body, self._unit)

    def _rejection(self, status: int, sentence: str) -> HttpError:
        self._output.rejected(sentence)
        return HttpError(status, sentence)

    def _remember(self, event_id: str) -> None:
        self._seen[event_id] = None
        if len(self._seen) > REMEMBERED_EVENTS:
            del self._seen[next(iter(self._seen))]


def _single_header(request: Request, name: str) -> str:
    """The value of a header that occurs once, otherwise an empty string."""
    values = request.requestHeaders.getRawHeaders(name) or []
    return values[0] if len(values) == 1 else ""


def callback_site(callbacks: CallbackResource, *, clock: Clock, random: Callable[[int], bytes]) -> Site:
    """The web site for ``callbacks``, with bounded bodies, deadlines and JSON errors."""
    limits = SiteLimits(body_caps=BodyCaps(default=MAX_BODY_BYTES))
    # Any: mypy does not see that a class provides a zope interface.
    root: Any = callbacks
    return Site(
        root, limits=limits, unread=UnreadBudget(), clients=Clients(), clock=clock, new_id=lambda: random(8).hex()
    )


@frozen
class CallbackListener:
    """One run of a listener at an address, with TLS or without."""

    address: ListenAddress
    tls: CertificateOptions | None
    _stopped: "Deferred[None]" = field(init=False, factory=Deferred)

    async def run(self, reactor: Any, site: Site, started: Callable[[str], None]) -> None:
        """Serve until cancelled or :meth:`stop`; ``started`` receives the URL. Raises CommandError."""
        port = self._listen(reactor, site)
        try:
            started(self.address.url(port.getHost().port, "http" if self.tls is None else "https"))
            with suppress(CancelledError):
                await self._stopped
        finally:
            await maybeDeferred(port.stopListening)
            await site.drain(DRAIN_SECONDS)

    def stop(self, failure: Exception | None = None) -> None:
        """End the run, which then raises ``failure`` if given."""
        if not self._stopped.called:
            self._stopped.callback(None) if failure is None else self._stopped.errback(failure)

    def _listen(self, reactor: Any, site: Site) -> Any:
        host, port = self.address.host, self.address.port
        try:
            if self.tls is None:
                return reactor.listenTCP(port, site, interface=host)
            return reactor.listenSSL(port, site, self.tls, interface=host)
        except CannotListenError as error:
            number = error.socketError.errno
            reason = os.strerror(number).lower() if isinstance(number, int) else "the port cannot be opened"
            raise CommandError(
                f"cannot listen at {host} port {port}: {reason}; choose another address with --listen"
            ) from None


@click.command()
@click.option(
    "--listen",
    "listen_address",
    metavar="ADDRESS:PORT",
    default="127.0.0.1:8080",
    show_default=True,
    callback=options.validated(parse_listen_address),
    help="The address to listen on; port 0 chooses a free port.",
)
@click.option(
    "--secret-file",
    "secret_files",
    type=click.Path(path_type=Path),
    metavar="FILE",
    multiple=True,
    required=True,
    help="The file of mode 0600 with the node's signing secret. Give it twice while the secret is being rotated.",
)
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="The certificate for https, in PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its private key, in PEM.")
@options.json_option
@click.pass_obj
def listen(
    session: Session,
    listen_address: ListenAddress,
    secret_files: tuple[Path, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """Receive callbacks, verify their signatures, and print one line for each event, until Ctrl-C.

    This is for testing: it stores nothing. With --json it prints the body of each event once, on one line.

    \b
    Example:
      svc webhook listen --secret-file devnet/signing-secret
      svc webhook listen --secret-file devnet/signing-secret --listen 127.0.0.1:0 --json
    """
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together; give both, or neither for http")
    tls = tls_options(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None
    secrets = [_signing_secret(path) for path in secret_files]
    listener = CallbackListener(listen_address, tls)
    output = _terminal_output(session, listener)

    async def work(reactor: Any) -> None:
        callbacks = CallbackResource(secrets, unit=session.unit, clock=reactor, output=output)
        site = callback_site(callbacks, clock=reactor, random=session.runtime.random)
        await listener.run(reactor, site, lambda url: click.echo(f"listening on {url} until Ctrl-C", err=True))

    session.runtime.run(work)


def _signing_secret(path: Path) -> str:
    """The signing secret in a file; raises CommandError."""
    # The node strips whitespace around it too.
    secret = read_secret_line(path, "the secret").strip()
    if len(secret) < MIN_SECRET:
        raise CommandError(
            f"the secret in {path} has {len(secret)} characters; a node's secret has at least {MIN_SECRET}"
        )
    return secret


def _terminal_output(session: Session, listener: CallbackListener) -> ListenerOutput:
    """Prints to standard output and standard error; a closed pipe (`… | head -1`) stops the listener."""

    def print_event(event: ReceivedEvent, repeated: bool, now: float) -> None:
        as_json = session.as_json and not repeated
        try:
            text = event.json() if as_json else event.line(now, repeated=repeated)
            click.echo(text, err=session.as_json and repeated)
        except OSError as error:
            listener.stop(error)
            raise

    return ListenerOutput(print_event, lambda sentence: click.echo(visible(f"rejected: {sentence}"), err=True))
