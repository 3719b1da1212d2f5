"""The checkout in every state, with wrong payments, and with hostile links."""

import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from attrs import evolve

from svcd.commerce.payment_request import parse_uri
from svcd.pages.expectation import IDLE_BLOCKS
from svcd.pages.link_policy import LinkPolicy
from tests.chains import COIN
from tests.pages.conftest import Shown, show
from tests.pages.reading import Document
from tests.pages.test_qr import modules, scanned
from tests.rpc.node import PARAMS, Node


def target(shown: Shown, **query: object) -> str:
    """The path of the checkout of 2.5 coins for bob, with ``query`` changed or added."""
    values = {"reference": "order-1", "recipient": shown.node.address("bob"), "amount": "2.5", **query}
    return "/pay/?" + urlencode({name: value for name, value in values.items() if value is not None})


def state(page: Document) -> str:
    """The state that the page shows; only the view of that state is visible."""
    ((_, root),) = [(name, found) for name, found in page.elements if found.get("id") == "payment"]
    views = [found for _, found in page.elements if "data-when" in found]
    (shown_view,) = [found["data-when"] for found in views if "hidden" not in found]
    assert shown_view in (root["data-state"], "short", "mismatched", "expired")
    (offer,) = page.all("details", data_offer="")
    assert ("hidden" not in offer) == (shown_view in ("unpaid", "short", "mismatched")), "what is not paid can be paid"
    return root["data-state"]


def refreshes(page: Document) -> bool:
    return bool(page.all("meta", http_equiv="refresh"))


def test_unpaid_order(still: Shown) -> None:
    page = still.see(target(still, confirmations=3, label="Tea & cake"))
    assert state(page) == "unpaid"
    for text in ("2.5 SVC", "order-1", still.node.address("bob"), "3 confirmations", "Tea & cake", "not signed"):
        assert text in page.visible
    assert "Waiting for the payment" in page.visible
    assert page.all("bdi", class_="label")
    assert len(page.all("svg", class_="qr")) == 1, "no camera can open the page of a node without a public URL"
    assert refreshes(page)
    (wallet,) = {link for link in page.links if link.startswith("/wallet/#pay=")}
    uri = parse_qs(urlsplit(wallet).fragment)["pay"][0]
    assert parse_uri(uri, PARAMS).label == "Tea & cake"
    assert uri in [each.get("data-copy") for each in page.all("button")]
    assert [link for link in page.links if link.startswith(("svc:", "web+"))] == [uri, f"web+{uri}"]
    ways = [
        "Tea &amp; cake",
        'amount big">2.5',
        "Pay in the browser",
        "Open in a wallet app",
        "Copy the payment link",
        "Code for",
    ]
    assert sorted(ways, key=page.source.index) == ways, "whose order it is, the amount, and first what works everywhere"
    assert "nothing in it is final" in page.visible
    assert {"2.5", "order-1", still.node.address("bob")} <= {each.get("data-copy") for each in page.all("button")}


def test_the_shop_is_named_by_the_settings_of_the_node(open_node: Callable[..., Node]) -> None:
    node = open_node()
    policy = LinkPolicy(shop_names={node.address("bob"): "Tea & Cake", node.address("carol"): "Books"})
    shown = show(node, links=lambda: policy)
    page = shown.see(target(shown, label="Order 7"))
    parts = ['class="shop" dir="auto">Tea &amp; Cake<', ">Order 7</bdi>", "(from the link, not signed)", "<h1>"]
    assert sorted(parts, key=page.source.index) == parts
    assert "Books" not in page.source
    assert not shown.see(target(shown, recipient=node.address("alice"), label="Tea & Cake")).all("p", class_="shop")


def read_by_camera(page: Document) -> list[str]:
    """What a camera reads of the codes of a page, in their order."""
    drawings = re.findall(r'<svg [^>]*class="qr".*?</svg>', page.source)
    return [text for drawing in drawings for text in scanned(modules(drawing))]


def test_a_camera_opens_the_wallet_page_where_others_can_reach_it(open_node: Callable[..., Node]) -> None:
    node = open_node()
    shown = show(node, public_url="https://pay.example")
    back, until = "https://shop.example/7?x=1&y=%C3%A4#z", 2**42
    page = shown.see(target(shown, label="Tea & cake", returnUrl=back, until=until))
    of_page, of_app = read_by_camera(page)
    (wallet,) = {link for link in page.links if link.startswith("/wallet/#pay=")}
    assert of_page == f"https://pay.example{wallet}"
    assert of_app == parse_qs(urlsplit(wallet).fragment)["pay"][0]
    assert parse_qs(urlsplit(wallet).fragment) == {"pay": [of_app], "returnUrl": [back], "until": [str(until)]}
    assert parse_uri(of_app, PARAMS).label == "Tea & cake"

    texts = {"label": "😀" * 80, "returnUrl": f"https://shop.example/{'x' * 300}", "until": until}
    for left_out in ({"label", "returnUrl"}, {"label"}):
        text, _ = read_by_camera(shown.see(target(shown, **texts)))
        fragment = parse_qs(urlsplit(text).fragment)
        assert fragment.keys() == {"pay", "returnUrl", "until"} - left_out
        assert parse_uri(fragment["pay"][0], PARAMS).label is None
        texts["returnUrl"] = "https://shop.example/"
    for plain in ("", "http://pay.example"):
        assert len(read_by_camera(show(node, public_url=plain).see(target(shown)))) == 1


def test_no_time_is_promised_where_nobody_makes_blocks(open_node: Callable[..., Node]) -> None:
    shown, by_hand = show(open_node()), show(open_node(), on_demand=True)
    for each in (shown, by_hand):
        each.node.grow("genesis: b1")
        each.come_to_tip()
        each.wait(each.node.builder.transfer("alice", "bob", 5 * COIN // 2, reference="order-2"))
    unpaid, pending = target(shown, confirmations=3), target(shown, reference="order-2")
    waits = "It waits for the next block, and nobody knows when that comes."
    assert "less than a minute (3 confirmations)" in shown.see(unpaid).visible
    assert "Less than a minute left (0 of 12 confirmations)" in shown.see(pending).visible
    assert waits in by_hand.see(unpaid).visible
    assert "Waits for the next block (0 of 12 confirmations)" in by_hand.see(pending).visible
    usual = IDLE_BLOCKS * PARAMS.slots_per_block * PARAMS.slot_seconds
    shown.come_to_tip(seconds=usual)
    assert "less than a minute" in shown.see(unpaid).visible
    shown.come_to_tip(seconds=usual + 1)
    assert waits in shown.see(unpaid).visible
    (root,) = shown.see(unpaid).all("div", id="payment")
    tip = shown.node.node_context.chain_manager.tip
    assert (root["data-tip"], int(root["data-tip-time"])) == (tip.hash.hex(), PARAMS.slot_time(tip.slot))
    assert (root["data-block-seconds"], root["data-idle-seconds"]) == (str(usual // IDLE_BLOCKS), str(usual))
    assert "data-block-seconds" not in by_hand.see(unpaid).source
    shown.come_to_tip()
    shown.around.here = evolve(shown.around.here, behind="no verified peer has answered")
    assert waits in shown.see(unpaid).visible


def test_the_time_of_blocks_that_come_by_themselves_is_promised(open_node: Callable[..., Node]) -> None:
    shown = show(open_node(), on_demand=True, every=60)
    shown.node.grow("genesis: b1")
    shown.come_to_tip(seconds=IDLE_BLOCKS * 60)
    page = shown.see(target(shown, confirmations=3))
    assert "about 3 minutes (3 confirmations)" in page.visible
    (root,) = page.all("div", id="payment")
    assert root["data-block-seconds"] == "60"
    assert "data-idle-seconds" not in root, "the script keeps the promise, too"
    shown.come_to_tip(seconds=3_600)
    assert "about 3 minutes (3 confirmations)" in shown.see(target(shown, confirmations=3)).visible, "they are dated so"


def test_an_order_that_leaves_its_recipient_too_little_cannot_be_paid(open_node: Callable[..., Node]) -> None:
    shown = show(open_node(params=evolve(PARAMS, account_minimum=2000 * COIN)))
    sentence = (
        "its recipient has {} SVC and must have 2\u202f000 SVC after the payment. Ask the shop for an order of at"
    )
    for recipient, has in (("dave", "0"), ("bob", "1\u202f000")):
        address = shown.node.address(recipient)
        page = shown.see(target(shown, recipient=address, amount="999"))
        assert sentence.format(has) in page.visible.replace("\N{NO-BREAK SPACE}", " ")
        assert "Once sent" not in page.visible
        assert "open" not in page.all("details", class_="card offer folded")[0]
    page = shown.see(f"/pay/?reference=order-1&recipient={shown.node.address('bob')}&amount=1000")
    assert "must have" not in page.visible
    assert "open" in page.all("details", class_="card offer")[0]


def test_payment_requests_link_to_the_wallet_page(still: Shown) -> None:
    link = next(link for link in still.see(target(still)).links if link.startswith("/wallet/"))
    response = still.ask(link.partition("#")[0])
    assert (response.status, response.headers["content-type"]) == (200, "text/html; charset=utf-8")


def test_states_from_pending_to_confirmed(shown: Shown) -> None:
    asked = target(shown, confirmations=2)
    transfer = shown.node.builder.transfer("alice", "bob", 5 * COIN // 2, reference="order-1")
    shown.wait(transfer)
    page = shown.see(asked)
    assert state(page) == "pending"
    assert "Do not pay again" in page.visible
    assert "Pay in the browser" not in page.visible
    assert f"/tx/{transfer.txid.hex()}" in page.links
    first = shown.node.builder.block(transfers=[transfer])
    shown.node.take(first)
    page = shown.see(asked)
    assert state(page) == "confirming"
    assert "1 of 2 confirmations" in page.visible
    assert refreshes(page)
    shown.node.take(shown.node.builder.block(first))
    page = shown.see(asked)
    assert state(page) == "confirmed"
    assert "Paid" in page.visible
    assert [each["content"] for each in page.all("meta", http_equiv="refresh")] == ["60"]


def test_nothing_is_shown_as_paid_while_the_node_lacks_the_newest_blocks(shown: Shown) -> None:
    shown.node.grow(f"genesis: b1 b2\nb1 pays {5 * COIN // 2} from alice to bob for order-1")
    asked = target(shown, confirmations=2)
    shown.around.synced = False
    page = shown.see(asked)
    assert state(page) == "confirming"
    assert "Time unknown (2 of 2 confirmations" in page.visible
    assert "(1 of 1 confirmation" in shown.see(target(shown, confirmations=1)).visible, "never more than required"
    assert "catching up with the network or has stalled" in page.visible
    assert "Paid" not in page.visible
    assert refreshes(page)
    assert "has stalled" in shown.see(target(shown, reference="order-2")).visible
    shown.around.synced = True
    page = shown.see(asked)
    assert state(page) == "confirmed"
    assert "has stalled" not in page.visible


def test_status_path_for_the_script(shown: Shown) -> None:
    page = shown.see(target(shown, amount=None, amountBaseUnits="0250000000", sinceHeight="0", confirmations="7"))
    (root,) = [found for _, found in page.elements if found.get("id") == "payment"]
    payment = shown.ask(root["data-status"]).json["payment"]
    assert (payment["state"], payment["amount"], payment["requiredConfirmations"]) == ("unpaid", "250000000", 7)
    assert payment["sinceHeight"] == "0"
    assert page.all("a", rel="alternate")[0]["href"] == root["data-status"]


def test_mismatched_amount_shows_a_warning(shown: Shown) -> None:
    shown.node.grow(f"genesis: b1\nb1 pays {3 * COIN} from alice to bob for order-1")
    page = shown.see(target(shown))
    assert state(page) == "unpaid"
    assert "3 SVC arrived, 0.5 SVC too much." in page.visible
    assert "These coins do not pay the order: only one transfer of exactly 2.5 SVC does." in page.visible
    assert "If you sent them and did not get them back, ask the shop for a refund." in page.visible
    assert "Waiting for the payment" not in page.visible
    german = Document(shown.ask(target(shown), Accept_Language="de").body.decode()).visible
    assert "3 SVC angekommen, 0.5 SVC zu viel." in german
    assert "Diese Coins bezahlen die Bestellung nicht: Das kann nur" in german
    (offer,) = page.all("details", data_offer="")
    assert "open" not in offer, "nobody pays once more without having asked the shop"
    short = shown.see(target(shown, amount="4"))
    assert (state(short), "Too little has arrived" in short.title) == ("unpaid", True)
    assert "3 SVC arrived, 1 SVC too little. Do not send the rest." in short.visible
    right = shown.see(target(shown, amount="3"))
    assert "arrived," not in right.visible
    assert "open" in right.all("details", data_offer="")[0]


def test_double_payment_shows_a_warning(shown: Shown) -> None:
    twice = [f"b1 pays {5 * COIN // 2} from {name} to bob for order-1" for name in ("alice", "carol")]
    shown.node.grow("\n".join(["genesis: b1", *twice]))
    assert "Paid more than once. More than one transfer" in shown.see(target(shown)).visible
    assert "More than one transfer" not in shown.see(target(shown, reference="order-2")).visible


def test_payment_before_since_height_does_not_count(shown: Shown) -> None:
    shown.node.grow(f"genesis: b1 b2 b3\nb1 pays {5 * COIN // 2} from alice to bob for order-1")
    assert state(shown.see(target(shown))) == "confirming"
    assert state(shown.see(target(shown, sinceHeight="2"))) == "unpaid"


def test_the_way_back_to_the_shop_shows_its_host(still: Shown) -> None:
    url = "https://shop.example:8443/thanks?order=1&x=%22#paid"
    page = still.see(target(still, returnUrl=url))
    assert page.links.count(url) == 2, "at the order, and below the word Paid"
    (wallet,) = {link for link in page.links if link.startswith("/wallet/#pay=")}
    assert parse_qs(urlsplit(wallet).fragment)["returnUrl"] == [url]
    assert "Back to shop.example:8443" in page.visible
    assert not [found for _, found in page.elements if url in (found.get("content", ""), found.get("src", ""))]
    assert "Back to" not in still.see(target(still)).visible


def test_a_link_that_no_shop_of_this_site_made_is_shown_as_such(open_node: Callable[..., Node]) -> None:
    node = open_node()
    bob, mallory = node.address("bob"), node.address("alice")
    policy = LinkPolicy(frozenset([bob]), frozenset(["shop.example"]))
    shown = show(node, links=lambda: policy)
    text = {"label": "Your order at shop.example", "until": 2**45}
    told = "This site did not make this link"

    own = shown.see(target(shown, returnUrl="https://shop.example/7", **text))
    assert told not in own.visible
    assert text["label"] in own.visible
    for forged in (
        {"recipient": mallory, "returnUrl": "https://shop.example/7"},
        {"recipient": mallory},
        {"returnUrl": "https://shop.example.evil/7"},
    ):
        page = shown.see(target(shown, **text, **forged))
        assert state(page) == "unpaid"
        main = page.visible.partition("SVC")[2]
        assert main.index(told) < main.index("2.5"), "the first line of the content"
        assert text["label"] not in page.source
        assert "https://shop.example" not in page.source
        (wallet,) = {link for link in page.links if link.startswith("/wallet/#pay=")}
        assert parse_qs(urlsplit(wallet).fragment).keys() == {"pay", "until"}
        assert parse_uri(parse_qs(urlsplit(wallet).fragment)["pay"][0], PARAMS).label is None

    policy = LinkPolicy(frozenset([bob]), only=True)
    assert state(shown.see(target(shown, returnUrl="https://shop.example/7"))) == "unpaid", "no hosts are listed"
    page = shown.see(target(shown, recipient=mallory, **text), status=403)
    assert "This payment link is not from this site" in page.visible
    assert mallory not in page.source


def test_an_order_expires(shown: Shown) -> None:
    now = int(shown.node.clock.seconds() * 1000)
    link = target(shown, until=now + 90_000)
    page = shown.see(link)
    assert state(page) == "unpaid"
    assert page.all("div", id="payment")[0]["data-until"] == str(now + 90_000)
    (wallet,) = {link for link in page.links if link.startswith("/wallet/#pay=")}
    assert parse_qs(urlsplit(wallet).fragment)["until"] == [str(now + 90_000)]
    assert "Pay before 2" in page.visible
    assert "This order has expired" not in page.visible
    shown.node.clock.advance(90)
    page = shown.see(link)
    assert state(page) == "unpaid"
    assert "This order has expired" in page.visible
    assert "Waiting for the payment" not in page.visible
    assert "Pay in the browser" not in page.visible
    assert "It could be paid until 2" in page.visible
    assert "Pay before" not in page.visible
    shown.node.grow(f"genesis: b1\nb1 pays {3 * COIN} from alice to bob for order-1")
    page = shown.see(link)
    assert "This order has expired" in page.visible
    assert "3 SVC arrived, 0.5 SVC too much." in page.visible
    shown.node.grow(f"genesis: c[1..2]\nc2 pays {5 * COIN // 2} from alice to bob for order-1")
    page = shown.see(link)
    assert state(page) == "confirming"
    assert "This order has expired" not in page.visible
    assert "Pay before" not in page.visible


def test_a_payment_that_came_late_is_told_of(shown: Shown) -> None:
    transfer = shown.node.builder.transfer("alice", "bob", 5 * COIN // 2, reference="order-1")
    shown.wait(transfer)
    now = int(shown.node.clock.seconds() * 1000)
    late = "Late. The order had expired before the network confirmed this payment."
    assert late in shown.see(target(shown, until=now)).visible
    in_time = shown.see(target(shown, until=now + 1))
    assert late not in in_time.visible
    assert "data-in-time" in in_time.source
    block = shown.node.builder.block(transfers=[transfer])
    shown.node.take(block)
    made = PARAMS.slot_time(block.header.slot)
    assert late in shown.see(target(shown, until=made, confirmations=1)).visible
    assert late not in shown.see(target(shown, until=made + 1, confirmations=1)).visible
    assert late not in shown.see(target(shown)).visible


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"returnUrl": "http://shop.example/"}, "returnUrl: must be an https:// address"),
        ({"returnUrl": "https://shop.example@evil.example/"}, "without a user"),
        ({"returnUrl": "https://shop.example\\@evil.example/"}, "returnUrl: must be"),
        ({"returnUrl": "https://Shop.example/"}, "in lower case"),
        ({"returnUrl": "https:///x"}, "returnUrl: must be"),
        ({"returnUrl": "https://[::1]/"}, "returnUrl: must be"),
        ({"returnUrl": "https://shop.example/ x"}, "returnUrl: must be"),
        ({"returnUrl": "https://shöp.example/"}, "returnUrl: must be"),
        ({"returnUrl": "javascript:alert(1)//"}, "returnUrl: must be"),
        ({"returnUrl": "https://shop.example/" + "x" * 1004}, "at most 1024 characters"),
        ({"until": "253402300800000"}, "until: must be a whole number"),
        ({"until": "tomorrow"}, "until: must be a whole number"),
        ({"reference": None}, "Reference is missing"),
        ({"recipient": None}, "Recipient is missing"),
        ({"amount": None}, "The amount is missing"),
        ({"amount": "1", "amountBaseUnits": "1"}, "both given"),
        ({"amount": "1e3"}, "decimal such as"),
        ({"amount": "0"}, "more than 0 and at most 90\u202f071\u202f992.547\u202f409\u202f91\N{NO-BREAK SPACE}SVC"),
        ({"recipient": "svc1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"}, "address of this network"),
        ({"confirmations": "0"}, "from 1 to 1000"),
        ({"label": "x" * 81}, "at most 80"),
        ({"label": "\u202egnp.exe"}, "U+202E"),
        ({"reference": "<b>"}, "1 to 64"),
    ],
)
def test_invalid_link_is_400(still: Shown, wrong: dict[str, object], sentence: str) -> None:
    page = still.see(target(still, **wrong), 400)
    assert sentence.lower() in page.visible.lower()
    assert "Go back to the shop and ask for a new link" in page.visible
    assert page.visible.index("Details for the shop") < page.visible.lower().index(sentence.lower())
    assert not page.all("input", type="search"), "a buyer has no use for the search"


def test_repeated_parameter_is_400(still: Shown) -> None:
    assert "more than once" in still.see(target(still) + "&amount=3", 400).visible


@pytest.mark.parametrize("label", ["<script>alert(1)</script>", '"><svg onload=x>', "</noscript><b>", "שלום <i>"])
def test_markup_in_a_label_is_escaped(still: Shown, label: str) -> None:
    page = still.see(target(still, label=label))
    assert label in page.visible
    assert not page.all("b")
    assert not page.all("i")
    assert len(page.all("script", type="module")) == 2


def test_invisible_characters_in_a_label_are_escaped(still: Shown) -> None:
    page = still.see(target(still, label="Tea\u200b for \u2060☕️"))
    assert page.visible.count("Tea\\u{200b} for \\u{2060}☕️") == 1
    assert "\u200b" not in page.visible
    assert len(page.all("bdi", class_="label")) == 1
    (wallet,) = {link for link in page.links if link.startswith("/wallet/#pay=")}
    label = parse_uri(parse_qs(urlsplit(wallet).fragment)["pay"][0], PARAMS).label
    assert label == "Tea\u200b for \u2060☕️", "what is handed on is what the shop wrote"


def test_the_largest_amount_and_the_longest_texts(still: Shown) -> None:
    page = still.see(target(still, amount="90071992.54740991", reference="r" * 64, label="😀" * 80, confirmations=1000))
    assert "90071992.54740991 SVC" in page.visible
    assert page.all("span", class_="amount big long")
    assert page.all("svg", class_="qr")


def test_an_order_that_may_be_paid_in_a_block_that_is_not_here_is_410(shown: Shown) -> None:
    shown.node.grow("genesis: b[1..3]\nb2 pays 250000000 from alice to bob for order-1")
    shown.node.keep_from(3)
    page = shown.see(target(shown), status=410)
    assert "Payment unknown" in page.said
    assert "This site has only blocks from height 3 on, so it does not know whether" in page.said
    assert not page.all("a", class_="button"), "nothing invites to pay"
    assert state(shown.see(target(shown, sinceHeight=3))) == "unpaid"
