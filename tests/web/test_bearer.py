"""Bearer tokens: one right way to send one."""

from typing import Any

import pytest
from twisted.web.test.requesthelper import DummyRequest

from svcd.web.bearer import require_bearer
from svcd.web.errors import HttpError

TOKEN = "t" * 32


def request(*authorization: bytes) -> Any:
    made = DummyRequest([b""])
    made.requestHeaders.setRawHeaders(b"Authorization", list(authorization))
    return made


@pytest.mark.parametrize("header", [b"Bearer " + b"t" * 32, b"bearer  " + b"t" * 32 + b" "])
def test_right_token_passes(header: bytes) -> None:
    require_bearer(request(header), TOKEN)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (b"",),
        (b"Bearer",),
        (b"Bearer ",),
        (b"Bearer " + b"t" * 31,),
        (b"Bearer " + b"T" * 32,),
        (b"Bearer \xff",),
        (b"Basic " + b"t" * 32,),
        (b"t" * 32,),
        (b"Bearer " + b"t" * 32, b"Bearer " + b"t" * 32),
    ],
)
def test_anything_else_is_401(headers: tuple[bytes, ...]) -> None:
    with pytest.raises(HttpError) as refused:
        require_bearer(request(*headers), TOKEN)

    assert refused.value.status == 401
    assert refused.value.headers == ((b"WWW-Authenticate", b"Bearer"),)
    assert TOKEN not in refused.value.sentence
