"""The pieces that pages are made of. Text becomes text: the template library escapes whatever comes from the chain."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from attrs import frozen
from twisted.web.template import Tag

from svcd.chain.units import format_amount

Content = Tag | str
UNIT: Final = "SVC"
_SHOWN_ENDS: Final = 8
_STEPS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def tag(name: str, /, *children: Content, **attributes: str) -> Tag:
    """An element; ``class_`` is the class, and ``data_copy`` the attribute ``data-copy``."""
    element = Tag(name)
    return element(*children, **{key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()})


def amount(units: int, *, class_: str = "amount") -> Tag:
    """Coins in the shortest form, which never break across lines."""
    return tag("span", format_amount(units), " ", tag("span", UNIT, class_="unit"), class_=class_)


def link(text: Content, *path: str, **attributes: str) -> Tag:
    """A link to a page of this node, by the segments of its path."""
    return tag("a", text, href="/" + "/".join(quote(segment, safe="") for segment in path), **attributes)


def shortened(text: str) -> str:
    """Both ends of a long text: enough to compare by eye."""
    return text if len(text) <= 2 * _SHOWN_ENDS + 3 else f"{text[:_SHOWN_ENDS]}…{text[-_SHOWN_ENDS:]}"


def short(text: str, *path: str) -> Tag:
    """A hash or an address as a link in a list; all of it is in the title."""
    return link(shortened(text), *path, class_="mono", title=text)


def address_link(address: str) -> Tag:
    """An address in a list."""
    return short(address, "address", address)


def whole(text: str, what: str, *path: str) -> Tag:
    """All of a hash or an address, as a link if it has a ``path``, with a button that copies it."""
    shown = link(text, *path, class_="hash") if path else tag("span", text, class_="hash")
    return tag("span", shown, " ", copy_button(text, what), class_="copied")


def copy_button(text: str, what: str) -> Tag:
    """A button that copies ``text``; the script shows it, for without the script it could do nothing."""
    label = tag("span", f" {what}", class_="visually-hidden")
    return tag("button", "Copy", label, type="button", class_="small copy", hidden="hidden", data_copy=text)


def grouped(number: int) -> str:
    """A large number that nobody copies, in groups of three digits."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def ago(time: int, now: int) -> str:
    """How long before ``now`` something was, both in Unix milliseconds: ``3 minutes ago``."""
    seconds = (now - time) // 1000
    if seconds < 0:
        return "in a moment" if seconds > -60 else "later"
    for name, size in _STEPS:
        if seconds >= size:
            count = seconds // size
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"


def utc(time: int) -> str:
    """A Unix time in milliseconds as people read it, in UTC."""
    return f"{datetime.fromtimestamp(time // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def when(time: int, now: int) -> Tag:
    """The time relative to the server's clock, with the absolute one in its title."""
    machine = f"{datetime.fromtimestamp(time // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return tag("time", ago(time, now), datetime=machine, title=utc(time), class_="nobreak")


def facts(pairs: Iterable[tuple[str, Content]]) -> Tag:
    """Names and what they stand for."""
    listed = [part for name, value in pairs for part in (tag("dt", name), tag("dd", value))]
    return tag("dl", *listed, class_="facts")


def figure(caption: str, value: Content, note: Content = "") -> Tag:
    """A number that is to be seen at once."""
    parts = [tag("div", caption, class_="caption"), tag("div", value, class_="value")]
    return tag("div", *parts, tag("div", note, class_="caption"), class_="figure")


def figures(*each: Tag) -> Tag:
    """Several of them side by side."""
    return tag("div", *each, class_="card figures")


T = TypeVar("T")


@frozen
class Column(Generic[T]):
    """One column of a list: its heading, and what stands in it for one of the things that are listed."""

    heading: str
    cell: Callable[[T], Content]
    number: bool = False
    wide: bool = False
    """Whether it is left out where there is little room."""

    @property
    def attributes(self) -> dict[str, str]:
        """Those of its cells."""
        classes = " ".join(["number"] * self.number + ["wide"] * self.wide)
        return {"class": classes} if classes else {}


def listing(columns: Sequence[Column[T]], things: Iterable[T], *, caption: str) -> Tag:
    """A table that becomes cards on a phone; ``caption`` is for those who hear it."""
    heads = [tag("th", column.heading, scope="col", **column.attributes) for column in columns]
    rows = [
        tag("tr", *[tag("td", each.cell(thing), data_label=each.heading, **each.attributes) for each in columns])
        for thing in things
    ]
    head, body = tag("thead", tag("tr", *heads)), tag("tbody", *rows)
    return tag("table", tag("caption", caption, class_="visually-hidden"), head, body, class_="rows")


def badge(text: str, kind: str = "") -> Tag:
    """A word about the state of something."""
    return tag("span", text, class_=f"badge {kind}".strip())


def notice(kind: str, *content: Content) -> Tag:
    """Something that must not be overlooked: ``kind`` is good, warn, bad or nothing."""
    return tag("div", *content, class_=f"notice {kind}".strip())


def empty(text: str) -> Tag:
    """What stands where a list would be."""
    return tag("p", text, class_="empty")


def paging(*links: Content) -> Tag:
    """Ways to the other pages of a list."""
    return tag("nav", *links, class_="pages", aria_label="Pages")


def section(heading: str, *content: Content) -> Tag:
    """A part of a page."""
    return tag("section", tag("h2", heading), *content)


def plural(count: int, one: str, many: str = "") -> str:
    """``1 block``, ``2 blocks``."""
    return f"{count} {one if count == 1 else many or one + 's'}"
