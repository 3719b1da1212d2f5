"""The security headers of pages and files (docs/pages.md "Headers", CSP Level 3, Fetch)."""

from typing import Final

from svcd.web.responses import Headers

HTML: Final = b"text/html; charset=utf-8"

_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    b"manifest-src 'self'; base-uri 'none'; form-action %s; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
_FEATURES: Final = (
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
    (b"Permissions-Policy", ", ".join(f"{feature}=()" for feature in _FEATURES).encode("ascii")),
)

SECURITY_HEADERS: Final[Headers] = ((b"Content-Security-Policy", _POLICY % b"'none'"), *_COMMON)
"""For files, and for pages without the search form."""
SECURITY_HEADERS_WITH_FORM: Final[Headers] = ((b"Content-Security-Policy", _POLICY % b"'self'"), *_COMMON)
"""For pages with the search form."""
