"""The releases of Debian that the stories are tried on: those that SVCD_DEBIAN_RELEASES names, or all."""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.debian.machine import RELEASES, install
from tests.process_level.pages import ROOT

FOLDER: Final = ROOT / "build" / "debian"
WANTED: Final = os.environ.get("SVCD_DEBIAN_RELEASES", "").split() or RELEASES


@pytest.fixture(scope="module", params=WANTED)
def debian(request: pytest.FixtureRequest) -> Path:
    """A freshly installed Debian; each release is installed once and kept."""
    fresh = FOLDER / f"fresh-{request.param}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not fresh.exists():
        install(fresh, release=request.param)
    return fresh
