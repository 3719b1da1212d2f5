"""What every page tells the browser about itself (docs/pages.md "Headers", CSP Level 3, Fetch)."""

from typing import Final

from svcd.web.errors import Headers

HTML: Final = b"text/html; charset=utf-8"

_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    b"manifest-src 'self'; base-uri 'none'; form-action %s; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
_POWERS: Final = (
    "accelerometer autoplay camera display-capture encrypted-media fullscreen geolocation gyroscope hid magnetometer "
    "microphone midi payment picture-in-picture publickey-credentials-get screen-wake-lock serial usb "
    "xr-spatial-tracking"
).split()
_COMMON: Final[Headers] = (
    (b"X-Frame-Options", b"DENY"),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"Cross-Origin-Opener-Policy", b"same-origin"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
    (b"Cross-Origin-Embedder-Policy", b"require-corp"),
    (b"Permissions-Policy", ", ".join(f"{power}=()" for power in _POWERS).encode("ascii")),
)

CLOSED: Final[Headers] = ((b"Content-Security-Policy", _POLICY % b"'none'"), *_COMMON)
"""Of files, and of pages without a form that asks the node."""
WITH_FORM: Final[Headers] = ((b"Content-Security-Policy", _POLICY % b"'self'"), *_COMMON)
"""Of pages with the search box."""
