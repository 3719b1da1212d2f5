"""What the OpenAPI documents of a node say beside its routes."""

from collections.abc import Iterable, Mapping
from typing import Final

from svcd.node.status import SOFTWARE_VERSION
from svcd.rpc.event_schemas import WEBHOOKS
from svcd.web.field_types import Schema
from svcd.web.openapi import About, Tag, document
from svcd.web.routes import Route

_TAGS: Final = (
    Tag("chain", "/rpc/", "The chain, and transfers to it."),
    Tag("payments", "/rpc/commerce/", "Payments of orders."),
    Tag("webhooks", "/rpc/commerce/webhooks", "Watches for payments."),
    # Not `webhooks` too: generators make a file of each tag, once of the routes and once of the events.
    Tag("events", "", "The events that the node posts to shops."),
    Tag("nodes", "/p2p/", "The exchange between nodes."),
    Tag("operator", "/", "Health, measurements and administration of the node."),
)


def _info(description: str) -> dict[str, object]:
    return {
        "title": "svcd",
        "version": SOFTWARE_VERSION,
        "description": description,
        "contact": {"name": "The developers of svcd"},
        "license": {"name": "MIT", "identifier": "MIT"},
    }


def public_document(routes: Iterable[Route], narrowed: Mapping[str, Schema]) -> dict[str, object]:
    """Of the public interface, with the webhooks."""
    about = About(info=_info("A node's public interface."), tags=_TAGS, narrowed=narrowed, shared_below="/rpc")
    return document(routes, about, WEBHOOKS)


def peers_document(routes: Iterable[Route], narrowed: Mapping[str, Schema]) -> dict[str, object]:
    """Of the routes between nodes, where they have an endpoint of their own."""
    return document(routes, About(info=_info("A node's interface for other nodes."), tags=_TAGS, narrowed=narrowed))


def operator_document(routes: Iterable[Route], narrowed: Mapping[str, Schema]) -> dict[str, object]:
    """Of the operator's interface."""
    return document(routes, About(info=_info("A node's interface for its operator."), tags=_TAGS, narrowed=narrowed))
