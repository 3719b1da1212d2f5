"""Prints the oldest version of every dependency that setup.py allows, as constraints for pip.

setup.py is read, not run: a new virtual environment has no setuptools from Python 3.12 on.
"""

import ast
import re
import sys
from pathlib import Path

REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[a-z,]+\])?>=([0-9.]+)")


def lowest(source: str) -> list[str]:
    """`name==version` for each `name>=version` in install_requires and extras_require, in order."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    [call] = [call for call in calls if ast.unparse(call.func) == "setup"]
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    requirements = list(ast.literal_eval(given["install_requires"]))
    for extra in ast.literal_eval(given["extras_require"]).values():
        requirements += extra
    constraints = []
    for requirement in requirements:
        match = REQUIREMENT.fullmatch(requirement)
        if match is None:
            sys.exit(
                f"setup.py: {requirement!r} must be written name>=version, so that the lowest version can be tested"
            )
        constraints.append(f"{match[1]}=={match[2]}")
    return constraints


if __name__ == "__main__":
    print("\n".join(lowest((Path(__file__).parent.parent / "setup.py").read_text())))
