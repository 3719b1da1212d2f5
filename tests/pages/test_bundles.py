"""Bundles: one script in place of a module and those that it imports."""

import subprocess
from pathlib import Path

import pytest

from svcd import pages
from svcd.pages.bundles import bundle, imported_modules, static_page, style_sheet
from svcd.pages.static_files import static_files
from tests.programs import needs

MODULES = {
    "entry.mjs": """// The page.
import { Counter, twice } from "./tools.mjs";
import { times } from "./other.mjs";

/** Private, and called like something elsewhere. */
const step = await 1;
const counter = /** @type {Counter} */ (new Counter());
counter.count();
console.log(twice(step), counter.total, times(step), typeof seen);
""",
    "tools.mjs": """import { seen } from "./seen.mjs";
const step = 20;
export const twice = (number) => number * 2 + step;
export class Counter {
  total = seen.length; // not on a line of its own: "kept"
  count() {
    seen.push(step);
    this.total = seen.length;
  }
}
""",
    "other.mjs": """import { seen } from "./seen.mjs";
const step = 100;
export function times(number) {
  seen.push(number);
  return `${seen.length} of ${step}`;
}
""",
    "seen.mjs": "export const seen = [];\n",
}


@needs("node")
def test_a_bundle_does_what_the_modules_do(tmp_path: Path) -> None:
    """Each module runs once and keeps its own names, also where another module has the same."""
    for name, source in {**MODULES, "bundle.mjs": bundle(MODULES, "entry.mjs")}.items():
        (tmp_path / name).write_text(source, encoding="utf-8")
    said = [
        subprocess.run(["node", str(tmp_path / name)], capture_output=True, text=True, check=True, timeout=60).stdout
        for name in ("entry.mjs", "bundle.mjs")
    ]
    assert said[0] == said[1] == "22 1 2 of 100 undefined\n"


def test_a_bundle_has_each_module_once_without_comments() -> None:
    made = bundle(MODULES, "entry.mjs")
    assert made.count("const seen = []") == 1
    assert made.index("const seen = []") < made.index("class Counter") < made.index("await 1")
    assert "// The page." not in made
    assert "Private" not in made
    assert "const counter = (new Counter());" in made
    assert '// not on a line of its own: "kept"' in made


def test_what_is_imported_later_is_a_bundle_of_its_own() -> None:
    sources = {**MODULES, "later.mjs": 'const { twice } = await import("./tools.mjs");\nconsole.log(twice(1));\n'}
    made = bundle(sources, "later.mjs")
    assert 'await import("/static/tools.mjs")' in made
    assert "const twice" not in made
    exported = bundle(sources, "tools.mjs")
    assert "export const twice = (number)" in exported
    assert "export class Counter" in exported
    assert "export const seen" not in exported


def test_a_page_has_neither_comments_nor_indentation() -> None:
    made = static_page("<!-- Of a\n page. -->\n<p>\n  <b>one</b>\n\n  two\n</p>\n")
    assert made == "<p>\n<b>one</b>\ntwo\n</p>\n"


def test_a_licence_stays_with_the_code() -> None:
    licensed = {"entry.mjs": "/*! Copyright of somebody. */\n/* About it. */\nconst step = 1;\n"}
    made = bundle(licensed, "entry.mjs")
    assert "Copyright of somebody" in made
    assert "About it" not in made


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ('import tools from "./tools.mjs";\n', "form of import"),
        ('import * as tools from "./tools.mjs";\n', "form of import"),
        ('import { seen as other } from "./seen.mjs";\n', "form of import"),
        ('import { seen } from "/static/seen.mjs";\n', "form of import"),
        ('import "./seen.mjs";\n', "form of import"),
        ("const tools = await import(name);\n", "form of import"),
        ('const tools = await import("../tools.mjs");\n', "form of import"),
        ("export default 1;\n", "form of import or export"),
        ("export let changing = 1;\n", "form of import or export"),
        ("export { step };\n", "form of import or export"),
        ('export * from "./seen.mjs";\n', "form of import or export"),
        ("const text = `\n// no comment`;\n", "must end in its line"),
        ('import { step } from "./entry.mjs";\n', "imports itself"),
    ],
)
def test_syntax_that_cannot_be_bundled_is_refused(source: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        bundle({**MODULES, "entry.mjs": source}, "entry.mjs")


def test_a_style_sheet_keeps_its_rules_and_loses_comments_and_margins() -> None:
    source = "/* What there is:\n\n   .row   a row */\n\n/*! A licence. */\n"
    source += ".row {\n  /* Why. */\n  color: red; /* kept */\n}\n"
    assert style_sheet(source) == "/*! A licence. */\n.row {\ncolor: red; /* kept */\n}\n"


def test_imports_are_found_in_order() -> None:
    assert imported_modules(MODULES["entry.mjs"]) == ["tools.mjs", "other.mjs"]


SCRIPTS = {path.name: path.read_text() for path in (Path(pages.__file__).parent / "static").glob("*.mjs")}
IMPORTED = {name for source in SCRIPTS.values() for name in imported_modules(source)}


@needs("node")
@pytest.mark.parametrize("name", sorted(set(SCRIPTS) - IMPORTED))
def test_the_bundles_of_the_pages_are_javascript(name: str, tmp_path: Path) -> None:
    files = static_files()
    script = tmp_path / name
    script.write_bytes(files.file(files.url(name).rpartition("/")[2]).content)
    subprocess.run(["node", "--check", str(script)], check=True, timeout=60)
