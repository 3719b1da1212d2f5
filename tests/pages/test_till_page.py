"""The page of the till, as the node serves it; tests/browser/test_till.py is about what its scripts do."""

import json
from collections.abc import Callable

from svcd.pages.link_policy import LinkPolicy
from tests.pages.conftest import Shown, show
from tests.pages.reading import Document
from tests.rpc.node import PARAMS, Node


def told(page: Document, name: str) -> dict[str, object]:
    """What the page tells its scripts in the element ``name``."""
    _, _, rest = page.source.partition(f'id="{name}">')
    given = json.loads(rest.partition("</script>")[0])
    assert isinstance(given, dict)
    return given


def test_it_knows_the_shops_of_the_site(open_node: Callable[..., Node]) -> None:
    node = open_node()
    policy = LinkPolicy(frozenset([node.address("bob")]), only=True)
    page = show(node, links=lambda: policy).see("/till/")
    expected = {"recipients": [node.address("bob")], "returnHosts": [], "only": True}
    assert told(page, "site-data").items() >= expected.items()


def test_it_and_the_wallet_promise_no_time_that_the_checkout_does_not(open_node: Callable[..., Node]) -> None:
    usual = PARAMS.slots_per_block * PARAMS.slot_seconds
    for options, timing in (
        ({}, (usual, 5 * usual)),
        ({"on_demand": True}, (None, None)),
        ({"on_demand": True, "every": 60}, (60, None)),
    ):
        shown = show(open_node(), **options)
        for path in ("/wallet/", "/till/"):
            data = told(shown.see(path), "site-data")
            assert (data["blockSeconds"], data["idleSeconds"]) == timing


def test_names_of_shops_cannot_leave_the_data_of_the_page(open_node: Callable[..., Node]) -> None:
    names = {"svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc": "</script><b>Tea & Cake"}
    page = show(open_node(), links=lambda: LinkPolicy(shop_names=names)).see("/wallet/")
    assert told(page, "site-data")["shopNames"] == names
    assert "<b>" not in page.source


def test_only_it_has_the_texts_of_its_scripts(still: Shown) -> None:
    assert "till-script.late-text" in told(still.see("/till/"), "texts")
    assert "till-script.late-text" not in told(still.see("/wallet/"), "texts")
    assert "Der Käufer scannt den Code." in still.ask("/till/", Accept_Language="de").body.decode()


def test_pages_with_the_search_link_to_it(still: Shown) -> None:
    assert "/till/" in still.see("/").links
    assert "/till/" not in still.see("/proof/").links
