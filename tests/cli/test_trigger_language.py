"""Descriptions of triggers are in the language of the command."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli, Server

THAI = "ทุกวันทำการ เวลา 09:00 น. ตามเวลา Asia/Bangkok"
CHINESE = "工作日 09:00，Asia/Bangkok 时间"
ADD = ("add", "0 9 * * 1-5", "--tz", "Asia/Bangkok", "--http", "https://example.com/", "--yes")


def test_add_describes_the_trigger_in_the_language(cli: Cli) -> None:
    chosen = cli(*ADD, "--dry-run", "--lang", "th")
    assert chosen.err.splitlines()[0] == THAI
    assert chosen.err.splitlines()[1].split()[0] in ("จ.", "อ.", "พ.", "พฤ.", "ศ.")
    by_locale = cli(*ADD, "--dry-run", LC_ALL="zh_CN.UTF-8")
    assert by_locale.err.splitlines()[0] == CHINESE
    assert cli(*ADD, "--dry-run", "--lang", "tlh").code == 6


def test_ls_describes_triggers_in_the_language(cli: Cli, tmp_path: Path) -> None:
    store = {"CHIMES_STORE": f"sqlite:///{tmp_path}/chimes.db"}
    assert cli(*ADD, **store).code == 0
    local = json.loads(cli("ls", "--json", CHIMES_LANG="th", **store).out)
    assert [each["words"] for each in local] == [THAI]

    server = Server(tmp_path, "--store", store["CHIMES_STORE"])
    try:
        remote = json.loads(cli("ls", "--json", CHIMES_LANG="zh", CHIMES_URL=server.url).out)
    finally:
        server.stop()
    assert [each["words"] for each in remote] == [CHINESE]


def test_templates_are_in_the_language(cli: Cli) -> None:
    rows = json.loads(cli("templates", "--lang", "th", "--tz", "Asia/Bangkok", "--json").out)
    summary = next(each for each in rows if each["id"] == "daily_summary")
    assert summary["name"] == "สรุปประจำวัน"
    assert summary["words"] == "ทุกวัน เวลา 18:00 น. ตามเวลา Asia/Bangkok"
    assert summary["target"]["kind"] == "agent"
    table = {row[0]: row for row in cli("templates").rows}
    assert table["Daily summary"][1:2] == ["0 18 * * *"]
    assert table["Health ping"][1] == "every PT5M"
    assert table["Health ping"][3] == "http"
