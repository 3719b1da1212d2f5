"""A strict HTML parser for tests: collects elements, links and ids."""

import json
from html.parser import HTMLParser
from urllib.parse import urlsplit

VOID = {"br", "hr", "img", "input", "link", "meta"}
LOADS = {("script", "src"), ("link", "href"), ("img", "src")}


class Document(HTMLParser):
    """A parsed page; refuses malformed HTML, inline scripts and inline styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.tooltips: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.visible = ""
        self.said = ""
        """The text outside of details, one element apart from the other."""
        self.texts: dict[str, object] = {}
        """The texts for scripts."""
        self._open: list[tuple[str, bool]] = []
        self._hidden = 0
        self._title: list[str] = []
        assert text.startswith("<!DOCTYPE html>\n")
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {self._open}"
        assert len(self.ids) == len(set(self.ids)), "an id occurs twice"

    @property
    def title(self) -> str:
        return "".join(self._title)

    def all(self, name: str, **attributes: str) -> list[dict[str, str]]:
        """The attributes of every element with this name and these attributes."""
        wanted = {key.rstrip("_").replace("_", "-"): each for key, each in attributes.items()}
        return [found for element, found in self.elements if element == name and wanted.items() <= found.items()]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute of {tag} occurs twice"
        assert not [name for name in names if name == "style" or name.startswith("on")], f"{tag} has {names}"
        found = {name: value or "" for name, value in attrs}
        self.elements.append((tag, found))
        if tag == "a":
            self.links += [found["href"]] if "href" in found else []
        self.loads += [value for name, value in found.items() if (tag, name) in LOADS]
        self.ids += [found["id"]] if "id" in found else []
        if tag == "script":
            data = found.get("type") == "application/json" and found.get("id") in ("texts", "site-data")
            assert found.keys() in ({"type", "src"}, {"defer", "src"}) or data
        assert tag != "style"
        if tag not in VOID:
            hidden = "hidden" in found or tag in ("template", "noscript")
            self._open.append((tag, hidden))
            self._hidden += hidden

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        name, hidden = self._open.pop()
        assert tag == name, f"</{tag}> stands where </{name}> must"
        self._hidden -= hidden

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] == "title":
            # In a drawing a title is a tooltip.
            if self._open[-2][0] == "head":
                self._title.append(data)
            else:
                self.tooltips.append(data)
            return
        if self._open and self._open[-1][0] == "script":
            self.texts |= json.loads(data)
            return
        self.text += data
        if not any(name == "details" for name, _ in self._open[2:]):
            self.said += f" {data}"
        if not self._hidden:
            self.visible += data

    @property
    def inner_links(self) -> list[str]:
        """The targets of all links; every link must stay on the node."""
        for link in self.links:
            parts = urlsplit(link)
            assert not parts.scheme, link
            assert not parts.netloc, link
        return [link for link in self.links if not link.startswith("#")]
