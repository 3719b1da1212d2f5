"""One script for a page: a module together with all modules that it imports, so that a browser asks only once.

What a page may never need it imports when it does, by ``import("./name.mjs")``: that is a bundle of its own. It has its
own copies of the modules that both need, so what an ``instanceof`` tells must not pass between them.

Scripts, style sheets and the pages of wallet and till go to browsers without comments and indentation, which only
readers need.
"""

import re
from collections.abc import Mapping, Set
from typing import Final

# A comment that begins with /*! is a licence, which must stay with the code.
_BLOCK_COMMENT: Final = re.compile(r"^[ \t]*/\*(?!!).*?\*/[ \t]*\n", re.MULTILINE | re.DOTALL)
_CAST: Final = re.compile(r"/\*\* @type \{[^\n]*?\} \*/ ?")
"""What tells a type within a line."""
_HTML_COMMENT: Final = re.compile(r"<!--.*?-->\n", re.DOTALL)
_LINE_COMMENT: Final = re.compile(r"^[ \t]*//.*\n", re.MULTILINE)
_MARGIN: Final = re.compile(r"^[ \t]+|^\n", re.MULTILINE)
_IMPORT: Final = re.compile(r'^import \{\s*(\w+(?:,\s*\w+)*),?\s*\} from "\./([a-z0-9-]+\.mjs)";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_LATER: Final = re.compile(r'\bimport\("\./([a-z0-9-]+\.mjs)"\)')
_OTHER_FORM: Final = re.compile(
    r'^import\b.*|^export (?!(?:async )?(?:function|class|const) ).*|^.*\bimport\((?!"/static/[a-z0-9-]+\.mjs"\)).*',
    re.MULTILINE,
)


def imported_modules(source: str) -> list[str]:
    """The file names of the modules that a module imports itself, in order."""
    return [name for _, name in _IMPORT.findall(source)]


def bundle(sources: Mapping[str, str], entry: str) -> str:
    """A script that does and exports the same as the module ``entry`` of ``sources``, and imports nothing at first.

    Each imported module becomes a function, which is called once and returns what others here import of it, in an order
    in which a module comes after those that it imports. So its own names stay its own, and the code itself is
    unchanged, but for comments that fill a line, types of expressions, empty lines and indentation. Modules that are
    imported later are named as pages name them, ``/static/name.mjs``. Raises ValueError for a circular import and for
    forms that cannot be bundled: other imports than ``import { a, b } from "./name.mjs";`` and
    ``import("./name.mjs")``, other exports than of a function, a class or a constant, and a template literal over
    several lines.
    """
    order: list[str] = []
    _visit(sources, entry, (), order)
    imports = (each for importer in order for each in _IMPORT.findall(sources[importer]))
    used = {(module, name) for names, module in imports for name in _names(names)}
    modules = (_module(name, sources[name], {each for module, each in used if module == name}) for name in order[:-1])
    return "".join(modules) + _body(entry, sources[entry])


def style_sheet(source: str) -> str:
    """A style sheet without comments that fill lines, empty lines and indentation."""
    return _MARGIN.sub("", _BLOCK_COMMENT.sub("", source))


def static_page(source: str) -> str:
    """A page without comments and indentation."""
    return _MARGIN.sub("", _HTML_COMMENT.sub("", source))


def _visit(sources: Mapping[str, str], name: str, importers: tuple[str, ...], order: list[str]) -> None:
    """Append to ``order`` the modules that ``name`` needs and then itself, each once."""
    if name in importers:
        raise ValueError(f"{name} imports itself, through {', '.join(importers)}: move what both need elsewhere")
    if name not in order:
        for needed in imported_modules(sources[name]):
            _visit(sources, needed, (*importers, name), order)
        order.append(name)


def _module(name: str, source: str, used: Set[str]) -> str:
    exported = ",".join(each for each in _EXPORT.findall(source) if each in used)
    body = _EXPORT.sub("", _body(name, source))
    return f"const {_variable(name)} = (() => {{\n{body}return {{{exported}}};\n}})();\n"


def _body(name: str, source: str) -> str:
    """The code of a module without comments and margins, whose imports are constants."""
    code = _LINE_COMMENT.sub("", _BLOCK_COMMENT.sub("", source))
    for line in code.splitlines():
        # In such a literal, what looks like a comment would be text.
        if line.count("`") % 2:
            raise ValueError(f"{name}: a template literal must end in its line: {line.strip()}")
    code = _IMPORT.sub(lambda match: f"const {{{','.join(_names(match[1]))}}}={_variable(match[2])};", code)
    code = _CAST.sub("", code)
    code = _LATER.sub(r'import("/static/\1")', code)
    if other := _OTHER_FORM.search(code):
        raise ValueError(f"{name}: this form of import or export cannot be bundled: {other[0]}")
    return _MARGIN.sub("", code)


def _names(imported: str) -> list[str]:
    """The names between the braces of an import."""
    return [name.strip() for name in imported.split(",")]


def _variable(name: str) -> str:
    """The constant that holds what a module exports; modules themselves use no names with a dollar sign."""
    return "$" + name.removesuffix(".mjs").replace("-", "_")
