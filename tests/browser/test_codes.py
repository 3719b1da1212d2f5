"""Every error code that tests/wallet-page.md promises is met in a real browser."""

import re
from pathlib import Path

HERE = Path(__file__)
PAGE = HERE.parents[1] / "wallet-page.md"


def test_every_code_is_met_somewhere() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| code | what is wrong |")[2]
    promised = {
        code for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for code in re.findall("`(.*?)`", row)
    }
    tests = "".join(path.read_text(encoding="utf-8") for path in HERE.parent.glob("test_*.py") if path != HERE)
    asked = set(re.findall(r'error\("([a-z0-9-]+)"\)', tests))
    asked |= set(re.findall(r'^    \("([a-z0-9-]+)", f?["R]', tests, re.MULTILINE))
    asked |= set(re.findall(r'^        "([a-z-]+)": ', tests, re.MULTILINE))
    asked |= set(re.findall(r'\("(no-[a-z0-9]+)", NO_', tests)) | set(re.findall(r"\[data-error=([a-z-]+)\]", tests))
    asked |= set(re.findall(r', "([a-z-]+)", "change-[a-z]+"\)', tests))
    assert len(promised) > 30
    assert promised <= asked, f"nobody tests {sorted(promised - asked)}"
