"""What `make check` says of the JavaScript of the pages."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import needs

ROOT = Path(__file__).parent.parent
TOOLS = Path("build") / "javascript"


def checked(tree: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """What the check of a tree prints, and its exit status."""
    command = [sys.executable, str(tree / ".ci" / "javascript" / "check.py")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.parametrize(("required", "status"), [("", 0), ("1", 1)])
def test_without_npm_one_line_says_that_nothing_is_checked(tmp_path: Path, required: str, status: int) -> None:
    done = checked(ROOT, PATH=str(tmp_path), SVCD_REQUIRE_ALL=required)
    assert done.stdout == "The JavaScript of the pages is not checked: npm is not installed (apt install npm)\n"
    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.slow
@needs("node", "npm")
def test_faults_are_found(tmp_path: Path) -> None:
    """The tools are those that the check of this tree has installed, or installs now."""
    here = checked(ROOT, **os.environ)
    if "is not checked" in here.stdout:
        pytest.skip(here.stdout.strip())
    assert here.returncode == 0, here.stdout
    shutil.copytree(ROOT / ".ci" / "javascript", tmp_path / ".ci" / "javascript")
    (tmp_path / TOOLS).mkdir(parents=True)
    (tmp_path / TOOLS / "node_modules").symlink_to(ROOT / TOOLS / "node_modules")
    shutil.copy(ROOT / TOOLS / "installed", tmp_path / TOOLS)
    static = tmp_path / "svcd" / "pages" / "static"
    static.mkdir(parents=True)
    client = tmp_path / "clients" / "javascript" / "src" / "light"
    client.mkdir(parents=True)
    (client / "shared.mjs").write_text("export {};\n")
    size = "export const size = (text) => text.length;\n"
    (static / "right.mjs").write_text("/** @type {(text: string) => number} */\n" + size)
    assert checked(tmp_path, **os.environ).returncode == 0
    (static / "untyped.mjs").write_text(size)
    (client / "unused.mjs").write_text('import { size } from "./right.mjs";\n')
    (static / "unused.mjs").symlink_to(client / "unused.mjs")
    (static / "wrong.mjs").write_text('import { size } from "./right.mjs";\nexport const wrong = size(1);\n')
    done = checked(tmp_path, **os.environ)
    assert done.returncode > 0
    assert "untyped.mjs(1,22): error TS7006" in done.stdout
    assert "wrong.mjs(2,27): error TS2345" in done.stdout
    assert "'size' is defined but never used" in done.stdout
