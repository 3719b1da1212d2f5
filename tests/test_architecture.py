"""The house rules as a program: who may import whom, what the rules of the chain may touch, sizes, names.

docs/architecture.md tells them in words. Each check is a function of one module's syntax tree; the lower half shows
every check a piece of code that it must refuse.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

EVERY_PACKAGE = (
    "chain chain_schemas endpoint_description keyfile keyfile_errors light seed_file store node net web p2p commerce "
    "rpc pages metrics config process"
).split()
MAY_IMPORT = {
    "chain": set(),
    "chain_schemas": {"chain", "web"},
    "light": {"chain"},
    "deferreds": set(),
    "endpoint_description": set(),
    "interfaces": set(),
    "ip_addresses": set(),
    "keyfile": {"chain", "keyfile_errors"},
    "keyfile_errors": set(),
    "limits": set(),
    "bounded_dict": set(),
    "quantities": set(),
    "visible_text": set(),
    "seed_file": set(),
    "store": {"chain"},
    "node": {"chain", "store"},
    "net": set(),
    "web": set(),
    "p2p": {"chain", "chain_schemas", "store", "node", "net", "web"},
    "commerce": {"chain", "light", "store", "node", "net", "web"},
    "rpc": {"chain", "chain_schemas", "light", "store", "node", "net", "web", "commerce", "p2p.administration"},
    "pages": {"chain", "store", "node", "web", "commerce", "rpc.fields"},
    "cli": {
        *("chain", "light", "config.layers", "config.network_file", "config.types", "commerce.payment_request"),
        *("net.addresses", "net.targets", "seed_file"),
    },
    "cli.wallet": {"cli", "chain", "keyfile", "keyfile_errors", "commerce.payment_request"},
    "cli.merchant": {
        *("cli", "chain", "light", "web"),
        *("commerce.payment_request", "commerce.signing"),
    },
    "cli.operator": {"cli", "chain", "keyfile", "seed_file", "store", "node", "process"},
    "cli.main": {"cli", "chain", "keyfile_errors"},
    "config": {
        *("chain.address", "chain.errors", "chain.network_rules", "chain.params", "chain.units", "chain.value_types"),
        *("endpoint_description", "net.targets"),
    },
    "process": {"endpoint_description"},
    "metrics": {"chain", "node", "p2p", "commerce", "rpc", "web"},
    "composition": {*EVERY_PACKAGE},
    "tap": {*EVERY_PACKAGE, "composition"},
}
PURE = set(
    "__future__ abc attrs bisect collections datetime enum functools hashlib heapq itertools json math nacl operator "
    "re string struct types typing".split()
)
IMPURE = {"nacl.utils"}
LATE = {"argon2"}
"""Imported only where it is called: the Python client has these packages too, and can do without Argon2id."""
SHARED = ("chain", "light")
"""Their modules are also those of the Python client, below another package, and so import each other relatively."""
SQL = re.compile(
    r"\s*((SELECT|INSERT|REPLACE|UPDATE|DELETE|CREATE|ALTER|DROP|PRAGMA) +\w|(BEGIN( IMMEDIATE)?|COMMIT|ROLLBACK)$)"
)
SQL_MODULES = {
    "store.account_runs",
    "store.chain_store",
    "store.side_blocks",
    "store.checked_producers",
    "store.database_copy",
    "store.offline_database",
    "store.sorted_runs",
    "store.lease_store",
    "store.postgresql",
    "store.snapshot_staging",
    "store.sql_connection",
    "store.webhook_move",
    "store.webhook_store",
    "store.webhook_events",
    "store.database",
}
WRITERS = {
    "store.chain_store.ChainWriter": {"node.chainstate", "node.node_context", "cli.operator"},
    "store.mempool_journal.MempoolJournal": {"node.transaction_pool", "node.node_context"},
}
"""Who may write blocks and waiting transfers: the one write path of each, its assembly, repairs of a stopped node."""
AMBIENT = re.compile(
    r"(time\.(time|monotonic|perf_counter)(_ns)?|datetime\.(now|today|utcnow)|(secrets|random)\.\w+"
    r"|os\.urandom|uuid\.uuid\d)$"
)
"""Calls for a clock or for randomness that nobody has handed in."""
ASSEMBLY = ("composition", "tap", "cli", "process")
"""What hands them in: at the start of a node, and in the programs that are not one."""
WAITING = {"node.threads", "store.postgresql", "store.webhook_move"}
"""Threads that wait for other threads or for a server: no clock of a test would move those."""
LOG_METHODS = {"debug", "info", "warn", "error", "critical", "failure", "failuresHandled"}
READERS_OF_BODIES = {"cli.http_client", "cli.trustless", "cli.invite", "cli.wallet.page_check"}
"""What of `svc` fetches more than JSON of a node that `cli.answers` reads: strict proofs, a file, pages."""
READERS_OF_JSON = {"cli.answers", "cli.wallet.page_check"}
NAMES_THAT_SAY_NOTHING = {"handler", "helper", "helpers", "util", "utils", "processor", "engine"}

# Where nobody would argue. What a good size is, CONTRIBUTING.md tells, and the reader decides.
MAX_MODULE_LINES = 800
MAX_FUNCTION_LINES = 80
MAX_PARAMETERS = 10

Problems = Iterator[str]


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, `a.b` for `from a import b` as for `import a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            from_module = "." * node.level + (f"{node.module}." if node.module else "")
            yield from ((node.lineno, from_module + alias.name) for alias in node.names)


def absolute(module: str, name: str) -> str:
    """The name of what a module of svcd imports, if it may be relative."""
    left = name.lstrip(".")
    above = len(name) - len(left)
    return f"svcd.{'.'.join([*module.split('.')[:-above], left])}" if above else name


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def package_of(module: str) -> str:
    """The package, or the part of a package, that a module belongs to; its name has no `svcd.` in front."""
    return max((package for package in MAY_IMPORT if within(module, package)), key=len, default=module.split(".")[0])


def directions(module: str, tree: ast.AST) -> Problems:
    package = package_of(module)
    # Every package has limits; clocks and threads are for every package but the chain, whose rules know no time.
    anywhere = {"limits", "deferreds", "bounded_dict", "interfaces", "ip_addresses", "quantities", "visible_text"}
    allowed = {package} | (set() if package in SHARED else anywhere) | MAY_IMPORT.get(package, set())
    modules = allowed - set(MAY_IMPORT)
    for line, given in imports(tree):
        name = absolute(module, given)
        imported = name.removeprefix("svcd.")
        if within(name, "svcd") and given.startswith(".") != (package in SHARED):
            yield f"{line}: {package} must {'' if package in SHARED else 'not '}import {given} relatively"
        elif (
            within(name, "svcd")
            and package_of(imported) not in allowed
            and not any(within(imported, other) for other in modules)
        ):
            yield f"{line}: {package} may not import {name}"


def purity(module: str, tree: ast.AST) -> Problems:
    if module.split(".")[0] not in SHARED:
        return
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    late = {line for function in functions for line, _ in imports(function)}
    for line, name in imports(tree):
        package = name.split(".")[0]
        pure = package == "" or package in PURE or (package in LATE and line in late)
        if not pure or any(within(name, impure) for impure in IMPURE):
            yield f"{line}: a pure package may not import {name}{' here' if package in LATE else ''}"


def global_reactor(module: str, tree: ast.AST) -> Problems:
    for line, name in imports(tree):
        if within(name, "twisted.internet.reactor") and module != "tap":
            yield f"{line}: only tap.py may import the reactor"
        if name == "twisted.internet.threads.deferToThread":
            yield f"{line}: deferToThread uses the global reactor; use deferToThreadPool"


def write_path(module: str, tree: ast.AST) -> Problems:
    for line, name in imports(tree):
        allowed = {"store"} | WRITERS.get(name.removeprefix("svcd."), {module})
        if not any(within(module, each) for each in allowed):
            yield f"{line}: only {', '.join(sorted(allowed))} may write with {name}"


def answers(module: str, tree: ast.AST) -> Problems:
    """What a node says reaches people only as `cli.answers` shows it."""
    for node in ast.walk(tree) if within(module, "cli") and module != "cli.answers" else ():
        if not isinstance(node, ast.Attribute):
            continue
        owner, name = ast.unparse(node.value), node.attr
        if name in ("_members", "_value") and owner != "self":
            yield f"{node.lineno}: only cli.answers takes an answer of a node apart"
        if name == "fetch" and module not in READERS_OF_BODIES:
            yield f"{node.lineno}: only {', '.join(sorted(READERS_OF_BODIES))} may fetch what cli.answers does not read"
        if owner == "json" and name in ("load", "loads", "JSONDecoder") and module not in READERS_OF_JSON:
            yield f"{node.lineno}: cli.answers reads the JSON of nodes"


def injected(module: str, tree: ast.AST) -> Problems:
    if module in WAITING or any(within(module, each) for each in ASSEMBLY):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and AMBIENT.match(ast.unparse(node)):
            yield f"{node.lineno}: {ast.unparse(node)} is not handed in"
    for line, name in imports(tree):
        if AMBIENT.match(name):
            yield f"{line}: {name} is not handed in"


def private_imports(module: str, tree: ast.AST) -> Problems:
    for line, name in imports(tree):
        if any(re.match("_(?!_)", part) for part in name.split(".")):
            yield f"{line}: {name} is private, and may be gone tomorrow"


def sql(module: str, tree: ast.AST) -> Problems:
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and SQL.match(text) and module not in SQL_MODULES:
            yield f"{node.lineno}: SQL outside the store"


def sizes(module: str, tree: ast.AST) -> Problems:
    last = max((getattr(node, "end_lineno", 0) for node in ast.walk(tree)), default=0)
    if last > MAX_MODULE_LINES:
        yield f"{last} lines in one module, more than {MAX_MODULE_LINES}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{node.lineno}: {node.name} has {lines} lines, more than {MAX_FUNCTION_LINES}"
        if isinstance(node, ast.ClassDef) and (count := parameters(node)) > MAX_PARAMETERS:
            yield f"{node.lineno}: {node.name} takes {count} constructor parameters, more than {MAX_PARAMETERS}"


def parameters(cls: ast.ClassDef) -> int:
    """What a class that does things must be given; values (`@frozen`) may have as many fields as they need."""
    for node in cls.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) - 1
    if not any(ast.unparse(decorator).startswith(("define", "attrs.define")) for decorator in cls.decorator_list):
        return 0
    return sum(isinstance(node, ast.AnnAssign) and node.value is None for node in cls.body)


def no_assert(module: str, tree: ast.AST) -> Problems:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield f"{node.lineno}: assert in production code"


def no_swallowing(module: str, tree: ast.AST) -> Problems:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = {"BaseException"} if node.type is None else {ast.unparse(each) for each in types_of(node.type)}
        told = any(isinstance(inner, ast.Raise) or passes_on(inner, node.name) for inner in ast.walk(node))
        if caught & {"Exception", "BaseException"} and not told:
            yield f"{node.lineno}: everything is caught and neither logged nor raised again"


def types_of(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def passes_on(node: ast.AST, caught: str | None) -> bool:
    """A line in the log, or a call that takes the exception further: as an argument, or as `Failure()`."""
    if not isinstance(node, ast.Call):
        return False
    handed_on = any(isinstance(argument, ast.Name) and argument.id == caught for argument in node.args)
    return handed_on or is_logging(node) or ast.unparse(node.func) == "Failure"


def is_logging(node: ast.AST) -> bool:
    """A call such as `self._log.info(…)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LOG_METHODS
        and re.search(r"(^|[._])log$", ast.unparse(node.func.value)) is not None
    )


def constant_formats(module: str, tree: ast.AST) -> Problems:
    for node in ast.walk(tree):
        if is_logging(node) and isinstance(node, ast.Call) and node.args and not isinstance(node.args[0], ast.Constant):
            yield f"{node.lineno}: data in a log format; give it as a field"


def names(module: str, tree: ast.AST) -> Problems:
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for name in [*module.split("."), *classes]:
        words = {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
        if words & NAMES_THAT_SAY_NOTHING:
            yield f"{name} is a name that says nothing"


def empty_package(module: str, tree: ast.AST) -> Problems:
    if module.endswith("__init__") and isinstance(tree, ast.Module):
        body = tree.body if ast.get_docstring(tree) is None else tree.body[1:]
        yield from (f"{node.lineno}: an __init__.py holds a docstring at most" for node in body)


CHECKS: list[Callable[[str, ast.AST], Problems]] = [
    directions,
    purity,
    global_reactor,
    write_path,
    answers,
    injected,
    private_imports,
    sql,
    sizes,
    no_assert,
    no_swallowing,
    constant_formats,
    names,
    empty_package,
]


def modules() -> dict[str, Path]:
    """Every module under svcd/ by its name without the `svcd.` in front."""
    folder = ROOT / "svcd"
    return {".".join(path.relative_to(folder).with_suffix("").parts): path for path in sorted(folder.rglob("*.py"))}


@pytest.mark.parametrize("check", CHECKS)
def test_the_house_keeps_its_rules(check: Callable[[str, ast.AST], Problems]) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {problem}"
        for module, path in modules().items()
        for problem in check(module, ast.parse(path.read_text()))
    ]
    assert not found, "\n".join(found)


def test_every_package_is_known() -> None:
    assert {module.split(".")[0] for module in modules()} <= {"__init__", *MAY_IMPORT}


def imported_modules(module: str, tree: ast.AST) -> Iterator[str]:
    """The names of everything imported, also for the type checker alone, and of the modules imported from."""
    for _, name in imports(tree):
        yield from (absolute(module, name), absolute(module, name).rpartition(".")[0])


def circle(below: Mapping[str, Iterable[str]]) -> list[str]:
    """A way from a name back to itself, of any length; empty if there is none."""
    finished: set[str] = set()

    def search(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        found: list[str] = []
        if name not in finished:
            found = next(filter(None, (search(each, [*way, name]) for each in sorted(below.get(name, ())))), [])
            finished.add(name)
        return found

    return next(filter(None, (search(name, []) for name in below)), [])


def test_a_class_name_means_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module)
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def test_packages_do_not_import_in_a_circle() -> None:
    assert circle({package: {package_of(other) for other in below} for package, below in MAY_IMPORT.items()}) == []


def test_modules_do_not_import_in_a_circle() -> None:
    known = modules()
    below = {
        name: {used.removeprefix("svcd.") for used in imported_modules(name, ast.parse(path.read_text()))}
        & known.keys()
        for name, path in known.items()
    }
    assert circle(below) == []


@pytest.mark.parametrize(
    ("below", "found"),
    [
        ({"a": ["b"], "b": ["c"], "c": []}, []),
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}, []),
        ({"a": ["a"]}, ["a", "a"]),
        ({"a": ["b"], "b": ["a"]}, ["a", "b", "a"]),
        ({"a": ["b"], "b": ["c"], "c": ["d"], "d": ["b"]}, ["b", "c", "d", "b"]),
    ],
)
def test_a_circle_of_any_length_is_found(below: dict[str, list[str]], found: list[str]) -> None:
    assert circle(below) == found


def test_an_import_for_the_type_checker_counts() -> None:
    tree = ast.parse("if TYPE_CHECKING:\n    from svcd.web.site import Site")
    assert set(imported_modules("web.request", tree)) == {"svcd.web.site", "svcd.web.site.Site"}


def test_a_relative_import_counts() -> None:
    tree = ast.parse("from .encoding import canonical\nfrom ..chain.params import MAINNET")
    assert {"svcd.light.encoding", "svcd.chain.params"} <= set(imported_modules("light.prover", tree))


def test_the_plugin_imports_nothing_of_ours() -> None:
    tree = ast.parse((ROOT / "twisted/plugins/svcd_plugin.py").read_text())
    assert [name for _, name in imports(tree)] == ["twisted.application.service.ServiceMaker"]


def test_the_folders_of_the_plugin_are_no_packages() -> None:
    assert not list((ROOT / "twisted").rglob("__init__.py"))


LONG_FUNCTION = "def f():\n" + "    pass\n" * MAX_FUNCTION_LINES


@pytest.mark.parametrize(
    ("check", "module", "source"),
    [
        (directions, "chain.block", "from ..store import chain_store"),
        (directions, "chain.block", "from ..limits import limit"),
        (directions, "chain.block", "from svcd.chain.params import NetworkParams"),
        (directions, "light.prover", "from svcd.chain.params import NetworkParams"),
        (directions, "light.prover", "from ..visible_text import visible"),
        (directions, "store.database", "import svcd.node.chain_manager"),
        (directions, "node.chain_manager", "def f():\n    from svcd import rpc"),
        (directions, "node.chain_manager", "from ..rpc import chain_routes"),
        (directions, "chain.block", "from ..interfaces import Clock"),
        (directions, "web.site", "from svcd.chain.params import MAINNET"),
        (directions, "process.logs", "from svcd.chain import params"),
        (directions, "config.schema", "from svcd.chain.block import Block"),
        (directions, "config.schema", "from svcd.net.http_client import PinnedClient"),
        (directions, "cli.session", "from svcd.cli.wallet import mnemonic"),
        (directions, "cli.session", "from svcd.node.chain_manager import ChainManager"),
        (directions, "cli.wallet.send", "from svcd.node.chain_manager import ChainManager"),
        (directions, "cli.wallet.send", "from svcd.cli.merchant.payments import verify_proof"),
        (directions, "cli.wallet.send", "from svcd.cli.main import svc"),
        (directions, "cli.operator.node", "from svcd.rpc.chain_routes import ChainRoutes"),
        (directions, "keyfile", "from svcd.cli.errors import CommandError"),
        (directions, "node.miner", "from svcd.keyfile import unseal"),
        (directions, "rpc.chain_routes", "from svcd.tap import makeService"),
        (purity, "chain.work", "import time"),
        (purity, "chain.work", "from os import urandom"),
        (purity, "chain.work", "from nacl.utils import random"),
        (purity, "chain.work", "from nacl import utils"),
        (purity, "chain.work", "from twisted.logger import Logger"),
        (purity, "chain.work", "from argon2.low_level import hash_secret_raw"),
        (purity, "chain.work", "class A:\n    from argon2.low_level import hash_secret_raw"),
        (purity, "chain.work", "def f():\n    import time"),
        (global_reactor, "node.miner", "def f():\n    from twisted.internet import reactor"),
        (global_reactor, "node.miner", "import twisted.internet.reactor"),
        (global_reactor, "node.miner", "from twisted.internet.threads import deferToThread"),
        (write_path, "p2p.routes", "from svcd.store.chain_store import ChainWriter"),
        (write_path, "node.miner", "from svcd.store.chain_store import ChainReader, ChainWriter"),
        (write_path, "rpc.chain_routes", "from svcd.store.mempool_journal import MempoolJournal"),
        (answers, "cli.export", "text = page._members['next']"),
        (answers, "cli.export", "text = page.verbatim('next')._value"),
        (answers, "cli.export", "body = node.fetch('GET', path).body"),
        (answers, "cli.wallet.send", "value = json.loads(body)"),
        (injected, "node.miner", "import time\nnow = time.monotonic()"),
        (injected, "p2p.peers", "from time import time"),
        (injected, "chain.value_types", "from datetime import datetime\nnow = datetime.now()"),
        (injected, "commerce.sender", "key = secrets.token_bytes(32)"),
        (injected, "store.database", "clock = field(factory=time.monotonic_ns)"),
        (private_imports, "web.request", "from twisted.web.http import _IDENTITY"),
        (private_imports, "rpc.chain_routes", "from svcd.web.responses import _sentence as sentence"),
        (private_imports, "cli.http_client", "def f():\n    import twisted._version"),
        (sql, "rpc.chain_routes", "rows = db.execute('SELECT 1')"),
        (sql, "node.chain_manager", "db.execute('BEGIN IMMEDIATE')"),
        (sql, "node.mempool", "query = f'''\n  DELETE FROM {table}'''"),
        (sizes, "rpc.chain_routes", "\n" * MAX_MODULE_LINES + "pass"),
        (sizes, "rpc.chain_routes", LONG_FUNCTION),
        (sizes, "rpc.chain_routes", "class A:\n    def __init__(self, a, b, c, d, e, f, *, g, h, i, j, k): pass"),
        (
            sizes,
            "rpc.chain_routes",
            "@define\nclass A:\n" + "".join(f"    a{n}: int\n" for n in range(MAX_PARAMETERS + 1)),
        ),
        (no_assert, "rpc.chain_routes", "assert 1"),
        (no_swallowing, "rpc.chain_routes", "try: f()\nexcept Exception: pass"),
        (no_swallowing, "rpc.chain_routes", "try: f()\nexcept: pass"),
        (no_swallowing, "rpc.chain_routes", "try: f()\nexcept (KeyError, BaseException) as e: print(1)"),
        (constant_formats, "rpc.chain_routes", "self._log.info(f'height {height}')"),
        (constant_formats, "rpc.chain_routes", "log.error('height %d' % height)"),
        (names, "p2p.handler", ""),
        (names, "p2p.peer_utils", ""),
        (names, "p2p.peers", "class PeerHandler: pass"),
        (names, "p2p.peers", "class HTTPEngine: pass"),
        (empty_package, "rpc.__init__", "'''Doc.'''\nimport os"),
        (empty_package, "rpc.__init__", "x = 1"),
    ],
)
def test_a_check_bites(check: Callable[[str, ast.AST], Problems], module: str, source: str) -> None:
    assert list(check(module, ast.parse(source)))


@pytest.mark.parametrize(
    ("check", "module", "source"),
    [
        (
            directions,
            "rpc.chain_routes",
            "from svcd.web.routes import route\nfrom svcd.rpc import openapi\nimport svcd.chain",
        ),
        (directions, "config.schema", "from svcd.chain.params import NETWORKS"),
        (directions, "cli.wallet.send", "from svcd.cli import options\nfrom svcd.cli.wallet.mnemonic import WORDS"),
        (directions, "cli.operator.database", "from svcd.store.database import open_writer"),
        (directions, "web.site", "from svcd.interfaces import Clock"),
        (directions, "chain.block", "import svcd_other"),
        (directions, "chain.block", "from .params import NetworkParams\nfrom . import units"),
        (directions, "light.prover", "from ..chain.params import NetworkParams\nfrom .chain_proof import draws"),
        (purity, "chain.work", "def f():\n    from argon2.low_level import hash_secret_raw\nfrom . import units"),
        (purity, "node.mempool", "import time"),
        (global_reactor, "tap", "from twisted.internet import reactor"),
        (global_reactor, "node.miner", "from twisted.internet.threads import deferToThreadPool"),
        (write_path, "node.chainstate", "from svcd.store.chain_store import ChainReader, ChainWriter"),
        (write_path, "cli.operator.reindex", "from svcd.store.chain_store import ChainWriter"),
        (write_path, "p2p.routes", "from svcd.store.chain_store import ChainReader"),
        (answers, "cli.export", "text = page.text('next')"),
        (answers, "cli.trustless", "fetched = node.fetch('GET', path)"),
        (answers, "rpc.chain_routes", "value = json.loads(body)"),
        (injected, "node.miner", "import time\nnow = self._clock.seconds()\ntime.sleep(1)"),
        (injected, "composition.services", "import secrets\nkey = secrets.token_bytes(32)"),
        (private_imports, "metrics.build", "from twisted import __version__ as twisted_version"),
        (sql, "store.chain_store", "rows = db.execute('SELECT 1')"),
        (sql, "rpc.chain_routes", "'''Select the block.'''\nx = 'DELETE', 'UPDATED'"),
        (sizes, "rpc.chain_routes", "\n" * (MAX_MODULE_LINES - 1) + "pass"),
        (sizes, "rpc.chain_routes", "def f():\n" + "    pass\n" * (MAX_FUNCTION_LINES - 1)),
        (sizes, "rpc.chain_routes", "class A:\n    def __init__(self, a, b, c, d, e, f, *, g, h, i, j): pass"),
        (sizes, "rpc.chain_routes", "@frozen\nclass A:\n" + "".join(f"    a{n}: int\n" for n in range(20))),
        (
            sizes,
            "rpc.chain_routes",
            "@define\nclass A:\n" + "".join(f"    a{n}: int = field(init=False)\n" for n in range(MAX_PARAMETERS + 1)),
        ),
        (no_swallowing, "rpc.chain_routes", "try: f()\nexcept Exception:\n    self._log.failure('f')"),
        (no_swallowing, "rpc.chain_routes", "try: f()\nexcept Exception as e:\n    raise A from e"),
        (no_swallowing, "rpc.chain_routes", "try: f()\nexcept Exception as e:\n    self.failed(e)"),
        (no_swallowing, "rpc.chain_routes", "try: f()\nexcept Exception:\n    self.failed(Failure())"),
        (no_swallowing, "rpc.chain_routes", "try: f()\nexcept KeyError: pass"),
        (constant_formats, "rpc.chain_routes", "self._log.info('height {height}', height=height)\ncatalog.info(x)"),
        (names, "p2p.peers", "class Enginery: pass"),
        (empty_package, "rpc.__init__", "'''Doc.'''"),
        (empty_package, "rpc.chain_routes", "x = 1"),
    ],
)
def test_a_check_leaves_good_code_alone(check: Callable[[str, ast.AST], Problems], module: str, source: str) -> None:
    assert not list(check(module, ast.parse(source)))
