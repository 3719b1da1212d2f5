"""The node and the rate of an event, as its settings name them."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
from django.conf import settings as system
from pretix.base.settings import SettingsSandbox
from pretix.helpers.ssrf import should_block_access
from svc_pay import (
    MAINNET, BoundedTransport, Client, InvalidInput, Network, RateSource,
    Webhook, format_coins, parse_network,
)

TIMEOUT = 8.0
"""Seconds to wait for an answer of the node: a buyer and a worker process of pretix wait meanwhile."""
RETRY_SECONDS = 2.0


def text(settings: SettingsSandbox, name: str) -> str:
    """A setting without whitespace around it; empty if it is not set."""
    return (settings.get(name, as_type=str) or "").strip()


def public_addresses(host: str) -> list[str]:
    """The addresses of a host; raises OSError if it has none, and httpx.ConnectError if pretix may not call one.

    That keeps pretix's rule that an organizer may not make pretix call addresses of private networks. A name is looked up
    once, and the call goes to an address that was checked: otherwise a name server could give the check another answer
    than the call.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    if any(should_block_access(address)[0] for *_rest, address in found):
        raise httpx.ConnectError(
            "the host is in a private network, and pretix may call it only with allow_http_to_private_networks=on in"
            " the section [pretix] of pretix.cfg"
        )
    return [address[0] for *_rest, address in found]


def open_transport(url: str) -> BoundedTransport | None:
    """How a URL of the settings is called; None if pretix.cfg allows every address."""
    if system.ALLOW_HTTP_TO_PRIVATE_NETWORKS:
        return None
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(parts.hostname or ""):
        # The proxy looks the name up, and decides, as for all calls of pretix.
        return BoundedTransport(proxy=proxy if "://" in proxy else f"http://{proxy}")
    return BoundedTransport(addresses=public_addresses)


@lru_cache(maxsize=64)
def _network(described: str) -> Network:
    return parse_network(described)


def network(settings: SettingsSandbox) -> Network | None:
    """The network of one's own that is described in the settings; None for mainnet and devnet."""
    described = text(settings, "network")
    return _network(described) if described else None


def coins(settings: SettingsSandbox, units: int) -> str:
    """Base units in coins with the name that their network gives these."""
    return format_coins(units, (network(settings) or MAINNET).unit)


@contextmanager
def node(settings: SettingsSandbox) -> Iterator[Client]:
    """A client of the node; it raises SvcPayError, which never contains the token."""
    url, token = text(settings, "node_url"), text(settings, "token")
    if not url or not token:
        raise InvalidInput("the URL of the node and its management token are not set")
    with Client(
        url,
        token=token,
        timeout=TIMEOUT,
        retry_seconds=RETRY_SECONDS,
        insecure_http=settings.get("insecure_http", as_type=bool, default=False),
        network=network(settings),
        transport=open_transport(url),
    ) as client:
        yield client


def webhook(settings: SettingsSandbox) -> Webhook:
    """What verifies the callbacks of the node; while the secret is rotated, the setting has both."""
    return Webhook(text(settings, "signing_secret").split())


@lru_cache(maxsize=64)
def _source(currency: str, url: str, path: str, max_age: int) -> RateSource:
    """One for all requests of a process, because it keeps its last rate while that may be used."""
    return RateSource.url(currency, url, path, max_age=max_age, open_transport=partial(open_transport, url))


def rates(settings: SettingsSandbox, currency: str) -> RateSource:
    """Where the rate comes from; raises InvalidInput and RateRefused."""
    url = text(settings, "rate_url")
    if url:
        return _source(currency, url, text(settings, "rate_path"), settings.get("rate_max_age", as_type=int, default=60))
    return RateSource.fixed(currency, text(settings, "rate"))
