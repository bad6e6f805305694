"""Grafana dashboard and Prometheus alerts use only series that a node exposes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.promql import InvalidExpression, Series, series_of
from tests.system.node import Node

ROOT = Path(__file__).parents[1]
DASHBOARD = ROOT / "deploy" / "grafana" / "chimes.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
#: Labels that Prometheus adds.
PROMETHEUS_LABELS = {"job", "instance"}


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def dashboard_expressions() -> Iterator[tuple[str, str]]:
    for panel in panels():
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def rules() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]


def exposed(text: str) -> dict[str, set[str]]:
    """Labels by series name."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """Series of an idle real node."""
    home = tmp_path_factory.mktemp("node")
    node = Node(f"sqlite:///{home / 'chimes.db'}", home).start()
    try:
        yield exposed(node.call("GET", "/metrics").text)
    finally:
        node.stop()


def test_softnix_metrics_are_exposed(metrics: dict[str, set[str]]) -> None:
    assert {
        f"chimes_{name}_total" for name in ("scheduled", "dispatched", "success", "failed")
    } <= {*metrics}
    assert {"chimes_lag_seconds_bucket", "chimes_lag_seconds_count"} <= {*metrics}


def test_every_series_in_dashboard_and_alerts_is_exposed(metrics: dict[str, set[str]]) -> None:
    asked = [*dashboard_expressions(), *((rule["alert"], rule["expr"]) for rule in rules())]
    assert len(asked) > 40
    for where, expression in asked:
        for series in series_of(expression):
            if series.name == "up":
                continue
            assert series.name in metrics, f"{where}: {series.name} is not exposed"
            unknown = series.labels - metrics[series.name] - PROMETHEUS_LABELS
            assert not unknown, f"{where}: {series.name} has no labels {unknown}"


def test_documented_metrics_are_exactly_the_exposed_ones(
    metrics: dict[str, set[str]],
) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    listed = set(re.findall(r"^\| `(chimes_\w+)", text, re.MULTILINE))
    plain = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in metrics}
    ours = {name for name in plain if name.startswith("chimes_")}
    assert listed == ours


def test_every_alert_has_severity_and_summary() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 10
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
    wanted = ("NoNode", "StoreDown", "Late", "QueueGrowing", "RunsFail", "DeadLetters", "Telegram")
    for name in wanted:
        assert any(name in each for each in names), name


def test_dashboard_panels_fit_the_grid_without_overlap() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize(
    "expression",
    [
        "sum(rate(x_total[5m])",
        "sum(rate(x_total))",
        "sum(x_total[5m])",
        "rate(x_total[5 minutes])",
        "x{job=chimes} > 1",
        "x > ",
        "x y",
        "nosuch(x)",
        "x[5m]",
        "x &",
        "",
    ],
)
def test_invalid_promql_is_rejected(expression: str) -> None:
    with pytest.raises(InvalidExpression):
        series_of(expression)


def test_series_and_labels_are_read_from_promql() -> None:
    text = 'max by (a) (x{l="1",m=~".*"}) > 1.5 and deriv(sum(y)[15m:1m]) / (2 + z) or up == 0'
    assert series_of(text) == [
        Series("x", frozenset({"l", "m"})),
        Series("y", frozenset()),
        Series("z", frozenset()),
        Series("up", frozenset()),
    ]


def test_nginx_example_sends_one_proxy_header() -> None:
    """With both, a client could name another address in the one that the proxy passes on."""
    text = (ROOT / "deploy" / "nginx" / "chimes.conf").read_text()
    sent = dict(re.findall(r"proxy_set_header (\S+) (.+);", text))
    assert sent["X-Forwarded-For"] == "$proxy_add_x_forwarded_for"
    assert sent["Forwarded"] == '""'
    assert sent["X-Forwarded-Proto"] == "$scheme"
