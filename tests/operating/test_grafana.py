"""`conf/grafana-dashboard.json`: what it asks for is measured, all that is measured is on it, and promtool reads it."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.operating.dashboard import DOCUMENTED, metrics_in
from tests.process_level.pages import ROOT
from tests.programs import needs

BOARD: dict[str, Any] = json.loads((ROOT / "conf" / "grafana-dashboard.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_it_has_a_row_for_each_room() -> None:
    rows = [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"]
    assert rows == [
        "Chain",
        "Mempool",
        "Catching up",
        "Peers",
        "HTTP",
        "Verifier, writer and other threads",
        "Webhooks",
        "Reactor and process",
    ]


def test_it_asks_for_what_is_measured_and_leaves_nothing_out() -> None:
    asked = metrics_in("\n".join(EXPRESSIONS))
    assert asked <= DOCUMENTED, asked - DOCUMENTED
    # A histogram is on it where any part of it is.
    whole = {re.sub("_(bucket|sum|count)$", "", name) for name in asked}
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in DOCUMENTED} == whole


def test_every_question_is_of_the_nodes_that_are_chosen() -> None:
    for expression in EXPRESSIONS:
        names = re.findall(r"\b(?:svcd|process)_\w+(\{[^}]*\})?", expression)
        assert names
        assert all(labels.startswith('{job="svcd",instance=~"$instance"') for labels in names), expression


def test_no_panel_lies_on_another_one_and_none_is_there_twice() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


@needs("promtool")
def test_promtool_reads_every_expression(tmp_path: Path) -> None:
    plain = [text.replace("$__rate_interval", "5m").replace("$instance", ".*") for text in EXPRESSIONS]
    rules = [{"record": f"board:{number}", "expr": text} for number, text in enumerate(plain)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    checked = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False, timeout=300
    )
    assert checked.returncode == 0, checked.stderr
