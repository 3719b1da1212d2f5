"""Coverage of processes that end in their own ways, by the project's own settings."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from coverage import CoverageData

ROOT = Path(__file__).parent.parent
DEADLINE = 120.0

BY_ITSELF = "import svcd.interfaces"
BY_A_SIGNAL = "import os, signal, svcd.interfaces; os.kill(os.getpid(), signal.SIGTERM)"
AT_ONCE = "import os, svcd.interfaces; os._exit(3)"
MANY_THREADS_END = """
import threading, svcd.interfaces

def turn(number):
    return number + 1

for _ in range(50):
    gate = threading.Event()
    threads = [threading.Thread(target=gate.wait) for _ in range(20)]
    for thread in threads:
        thread.start()
    gate.set()
    number = 0
    while any(thread.is_alive() for thread in threads):
        number = turn(number)
"""


@pytest.mark.parametrize(
    ("program", "status"),
    [(BY_ITSELF, 0), (BY_A_SIGNAL, -signal.SIGTERM), (AT_ONCE, 3), (MANY_THREADS_END, 0)],
    ids=["by itself", "by a signal", "at once", "after many threads"],
)
def test_however_a_process_ends_it_ends_and_what_it_did_is_known(tmp_path: Path, program: str, status: int) -> None:
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-m", "coverage", "run", f"--data-file={tmp_path}/data", tmp_path / "program.py"]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")
    (file,) = tmp_path.glob("data*")
    data = CoverageData(str(file))
    data.read()
    (measured,) = [name for name in data.measured_files() if name.endswith("svcd/interfaces.py")]
    assert data.arcs(measured)
