"""The names of headers that strangers choose are not kept."""

import tracemalloc

from twisted.web.http_headers import Headers

from svcd.process.header_names import keep_no_other_header_names

LONGEST = 16_000
NAMES = 200


def test_a_name_that_a_stranger_chooses_is_not_kept() -> None:
    keep_no_other_header_names()
    tracemalloc.start()
    try:
        for number in range(NAMES):
            Headers().addRawHeader(f"x{number}-".encode() + b"y" * LONGEST, b"1")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2 * LONGEST


def test_names_are_still_written_alike() -> None:
    keep_no_other_header_names()
    headers = Headers()
    headers.addRawHeader(b"x-of-a-stranger", b"1")
    headers.addRawHeader(b"HOST", b"h")
    assert list(headers.getAllRawHeaders()) == [(b"X-Of-A-Stranger", [b"1"]), (b"Host", [b"h"])]
