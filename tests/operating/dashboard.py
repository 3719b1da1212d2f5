"""The metrics that docs/monitoring.md names, and those that an expression of PromQL asks for."""

import re

from tests.process_level.pages import ROOT

PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
_ROWS = re.findall(r"^\| `((?:svcd|process)_\w+)` \| (\w+) \|", PAGE, re.MULTILINE)
DOCUMENTED = {name for name, _ in _ROWS} | {
    f"{name}{part}" for name, kind in _ROWS if kind == "histogram" for part in ("_bucket", "_sum", "_count")
}
"""Every name under which Prometheus has something of a node."""


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression asks for."""
    without_labels = re.sub(r"\{[^}]*\}", "", expression)
    return set(re.findall(r"\b(?:(?:svcd|process)_\w+|up)\b", without_labels))
