"""Text of others stays text, other sites get nothing, and nothing of theirs runs on a page of the node."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest
from playwright.sync_api import Page

from tests.browser.between import Reply, between
from tests.browser.chain import SHOP, Chain, checkout_path, fresh, payment_uri, wallet_path
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched, wait_for_true
from tests.process_level.running import RunningNode

pytestmark = [pytest.mark.socket, pytest.mark.slow]

SCRIPTS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"><svg onload='alert(1)'>",
    "'-alert(1)-'",
    "{{constructor.constructor('alert(1)')()}}",
    "</title><b id=bold>hm",
]
PARTS = "main script, main iframe, main [onerror], main [onload], main b, main svg[onload]"


def quiet(page: Page) -> None:
    """Fail if there is anything on the page that only the text of others could have made."""
    assert page.locator(PARTS).count() == 0, page.content()


def test_a_label_is_text(wallet: WalletPage) -> None:
    for text in SCRIPTS:
        label = f"&label={quote(text, safe='')}"
        wallet.follow(payment_uri(fresh("label"), rest=label))
        wallet.may_sign()
        assert wallet.tell("#review-label") == text
        quiet(wallet.page)
        wallet.watched.go(checkout_path(fresh("label"), rest=label), wallet.page)
        assert text in wallet.tell("main")
        quiet(wallet.page)


HIDDEN = "Tea\u200b\u2060 for\u00ad two ☕️"
WRITTEN = "Tea\\u{200b}\\u{2060} for\\u{ad} two ☕️"
PILED = "a" + "\u0301" * 79
ABOVE = "selector => { const it = document.querySelector(selector); return getComputedStyle(it).overflowY; }"


def test_invisible_characters_are_written_out(wallet: WalletPage) -> None:
    label = f"&label={quote(HIDDEN, safe='')}"
    wallet.follow(payment_uri(fresh("hidden"), rest=label))
    wallet.may_sign()
    assert wallet.tell("#review-label") == WRITTEN
    assert wallet.page.evaluate("document.getElementById('review-label').tagName") == "BDI"
    page = wallet.page
    wallet.watched.go(checkout_path(fresh("hidden"), rest=label), page)
    assert wallet.tell("main").count(WRITTEN) == 1
    wallet.watched.go(f"/search?q={quote(HIDDEN, safe='')}", page)
    assert WRITTEN in wallet.tell("main")
    wallet.watched.forgive("status of 404")
    wallet.watched.go(checkout_path(fresh("piled"), rest=f"&label={quote(PILED, safe='')}"), page)
    assert page.evaluate(ABOVE, "bdi.label") == "clip", "it covers the amount"
    wallet.go(wallet_path(payment_uri("A") + "&req-" + quote("\u202e", safe="")))
    wallet.view("stopped")


@pytest.mark.parametrize("text", SCRIPTS)
def test_markup_in_an_address_is_shown_as_text(watched: Watched, text: str) -> None:
    encoded = quote(text, safe="")
    page = watched.page()
    for path in (
        f"/search?q={encoded}",
        f"/reference/{encoded}",
        f"/tx/{encoded}",
        f"/block/{encoded}",
        f"/address/{encoded}",
        f"/pay/?reference={encoded}&recipient={SHOP}&amount=1",
        f"/pay/?reference=A&recipient={encoded}&amount=1",
        f"/qr.svg?data={encoded}",
        f"/{encoded}",
    ):
        watched.go(path, page)
        quiet(page)
    watched.forgive("status of 40[04]")
    for path in (
        f"/wallet/?pay={encoded}",
        wallet_path(payment_uri(encoded)),
        wallet_path(payment_uri("A", recipient=encoded)),
        wallet_path(f"{payment_uri('A')}&{encoded}=1"),
        f"/wallet/?pay=javascript:alert(1)//{encoded}",
    ):
        wallet = WalletPage.opened(watched, path)
        wallet.view("stopped")
        quiet(wallet.page)


def test_a_fragment_does_nothing(wallet: WalletPage) -> None:
    fragments = {
        "payment=<img src=x onerror=alert(1)>": "history",
        "transfer=../../operator/node": "history",
        "constructor": "home",
        "review": "send",
        "__proto__": "home",
    }
    for fragment, view in fragments.items():
        wallet.page.evaluate("hash => { location.hash = hash; }", fragment)
        wallet.view(view)
        quiet(wallet.page)


@pytest.fixture
def evil() -> Iterator[Callable[[str], str]]:
    """``evil(html)``: where another site shows that."""
    pages: dict[str, bytes] = {}

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(pages.get(self.path, b""))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def show(html: str) -> str:
        path = f"/{len(pages)}"
        pages[path] = b'<!DOCTYPE html><link rel="icon" href="data:,">' + html.encode()
        return f"http://evil.example:{server.server_port}{path}"

    yield show
    server.shutdown()
    thread.join()
    server.server_close()


def visit(watched: Watched, url: str) -> Page:
    """Lead somebody to the other site."""
    watched.others.add("http://" + url.split("/")[2])
    page = watched.page()
    page.goto(url)
    return page


@pytest.mark.parametrize("path", ["/wallet/", "/", checkout_path("A"), "/qr.svg?data=" + SHOP])
def test_nobody_frames_a_page(watched: Watched, evil: Callable[[str], str], path: str) -> None:
    html = f'<iframe src="{watched.origin}{path}"></iframe><object data="{watched.origin}{path}"></object>'
    page = visit(watched, evil(html))
    page.wait_for_load_state()
    frames = [frame for frame in page.frames if frame is not page.main_frame]
    assert frames
    assert not [frame.url for frame in frames if frame.url.startswith(watched.origin)]
    watched.forgive("frame-ancestors|X-Frame-Options|ERR_BLOCKED_BY_RESPONSE|Refused to display")


RUN = "code => { try { (0, eval)(code); return ''; } catch (e) { return e.name; } }"
FETCH = """
async ([url, options]) => {
  try {
    const answer = await fetch(url, options);
    return answer.type === "opaque" ? "opaque" : `${answer.status} ${await answer.text()}`;
  } catch {
    return "blocked";
  }
}
"""


def test_other_sites_neither_read_pages_nor_post_to_them(
    watched: Watched, evil: Callable[[str], str], chain: Chain
) -> None:
    page = visit(watched, evil("<h1>Hello</h1>"))
    height = chain.node.status()["height"]

    def tried(path: str, **options: str) -> str:
        return str(page.evaluate(FETCH, [watched.origin + path, options]))

    for path in ("/wallet/", "/", "/static/wallet.mjs", checkout_path("A")):
        assert tried(path) == "blocked"
        assert tried(path, mode="no-cors") == "blocked", "CORP lets it through"
        assert tried(path, method="POST", body="{}") == "blocked"
    for path in ("/operator/mine", "/operator/faucet"):
        # The operator's routes are not on this port at all.
        assert tried(path, method="POST", body='{"blocks": 1}') == "blocked"
    assert '"ok":false' in tried("/rpc/broadcast", method="POST", body="{}")
    assert chain.node.status()["height"] == height
    watched.forgive("CORS policy")
    watched.forgive("400|405|404")
    watched.forgiven.append("ERR_BLOCKED_BY_RESPONSE|NotSameOrigin|ERR_FAILED")


SENDING = """
async ([url, headers]) => {
  try {
    const answer = await fetch(url, { headers });
    return [answer.status, answer.headers.get("Date") !== null];
  } catch {
    return "blocked";
  }
}
"""


def test_other_sites_read_the_chain_with_any_header_but_a_token(watched: Watched, evil: Callable[[str], str]) -> None:
    page = visit(watched, evil("<h1>Hello</h1>"))

    def tried(**headers: str) -> object:
        return page.evaluate(SENDING, [watched.origin + "/rpc/status", headers])

    assert tried() == [200, True]
    assert tried(traceparent="00-" + 32 * "a" + "-" + 16 * "b" + "-01", **{"X-Requested-With": "x"}) == [200, True]
    assert tried(Authorization="Bearer x") == "blocked"
    assert tried(traceparent="x", Authorization="Bearer x") == "blocked"
    watched.forgive("CORS policy")
    watched.forgiven.append("ERR_FAILED")


def test_a_form_of_another_site_is_refused(watched: Watched, evil: Callable[[str], str], chain: Chain) -> None:
    for path in ("/wallet/", "/", checkout_path("A"), "/operator/mine"):
        form = f'<form method="post" action="{watched.origin}{path}"><input name="blocks" value="1"><button>Go</form>'
        page = visit(watched, evil(form))
        with page.expect_navigation() as arriving:
            page.click("button")
        answer = arriving.value
        assert answer is not None
        assert answer.status in (404, 405)
    watched.forgive("status of 40[45]")


def test_a_window_that_another_site_opens_is_out_of_its_reach(watched: Watched, evil: Callable[[str], str]) -> None:
    html = f"<script>function go() {{ window.it = window.open('{watched.origin}/wallet/'); }}</script>"
    page = visit(watched, evil(html + '<button onclick="go()">Go</button>'))
    with page.expect_popup() as opening:
        page.click("button")
    popup = opening.value
    popup.wait_for_selector("body[data-view=welcome]")
    assert popup.evaluate("window.opener") is None
    wait_for_true(page, "window.it.closed")


def test_no_page_lets_a_script_be_written_into_it(watched: Watched) -> None:
    for path in ("/wallet/", "/", checkout_path("A")):
        page = watched.go(path)
        for attempt in (
            "document.body.innerHTML = '<b>hm</b>'",
            "document.body.insertAdjacentHTML('beforeend', '<b>hm</b>')",
            "(() => { const s = document.createElement('script'); s.text = 'alert(1)'; document.body.append(s); })()",
        ):
            failed = page.evaluate(RUN, attempt)
            assert failed in ("TypeError", "EvalError"), (path, attempt, failed)
        quiet(page)
    watched.forgive("Trusted|unsafe-eval|Content Security Policy")


REGISTER = b"""<!DOCTYPE html><link rel="icon" href="data:,"><script>
const ready = () => { document.title = "ready"; };
navigator.serviceWorker.register("/sw.js").then(() => navigator.serviceWorker.ready).then(ready);
</script>"""


def test_a_service_worker_gets_no_wallet(watch: Callable[..., Watched], node: RunningNode) -> None:
    """Something else that is served under the node's name has installed one."""
    script = b"addEventListener('activate', (event) => event.waitUntil(clients.claim()));"
    foreign = {
        "/else": Reply(200, {"Content-Type": "text/html"}, REGISTER),
        "/sw.js": Reply(200, {"Content-Type": "text/javascript"}, script),
    }
    with between(node) as server:
        server.lie = lambda path, _: foreign.get(path)
        watched = watch(origin=server.url)
        wallet = WalletPage.opened(watched)
        wallet.view("welcome")
        # The pages of the node themselves cannot install one
        failed = wallet.page.evaluate("navigator.serviceWorker.register('/sw.js').then(() => '', ({ name }) => name)")
        assert failed in ("TypeError", "SecurityError")
        watched.forgive("TrustedScriptURL")
        page = watched.go("/else")
        wait_for_true(page, "document.title === 'ready'")
        # It takes over the wallet that is open, too
        wallet.view("stopped")
        assert "service worker" in wallet.error("service-worker").lower()
        wallet.page.reload()
        wallet.view("stopped")
        wallet.error("service-worker")
