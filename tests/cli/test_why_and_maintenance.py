"""`chimes why` and `chimes maintenance` on the local store."""

from __future__ import annotations

import json

from tests.cli.conftest import Cli, Server

ADD = ("add", "0 9 * * *", "--tz", "Asia/Bangkok", "--http", "http://127.0.0.1:9/x", "--name", "r")


def test_maintenance_on_status_and_off(cli: Cli) -> None:
    assert cli(*ADD, CHIMES_STORE="sqlite:///a.db").code == 0

    def call(*arguments: str) -> tuple[int, str, str]:
        found = cli("maintenance", *arguments, CHIMES_STORE="sqlite:///a.db")
        return found.code, found.out, found.err

    code, out, err = call("status")
    assert (code, out) == (0, "")
    assert "Maintenance is off." in err
    code, out, _ = call("on", "--until", "in 2h", "--reason", "new disk", "--json")
    (window,) = json.loads(out)
    assert (code, window["namespace"], window["reason"]) == (0, None, "new disk")
    code, out, _ = call("on", "--namespace", "shop")
    assert out.startswith("shop\t")
    code, out, _ = call("status", "-q")
    assert out.split() == ["*", "shop"]
    assert call("on", "--until", "2h ago")[0] == 6
    code, _, err = call("on", "--until", "whenever")
    assert code == 6
    assert "--until 'whenever' is not a time" in err
    assert call("off")[0] == 0
    assert call("off")[0] == 5
    assert call("off", "--namespace", "shop")[0] == 0


def test_why(cli: Cli) -> None:
    store = {"CHIMES_STORE": "sqlite:///a.db"}
    assert cli(*ADD, **store).code == 0
    found = cli("why", "r", "--at", "tomorrow 09:00", "--json", **store)
    answer = json.loads(found.out)
    assert (answer["outcome"], answer["slot"][11:]) == ("pending", "02:00:00Z")
    listed = json.loads(cli("why", "r", "--date", "yesterday", "--json", **store).out)
    assert [(each["outcome"], each["reason"]) for each in listed] == [("not_due", "not_created")]
    latest = cli("why", "r", **store)
    assert latest.rows[0][1:3] == ["pending", "Planned."]
    assert cli("why", "r", "--at", "1h", "--date", "today", **store).code == 2
    wrong = cli("why", "r", "--date", "someday", **store)
    assert (wrong.code, "is not a date" in wrong.err) == (6, True)
    assert cli("why", "nothing", **store).code == 3


def test_why_of_a_schedule_that_waits_for_an_event(cli: Cli) -> None:
    store = {"CHIMES_STORE": "sqlite:///a.db"}
    added = cli("add", "--on-webhook", "--http", "http://127.0.0.1:9/x", "--name", "hook", **store)
    assert added.code == 0, added.err
    found = cli("why", "hook", **store)
    assert (found.code, found.rows[0][1:3]) == (
        0,
        ["not_due", "The schedule starts on an event; none has come yet."],
    )


def test_doctor_shows_maintenance(cli: Cli, server: Server) -> None:
    url = {"CHIMES_URL": server.url}
    assert cli("maintenance", "on", "--namespace", "closed", **url).code == 0
    found = cli("doctor", **url)
    assert "!\tmaintenance\ton for the namespace closed" in found.out
    assert "chimes maintenance off --namespace closed" in found.out
    assert cli("maintenance", "off", "--namespace", "closed", **url).code == 0
    assert "\tmaintenance\t" not in cli("doctor", **url).out
