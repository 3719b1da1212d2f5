"""docs/monitoring.md says of each alarm and each alert what to do."""

import re

from svcd.node.chain_alarms import DEEP, DEEP_BLOCKS, DEEP_SECONDS
from svcd.node.status import STILL_SECONDS
from tests.operating.dashboard import PAGE
from tests.process_level.pages import ROOT, section

RULES = (ROOT / "conf" / "prometheus-rules.yml").read_text(encoding="utf-8")


def test_the_page_knows_when_there_is_an_alarm() -> None:
    text = section("docs/monitoring.md", "## Alarms")
    assert f"{DEEP_BLOCKS} blocks or more were undone" in text
    assert (DEEP_SECONDS, "a day later" in text) == (86_400, True)
    assert (STILL_SECONDS, "for ten minutes" in text) == (600, True)
    shown = set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))
    source = (ROOT / "svcd" / "node" / "status.py").read_text(encoding="utf-8").replace("DEEP: ", f'"{DEEP}": ')
    assert shown == set(re.findall(r'^            "([a-z-]+)": self\.', source, re.MULTILINE))


def test_each_alarm_has_a_section_about_what_to_do() -> None:
    table = section("docs/monitoring.md", "## Alarms")
    kinds = re.findall(r"^\| `?([a-z -]+)`? \| .+ \| .+ \| .+ \|$", table, re.MULTILINE)
    headings = re.findall(r"^### (.+)$", PAGE.partition("\n## Alarms\n")[2].partition("\n## ")[0], re.MULTILINE)
    assert headings == [kind.replace("-", " ").capitalize() for kind in kinds if kind != "alarm"]


def test_each_alert_rule_is_in_a_table_with_its_severity() -> None:
    rules = re.findall(r"- alert: (\w+)\n.*?severity: (\w+)", RULES, re.DOTALL)
    of_alarms = re.findall(r" \| `(Svcd\w+)`, (\w+) \|$", PAGE, re.MULTILINE)
    others = re.findall(r"^\| `(Svcd\w+)` \| (\w+) \| .+ \|$", PAGE, re.MULTILINE)
    assert sorted(rules) == sorted(of_alarms + others)


def test_the_configuration_of_prometheus_is_that_of_the_file() -> None:
    file = (ROOT / "conf" / "prometheus.yml").read_text(encoding="utf-8")
    shown = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", PAGE, re.MULTILINE)
    (block,) = [each.replace("\n    ", "\n").strip() for each in shown if "scrape_configs" in each]
    assert block in file
