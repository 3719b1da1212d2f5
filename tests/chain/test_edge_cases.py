"""The signatures that a node tries at start (docs/protocol.md 3)."""

from collections.abc import Callable
from hashlib import sha512

import pytest

from svcd.chain import signature
from svcd.chain.errors import Corrupt
from svcd.chain.signature import EDGE_CASES, EdgeCase, check_library, is_valid

# Ed25519 in the affine arithmetic of RFC 8032, to see what each case is rather than what libsodium says of it.

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int]
NEUTRAL: Point = (0, 1)


def add(a: Point, b: Point) -> Point:
    cross = D * a[0] * b[0] * a[1] * b[1] % P
    x = (a[0] * b[1] + a[1] * b[0]) * pow(1 + cross, -1, P) % P
    return x, (a[1] * b[1] + a[0] * b[0]) * pow(1 - cross, -1, P) % P


def times(factor: int, point: Point) -> Point:
    total = NEUTRAL
    for bit in f"{factor:b}":
        total = add(total, total)
        if bit == "1":
            total = add(total, point)
    return total


def decoded(data: bytes) -> Point:
    number = int.from_bytes(data, "little")
    y = (number & 2**255 - 1) % P
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert x * x % P == square, "no point of the curve"
    return (-x % P if x & 1 != number >> 255 else x), y


BASE = decoded((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


class Facts:
    """What is true of an edge case."""

    def __init__(self, case: EdgeCase) -> None:
        key, message, signature = (bytes.fromhex(text) for text in (case.public_key, case.message, case.signature))
        self.key, self.r = decoded(key), decoded(signature[:32])
        self.s = int.from_bytes(signature[32:], "little")
        challenge = int.from_bytes(sha512(signature[:32] + key + message).digest(), "little") % L
        left, right = times(self.s, BASE), add(self.r, times(challenge, self.key))
        self.holds = left == right
        self.holds_with_cofactor = times(8, left) == times(8, right)
        self.key_is_canonical = int.from_bytes(key, "little") & 2**255 - 1 < P


def small(point: Point) -> bool:
    return times(8, point) == NEUTRAL


def mixed(point: Point) -> bool:
    return not small(point) and times(L, point) != NEUTRAL


NAMES: dict[str, Callable[[Facts], bool]] = {
    "a key of mixed order whose equation holds without the cofactor": lambda case: mixed(case.key) and case.holds,
    "a key of mixed order whose equation holds only with the cofactor": lambda case: (
        mixed(case.key) and not case.holds and case.holds_with_cofactor
    ),
    "an ordinary signature": lambda case: case.holds and not mixed(case.key) and not mixed(case.r) and case.s < L,
    "S not below the group order": lambda case: case.holds and case.s >= L,
    "an R of mixed order": lambda case: mixed(case.r) and not case.holds and case.holds_with_cofactor,
    "a key of small order": lambda case: case.holds_with_cofactor and small(case.key) and case.key_is_canonical,
    "an R of small order": lambda case: case.holds_with_cofactor and small(case.r) and not small(case.key),
    "a key that is not canonically encoded": lambda case: case.holds_with_cofactor and not case.key_is_canonical,
}


@pytest.mark.parametrize("case", EDGE_CASES, ids=lambda case: case.name)
def test_case_is_what_its_name_says(case: EdgeCase) -> None:
    assert NAMES[case.name](Facts(case))


def test_there_is_a_case_for_each_way_to_disagree() -> None:
    assert [case.name for case in EDGE_CASES] == list(NAMES)
    assert [case.accepted for case in EDGE_CASES] == [True, False, True, False, False, False, False, False]


def test_this_library_judges_as_the_network_does() -> None:
    check_library()


@pytest.mark.parametrize("case", EDGE_CASES, ids=lambda case: case.name)
def test_a_library_that_judges_one_case_otherwise_is_refused(case: EdgeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tuple(bytes.fromhex(text) for text in (case.public_key, case.message, case.signature))
    monkeypatch.setattr(signature, "is_valid", lambda *given: is_valid(*given) is not (given == odd))
    verb = "refuses" if case.accepted else "accepts"
    with pytest.raises(Corrupt, match=f"libsodium {verb} {case.name}, unlike the network: install the PyNaCl wheel"):
        check_library()
