"""No failure is thrown away by the last callback of a Deferred: what it raises is logged, or it can raise nothing.

And the shield from cancellation, of which there is one.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

import svcd
from svcd.deferreds import shielded
from tests.support import has_result, result_of

ROOT = Path(svcd.__file__).parent

LAST = {
    "commerce/batches.py:_begin": "it fires Deferreds, each of which keeps its own failure",
    "net/calls.py:watch": "the Deferred is returned",
    "net/resolver.py:_look_up": "the Deferred is passed on",
    "net/resolver.py:resolve": "it fires the Deferreds of those who wait, or logs",
    "node/tasks.py:start": "it discards from a set; the failure was logged before",
    "node/transaction_pool.py:_begin": "it removes a name from a dict; the failure was logged before",
    "p2p/chain_sync.py:stop": "it fires a Deferred; the failure was noted before",
    "p2p/snapshot_start.py:stop": "it fires a Deferred; the failure was noted before",
    "process/shutdown.py:bound": "it fires a Deferred and logs",
}
"""Every function that ends a chain with addBoth, and why no failure is lost there."""

SWALLOWED = {
    "node/transaction_pool.py:_end_of": "another Deferred of the same task logs the failure",
}
"""Every function that throws a failure away."""


def chains(tree: ast.AST) -> Iterator[tuple[str, list[ast.Call]]]:
    """The calls of each statement that adds callbacks, in order, with the name of the function around it."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        seen: set[ast.AST] = set()
        for node in ast.walk(function):
            calls = []
            while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node not in seen:
                seen.add(node)
                calls.append(node)
                node = node.func.value
            names = [call.func.attr for call in calls if isinstance(call.func, ast.Attribute)]
            if any(name.startswith("add") for name in names):
                yield function.name, calls[::-1]


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def ends_with_add_both(calls: list[ast.Call]) -> bool:
    """Whether nothing takes what the last addBoth raises."""
    return any(name_of(call) == "addBoth" for call in calls) and name_of(calls[-1]) == "addBoth"


def swallows(calls: list[ast.Call]) -> bool:
    """Whether an errback or a callback of both does nothing at all."""
    return any(
        name_of(call) in ("addErrback", "addBoth")
        and any(isinstance(each, ast.Lambda) and isinstance(each.body, ast.Constant) for each in call.args)
        for call in calls
    )


def found(test: object) -> set[str]:
    return {
        f"{path.relative_to(ROOT)}:{function}"
        for path in sorted(ROOT.rglob("*.py"))
        for function, calls in chains(ast.parse(path.read_text()))
        if test(calls)  # type: ignore[operator]
    }


def test_every_chain_that_ends_with_add_both_has_a_reason() -> None:
    assert found(ends_with_add_both) == set(LAST)


def test_no_errback_does_nothing() -> None:
    assert found(swallows) == set(SWALLOWED)


def test_the_search_finds_what_it_looks_for() -> None:
    [(_, lost)] = chains(ast.parse("def f():\n    d.addErrback(log).addBoth(ended, 1)"))
    [(_, heard)] = chains(ast.parse("def f():\n    x = d.addBoth(ended).addErrback(log)"))
    [(_, silent)] = chains(ast.parse("def f():\n    d.addErrback(lambda _: None)"))

    assert (ends_with_add_both(lost), ends_with_add_both(heard)) == (True, False)
    assert (swallows(lost), swallows(silent)) == (False, True)


def test_a_shield_passes_results_on_and_keeps_cancellation_off() -> None:
    unheard: list[Any] = []
    cancelled: list[Any] = []
    for outcome in (7, KeyError("k")):
        work: Deferred[Any] = Deferred(cancelled.append)
        shield = shielded(work, unheard.append)
        assert not has_result(shield)
        work.callback(outcome) if outcome == 7 else work.errback(outcome)
        if outcome == 7:
            assert result_of(shield) == 7
        else:
            with pytest.raises(KeyError):
                result_of(shield)
    work = Deferred(cancelled.append)
    shield = shielded(work, unheard.append)
    shield.cancel()
    with pytest.raises(CancelledError):
        result_of(shield)
    assert (cancelled, unheard) == ([], [])

    work.errback(ZeroDivisionError())
    assert [failure.type for failure in unheard] == [ZeroDivisionError]


def test_errors_of_cancelled_work_are_logged(expected_errors: Callable[..., object]) -> None:
    def raises(_: object) -> None:
        raise LookupError

    work: Deferred[None] = Deferred()
    shield = shielded(work, raises)
    shield.addErrback(lambda failure: failure.trap(CancelledError))
    shield.cancel()
    work.errback(ZeroDivisionError())

    expected_errors(LookupError)
