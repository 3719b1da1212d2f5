"""New passwords are judged: the numbers that the browser wallet computes too, and the sentences."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.cli.passwords import ENOUGH, Weakness, common_passwords, judge, listed, password_problem, suggestion
from svcd.cli.word_list import bip39_words, checked_words, random_words

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "passwords.json").read_text("utf-8"))["passwords"]
COMMON = common_passwords()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["password"][:30])
def test_judgements(vector: dict[str, Any]) -> None:
    judgement = judge(vector["password"], COMMON)
    weakness = judgement.weakness and judgement.weakness.value
    assert (judgement.bits, weakness) == (vector["bits"], vector["weakness"])


@pytest.mark.parametrize(
    ("password", "sentence"),
    [
        ("123456789", "the password has 9 characters; choose one of at least 10, for example six random words"),
        ("aaaaaaaaaaaa", "the password repeats the same characters; choose for example six random words"),
        (
            "abcdefghijklm",
            "the password consists of neighbouring letters, digits or keys; choose for example six random words",
        ),
        (
            "P@ssw0rd2024",
            "the password consists of common passwords, which are guessed first; choose for example six random words",
        ),
        ("8317402915", "the password is too easy to guess; choose for example six random words"),
        ("correct horse battery staple", None),
    ],
)
def test_refusals_are_sentences(password: str, sentence: str | None) -> None:
    assert password_problem(password) == sentence
    suggesting = password_problem(password, os.urandom)
    if sentence is not None:
        assert suggesting is not None
        assert re.fullmatch(re.escape(sentence) + ": [a-z]+( [a-z]+){5}", suggesting)


@given(st.binary(min_size=12, max_size=12).filter(lambda data: len(set(data)) > 8))
def test_six_random_words_are_accepted(entropy: bytes) -> None:
    words = suggestion(lambda _: entropy)
    assert len(words.split()) == 6
    assert set(words.split()) <= set(bip39_words())
    assert judge(words, COMMON).weakness is None


@given(
    st.sampled_from(sorted(COMMON)), st.integers(0, 9999), st.sampled_from(["{}{}", "{1}{0}", "{0}{0}{1}", "{0}!{1}"])
)
def test_a_common_password_with_digits_is_refused(word: str, number: int, form: str) -> None:
    assert judge(form.format(word, number), COMMON).weakness is not None


@given(st.text(max_size=100))
def test_every_text_is_judged(text: str) -> None:
    judgement = judge(text, COMMON)
    refused = judgement.weakness in (Weakness.INVISIBLE, Weakness.SHORT)
    assert (judgement.weakness is None) == (judgement.bits >= ENOUGH and not refused)


def test_a_new_password_with_a_character_that_nobody_sees_is_refused_by_its_name_and_place() -> None:
    assert password_problem("correct horse\u200b battery staple") == (
        "the password must not have U+200B (ZERO WIDTH SPACE) in line 1, column 14; nobody sees it: remove it, or type "
        "the text again"
    )


def test_the_list_is_that_of_its_source() -> None:
    assert len(COMMON) == 10_000
    assert COMMON["123456"] == 1
    assert all(re.fullmatch("[a-z0-9]{4,16}", word) for word in COMMON)
    assert listed("# a comment\nfirst\nsecond\n") == ["first", "second"]


def test_another_word_list_is_refused() -> None:
    published = "\n".join(bip39_words()).encode() + b"\n"
    assert checked_words(published) == bip39_words()
    with pytest.raises(ValueError, match="not that of BIP-39"):
        checked_words(published.replace(b"zoo", b"zzz"))


def test_random_words_use_all_bits() -> None:
    assert random_words(2, lambda _: bytes.fromhex("07ffffff")) == ["zoo", "zoo"]
    assert random_words(2, lambda _: bytes.fromhex("00010002")) == [bip39_words()[2], bip39_words()[1]]
