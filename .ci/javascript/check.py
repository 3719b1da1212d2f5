"""Checks the scripts of the pages: tsc reads their JSDoc types as strictly as it can, eslint looks for mistakes.

The tools and all that they need come from npm into build/javascript, in the versions and with the hashes of
package-lock.json; npm caches them. Where npm or its registry is missing one line says so, and with SVCD_REQUIRE_ALL=1
that is a failure. After a change of package.json, `npm install --package-lock-only` in this folder makes the lock anew.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTINGS = Path(__file__).parent
LOCK = SETTINGS / "package-lock.json"
FOLDER = ROOT / "build" / "javascript"
SECONDS = 600
SCRIPTS = ("svcd/pages/static", "clients/javascript/src/light")
"""The pages' own scripts, and those of the client to which the others there are links: eslint follows none."""


def main() -> int:
    """Install what is missing and run both tools; gives the exit status."""
    npm = shutil.which("npm")
    if npm is None:
        return unchecked("npm is not installed (apt install npm)")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file in SETTINGS.iterdir():
        # The configuration of eslint finds its packages only beside it, and that of tsc the scripts from there too.
        if file.suffix != ".py":
            shutil.copy(file, FOLDER)
    if problem := install(npm):
        return unchecked(f"npm does not give the packages of {LOCK.relative_to(ROOT)}: {problem}")
    programs = FOLDER / "node_modules" / ".bin"
    tools = (
        ("tsc", "--project", FOLDER),
        ("eslint", "--config", FOLDER / "eslint.config.mjs", "--max-warnings=0", *SCRIPTS),
    )
    running = [subprocess.Popen([programs / name, *arguments], cwd=ROOT) for name, *arguments in tools]  # noqa: S603
    return max(process.wait(SECONDS) for process in running)


def install(npm: str) -> str:
    """Put the packages into the folder, unless they are there; gives why that fails, or nothing."""
    noted, wanted = FOLDER / "installed", LOCK.read_text(encoding="utf-8")
    if noted.exists() and noted.read_text(encoding="utf-8") == wanted:
        return ""
    options = ("--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund")
    done = subprocess.run(  # noqa: S603
        [npm, "ci", *options], cwd=FOLDER, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode:
        return done.stderr.strip()[-200:]
    noted.write_text(wanted, encoding="utf-8")
    return ""


def unchecked(reason: str) -> int:
    """Say in one line that the scripts are not checked; gives the exit status."""
    required = os.environ.get("SVCD_REQUIRE_ALL") == "1"
    print(f"The JavaScript of the pages is not checked: {' '.join(reason.split())}", flush=True)
    return int(required)


if __name__ == "__main__":
    sys.exit(main())
