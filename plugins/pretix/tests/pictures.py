"""Makes the pictures in plugins/pretix/pictures: ``python -m pytest tests/pictures.py``, with Chromium, and with Playwright and
Pillow in the environment of the tests; look at each."""

import io
import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from PIL import Image
from playwright.sync_api import sync_playwright
from pretix.base.models import OrderRefund

from .running import wait_until

FOLDER = Path(__file__).parents[1] / "pictures"
STATIC = Path(__file__).parents[1] / "pretix_svc_pay" / "static"
COLOURS = 128


def save(name, page, selector, height=None):
    """A picture of a part of a page, with few colours, so that it is small."""
    box = page.locator(selector).first.bounding_box()
    box["height"] = min(box["height"], height or box["height"])
    picture = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=box))).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(FOLDER / f"{name}.png", optimize=True)


def test_pictures(shop, devnet):
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    settings.COMPRESS_PRECOMPILERS = settings.COMPRESS_PRECOMPILERS_ORIGINAL  # The tests need no style sheets.
    session = shop.staff().cookies[settings.SESSION_COOKIE_NAME].value
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        buyer = browser.new_context(viewport={"width": 780, "height": 900}, locale="en-GB").new_page()
        staff = browser.new_context(viewport={"width": 1200, "height": 900}, locale="en-GB")
        staff.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": shop.url}])
        control = staff.new_page()
        for page in (buyer, control):
            page.set_default_timeout(120_000)
            # The server of the tests has what pretix has collected, and not what is of the plugin.
            page.route("**/static/pretix_svc_pay/*", lambda route: route.fulfill(
                path=STATIC / urlsplit(route.request.url).path.removeprefix("/static/")
            ))

        control.goto(f"{shop.url}/control/event{shop.base}settings/payment/svc_pay")
        control.get_by_role("button", name="Save, and test").click()
        control.get_by_text("Your changes have been saved.").wait_for()
        save("settings", control, "#page-wrapper", 1700)

        attempt = shop.attempt(shop.order())
        order = attempt.order
        buyer.goto(f"{shop.url}{shop.base}order/{order.code}/{order.secret}/")
        buyer.locator("[data-left]:not(:empty)").wait_for()
        save("checkout", buyer, ".panel:has(.svc-pay)")

        shop.pay(attempt)
        devnet.mine()
        shop.becomes(attempt, "p", "confirmed")
        devnet.reorganise()
        wait_until(OrderRefund.objects.filter(payment=attempt.payment).exists, "an external refund")
        control.goto(f"{shop.url}/control/event{shop.base}orders/{order.code}/")
        save("undone", control, ".panel:has-text('Nobody has refunded')")

        attempt = shop.paid()
        path = f"/control/event{shop.base}orders/{attempt.order.code}/"
        shop.staff().post(f"{path}refund", {
            "start-action": "do_nothing", "start-mode": "full", "perform": "on",
            f"refund-{attempt.payment.pk}": "12.50", "refund-manual": "0.00",
        })
        control.goto(shop.url + path)
        save("refund", control, ".panel:has(.svc-pay-code)")
        browser.close()
