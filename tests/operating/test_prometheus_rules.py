"""`conf/prometheus-rules.yml` with Debian's promtool: every rule fires when it should and is quiet when all is well."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.operating.dashboard import DOCUMENTED, metrics_in
from tests.process_level.pages import ROOT
from tests.programs import needs

RULES = ROOT / "conf" / "prometheus-rules.yml"
TEXT = RULES.read_text(encoding="utf-8")
ALERTS = re.findall(r"^ +- alert: (\w+)$", TEXT, re.MULTILINE)

pytestmark = needs("promtool")

LEAD = '{job="svcd",instance="n"'
"""What every series of a scrape begins its labels with."""
Values = dict[str, str]
"""What each series shows, by its metric and labels: "1+2x60" is 1, then 2 more in each of 60 minutes."""
Case = tuple[Values, Values, str]
"""Of an alert: series that make it fire, series of a node that is well, and when to look."""


def alarm(name: str, other: str) -> Case:
    """An alarm of the node, and another one that is no reason for this alert."""
    shown, ignored = (f'svcd_chain_alarm,alarm="{each}"' for each in (name, other))
    return {shown: "1x10"}, {shown: "0x10", ignored: "1x10"}, "7m"


def grows(metric: str, *, ill: int, well: int) -> Case:
    """A counter of the public site that grows by so many in a minute."""
    series = f'{metric},site="public"'
    return {series: f"0+{ill}x40"}, {series: f"0+{well}x40"}, "30m"


def slow(bucket: str, *, well: str, ill: str) -> Case:
    """A histogram whose values are all in the bucket ``well``, or a tenth of them only in the next one."""
    quick, late, every = (f'{bucket},le="{bound}"' for bound in (well, ill, "+Inf"))
    return {quick: "0+90x40", late: "0+100x40", every: "0+100x40"}, {quick: "0+100x40", every: "0+100x40"}, "30m"


CASES: dict[str, Case] = {
    "SvcdDown": ({"up": "0x10"}, {"up": "1x10"}, "5m"),
    "SvcdNotSynced": (
        {"svcd_chain_synced": "0x20", "svcd_chain_alone": "0x20"},
        {"svcd_chain_synced": "0x20", "svcd_chain_alone": "0x8 1x10"},
        "15m",
    ),
    "SvcdNoNewBlock": (
        {"svcd_chain_unchanged_seconds": "1750+60x20", "svcd_chain_on_demand": "0x20"},
        {"svcd_chain_unchanged_seconds": "1750+60x20", "svcd_chain_on_demand": "1x20"},
        "15m",
    ),
    "SvcdStandstill": alarm("standstill", "outage"),
    "SvcdClock": alarm("clock", "standstill"),
    "SvcdDisk": alarm("disk", "standstill"),
    "SvcdDatabase": (
        {'svcd_chain_alarm,alarm="database"': "0x3 1x10"},
        {'svcd_chain_alarm,alarm="database"': "0x3 1x0 0x10", 'svcd_chain_alarm,alarm="disk"': "1x10"},
        "7m",
    ),
    "SvcdWebhooksMisconfigured": alarm("webhooks", "database"),
    "SvcdDeepReorganisation": alarm("deep-reorganisation", "standstill"),
    "SvcdOutage": alarm("outage", "standstill"),
    "SvcdUnreachable": alarm("unreachable", "proxy"),
    "SvcdProducerChanges": alarm("producer-changes", "unreachable"),
    "SvcdProxy": alarm("proxy", "outage"),
    "SvcdCertificate": alarm("certificate", "outage"),
    "SvcdPeersBreakRules": ({"svcd_peers_alarm": "1x10"}, {"svcd_peers_alarm": "0x10"}, "5m"),
    "SvcdFewPeers": ({"svcd_peers_outbound": "2x60"}, {"svcd_peers_outbound": "2x20 3x40"}, "45m"),
    "SvcdMempoolFull": (
        {
            "svcd_mempool_transactions": "10x60",
            "svcd_mempool_capacity_transactions": "50000x60",
            "svcd_mempool_bytes": "950x60",
            "svcd_mempool_capacity_bytes": "1000x60",
        },
        {
            "svcd_mempool_transactions": "40000x60",
            "svcd_mempool_capacity_transactions": "50000x60",
            "svcd_mempool_bytes": "850x60",
            "svcd_mempool_capacity_bytes": "1000x60",
        },
        "30m",
    ),
    "SvcdRewardsNotSwept": (
        {
            "svcd_sweep_surplus_coins": "200x400",
            "svcd_sweep_above_coins": "100x400",
            "svcd_sweep_transfers_total": "0x400",
        },
        {
            "svcd_sweep_surplus_coins": "200x400",
            "svcd_sweep_above_coins": "100x400",
            "svcd_sweep_transfers_total": "0x200 1x200",
        },
        "380m",
    ),
    "SvcdErrors": (
        {'svcd_http_requests_total,status="500",route="/rpc/status",method="GET"': "0x5 1x20"},
        {'svcd_http_requests_total,status="503",route="/rpc/status",method="GET"': "0+9x20"},
        "10m",
    ),
    "SvcdSlowAnswers": (
        {
            'svcd_http_request_seconds_bucket,route="/rpc/status",le="0.5"': "0+90x40",
            'svcd_http_request_seconds_bucket,route="/rpc/status",le="5.0"': "0+99x40",
            'svcd_http_request_seconds_bucket,route="/rpc/status",le="+Inf"': "0+100x40",
        },
        {
            'svcd_http_request_seconds_bucket,route="/rpc/status",le="0.1"': "0+100x40",
            'svcd_http_request_seconds_bucket,route="/rpc/status",le="+Inf"': "0+100x40",
            'svcd_http_request_seconds_bucket,route="/rpc/commerce/webhooks",le="0.1"': "0x40",
            'svcd_http_request_seconds_bucket,route="/rpc/commerce/webhooks",le="+Inf"': "0+100x40",
        },
        "30m",
    ),
    "SvcdReactorLate": slow("svcd_reactor_lag_seconds_bucket", well="0.05", ill="0.5"),
    "SvcdWriterQueue": (
        {'svcd_threads_queue_jobs,threads="writer"': "90+20x20"},
        {
            'svcd_threads_queue_jobs,threads="writer"': "500x3 2x20",
            'svcd_threads_queue_jobs,threads="resolver"': "200x20",
        },
        "15m",
    ),
    "SvcdVerifierFull": (
        {"svcd_verifier_queue_blocks": "1000x20", "svcd_verifier_capacity_blocks": "1024x20"},
        {"svcd_verifier_queue_blocks": "64x20", "svcd_verifier_capacity_blocks": "1024x20"},
        "15m",
    ),
    "SvcdConnectionsRefused": grows("svcd_http_connections_refused_total", ill=120, well=30),
    "SvcdConnectionsFull": grows("svcd_http_connections_evicted_total", ill=120, well=30),
    "SvcdBodiesEvicted": grows("svcd_http_bodies_evicted_total", ill=12, well=3),
    "SvcdWebhooksLate": (
        {"svcd_webhooks_oldest_seconds": "3500+60x20"},
        {"svcd_webhooks_oldest_seconds": "600x20"},
        "15m",
    ),
    "SvcdWebhooksAbandoned": (
        {"svcd_webhooks_abandoned_total": "0x5 1x20"},
        {"svcd_webhooks_abandoned_total": "3x20"},
        "15m",
    ),
    "SvcdWebhooksRefused": (
        {"svcd_webhooks_refused_total": "0x5 1x20"},
        {"svcd_webhooks_refused_total": "3x20"},
        "15m",
    ),
    "SvcdNoLeader": (
        {"svcd_webhooks_lease_age_seconds": "1x3 10+60x20"},
        {"svcd_webhooks_lease_age_seconds": "1x3 40 2x20"},
        "8m",
    ),
    "SvcdWebhooksBehind": (
        {"svcd_webhooks_lag_blocks": "4x20"},
        {"svcd_webhooks_lag_blocks": "4x3 1x20"},
        "10m",
    ),
    "SvcdWebhooksSlowDatabase": slow('svcd_threads_work_seconds_bucket,threads="webhooks"', well="1.0", ill="5.0"),
    "SvcdFewDescriptors": (
        {"process_open_fds": "900x20", "process_max_fds": "1024x20"},
        {"process_open_fds": "300x20", "process_max_fds": "1024x20"},
        "15m",
    ),
    "SvcdMemory": (
        {"process_resident_memory_bytes": "3000000000x40"},
        {"process_resident_memory_bytes": "500000000x40"},
        "30m",
    ),
    "SvcdRestarts": (
        {"process_start_time_seconds": "1 1 2 2 3 3 4 4x20"},
        {"process_start_time_seconds": "1x10 2x20"},
        "20m",
    ),
}


def series(values: Values) -> list[dict[str, str]]:
    """Series as promtool wants them."""
    found = []
    for name, shown in values.items():
        metric, _, labels = name.partition(",")
        found.append({"series": f"{metric}{LEAD}{',' + labels if labels else ''}}}", "values": shown})
    return found


def promtool(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, timeout=300)


def test_promtool_accepts_the_rules() -> None:
    checked = promtool("check", "rules", str(RULES))
    assert checked.returncode == 0, checked.stderr
    assert f"{len(ALERTS)} rules found" in checked.stdout


def test_every_alert_has_a_case() -> None:
    assert list(CASES) == ALERTS
    assert len(set(ALERTS)) == len(ALERTS)


FIRST_FAILURE = {'svcd_http_requests_total,status="500",route="/rpc/status",method="GET"': "_x15 1x40"}


@pytest.mark.parametrize(
    ("alert", "ill", "well", "at"),
    [
        *((alert, *case) for alert, case in CASES.items()),
        ("SvcdErrors", FIRST_FAILURE, dict.fromkeys(FIRST_FAILURE, "3x40"), "20m"),
    ],
)
def test_an_alert_fires_and_is_quiet_otherwise(alert: str, ill: Values, well: Values, at: str, tmp_path: Path) -> None:
    question = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    tests = [
        {
            "interval": "1m",
            "input_series": series(values),
            "promql_expr_test": [{"expr": question, "eval_time": at, "exp_samples": expected}],
        }
        for values, expected in ((ill, [{"labels": "{}", "value": 1}]), (well, []))
    ]
    file = tmp_path / "test.yml"
    # What is JSON is YAML as well.
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    tested = promtool("test", "rules", str(file))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_texts_of_alerts_are_filled_in(tmp_path: Path) -> None:
    expected = {
        "exp_labels": {"severity": "page", "instance": "n", "job": "svcd"},
        "exp_annotations": {"summary": "n has had no new block for 1h 0m 0s"},
    }
    test = {
        "interval": "1m",
        "input_series": series({"svcd_chain_unchanged_seconds": "3600x20", "svcd_chain_on_demand": "0x20"}),
        "alert_rule_test": [{"eval_time": "10m", "alertname": "SvcdNoNewBlock", "exp_alerts": [expected]}],
    }
    file = tmp_path / "test.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    tested = promtool("test", "rules", str(file))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_metric_of_the_rules_is_on_the_page() -> None:
    found = metrics_in("\n".join(re.findall(r"expr: (>-\n(?: {10,}.*\n)+|.*)", TEXT)))
    assert len(found) > 15
    assert found <= DOCUMENTED | {"up"}, found - DOCUMENTED
