"""The styles and scripts of the pages contain nothing unused."""

import gzip
import re
from pathlib import Path

import pytest

from svcd import pages

PAGES = Path(pages.__file__).parent
STATIC = PAGES / "static"
STYLES = sorted(STATIC.glob("*.css"))
MODULES = sorted(STATIC.glob("*.mjs"))
WRITERS = [*PAGES.glob("*.py"), *PAGES.glob("*.html"), *MODULES]
OTHERS = {"argon2.mjs", "qr-reader.mjs"}
"""Of others."""
RENDERER = STATIC / "swagger-ui-bundle.js.gz"
"""Draws the API reference."""
CLIENT = sorted((PAGES.parents[1] / "clients" / "javascript" / "src").glob("*.js"))
"""The modules that check proofs are those of the client too."""
JS_TESTS = sorted((Path(__file__).parent / "js").glob("*.mjs"))

_IMPORT = re.compile(r"(?:import|const)\s*\{([^}]*)\}(?= from| = await (?:loaded\()?import\()")
_LATER = re.compile(r"\bimport\(\"[^\"]+\"\)\)?(?:, |\.then\()\(\{([^}]*)\}")
_EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)


def classes(style: str) -> set[str]:
    """The classes in the selectors of a style sheet."""
    rules = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
    return {name for selector in re.findall(r"([^{}]*)\{", rules) for name in re.findall(r"\.([a-z][\w-]*)", selector)}


def imported(modules: list[Path]) -> set[str]:
    """The names that modules import from each other."""
    lists = [names for module in modules for form in (_IMPORT, _LATER) for names in form.findall(module.read_text())]
    return {name.strip() for names in lists for name in names.split(",")}


def types(source: str) -> list[str]:
    """What stands in braces behind the tags of JSDoc comments."""
    source = re.sub(r"\n *\*", "\n", source)
    found = []
    for start in re.finditer(r"@[a-z]+ \{", source):
        end = start.end()
        while source.count("{", start.end(), end) >= source.count("}", start.end(), end):
            end += 1
        found.append(source[start.end() : end - 1])
    return found


@pytest.mark.parametrize("style", STYLES, ids=lambda path: path.name)
def test_every_css_class_is_used(style: Path) -> None:
    drawn = [gzip.decompress(RENDERER.read_bytes()).decode()] if style.name == "reference.css" else []
    words = set(re.findall(r"[\w-]+", " ".join([*(path.read_text() for path in WRITERS), *drawn])))
    found = classes(style.read_text())
    assert len(found) > (4 if drawn else 10)
    assert found - words == set()


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_every_javascript_export_is_imported(module: Path) -> None:
    exported = set(_EXPORT.findall(module.read_text()))
    assert exported - imported([*MODULES, *JS_TESTS, *CLIENT]) == set()


@pytest.mark.parametrize("module", [path for path in MODULES if path.name not in OTHERS], ids=lambda path: path.name)
def test_no_type_says_that_anything_goes(module: Path) -> None:
    """tsc would check nothing of such a value, and nothing of a line that it is told to ignore."""
    source = module.read_text()
    words = {word for kind in types(source) for word in re.findall(r"\w+|\*", kind)}
    assert words & {"any", "Function", "Object", "*"} == set()
    assert "@ts-" not in source


def test_types_are_found_up_to_the_brace_that_closes_them() -> None:
    comment = "/** Of any kind.\n * @param {{ a: { b: any } }} x of any\n * @type {(...all: T[]) => {}} */"
    assert types(comment) == ["{ a: { b: any } }", "(...all: T[]) => {}"]


def test_no_css_rule_is_repeated() -> None:
    """Two selectors with the same long run of declarations should share one rule."""
    for style in STYLES:
        bodies = re.findall(r"\{([^{}]{120,})\}", style.read_text())
        plain = [re.sub(r"\s+", " ", body) for body in bodies]
        assert [body for body in plain if plain.count(body) > 1] == [], style.name
