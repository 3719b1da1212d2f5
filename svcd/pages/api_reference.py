"""The reference of the node's HTTP interface for people, made of its OpenAPI document (docs/pages.md "API reference").

It is the same for every client and shows nothing of the chain, so it is drawn once, on the first request, in a thread:
that takes a tenth of a second. It is English, as the descriptions in the document are.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import define, field
from twisted.internet.defer import DeferredLock
from twisted.web.template import Tag

from svcd.interfaces import Worker
from svcd.pages.api_examples import HEADER_COMMAND, HEADER_FILE, TOKEN_FILE, curl, laid_out
from svcd.pages.html import Content, facts, tag
from svcd.pages.layout import Layout, Page
from svcd.pages.representations import Negotiated
from svcd.pages.routes import HTML, page
from svcd.pages.schema_words import MemberRow, Schema, Schemas, inline, joined, schema_anchor
from svcd.pages.texts import Catalogue

JSON: Final = "application/json"
DOCUMENT: Final = "/rpc/openapi.json"
_HEADERS: Final = ((b"Cache-Control", b"no-cache"),)
_DEPTHS: Final = ("", "in-1", "in-2", "in-3")
_PLACEHOLDER: Final = re.compile(r"(\{[A-Za-z]+\})")
_BODILESS: Final = ("head", "options")
"""Methods whose answers have no body; each path has them beside others, and they get no section of their own."""
Operation = Mapping[str, Any]


@define
class ApiReferencePage:
    """The page of a node that answers at ``origin``; ``describe`` makes the document, which a ``worker`` draws."""

    _layout: Layout
    _english: Catalogue
    _describe: Callable[[], Mapping[str, object]]
    _worker: Worker
    _origin: str
    _drawn: Negotiated | None = field(init=False, default=None)
    _drawing: DeferredLock = field(init=False, factory=DeferredLock)

    @page("/reference/", "The reference of the HTTP interface")
    async def reference(self) -> Negotiated:
        """Answer GET /reference/."""
        # Requests that come before the first one is answered wait for the same drawing.
        async with self._drawing:
            if self._drawn is None:
                self._drawn = await self._worker.run(self._draw)
        return self._drawn

    def _draw(self) -> Negotiated:
        shown = reference_page(self._describe(), self._origin)
        return Negotiated(self._layout.draw(shown, self._english), HTML, _HEADERS, revalidated=True)


def anchor(method: str, path: str) -> str:
    """The id of the section of an operation: ``get-rpc-block-height``."""
    return re.sub("[^a-z0-9]+", "-", f"{method} {path}".lower()).strip("-")


def reference_page(document: Mapping[str, Any], origin: str) -> Page:
    """The page for an OpenAPI document, whose examples ask the node at ``origin``."""
    return Page(
        title="API reference",
        content=(_Reference(document, origin).draw(),),
        json=DOCUMENT,
        searchable=False,
        warned=False,
        styles=("reference.css",),
    )


class _Reference:
    """Draws the parts of the page of one document."""

    def __init__(self, document: Mapping[str, Any], origin: str) -> None:
        self._document = document
        self._origin = origin
        components = document["components"]
        self._schemas = Schemas(components["schemas"])
        self._common: Mapping[str, Any] = components["responses"]
        hooks: Mapping[str, Mapping[str, Operation]] = document.get("webhooks", {})
        self._events = {name: hook["post"] for name, hook in hooks.items()}
        self._event_headers = _same([each.get("parameters", ()) for each in self._events.values()])
        self._event_answers = _same([each["responses"] for each in self._events.values()])
        operations = [each for methods in document["paths"].values() for each in methods.values()]
        errors = [each["responses"][status] for each in operations for status in each["responses"] if status >= "4"]
        # What errors have is described apart: the table of errors has no place for it.
        self._schemas.count([document["paths"], self._common, list(self._events.values()), errors])

    def draw(self) -> Tag:
        """All of it: the contents, and the sections beside them."""
        groups = [(each["name"], each["description"]) for each in self._document["tags"]]
        return tag(
            "div",
            tag("h1", "API reference"),
            self._contents([name for name, _ in groups]),
            tag(
                "div",
                self._common_rules(),
                *[self._group(name, description) for name, description in groups],
                self._named(),
                class_="sections",
            ),
            class_="reference-page",
        )

    # Contents

    def _operations(self, group: str) -> list[tuple[str, str, Operation]]:
        """Method, path and description of what has a section in a group."""
        return [
            (method, path, operation)
            for path, methods in self._document["paths"].items()
            for method, operation in methods.items()
            if group in operation["tags"] and method not in _BODILESS
        ]

    def _events_of(self, group: str) -> list[tuple[str, Operation]]:
        return [(name, event) for name, event in self._events.items() if group in event["tags"]]

    def _contents(self, groups: Iterable[str]) -> Tag:
        """Folded where the screen has no room for it beside the sections."""
        common: list[tuple[str, list[Content]]] = []
        if self._methods():
            common.append(("methods", ["HEAD and OPTIONS"]))
        for name in self._document["components"]["securitySchemes"]:
            common.append((f"security-{name}", ["Authorisation"]))
        if self._answer_headers():
            common.append(("headers", ["Headers of answers"]))
        common.append(("errors", ["Errors"]))
        parts = [_entry("common-rules", "Common rules", common)]
        for group in groups:
            links: list[tuple[str, list[Content]]] = [
                (anchor(method, path), _shown(method, path)) for method, path, _ in self._operations(group)
            ]
            if self._events_of(group):
                links += [("event-headers", ["Headers of every event"]), ("event-answers", ["Answers of the receiver"])]
            links += [(anchor("event", name), [tag("code", name)]) for name, _ in self._events_of(group)]
            parts.append(_entry(group, group.capitalize(), links))
        named: list[tuple[str, list[Content]]] = [(schema_anchor(name), [name]) for name in self._schemas.apart()]
        parts.append(_entry("schemas", "Schemas", named))
        folded = tag("details", tag("summary", "Contents"), tag("ul", *parts))
        # With tabindex the keyboard can scroll it where it is beside the sections.
        return tag("nav", folded, id="contents", class_="contents", aria_label="Contents", tabindex="0")

    # What holds everywhere

    def _common_rules(self) -> Tag:
        info = self._document["info"]
        first, *paragraphs = _paragraphs(info["description"])
        document = tag("a", DOCUMENT, href=DOCUMENT, class_="mono")
        rows: list[tuple[Content, Content]] = [
            ("Base URL", tag("code", self._origin)),
            ("Version", info["version"]),
            ("This description in OpenAPI " + str(self._document["openapi"]), document),
        ]
        return tag(
            "section",
            tag("h2", "Common rules"),
            first,
            facts(rows),
            *paragraphs,
            tag(
                "p",
                "The examples are invented. Addresses, keys, hashes, ids and signatures in them are placeholders: they "
                "repeat where real ones differ, and no signature is valid.",
            ),
            tag(
                "p",
                "In the tables, ",
                tag("span", "required", class_="mark"),
                " marks the parameters and the members of bodies that must be given, and ",
                tag("span", "optional", class_="mark"),
                " the members of answers and events that may be missing.",
            ),
            *self._methods(),
            *self._security(),
            *self._answer_headers(),
            tag("h3", "Errors", id="errors"),
            tag("p", "Every route may answer these. A route that has others, or another meaning of one, lists it."),
            self._errors(self._common_errors(), "Errors of every route"),
            _back(),
            id="common-rules",
        )

    def _common_errors(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The status and the description of each error to which routes refer."""
        statuses = {
            response["$ref"]: status
            for methods in self._document["paths"].values()
            for operation in methods.values()
            for status, response in operation["responses"].items()
            if "$ref" in response
        }
        return [(statuses[f"#/components/responses/{name}"], response) for name, response in self._common.items()]

    def _methods(self) -> list[Tag]:
        """What the methods without a body do."""
        found: dict[str, tuple[str, str]] = {}
        for methods in self._document["paths"].values():
            for method in _BODILESS:
                if method in methods:
                    success = next(iter(methods[method]["responses"].values()))
                    found[method] = methods[method]["description"], success["description"]
        rows = [[tag("code", method.upper()), _text(about), _text(answer)] for method, (about, answer) in found.items()]
        if not rows:
            return []
        return [
            tag("h3", "HEAD and OPTIONS", id="methods"),
            _table("HEAD and OPTIONS", ("Method", "What it does", "Answer"), rows),
        ]

    def _security(self) -> list[Tag]:
        schemes = self._document["components"]["securitySchemes"]
        return [
            part
            for name in schemes
            for part in (
                tag("h3", "Authorisation", id=f"security-{name}"),
                tag(
                    "p",
                    "Routes that need a token say so. Send it in the header ",
                    tag("code", f"Authorization: {name.capitalize()} <token>"),
                    ". Every user of a computer can read the arguments of a process, so the examples read the header "
                    "from the file ",
                    tag("code", HEADER_FILE),
                    ", here made of a token in the file ",
                    tag("code", TOKEN_FILE),
                    ":",
                ),
                tag("pre", tag("code", HEADER_COMMAND), class_="command"),
            )
        ]

    def _answer_headers(self) -> list[Tag]:
        """The headers of successful answers, each of which means the same everywhere."""
        headers = {
            name: header["schema"]
            for methods in self._document["paths"].values()
            for operation in methods.values()
            for status, response in operation["responses"].items()
            if status < "4"
            for name, header in response.get("headers", {}).items()
        }
        rows = [
            [
                tag("code", name, id=anchor("header", name)),
                tag("div", *self._schemas.words(schema)),
                _text(schema.get("description", "")),
            ]
            for name, schema in headers.items()
        ]
        if not rows:
            return []
        return [
            tag("h3", "Headers of answers", id="headers"),
            _table("Headers of answers", ("Header", "Type", "Description"), rows),
        ]

    # Groups

    def _group(self, name: str, description: str) -> Tag:
        return tag(
            "section",
            tag("h2", name.capitalize()),
            *_paragraphs(description),
            *[self._operation(*each) for each in self._operations(name)],
            *(self._common_of_events() if self._events_of(name) else []),
            *[self._event(*each) for each in self._events_of(name)],
            id=name,
        )

    def _operation(self, method: str, path: str, operation: Operation) -> Tag:
        place, of = anchor(method, path), f"{method.upper()} {path}"
        example = [
            _heading("Example", of),
            tag("pre", tag("code", curl(self._origin, method.upper(), path, operation)), class_="command"),
        ]
        return tag(
            "section",
            tag("h3", tag("a", *_shown(method, path), href=f"#{place}")),
            *_paragraphs(operation["description"]),
            *self._needed(operation),
            *self._also(method, path),
            *self._parameters(operation.get("parameters", ()), _heading("Parameters", of), f"Parameters of {of}"),
            *self._body(operation, of),
            *self._answers(operation, of),
            *self._own_errors(operation, of),
            *example,
            *_answer_example(operation),
            _back(),
            id=place,
            class_="route",
        )

    def _needed(self, operation: Operation) -> list[Tag]:
        names = [name for each in operation.get("security", ()) for name in each]
        return [tag("p", "Needs a ", tag("a", "token", href=f"#security-{name}"), ".", class_="soft") for name in names]

    def _also(self, method: str, path: str) -> list[Tag]:
        """The methods without a body on the same path; where it has two sections, HEAD goes with GET."""
        methods = self._document["paths"][path]
        first = next(iter(methods))
        also = [each for each in _BODILESS if each in methods and (method == "get" if each == "head" else True)]
        # An id occurs once: of two sections for one path the first has that of OPTIONS.
        codes: list[list[Content]] = [
            [tag("code", each.upper(), **({} if each == "options" and method != first else {"id": anchor(each, path)}))]
            for each in also
        ]
        if not codes:
            return []
        link = tag("a", "as everywhere", href="#methods")
        return [tag("p", "The path also answers ", *joined(codes, " and "), ", ", link, ".", class_="soft small")]

    def _parameters(self, parameters: Sequence[Mapping[str, Any]], heading: Tag, called: str) -> list[Tag]:
        rows = [
            [
                _member((), each["name"], f"in {each['in']}" + (", required" if each["required"] else "")),
                tag("div", *self._schemas.words(each["schema"])),
                _text(each.get("description", "")),
            ]
            for each in parameters
        ]
        if not rows:
            return []
        return [heading, _table(called, ("Name", "Type", "Description"), rows)]

    def _body(self, operation: Operation, of: str) -> list[Tag]:
        content = operation.get("requestBody", {}).get("content", {})
        return [
            part
            for media_type, described in content.items()
            if self._schemas.resolved(described["schema"]).get("properties") != {}
            for part in (
                _heading("Body", of),
                *self._content(media_type, described["schema"], "required", f"Body of {of}"),
            )
        ]

    def _answers(self, operation: Operation, of: str) -> list[Tag]:
        found: list[Tag] = []
        for status, response in operation["responses"].items():
            if status < "4":
                found.append(_heading(f"Answer {status}", of))
                found += [
                    tag("p", "With the header ", tag("a", name, href=f"#{anchor('header', name)}", class_="mono"), ".")
                    for name in response.get("headers", {})
                ]
                for media_type, described in response.get("content", {}).items():
                    found += self._content(media_type, described["schema"], "optional", f"Answer {status} of {of}")
        return found

    def _content(self, media_type: str, schema: Schema, mark: str, called: str) -> list[Tag]:
        """What a body or an answer consists of; ``mark`` says which members are marked, ``called`` names the tables."""
        found = [] if media_type == JSON else [tag("p", "As ", tag("code", media_type), ".")]
        return [*found, *self._members(schema, mark, called)]

    def _members(self, schema: Schema, mark: str, called: str, said: str = "") -> list[Tag]:
        """The members of an object, below its description if that is not what has been ``said`` before."""
        choices = schema.get("oneOf")
        if choices and all("properties" in self._schemas.resolved(each) for each in choices):
            return self._alternatives(choices, mark, called)
        name = self._schemas.target(schema)
        described = self._schemas.resolved(schema)
        if "properties" not in described or (name and name in self._schemas.apart()):
            return [tag("p", *self._schemas.words(schema))]
        attributes = {"id": schema_anchor(name)} if name else {}
        description = described.get("description", "")
        about = [] if description == said else _paragraphs(description)
        return [*about, self._table_of_members(called, list(self._schemas.rows(described)), mark, **attributes)]

    def _alternatives(self, choices: Sequence[Schema], mark: str, called: str) -> list[Tag]:
        """Objects of which one is chosen, each with the members that the others have not; then what all have."""
        objects = [self._schemas.resolved(each) for each in choices]
        shared = set.intersection(*[set(each["properties"]) for each in objects])
        found: list[Tag] = []
        for choice, described in zip(choices, objects, strict=True):
            name = self._schemas.target(choice)
            own = [row for row in self._schemas.rows(described) if row.path[0].removesuffix("[]") not in shared]
            if own:
                attributes = {"id": schema_anchor(name)} if name and name not in self._schemas.apart() else {}
                found += [tag("p", "Either" if not found else "or", **attributes)]
                found += [self._table_of_members(f"{called}: one of several choices", own, mark)]
        rows = [row for row in self._schemas.rows(objects[0]) if row.path[0].removesuffix("[]") in shared]
        return [*found, tag("p", "and"), self._table_of_members(called, rows, mark)] if rows else found

    def _table_of_members(self, called: str, rows: Iterable[MemberRow], mark: str, **attributes: str) -> Tag:
        cells = []
        for row in rows:
            marked = mark if row.required == (mark == "required") else ""
            name = _member(row.path[:-1], row.path[-1], marked)
            if row.named:
                name.attributes["id"] = schema_anchor(row.named)
            cells.append(
                [
                    name,
                    tag("div", *self._schemas.words(row.schema)),
                    _text(row.about),
                ]
            )
        return _table(called, ("Member", "Type", "Description"), cells, **attributes)

    def _own_errors(self, operation: Operation, of: str) -> list[Tag]:
        errors = {status: each for status, each in operation["responses"].items() if status >= "4"}
        own = {status: each for status, each in errors.items() if "$ref" not in each}
        found = [_heading("Errors", of)]
        if own:
            found.append(self._errors(own.items(), f"Errors of {of}"))
        if common := ", ".join(status for status in errors if status not in own):
            link = tag("a", "errors of every route", href="#errors")
            found.append(tag("p", "Also" if own else "Only", " the ", link, ": ", f"{common}."))
        return found

    def _errors(self, errors: Iterable[tuple[str, Mapping[str, Any]]], called: str) -> Tag:
        rows = [
            [tag("code", status), tag("div", *inline(response["description"]), *self._details(response))]
            for status, response in errors
        ]
        return _table(called, ("Status", "Meaning"), rows)

    def _details(self, response: Mapping[str, Any]) -> list[Content]:
        """The headers and the further members of an error."""
        found: list[Content] = []
        for name, header in response.get("headers", {}).items():
            about = header["schema"].get("description", "")
            found += [" ", tag("span", "Header ", tag("code", name), ".", f" {about}" if about else "", class_="soft")]
        for described in response.get("content", {}).values():
            found += [" ", tag("span", "Body: ", *self._schemas.words(described["schema"]), ".", class_="soft")]
        return found

    # Events

    def _common_of_events(self) -> list[Tag]:
        answers = [[tag("code", status), _text(each["description"])] for status, each in self._event_answers.items()]
        return [
            *self._parameters(
                self._event_headers,
                tag("h3", "Headers of every event", id="event-headers"),
                "Headers of every event",
            ),
            tag("h3", "What the receiver answers", id="event-answers"),
            _table("What the receiver answers", ("Status", "Meaning"), answers),
            _back(),
        ]

    def _event(self, name: str, event: Operation) -> Tag:
        place = anchor("event", name)
        content = event["requestBody"]["content"][JSON]
        return tag(
            "section",
            tag("h3", tag("a", tag("span", "event", class_="method"), " ", tag("code", name), href=f"#{place}")),
            *_paragraphs(event["description"]),
            _heading("Body", name),
            *self._members(content["schema"], "optional", f"Body of {name}", event["description"]),
            _heading("Example", name),
            tag("pre", tag("code", laid_out(content["example"]))),
            _back(),
            id=place,
            class_="route",
        )

    # Named schemas

    def _named(self) -> Tag:
        return tag(
            "section",
            tag("h2", "Schemas"),
            tag("p", "Types and objects that several places refer to."),
            *[self._schema(name) for name in self._schemas.apart()],
            id="schemas",
        )

    def _schema(self, name: str) -> Tag:
        schema = self._document["components"]["schemas"][name]
        rows = list(self._schemas.rows(schema))
        return tag(
            "section",
            tag("h3", name),
            *_paragraphs(schema.get("description", "")),
            self._table_of_members(f"Members of {name}", rows, "optional")
            if rows
            else tag("p", *self._schemas.words(schema)),
            _back(),
            id=schema_anchor(name),
            class_="route",
        )


def _same(values: Sequence[Any]) -> Any:
    """The one value that all of ``values`` are; raises ValueError where they differ."""
    if any(each != values[0] for each in values):
        raise ValueError("the events differ in their headers or in what receivers answer")
    return values[0] if values else {}


def _paragraphs(text: str) -> list[Tag]:
    """A description: paragraphs, and lists of lines that begin with a dash."""
    found = []
    for block in filter(None, text.split("\n\n")):
        if block.startswith("- "):
            lines = block.removeprefix("- ").split("\n- ")
            found.append(tag("ul", *[tag("li", *inline(line)) for line in lines]))
        else:
            found.append(tag("p", *inline(block)))
    return found


def _text(text: str) -> Tag:
    return tag("div", *inline(text))


def _shown(method: str, path: str) -> list[Content]:
    # A line does not end inside a placeholder.
    parts = [tag("span", each, class_="nobreak") if each[:1] == "{" else each for each in _PLACEHOLDER.split(path)]
    return [tag("span", method.upper(), class_=f"method {method}"), " ", tag("code", *filter(None, parts))]


def _heading(text: str, of: str) -> Tag:
    """A heading that many sections have; who hears the page is told of which one it is."""
    return tag("h4", text, tag("span", f" of {of}", class_="visually-hidden"))


def _back() -> Tag:
    return tag("p", tag("a", "Back to the contents", href="#contents"), class_="back small")


def _entry(place: str, name: str, links: Iterable[tuple[str, list[Content]]]) -> Tag:
    """An entry of the contents, with those below it."""
    below = [tag("li", tag("a", *text, href=f"#{target}")) for target, text in links]
    return tag("li", tag("a", name, href=f"#{place}", class_="group"), *([tag("ul", *below)] if below else []))


def _member(before: tuple[str, ...], name: str, mark: str) -> Tag:
    """The name of a parameter or member, after those of the members that it is in."""
    path = [tag("span", "".join(f"{each}." for each in before), class_="soft")] if before else []
    marked: list[Content] = [" ", tag("span", mark, class_="mark")] if mark else []
    return tag("div", tag("code", *path, name), *marked, class_=f"member {_DEPTHS[min(len(before), 3)]}".strip())


def _table(called: str, heads: Sequence[str], rows: Iterable[Sequence[Content]], **attributes: str) -> Tag:
    """A table with a name for screen readers, in which the first cell of each row is its heading."""
    body = [tag("tr", tag("th", first, scope="row"), *[tag("td", cell) for cell in cells]) for first, *cells in rows]
    head = tag("tr", *[tag("th", each, scope="col") for each in heads])
    kind = "members two" if len(heads) == 2 else "members"
    return tag("table", tag("thead", head), tag("tbody", *body), class_=kind, aria_label=called, **attributes)


def _answer_example(operation: Operation) -> list[Tag]:
    """The example of the first successful answer, if it is JSON."""
    for status, response in operation["responses"].items():
        for media_type, described in response.get("content", {}).items():
            if status < "4" and "json" in media_type:
                return [tag("pre", tag("code", laid_out(described["example"])))]
    return []
