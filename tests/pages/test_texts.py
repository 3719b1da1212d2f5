"""The catalogues of texts: chosen by ``Accept-Language``, complete, and the only place of texts."""

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from svcd import pages
from svcd.pages.bundles import imported_modules
from svcd.pages.html import tag
from svcd.pages.layout import flattened
from svcd.pages.static_files import TILL_SCRIPT, WALLET_SCRIPT
from svcd.pages.texts import SCRIPT, Catalogue, Catalogues, Message, load, message
from tests.chains import COIN
from tests.pages.conftest import Shown as Shown
from tests.pages.conftest import show
from tests.pages.reading import Document
from tests.rpc.node import Node

PAGES = Path(pages.__file__).parent
FOLDER = PAGES / "texts"
PYTHON = sorted(PAGES.glob("*.py"))
SCRIPTS = {path.name: path.read_text("utf-8") for path in sorted((PAGES / "static").glob("*.mjs"))}
STATIC_PAGES = sorted(PAGES.glob("*.html"))
ENGLISH = json.loads((FOLDER / "en.json").read_text("utf-8"))
KEYS = {f"{section}.{name}" for section, entries in ENGLISH.items() for name in entries}
PACKAGED = load()


def rendered(catalogue: Catalogue, shown: Message) -> str:
    return flattened(tag("p", shown), catalogue).decode().removeprefix("<p>").removesuffix("</p>")


def languages(*tags: str) -> Catalogues:
    return Catalogues(Catalogue(each, {}) for each in ("en", *tags))


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("", "en"),
        ("de", "de"),
        ("DE-at", "de"),
        ("de-CH-1996, en;q=0.9", "de"),
        ("en-GB,de;q=0.9", "en"),
        ("fr, de;q=0.8, en;q=0.9", "en"),
        ("fr, de ; q=0.9,en;q=0.8", "de"),
        ("fr-FR,fr;q=0.9", "en"),
        ("*", "en"),
        ("en;q=0, *", "de"),
        ("de;q=0, en;q=0", "en"),
        ("de;q=0.5, *;q=0.4", "de"),
        ("pt", "pt-BR"),
        ("pt-br", "pt-BR"),
        ("pt-PT, de;q=0.1", "de"),
        ("german, de;q=2, ;;, en;q=x, de;q=0.1", "de"),
        ("\xff, de", "de"),
    ],
)
def test_the_language_is_the_one_that_the_client_likes_best(accepted: str, language: str) -> None:
    assert languages("de", "pt-BR").choose(accepted.encode("latin-1")).language == language


def test_placeholders_and_forms() -> None:
    english, german = PACKAGED.choose(b"en"), PACKAGED.choose(b"de")
    assert rendered(english, message("script.confirmations", count=1)) == "1 confirmation"
    assert rendered(german, message("script.confirmations", count=1_000)) == "1\u202f000 Bestätigungen"
    shown = message("checkout.back", host=tag("bdi", "<shop>"))
    assert rendered(german, shown) == "Zurück zu <bdi>&lt;shop&gt;</bdi>"
    nested = message("checkout.takes", time=message("frame.minutes", count=12), count=12)
    assert rendered(english, nested) == "Once sent, the payment takes about 12 minutes (12 confirmations)."
    title = tag("p", title=message("checkout.title", state="Paid", amount='"1"'))
    assert flattened(title, english) == b'<p title="Paid: &quot;1&quot;"></p>'


def test_texts_for_scripts_cannot_end_their_element() -> None:
    catalogue = Catalogue("en", {"script.a": {"other": "</script><!--&"}, "other.b": {"other": "b"}})
    text = catalogue.for_scripts("script")
    assert json.loads(text) == {"script.a": "</script><!--&"}
    assert not set("<>&") & set(text)


def written(folder: Path, tag: str, texts: object) -> Catalogues:
    (folder / "en.json").write_text(json.dumps({"a": {"b": "one {x}", "c": {"one": "a", "other": "{count} b"}}}))
    (folder / f"{tag}.json").write_text(texts if isinstance(texts, str) else json.dumps(texts))
    return load(folder)


def test_a_file_is_enough_for_a_language(tmp_path: Path) -> None:
    found = written(tmp_path, "eo", {"a": {"b": "unu {x}", "c": {"one": "{count} a", "other": "{count} b"}}})
    assert rendered(found.choose(b"eo"), message("a.b", x="2")) == "unu 2"
    assert rendered(found.choose(b"eo"), message("a.c", count=1)) == "1 a"
    assert [each.language for each in found] == ["en", "eo"]


@pytest.mark.parametrize(
    ("tag", "texts", "problem"),
    [
        ("eo", "{", "eo.json: "),
        ("eo", [], "an object of sections"),
        ("eo", {"a": "b"}, "an object of texts"),
        ("eo", {"a": {"b": "unu {x}"}}, "has no text a.c"),
        ("eo", {"a": {"b": "", "c": "d"}}, "a.b must be a text"),
        ("eo", {"a": {"b": {"other": "{x}", "one": "{x}"}, "c": "d"}}, "a.b must be a text"),
        ("eo", {"a": {"b": "{x}", "c": "{count}"}}, "a.c must have the same forms"),
        ("eo", {"a": {"b": "{y}", "c": {"one": "a", "other": "{count}"}}}, r"a.b must have .* placeholders \['x'\]"),
        ("eo", {"a": {"b": "{x} {", "c": {"one": "a", "other": "{count}"}}}, "a.b must have exactly"),
        ("eo", {"a": {"b": "{x}", "c": {"one": "a", "other": "b"}}}, "a.c must have exactly"),
        ("eo", {"a": {"b": "{x}", "c": {"one": "a", "other": "{count}"}, "d": "e"}}, "must not have a.d"),
        ("Esperanto!", {"a": {"b": "{x}", "c": {"one": "a", "other": "{count}"}}}, "a language tag"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, tag: str, texts: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        written(tmp_path, tag, texts)


def test_a_folder_without_english_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no en\.json"):
        load(tmp_path)


# That the pages use the catalogue


def placeholders(key: str) -> set[str]:
    section, name = key.split(".")
    return set(re.findall(r"\{([a-z]+)\}", json.dumps(ENGLISH[section][name])))


def messages_in_python() -> list[tuple[str, set[str]]]:
    """The key and the names of the parameters of every call of ``message``."""
    calls = [
        each for path in PYTHON for each in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(each, ast.Call)
    ]
    found = []
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id == "message":
            (key,) = call.args
            assert isinstance(key, ast.Constant), f"a key that no test can see: {ast.unparse(call)}"
            found.append((str(key.value), {each.arg or "" for each in call.keywords}))
    return found


def test_every_message_of_the_server_is_in_the_catalogue() -> None:
    for key, given in messages_in_python():
        assert key in KEYS
        # The catalogue knows itself what the network calls its coins.
        assert given == placeholders(key) - {"unit"} | (given & {"count"}), key


def bundled(entry: str) -> set[str]:
    """A module and all that it imports."""
    found, waiting = set[str](), [entry]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imported_modules(SCRIPTS[name])
    return found


WALLET_PARTS = ("wallet-devnet.mjs", "wallet-history.mjs", "wallet-scan.mjs", "wallet-transfer.mjs")
"""Parts of the wallet that are loaded later."""


def test_every_message_of_a_script_is_sent_to_it() -> None:
    entries = SCRIPTS.keys() - {name for source in SCRIPTS.values() for name in imported_modules(source)}
    assert {"wallet.mjs", "checkout.mjs"} <= entries
    for entry in entries:
        # What the worker of the wallet says, the wallet shows. The other worker takes from modules of the wallet only
        # functions that say nothing.
        wallet = ("wallet.mjs", *WALLET_PARTS, "light-worker.mjs", "proof-worker.mjs")
        sent = {SCRIPT, WALLET_SCRIPT} if entry in (*wallet, "till.mjs") else {SCRIPT}
        sent |= {TILL_SCRIPT} if entry == "till.mjs" else set()
        for name in bundled(entry):
            for key in re.findall(r'"([a-z-]+\.[a-z0-9-]+)"', SCRIPTS[name]):
                if key.split(".")[0] in ENGLISH:
                    assert key in KEYS, name
                    assert key.split(".")[0] in sent, (name, key)


def test_scripts_give_every_message_its_values() -> None:
    for name, source in SCRIPTS.items():
        for key, given in re.findall(r'\bmessage\(\s*"([^"]+)"(?:,\s*\{((?:[^{}]|\{[^{}]*\})*)\})?', source):
            values = {each.split(":")[0].strip() for each in re.split(r",(?![^()]*\))", given) if each.strip()}
            assert values == placeholders(key) | (values & {"count"}), (name, key)


DEVELOPERS = re.compile(r"\b(?:RangeError|damaged|exact|hex)\(.*$|class(?:Name)?(?: =|:) ?$")
"""What stands before a literal that is not for buyers: faults of the program, and details of a damaged file."""
DETAILS = {
    f"{name}.mjs"
    for name in [
        *("account-proof", "answers", "argon2", "chain-proof", "json-form", "light-node", "network-rules"),
        *("payment-proof", "proof-file", "qr-reader", "signed-transfer", "strict-json"),
    ]
}
"""They say in English what is wrong with an answer or a proof; the pages say it in a sentence of their own."""
NAMES = {"Mainnet", "Devnet", "Problem", "Ed25519", "svc devnet faucet", "(prefers-color-scheme: dark)"}


def test_scripts_have_no_texts_of_their_own() -> None:
    left = []
    for name, source in SCRIPTS.items():
        if name in DETAILS:
            continue
        code = re.sub(r"^\s*(?://|/?\*).*$", "", source, flags=re.MULTILINE)
        for literal in re.finditer(r'"([^"\n]*)"|`([^`\n]*)`', code):
            words = re.sub(r"\$\{[^}]*\}", "", literal[1] or literal[2] or "")
            speaks = re.search(r"[A-Za-z]{2,}[,.:;]? [A-Za-z]{2,}", words) or re.fullmatch("[A-Z][a-z]+", words)
            before = code[code.rfind("\n", 0, literal.start()) : literal.start()]
            listed = code.startswith(".split(", literal.end())
            if speaks and words not in NAMES and not listed and not DEVELOPERS.search(before):
                left.append(f"{name}: {words}")
    assert left == []


NOT_TEXTS = re.compile(
    r"\b(?:svcd?1[a-z0-9]+(?:…[a-z0-9]+)?|[0-9a-f]{8,}(?:…[0-9a-f]{8})?|[0-9a-f]{8}…|SVC(?:-TEST)?|UTC|JSON|Devnet|kB|MB|"
    r"svc wallet|svc node mine|web\+svc|order-1|https?://\S+|shop\.example|127\.0\.0\.1)\b"
)
"""Hashes, addresses, names and units, and what the test itself says."""
SPOKEN = ("aria-label", "title", "placeholder", "alt", "data-busy", "data-label", "data-chart")


def folder_in_pseudo_language(folder: Path) -> Path:
    """The English texts, in a language without a Latin letter outside of the placeholders."""

    def odd(text: str) -> str:
        return "".join(
            part if part.startswith("{") else re.sub("[A-Za-z]", "ж", part) for part in re.split(r"(\{[a-z]+\})", text)
        )

    texts = {
        section: {
            name: odd(text) if isinstance(text, str) else {form: odd(each) for form, each in text.items()}
            for name, text in entries.items()
        }
        for section, entries in ENGLISH.items()
    }
    (folder / "en.json").write_text(json.dumps(ENGLISH))
    (folder / "eo.json").write_text(json.dumps(texts))
    return folder


def test_every_text_of_every_page_is_in_the_catalogue(open_node: Callable[..., Node], tmp_path: Path) -> None:
    """And another language is one file more."""
    shown = show(open_node(), catalogues=load(folder_in_pseudo_language(tmp_path)), serves_peers=True)
    builder = shown.node.builder
    paid = f"b2 pays {5 * COIN // 2} from alice to bob for order-1"
    mistaken = f"b3 pays {COIN} from alice to bob for 2"
    shown.node.grow(f"genesis: b[1..30]\n{paid}\n{mistaken}")
    waiting = builder.transfer("carol", "bob", COIN, reference="order-1")
    shown.wait(waiting)
    shown.around.here = evolve(shown.around.here, behind="a peer has more work")
    bob = shown.node.address("bob")
    pay = f"/pay/?recipient={bob}&amount=2.5&label=7&returnUrl=https%3A%2F%2Fshop.example%2F&sinceHeight=0&reference="
    targets = [
        *(
            "/",
            "/block/0",
            "/block/1",
            "/block/2",
            "/block/3?first=1",
            "/block/99",
            "/block/!",
            f"/tx/{waiting.txid.hex()}",
        ),
        *(f"/tx/{'0' * 64}", f"/address/{bob}", "/address/1", "/mempool", "/mempool?before=9"),
        *("/peers", "/reference/order-1", "/reference/2", "/search"),
        *(
            f"/reference/order-1?recipient={bob}&amount=2",
            "/reference/order-1?amount=1e3",
            "/reference/order-1?recipient=777",
            "/search?q=2",
            "/search?q=!!",
        ),
        *(f"{pay}order-1", f"{pay}2", f"{pay}9&until=1", f"{pay}9", "/pay/", "/wallet/", "/till/", "/777"),
    ]
    for target in targets:
        page = Document(shown.ask(target, Accept_Language="eo").body.decode())
        (html,) = page.all("html")
        assert html["lang"] == "eo"
        said = [page.said, *[found[name] for _, found in page.elements for name in SPOKEN if name in found]]
        left = [words for words in said for words in re.findall("[A-Za-z]{2,}", NOT_TEXTS.sub("", words))]
        assert left == [], target


def test_no_text_is_unused() -> None:
    used = {key for key, _ in messages_in_python()}
    used |= {key for source in SCRIPTS.values() for key in re.findall(r'"([a-z-]+\.[a-z0-9-]+)"', source)}
    used |= {key for path in STATIC_PAGES for key in re.findall(r"\{\{([a-z0-9.-]+)", path.read_text("utf-8"))}
    assert KEYS - used == set()
