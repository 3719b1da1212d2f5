"""The baseline of the HTTP benchmarks: Klein routes that answer a small JSON object, on a stock Site.

``python -m benchmarks.bare PORT`` serves it on 127.0.0.1 until it is told to stop.
"""

import json
import sys
from typing import Any

from klein import Klein
from twisted.internet import reactor
from twisted.internet.endpoints import serverFromString
from twisted.web.server import Site

# Twisted's web server is not annotated.
# mypy: allow-untyped-calls


def app() -> Klein:
    """The application: GET and POST of ``/``, and GET of a payment, whose terms it reads and returns."""
    klein = Klein()

    @klein.route("/", methods=["GET", "POST"])
    def answer(request: Any) -> str:
        request.setHeader("Content-Type", "application/json")
        return json.dumps({"ok": True, "txid": "00" * 32, "state": "accepted"})

    @klein.route("/rpc/commerce/payment/<reference>", methods=["GET"])
    def payment(request: Any, reference: str) -> str:
        request.setHeader("Content-Type", "application/json")
        terms = (b"recipient", b"amountBaseUnits", b"confirmations")
        recipient, amount, confirmations = (request.args[name][0].decode("ascii") for name in terms)
        shown = {"reference": reference, "recipient": recipient, "amount": amount, "confirmations": int(confirmations)}
        return json.dumps(shown)

    return klein


def main() -> None:
    """Serve until SIGTERM."""
    loop: Any = reactor
    site: Any = Site(app().resource())
    # Nobody reads an access log here, and it would make the baseline slower than it is.
    site.log = lambda request: None
    serverFromString(loop, f"tcp:{sys.argv[1]}:interface=127.0.0.1").listen(site)
    loop.run()


if __name__ == "__main__":
    main()
