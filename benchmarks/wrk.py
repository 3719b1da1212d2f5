"""Load from wrk, a program in C: a client that is not the bottleneck."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from attrs import frozen

CONNECTIONS: Final = 16
_SCRIPTS: Final = Path(__file__).parent / "lua"
_ERRORS: Final = re.compile(r"Socket errors: .*|Non-2xx or 3xx responses: .*")


@frozen
class Report:
    """What wrk measured."""

    answers_per_second: float
    lines: dict[str, str]
    """What its script said in the end: lines of the form ``Name: value``."""


def hammer(
    url: str,
    *,
    seconds: int,
    connections: int = CONNECTIONS,
    script: str | None = None,
    arguments: tuple[str, ...] = (),
) -> Report:
    """As many requests as so many connections can make in ``seconds``; ``script`` is a file of the folder ``lua``.

    Raises RuntimeError where wrk is missing, or anything but a good answer came back.
    """
    if shutil.which("wrk") is None:
        raise RuntimeError("this benchmark needs wrk: install it, for instance with apt-get install wrk")
    command = ["wrk", f"-c{connections}", "-t1", f"-d{seconds}s"]
    if script is not None:
        command += ["-s", str(_SCRIPTS / script)]
    done = subprocess.run([*command, url, "--", *arguments], check=True, stdout=subprocess.PIPE, text=True)
    error = _ERRORS.search(done.stdout)
    if error is not None:
        raise RuntimeError(f"{url}: {done.stdout}")
    lines = dict(re.findall(r"^ *([^:\n]+): +(.*)$", done.stdout, re.MULTILINE))
    return Report(float(lines["Requests/sec"]), lines)
