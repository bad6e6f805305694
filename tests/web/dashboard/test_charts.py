"""Charts: well-formed SVG, escaped, without styles, with a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from chimes.model.run import RunStatus
from chimes.web.dashboard.charts.scatter import Point, ScatterTexts, scatter_chart
from chimes.web.dashboard.charts.sparkline import (
    MAX_CELLS,
    MAX_POINTS,
    Result,
    buckets,
    downsampled,
    result_strip,
    sparkline,
)
from chimes.web.dashboard.charts.svg import Chart, element, table
from chimes.web.dashboard.charts.timeline import (
    Bar,
    Fire,
    HeatCell,
    HeatMapTexts,
    HistogramTexts,
    Lane,
    TimelineTexts,
    clusters,
    corner,
    heat_map,
    histogram,
    overlaps_of,
    shade,
    timeline,
)
from chimes.web.dashboard.charts.waterfall import Interval, WaterfallTexts, waterfall

START = datetime(2026, 11, 16, 6, tzinfo=UTC)
HOSTILE = "<img src=x onerror=alert(1)>\"'</svg>"
SVG = "{http://www.w3.org/2000/svg}"


def parse_chart(chart: Chart) -> ElementTree.Element:
    """Parses a chart as XML and checks what holds for every chart."""
    assert "style=" not in chart.svg
    assert "<img" not in chart.svg + chart.table
    root = ElementTree.fromstring(str(chart.svg))
    assert root.get("role") in ("img", "group")
    title, description = root.findall("title")[0], root.findall("desc")[0]
    assert title.text
    assert description.text
    assert root.get("aria-labelledby") == title.get("id")
    assert root.get("aria-describedby") == description.get("id")
    ElementTree.fromstring(str(chart.table))
    return root


def marks(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [each for each in root.iter() if kind in (each.get("class") or "").split()]


def timeline_texts() -> TimelineTexts:
    def mark(name: str, fires: Sequence[Fire]) -> str:
        return f"{name} ×{len(fires)}"

    return TimelineTexts(
        title=HOSTILE,
        description="what comes",
        lane="Schedule",
        when="When",
        status="Result",
        now="now",
        clock_change="clocks change",
        mark=mark,
        clock=lambda at: f"{at:%H:%M}",
        moment=lambda at: f"{at:%H:%M} UTC",
        state=lambda status: "planned" if status is None else status.value,
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Daily billing report", "Daily billing report"),
        ("Daily billing report for all of them", "Daily billing report for a…"),
        ("WWWWWWWWWWWWWWWWWWWW", "WWWWWWWWWWWW…"),
        ("iiiiiiiiiiiiiiiiiiiiiiiiii", "iiiiiiiiiiiiiiiiiiiiiiiiii"),
        # Combining marks have no width and stay with their letter.
        ("สรุปผลการทำงานของระบบ", "สรุปผลการทำงานของระบบ"),
        ("กุ้กุ้กุ้กุ้กุ้กุ้กุ้กุ้กุ้กุ้กุ้", "กุ้กุ้กุ้กุ้กุ้กุ้กุ้กุ้กุ้กุ้กุ้"),
        ("กกกกกกกกกกกกกกกกกกกกกกก", "กกกกกกกกกกกกกกกกกก…"),
        # A vowel written before its letter is not left without it.
        ("กกกกกกกกกกกกกกกกกกเกกกกก", "กกกกกกกกกกกกกกกกกก…"),
        ("每天早上九点给所有客户发送账单报告", "每天早上九点给所有客户发…"),
    ],
)
def test_truncated_name_fits_its_column(name: str, shown: str) -> None:
    lanes = [Lane(name=name, fires=[Fire(at=START)])]
    end = START + timedelta(hours=24)
    texts = timeline_texts()
    chart = timeline(lanes, start=START, end=end, now=START, ticks=[], texts=texts)
    assert f">{shown}<title>{name}</title>" in str(chart.names)


def test_timeline_has_bars_dots_clusters_now_and_clock_changes() -> None:
    hour = timedelta(hours=1)
    lanes = [
        Lane(
            name=HOSTILE,
            address="/ui/schedules/x",
            fires=[
                Fire(at=START + hour, length=timedelta(minutes=30), status=RunStatus.FAILED),
                Fire(at=START + 9 * hour, length=timedelta(minutes=45)),
                Fire(at=START + 20 * hour),
            ],
        ),
        Lane(name="often", fires=[Fire(at=START + timedelta(minutes=m)) for m in range(12)]),
        Lane(
            name="too long",
            fires=[Fire(at=START + each * hour, length=2 * hour) for each in (12, 13)],
        ),
    ]
    chart = timeline(
        lanes,
        start=START,
        end=START + 24 * hour,
        now=START + 3 * hour,
        ticks=[START + 6 * hour, START + 12 * hour],
        clock_changes=[START + 15 * hour],
        texts=timeline_texts(),
    )
    root = parse_chart(chart)
    assert len(marks(root, "now")) == 1
    assert len(marks(root, "dst")) == 1
    assert len(marks(root, "overlap")) == 1
    assert len(marks(root, "s-failed")) == 1
    # Past marks are faded: one failure and the cluster of twelve.
    assert len(marks(root, "past")) == 2
    assert any(each.text == "×12" for each in root.iter("text"))
    assert str(chart.table).count("<tr>") == 1 + 3 + 12 + 2


def test_one_failure_does_not_colour_planned_fires() -> None:
    minute = timedelta(minutes=1)
    failed = Fire(at=START, status=RunStatus.FAILED)
    planned = [Fire(at=START + n * minute) for n in range(1, 30)]
    found = clusters([failed, *planned], START, START + timedelta(days=7))
    assert [len(each.fires) for each in found] == [1, 29]


def test_axis_labels_are_not_cut_off_at_the_edges() -> None:
    day = timedelta(days=1)
    end = START + 7 * day
    ticks = [START + timedelta(minutes=1), START + 3 * day, end - timedelta(minutes=1)]
    lanes = [Lane(name="daily", fires=[])]
    chart = timeline(lanes, start=START, end=end, now=START, ticks=ticks, texts=timeline_texts())
    root = parse_chart(chart)
    first, middle, last = [each for each in root.iter("text") if each.get("y") == "16"]
    assert (first.get("x"), first.get("class")) == ("0", None)
    assert middle.get("class") == "middle"
    assert (last.get("x"), last.get("class")) == ("100%", "end")


def test_overlapping_lanes_are_shaded_and_listed_in_the_table() -> None:
    minute = timedelta(minutes=1)

    def lane(name: str, *bars: tuple[int, int]) -> Lane:
        fires = [Fire(at=START + at * minute, length=length * minute) for at, length in bars]
        return Lane(name=name, fires=fires)

    lanes = [
        # Overlaps within one lane do not count.
        lane("a", (0, 60), (30, 60), (200, 10)),
        lane("b", (80, 20), (210, 10)),
        lane("c", (85, 60)),
        lane("dots", (85, 0)),
    ]
    end = START + timedelta(hours=24)
    (found,) = overlaps_of(lanes, START, end)
    assert (found.start, found.end) == (START + 80 * minute, START + 100 * minute)
    assert found.names == ("a", "b", "c")
    # Clipped to the chart.
    (cut,) = overlaps_of(lanes, START + 90 * minute, START + 95 * minute)
    assert (cut.start, cut.end) == (START + 90 * minute, START + 95 * minute)
    texts = replace(timeline_texts(), overlaps="Meanwhile", overlap=lambda each: HOSTILE)
    chart = timeline(lanes, start=START, end=end, now=START, ticks=[], texts=texts)
    root = parse_chart(chart)
    (band,) = marks(root, "together")
    assert band.findtext("title") == HOSTILE
    rows = ElementTree.fromstring(str(chart.table)).findall("tbody/tr")
    assert [[cell.text for cell in row][1::2] for row in rows][:3] == [
        ["a", None],
        ["a", "b, c"],
        ["b", "a, c"],
    ]


def test_lane_names_are_beside_the_chart_with_equal_height() -> None:
    texts = timeline_texts()
    lanes = [Lane(name=HOSTILE, fires=[Fire(at=START)], address="/ui/schedules/x")]
    end = START + timedelta(hours=24)
    chart = timeline(lanes, start=START, end=end, now=START, ticks=[], texts=texts)
    names = ElementTree.fromstring(str(chart.names))
    assert names.get("height") == parse_chart(chart).get("height")
    assert [each.get("href") for each in names.iter("a")] == ["/ui/schedules/x"]
    assert "<img" not in str(chart.names)
    assert not list(parse_chart(chart).iter("a"))


@pytest.mark.parametrize(("count", "failed", "side"), [(100, 1, 6), (2, 1, 14), (3, 3, 22)])
def test_failure_corner_grows_with_the_failure_ratio(count: int, failed: int, side: int) -> None:
    assert corner(HeatCell(count=count, failed=failed)) == side


def test_fires_outside_the_window_are_omitted() -> None:
    end = START + timedelta(hours=24)
    found = clusters([Fire(at=START - timedelta(1)), Fire(at=end), Fire(at=START)], START, end)
    assert [each.fires for each in found] == [(Fire(at=START),)]


def test_frequent_fires_are_clustered_and_bars_are_not() -> None:
    end = START + timedelta(hours=24)
    often = clusters([Fire(at=START + timedelta(minutes=m)) for m in range(1440)], START, end)
    assert 20 <= len(often) <= 30
    assert sum(len(each.fires) for each in often) == 1440
    half = timedelta(minutes=10)
    bars = [Fire(at=START + timedelta(minutes=20 * n), length=half) for n in range(4)]
    assert len(clusters(bars, START, end)) == 4


def test_long_bar_is_clipped_to_the_chart() -> None:
    end = START + timedelta(hours=24)
    (found,) = clusters([Fire(at=end - timedelta(hours=1), length=timedelta(days=9))], START, end)
    assert round(found.x + found.width, 3) == 780


def test_charts_fill_their_container() -> None:
    """Places are shares of the width; only names and heights have a size."""
    end = START + timedelta(hours=24)
    lanes = [Lane(name="a", fires=[Fire(at=START), Fire(at=START + timedelta(hours=12))])]
    texts = timeline_texts()
    root = parse_chart(timeline(lanes, start=START, end=end, now=START, ticks=[START], texts=texts))
    assert (root.get("width"), root.get("viewBox")) == ("100%", None)
    dots = [percent(each.get("cx")) for each in root.iter("circle")]
    assert dots == [pytest.approx(1, abs=0.1), pytest.approx(49.9, abs=0.1)]


def test_outliers_are_drawn_at_the_upper_edge_of_a_scatter_chart() -> None:
    def point(hours: int, seconds: float) -> Point:
        at = START + timedelta(hours=hours)
        return Point(at=at, seconds=seconds, status=RunStatus.SUCCEEDED, address="/ui/runs/x")

    texts = ScatterTexts(
        title="Durations",
        description="one point per run",
        when="When",
        value="Duration",
        status="Result",
        median="usual",
        p95="p95",
        span=lambda seconds: f"{seconds:g} s",
        state=lambda status: status.value,
        moment=lambda at: f"{at:%d %H:%M} UTC",
        clock=lambda at: f"{at:%H:%M}",
    )
    points = [*(point(hour, 1 + hour % 3) for hour in range(40)), point(41, 900)]
    chart = scatter_chart(points, texts, ticks=[START + timedelta(hours=12)], usual=2.5)
    root = parse_chart(chart)
    arrows = [each for each in root.iter("path") if each.get("class") == "s-succeeded"]
    assert len(arrows) == 1
    assert "900 s" in str(chart.svg), "the value is in its label"
    texts_shown = [each.text for each in root.iter("text")]
    assert texts_shown == ["0 s", "1 s", "2 s", "3 s", "18:00", "usual 2.5 s", "p95 3 s"]
    # The chart is as high as the other points need.
    heights = {each.get("cy") for each in root.iter("circle")}
    assert len(heights) == 3
    assert not list(parse_chart(scatter_chart(points[:-1], texts)).iter("path"))


def percent(text: str | None) -> float:
    assert text is not None
    return float(text.removesuffix("%"))


def test_heat_map_has_168_cells_and_marks_failures() -> None:
    cells = [[HeatCell() for _ in range(24)] for _ in range(7)]
    cells[0][9] = HeatCell(count=100, failed=1, address="/ui/runs?q=x")
    cells[1][3] = HeatCell(count=10, failed=2)
    names = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", HOSTILE]
    texts = HeatMapTexts(
        title="Runs by hour",
        description="in Asia/Tokyo",
        rows=names,
        day="Day",
        hour="Hour",
        runs="Runs",
        failed="Failed",
        cell=lambda name, hour, cell: f"{name} {hour:02d}: {cell.count}",
    )
    chart = heat_map(cells, texts)
    root = parse_chart(chart)
    assert sum(len(marks(root, f"h{step}")) for step in range(5)) == 168
    assert len(marks(root, "h4")) == 1
    assert len(marks(root, "corner")) == 2
    assert [each.get("href") for each in root.iter("a")] == ["/ui/runs?q=x"]
    assert str(chart.table).count("<tr>") == 3


def test_shades_range_from_zero_to_the_maximum() -> None:
    assert [shade(count, 100) for count in (0, 1, 30, 60, 100)] == [0, 1, 2, 3, 4]
    assert shade(1, 1) == 1


def test_strip_shows_the_last_thirty_results_and_the_worst_of_each_bucket() -> None:
    done = RunStatus.SUCCEEDED
    results = [Result(status=done, label=f"{n}", when=f"at {n}", ended="done") for n in range(40)]
    last = Result(status=RunStatus.FAILED, label=HOSTILE, when="at 40", ended=HOSTILE)
    results.append(last)
    chart = result_strip(results, title="Results", heads=("Run", "Result"))
    root = parse_chart(chart)
    assert len(list(root.iter("rect"))) == MAX_CELLS
    assert len(marks(root, "s-failed")) == 1
    cells = [each.text for each in ElementTree.fromstring(str(chart.table)).iter("td")]
    assert cells[:4] == ["at 40", HOSTILE, "at 39", "done"], "newest first"
    assert len(cells) == 2 * MAX_CELLS
    states = [RunStatus.SUCCEEDED] * 299 + [RunStatus.TIMEOUT]
    found = buckets(states)
    assert len(found) == MAX_CELLS
    assert found[-1] == (RunStatus.TIMEOUT, 10)
    assert sum(count for _, count in found) == 300


def test_sparkline_has_at_most_fifty_points() -> None:
    values = [float(n % 7) for n in range(1000)]
    chart = sparkline(
        values, title="Durations", format_span=lambda s: f"{s} s", heads=("#", "Time")
    )
    root = parse_chart(chart)
    (line,) = marks(root, "line")
    short = sparkline([1.0, 3.0], title="t", format_span=lambda s: f"{s} s", heads=("#", "Time"))
    cells = [each.text for each in ElementTree.fromstring(str(short.table)).iter("td")]
    assert cells == ["1", "3.0 s", "2", "1.0 s"], "newest first"
    assert len((line.get("points") or "").split()) == MAX_POINTS
    assert len(downsampled([1.0, 2.0])) == 2
    nothing = sparkline([], title="Durations", format_span=str, heads=("#", "Time"))
    assert nothing.svg == Markup("")


def test_histogram_is_stacked_and_linked() -> None:
    bars = [
        Bar(
            start=START + timedelta(hours=n),
            end=START + timedelta(hours=n + 1),
            counts={RunStatus.SUCCEEDED: 1000, RunStatus.FAILED: 1} if n == 2 else {},
            address=f"/ui/runs?n={n}&x={HOSTILE}",
        )
        for n in range(24)
    ]
    texts = HistogramTexts(
        title="Runs",
        description="by hour",
        when="When",
        state=lambda status: status.value,
        total="All",
        bar=lambda bar: f"{bar.start:%H:%M}: {bar.total}",
        clock=lambda at: f"{at:%H:%M}",
        moment=lambda at: f"{at:%H:%M} UTC",
        number=lambda value: f"{value:,}",
    )
    chart = histogram(bars, texts)
    root = parse_chart(chart)
    # One of a thousand is still visible.
    assert [float(each.get("height") or 0) for each in marks(root, "s-failed")] == [2.0]
    assert len(list(root.iter("a"))) == 1
    assert str(chart.table).count("<tr>") == 2
    words_below = [each for each in root.iter("text") if ":" in (each.text or "")]
    assert words_below[0].get("class") is None
    narrow = histogram([*bars, *bars, bars[0]], texts)
    *_, last = [each for each in parse_chart(narrow).iter("text") if ":" in (each.text or "")]
    assert last.get("class") == "end", "it would be cut at the right edge"


def test_waterfall_keeps_order_and_scale() -> None:
    second = timedelta(seconds=1)
    intervals = [
        Interval(name="queued", start=START, end=START + second),
        Interval(name=HOSTILE, start=START + second, end=START + 4 * second, depth=1,
                status=RunStatus.SUCCEEDED, address="/ui/runs/x"),
    ]  # fmt: skip
    texts = WaterfallTexts(
        title="What happened",
        description="in order",
        what="What",
        start="Start",
        length="Time",
        moment=lambda at: f"{at:%H:%M:%S} UTC",
        span=lambda length: f"{length.total_seconds()} s",
    )
    root = parse_chart(waterfall(intervals, texts))
    (wait,), (run,) = marks(root, "wait"), marks(root, "s-succeeded")
    assert percent(run.get("width")) == pytest.approx(3 * percent(wait.get("width")), abs=0.02)
    running = replace(intervals[0], open=True)
    rows = parse_chart(waterfall([running, intervals[1]], texts)).findall(".//g[@data-start]")
    assert [each.get("data-end") is None for each in rows] == [True, False]
    parse_chart(waterfall([], texts))


def test_chart_texts_are_escaped() -> None:
    assert element("text", HOSTILE, title=HOSTILE).count("<img") == 0
    assert str(table("c", ["h"], [[HOSTILE]])).count("<img") == 0
    assert re.search(r"class=\"a b\"", element("g", class_="a b"))
