"""What `make coverage` says at its end, and when it fails."""

import json
from collections.abc import Callable
from pathlib import Path
from runpy import run_path

import pytest

SAID = run_path(str(Path(__file__).parent.parent / ".ci" / "covered.py"))
main: Callable[[str, Callable[[str], object]], int] = SAID["main"]


def report(**files: tuple[int, int]) -> str:
    """A report of coverage: of each file what is tried, and what there is to try; the name has `_` for `/`."""
    found = {}
    for name, (tried, size) in files.items():
        # Half of it are branches.
        lines, ways = (tried + 1) // 2, tried // 2
        summary = {"covered_lines": lines, "num_statements": (size + 1) // 2}
        found[f"svcd/{name.replace('_', '/')}.py"] = {
            "summary": summary | {"covered_branches": ways, "num_branches": size // 2}
        }
    return json.dumps({"files": found})


def said(text: str) -> tuple[int, list[str]]:
    lines: list[str] = []
    return main(text, lines.append), lines


def test_each_package_has_a_line_and_so_have_the_files_that_are_tried_least() -> None:
    status, lines = said(report(chain_block=(40, 40), web_site=(19, 20), web_api=(80, 80), tap=(10, 10)))
    assert status == 0
    assert [line.split() for line in lines] == [
        ["package", "to", "try", "tried"],
        ["chain", "40", "100.00%"],
        ["tap", "10", "100.00%"],
        ["web", "100", "99.00%"],
        ["all", "but", "chain", "110", "99.09%"],
        ["everything", "150", "99.33%"],
        [],
        ["tried", "least:"],
        ["svcd/web/site.py", "20", "95.00%"],
        ["svcd/chain/block.py", "40", "100.00%"],
        ["svcd/web/api.py", "80", "100.00%"],
        ["svcd/tap.py", "10", "100.00%"],
    ]


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"chain_block": (999, 1000)}, "svcd/chain/block.py: 1 not tried, and all of chain must be"),
        ({"web_a": (94, 100), "web_b": (95, 100)}, "94.50 % of all but chain is tried, and 95 % must be"),
        ({"web_a": (89, 100), "web_b": (900, 900)}, "svcd/web/a.py: 89.0 % is tried, and 90 % must be"),
    ],
)
def test_too_little_is_said_and_is_exit_status_1(files: dict[str, tuple[int, int]], sentence: str) -> None:
    status, lines = said(report(**files))
    assert status == 1
    assert [line for line in lines if line.startswith("too little")] == [f"too little: {sentence}"]


@pytest.mark.parametrize("files", [{"web_a": (95, 100)}, {"web_a": (90, 100), "web_b": (100, 100)}])
def test_just_enough_is_enough(files: dict[str, tuple[int, int]]) -> None:
    assert said(report(chain_block=(8, 8), **files))[0] == 0


def test_an_empty_file_counts_for_nothing() -> None:
    status, lines = said(report(chain___init__=(0, 0), chain_block=(1, 1)))
    assert status == 0
    assert not [line for line in lines if "init" in line]
