"""The page of surviving mutants can be read, and what it is about exists."""

from pathlib import Path

from tests.mutation.survivors import PAGE, Mutant, explained

ROOT = Path(__file__).parents[2]
SHOWN = """\
# svcd.chain.difficulty.x_next_clock__mutmut_3: survived
--- svcd/chain/difficulty.py
+++ svcd/chain/difficulty.py
@@ -1,3 +1,3 @@
 def next_clock():
-    return a + b
+    return a - b
"""


def test_the_modules_are_those_that_are_mutated() -> None:
    for mutant in explained():
        path = mutant.module.replace(".", "/") + ".py"
        assert (ROOT / path).is_file()
        assert f'"{path}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_every_item_of_the_page_is_read() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(explained()) == text.count("\n- ") > 20


def test_a_mutant_is_read_from_what_is_shown() -> None:
    found = Mutant.read("svcd.chain.difficulty.x_next_clock__mutmut_3", SHOWN)
    assert found == Mutant("svcd.chain.difficulty", "return a - b")
    assert found in explained("## `svcd.chain.difficulty`\n- `` return a - b ``\n  No reason.\n")
