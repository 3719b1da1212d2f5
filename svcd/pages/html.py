"""The elements that pages are built from, and numbers, times and untrusted text as text.

:func:`svcd.pages.layout.flattened` escapes all text, :func:`svcd.visible_text.visible` invisible characters
(docs/pages.md "Untrusted text").
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from twisted.web.template import Tag

from svcd.chain.units import format_amount
from svcd.pages.texts import Message, message
from svcd.pages.texts import grouped as grouped

Content = Tag | str | Message
UNIT: Final = message("frame.unit")
_SHOWN_ENDS: Final = 8
_UNGROUPED_DECIMALS: Final = 4
_BASE_UNITS: Final = re.compile(r"\b([0-9]{1,17}) base units?\b")
_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")


def shortened(text: str) -> str:
    """The first and the last characters of a long text, enough to compare by eye."""
    return text if len(text) <= 2 * _SHOWN_ENDS + 3 else f"{text[:_SHOWN_ENDS]}…{text[-_SHOWN_ENDS:]}"


def scaled(number: int) -> str:
    """A large number in three or four digits with an SI prefix: ``1.25 M``."""
    power = min((len(str(number)) - 1) // 3, len(_PREFIXES) - 1)
    if not power:
        return str(number)
    hundredths = number * 100 // 1000**power
    integer, rest = divmod(hundredths, 100)
    decimals = f".{rest:02d}" if integer < 100 else ""
    return f"{integer}{decimals} {_PREFIXES[power]}"


def byte_size(count: int) -> Message | str:
    """A number of bytes: ``12 kB``."""
    if count < 10_000:
        return message("frame.bytes", count=count)
    size, unit = (count // 1_000, "kB") if count < 10_000_000 else (count // 1_000_000, "MB")
    return f"{grouped(size)}\N{NO-BREAK SPACE}{unit}"


def duration(seconds: int) -> str:
    """A whole number of its largest fitting unit, without a word to translate: ``59 s``, ``2 min``, ``3 h``."""
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7_200 else f"{seconds // 3_600} h"


def about_time(seconds: int) -> Message:
    """A duration as people say it, rounded up: ``less than a minute``, ``about 12 minutes``, ``about 3 hours``."""
    count, is_hours = _rounded_up(seconds)
    if is_hours:
        return message("frame.hours", count=count)
    return message("frame.under-a-minute") if seconds < 60 else message("frame.minutes", count=count)


def time_left(seconds: int) -> Message:
    """What is left of a duration, as :func:`about_time` says it."""
    count, is_hours = _rounded_up(seconds)
    if is_hours:
        return message("script.hours-left", count=count)
    return message("script.under-a-minute-left") if seconds < 60 else message("script.minutes-left", count=count)


def _rounded_up(seconds: int) -> tuple[int, bool]:
    """The minutes in ``seconds`` and False, or for more than two hours the hours and True."""
    minutes = -(-max(seconds, 0) // 60)
    return (-(-minutes // 60), True) if minutes > 120 else (minutes, False)


def ago(time: int, now: int) -> Message:
    """The age of ``time`` at ``now``, both in Unix milliseconds: ``3 minutes ago``."""
    seconds = (now - time) // 1000
    if seconds < 0:
        return message("frame.in-a-moment") if seconds > -60 else message("frame.later")
    if seconds >= 86_400:
        return message("frame.days-ago", count=seconds // 86_400)
    if seconds >= 3_600:
        return message("frame.hours-ago", count=seconds // 3_600)
    if seconds >= 60:
        return message("frame.minutes-ago", count=seconds // 60)
    return message("frame.seconds-ago", count=seconds) if seconds else message("frame.just-now")


def utc(time: int) -> str:
    """A time in Unix milliseconds as text in UTC: ``2026-11-01 00:00:00 UTC``."""
    return f"{datetime.fromtimestamp(time // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def tag(name: str, /, *children: Content, **attributes: str | Message) -> Tag:
    """An element; the keyword ``class_`` gives the attribute ``class``, and ``data_copy`` gives ``data-copy``."""
    # Twisted declares what its own templates may contain; Message is not among it.
    named: Any = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    contained: Any = list(children)
    return Tag(name, named, contained)


def link(text: Content, *path: str, **attributes: str | Message) -> Tag:
    """A link to the page of this node whose path has the segments ``path``."""
    return tag("a", text, href="/" + "/".join(quote(segment, safe="") for segment in path), **attributes)


def short_link(text: str, *path: str) -> Tag:
    """A link that shows a shortened hash or address, with the full one in its title."""
    return link(shortened(text), *path, class_="mono", title=text)


def address_link(address: str) -> Tag:
    """A link to the page of ``address``, shortened."""
    return short_link(address, "address", address)


def copyable(text: str, what: str | Message, *path: str, class_: str = "hash") -> Tag:
    """A full hash or address with a copy button; a link if ``path`` is given. ``what`` names it for screen readers."""
    shown = link(text, *path, class_=class_) if path else tag("span", text, class_=class_)
    return tag("span", shown, " ", copy_button(text, what), class_="copied")


def copy_button(text: str, what: str | Message) -> Tag:
    """A button that copies ``text``; hidden until ``copy.mjs`` shows it, because it needs the script."""
    label = tag("span", " ", what, class_="visually-hidden")
    return tag(
        "button", message("frame.copy"), label, type="button", class_="small copy", hidden="hidden", data_copy=text
    )


def amount(units: int, *, class_: str = "amount") -> Tag:
    """An amount in coins with thin spaces between groups of digits; it does not break across lines.

    The spaces are margins and not characters: an amount that is selected and copied remains a number.
    """
    return tag("span", *digit_groups(format_amount(units)), " ", tag("span", UNIT, class_="unit"), class_=class_)


def coins(units: int) -> Message:
    """An amount in coins as text that does not break across lines, with narrow spaces between groups of digits."""
    return message("frame.coins", number="\N{NARROW NO-BREAK SPACE}".join(_groups(format_amount(units))))


def in_coins(sentence: str) -> Tag:
    """A sentence of a node with the amounts in coins that it gives in base units."""
    # Every second part is a number of base units.
    parts = _BASE_UNITS.split(sentence)
    return tag("span", *[coins(int(part)) if index % 2 else part for index, part in enumerate(parts)])


def bare_amount(units: int) -> Tag:
    """An amount in coins without the unit, with the spaces of :func:`amount`."""
    return tag("span", *digit_groups(format_amount(units)), class_="amount")


def digit_groups(number: str) -> list[Content]:
    """The digits of a decimal number in groups; the spaces between them are margins."""
    first, *rest = _groups(number)
    return [first, *[tag("span", group, class_="group") for group in rest]]


def _groups(number: str) -> list[str]:
    """The digits in groups of three, from the point to both sides; up to four decimals stay together."""
    integer, point, decimals = number.partition(".")
    first = len(integer) % 3 or 3
    groups = [integer[:first], *_threes(integer[first:])]
    rest = [decimals] if len(decimals) <= _UNGROUPED_DECIMALS else _threes(decimals)
    groups[-1] += point + rest[0]
    return groups + rest[1:]


def _threes(digits: str) -> list[str]:
    return [digits[at : at + 3] for at in range(0, len(digits), 3)]


def when(time: int, now: int) -> Tag:
    """A time relative to the server's clock, with the absolute time in its title; both in Unix milliseconds."""
    return tag("time", ago(time, now), datetime=_machine_readable(time), title=utc(time), class_="nobreak")


def instant(time: int) -> Tag:
    """A time in Unix milliseconds in UTC, which `times.mjs` writes as the reader's language and place do."""
    return tag("time", utc(time), datetime=_machine_readable(time), data_local="", class_="nobreak")


def instant_and_age(time: int, now: int) -> Tag:
    """A time in Unix milliseconds, and its age at ``now``."""
    return tag("span", instant(time), " (", ago(time, now), ")")


def _machine_readable(time: int) -> str:
    return f"{datetime.fromtimestamp(time // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def facts(pairs: Iterable[tuple[Content, Content]]) -> Tag:
    """A description list of names and values."""
    listed = [part for name, value in pairs for part in (tag("dt", name), tag("dd", value))]
    return tag("dl", *listed, class_="facts")


def stat(caption: Content, value: Content, note: Content = "") -> Tag:
    """A number in large type with a caption above and a note below."""
    parts = [tag("div", caption, class_="caption"), tag("div", value, class_="value")]
    return tag("div", *parts, tag("div", note, class_="caption"), class_="figure")


def stats(*each: Tag) -> Tag:
    """Several ``stat`` elements side by side."""
    return tag("div", *each, class_="card figures")


def badge(text: Content, kind: str = "") -> Tag:
    """A short state in a coloured label; ``kind`` is good, warn, bad or empty."""
    return tag("span", text, class_=f"badge {kind}".strip())


def notice(kind: str, *content: Content) -> Tag:
    """A highlighted message; ``kind`` is good, warn, bad or empty."""
    return tag("div", *content, class_=f"notice {kind}".strip())


def empty_list(text: Content) -> Tag:
    """The text in the place of a list without entries."""
    return tag("p", text, class_="empty")


def pagination(*links: Content) -> list[Tag]:
    """The navigation with links to the other pages of a list; nothing if there are none."""
    return [tag("nav", *links, class_="pages", aria_label=message("frame.pagination"))] if links else []


def section(heading: Content, *content: Content) -> Tag:
    """A section of a page."""
    return tag("section", tag("h2", heading), *content)
