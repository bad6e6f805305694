"""Schedules and runs, against a real server."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.conftest import CHIMES, Cli, Result, Server, environment, release, spawn

FAR = ("0 9 1 1 *", "--tz", "Asia/Bangkok")


class Client:
    """The command line with the URL of the server."""

    def __init__(self, cli: Cli, url: str, sink: str) -> None:
        self._cli = cli
        self._url = url
        self._sink = sink

    def __call__(self, *arguments: str, **variables: str) -> Result:
        return self._cli(*arguments, **({"CHIMES_URL": self._url} | variables))

    def add(self, path: str = "/", *options: str, name: str = "") -> str:
        """Creates a schedule with a unique name; returns its id."""
        named = name or f"job {uuid.uuid4().hex}"
        added = self("add", *FAR, "--http", self._sink + path, "--name", named, "-q", *options)
        assert added.code == 0, added.err
        return added.out.strip()


@pytest.fixture
def chimes(cli: Cli, server: Server, sink: str) -> Client:
    return Client(cli, server.url, sink)


def test_add_prints_the_trigger_and_creates(chimes: Client, sink: str) -> None:
    name = f"Report {uuid.uuid4().hex}"
    found = chimes(
        *("add", "0 9 * * 1-5", "--tz", "Asia/Bangkok", "--http", sink, "--name", name),
        *("--method", "put", "--header", "X-One: 1", "--header", "X-Two:2", "--body", "hello"),
        *("--label", "team=ops", "--label", "nightly", "--priority", "5", "--retry", "2"),
        *("--timeout", "30s", "--overlap", "queue", "--misfire", "all", "--json"),
    )
    assert found.code == 0
    assert found.err.startswith("Every weekday at 09:00, Asia/Bangkok time\n")
    assert found.err.count("09:00:00+07:00") == 5
    made = json.loads(found.out)
    assert made["name"] == name
    assert made["trigger"]["timezone"] == "Asia/Bangkok"
    assert made["target"]["method"] == "PUT"
    assert made["target"]["headers"] == {"X-One": "1", "X-Two": "2"}
    assert made["target"]["body"] == "hello"
    assert made["labels"] == {"team": "ops", "nightly": None}
    assert made["priority"] == 5
    policy = made["policy"]
    assert (policy["max_retries"], policy["timeout"]) == (2, "PT30S")
    assert (policy["overlap"], policy["misfire"]) == ("queue", "all")


def test_add_accepts_intervals_and_times(chimes: Client, sink: str) -> None:
    every = json.loads(chimes("add", "every 6h", "--http", sink, "--jitter", "30s", "--json").out)
    assert every["trigger"]["every"] == "PT6H"
    assert every["trigger"]["jitter"] == "PT30S"
    assert every["name"].startswith("POST http://127.0.0.1")
    once = json.loads(
        chimes("add", "2040-02-10T09:00:00+07:00", "--http", sink, "--json", "--paused").out
    )
    assert once["trigger"]["at"] == "2040-02-10T02:00:00Z"
    assert once["enabled"] is False


def test_add_reads_bodies_from_files(chimes: Client, sink: str) -> None:
    with open("body.json", "w") as file:
        file.write('{"a": 1}')
    made = json.loads(chimes("add", *FAR, "--http", sink, "--body", "@body.json", "--json").out)
    assert made["target"]["body"] == '{"a": 1}'
    assert chimes("add", *FAR, "--http", sink, "--body", "@nowhere").code == 2


def test_a_dry_run_needs_no_server_and_changes_nothing(cli: Cli) -> None:
    found = cli("add", "*/5 * * * *", "--http", "http://x.example/", "--dry-run", "--json")
    assert found.code == 0
    assert "Nothing was created" in found.err
    assert json.loads(found.out)["target"]["url"] == "http://x.example/"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["61 * * * *", "--http", "http://x.example"], 6, "minute"),
        (["* * * * *"], 2, "--http"),
        (["* * * * *", "--http", "ftp://x.example"], 6, "url"),
        (["* * * * *", "--http", "http://x.example", "--header", "nonsense"], 2, "Name: value"),
        (["* * * * *", "--http", "http://x.example", "--timeout", "soon"], 6, "timeout"),
        (["* * * * *", "--http", "http://x.example", "--jitter", "soon"], 6, "jitter"),
    ],
)
def test_add_rejects_invalid_arguments(
    chimes: Client, arguments: list[str], code: int, says: str
) -> None:
    found = chimes("add", *arguments)
    assert (found.code, found.out) == (code, "")
    assert says in found.err


def test_ls_prints_tsv_in_a_pipe_and_json_on_request(chimes: Client) -> None:
    name = f"needle {uuid.uuid4().hex}"
    made = chimes.add(name=name)
    found = chimes("ls", name)
    assert len(found.rows) == 1
    row = found.rows[0]
    assert row[:3] == [made, name, "active"]
    assert row[3].endswith("-01-01T02:00:00Z")
    assert row[5] == "On the 1st of January at 09:00, Asia/Bangkok time"
    assert json.loads(chimes("ls", name, "--json=id,name").out) == [{"id": made, "name": name}]
    full = json.loads(chimes("ls", name, "--json").out)
    assert full == [json.loads(chimes("show", made, "--json").out)]
    assert json.loads(chimes("ls", name, "--ndjson").out)["id"] == made
    assert chimes("ls", name, "-q").out == f"{made}\n"
    zoned = chimes("ls", name, "--tz", "Asia/Bangkok").rows[0][3]
    assert zoned.endswith("-01-01T09:00:00+07:00")
    assert chimes("ls", name, "--paused").out == ""
    assert chimes("ls", name, "--json=nothing").code == 2


def test_json_goes_through_jq_or_a_template(
    chimes: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"pick {uuid.uuid4().hex}"
    made = chimes.add(name=name)
    assert chimes("ls", name, "--jq", ".[] | .id, .target.method").out == f"{made}\nPOST\n"
    assert chimes("ls", name, "--json=id", "--jq", "-(.[0] | length)").out == "-1\n"
    assert chimes("ls", name, "--ndjson", "--jq", ".name").out == f"{name}\n"
    assert chimes("show", made, "--jq", ".labels").out == "{}\n"
    wrong = chimes("show", made, "--jq", ".[")
    assert (wrong.code, json.loads(wrong.err)["type"]) == (2, "urn:chimes:command:usage")
    text = "{id}\\t{target.method} {{{labels}}} {target.nothing}|{next_run_at}"
    found = chimes("ls", name, "--template", text, "--tz", "Asia/Bangkok").out
    at = "01-01T09:00:00+07:00"
    assert re.fullmatch(rf"{made}\tPOST {{{{}}}} \|\d{{4}}-{re.escape(at)}\n", found), found
    unknown = chimes("show", made, "--template", "{nme}")
    assert (unknown.code, "available: " in unknown.err) == (2, True)
    assert chimes("ls", "-q", "--jq", ".").code == 2
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = chimes("show", made, "--jq", ".")
    assert (missing.code, "is not installed" in missing.err) == (2, True)


def test_errors_are_problem_details_with_json(chimes: Client) -> None:
    for arguments, code, kind in (
        (("ls", "--json", "--bogus"), 2, "urn:chimes:command:usage"),
        (("show", "--json"), 2, "urn:chimes:command:usage"),
        (("show", "nothing-like-it", "--json"), 3, "urn:chimes:command:not_found"),
        (("ls", "--json", "--url", "http://127.0.0.1:1"), 7, "urn:chimes:command:unreachable"),
        (("ls", "staus:x", "--ndjson"), 6, "urn:chimes:problem:invalid_input"),
        (("runs", "--json", "--status", "lost"), 6, "urn:chimes:problem:invalid_input"),
    ):
        found = chimes(*arguments)
        problem = json.loads(found.err)
        assert (found.code, problem["exit_code"], problem["type"]) == (code, code, kind), found
        assert problem["title"]
    plain = chimes("ls", "--bogus")
    assert plain.err.startswith("Usage: chimes ls")


def test_lists_take_the_filters_of_the_dashboard(chimes: Client) -> None:
    label = f"l{uuid.uuid4().hex[:8]}"
    made = [
        chimes.add("/", "--label", label, name=f"{label} {number}") for number in ("one", "two")
    ]
    assert set(chimes("ls", f"label:{label}", "-q").out.split()) == set(made)
    assert chimes("ls", f"label:{label}", "two", "-q").out == f"{made[1]}\n"
    assert chimes("pause", "--all-matching", f"label:{label} two").code == 0
    assert chimes("ls", f"label:{label} status:paused", "-q").out == f"{made[1]}\n"
    chimes("run", made[0], "--wait")
    (run,) = chimes("runs", f"schedule:{made[0]}", "origin:manual").rows
    assert chimes("runs", f"{label} one").rows == [run]
    assert chimes("runs", f"schedule:{made[1]}").rows == []
    for command, text in (("ls", "staus:failed"), ("runs", "staus:failed")):
        wrong = chimes(command, text)
        assert (wrong.code, wrong.out) == (6, "")
        assert "has no condition staus. Did you mean status?" in wrong.err


def test_schedules_are_found_by_id_name_and_prefix(chimes: Client) -> None:
    word = uuid.uuid4().hex
    made = chimes.add(name=f"Nightly {word}")
    assert chimes("show", made, "-q").out.strip() == made
    assert chimes("show", f"Nightly {word}", "-q").out.strip() == made
    assert chimes("show", f"nightly-{word}", "-q").out.strip() == made
    assert chimes("show", made[:-3], "-q").out.strip() == made
    typo = chimes("show", f"Nigthly {word}")
    assert typo.code == 3
    assert f"did you mean Nightly {word}?" in typo.err
    twin = chimes.add(name=f"Nightly {word}")
    both = chimes("show", f"Nightly {word}")
    assert both.code == 2
    assert made in both.err
    assert twin in both.err
    for odd in (".", "..", "a/../b", "?", "%2F"):
        assert chimes("show", odd).code == 3


def test_pause_and_resume_schedules(chimes: Client) -> None:
    word = uuid.uuid4().hex
    made = [chimes.add(name=f"{word} {number}") for number in range(2)]
    paused = chimes("pause", made[0], "--reason", "holiday", "--json")
    assert json.loads(paused.out)[0]["pause"]["note"] == "holiday"
    assert chimes("pause", "--all-matching", word, "-q").out.split() == made
    assert [row[2] for row in chimes("ls", word).rows] == ["paused", "paused"]
    assert chimes("resume", *made, "-q").out.split() == made
    assert [row[2] for row in chimes("ls", word).rows] == ["active", "active"]
    assert chimes("pause").code == 2
    assert chimes("pause", "x", "--all-matching", "y").code == 2


@pytest.mark.parametrize(("path", "code"), [("/200", 0), ("/404", 8)])
def test_run_wait_exit_code_follows_the_run(chimes: Client, path: str, code: int) -> None:
    made = chimes.add(path)
    found = chimes("run", made, "--wait", "--json")
    assert found.code == code
    run = json.loads(found.out)[0]
    assert run["status"] == ("succeeded" if code == 0 else "failed")
    assert [row[0] for row in chimes("runs", made).rows] == [run["id"]]
    assert chimes("runs", made, "--status", "queued").out == ""
    assert chimes("runs", "--status", "nonsense").code == 6


def test_run_wait_times_out(chimes: Client) -> None:
    made = chimes.add("/hold/in-time", "--timeout", "60s")
    found = chimes("run", made, "--wait", "--timeout", "200ms")
    assert found.code == 124
    run = chimes("runs", made, "-q").out.strip()
    again = chimes("retry", run)
    assert again.code == 5
    assert "not ended" in again.err
    assert chimes("cancel", run, "--json").code == 0
    release("/hold/in-time")
    assert chimes("logs", run, "-f").code == 0
    ended = json.loads(chimes("runs", made, "--json").out)[0]
    assert ended["status"] in ("canceled", "succeeded")
    assert chimes("cancel", run).code == 5
    second = json.loads(chimes("retry", run, "--json").out)[0]
    assert second["retry_of"] == run


def test_logs_of_a_run_or_of_the_latest_run_of_a_schedule(chimes: Client) -> None:
    made = chimes.add("/404")
    assert chimes("logs", made).code == 3
    run = json.loads(chimes("run", made, "--wait", "--json").out)[0]["id"]
    by_run = chimes("logs", run)
    assert by_run.code == 0
    assert chimes("logs", made, "-f").out == by_run.out
    for row in by_run.rows:
        assert len(row) == 3
    assert chimes("logs", run, "--grep", "no such text").out == ""
    assert chimes("logs", "no-such-run").code == 3
    for line in chimes("logs", run, "--json").out.splitlines():
        assert json.loads(line)["number"] >= 1


def test_skip_move_backfill_and_upcoming(chimes: Client) -> None:
    made = chimes.add()
    before = json.loads(chimes("show", made, "--json").out)["next_run_at"]
    skipped = json.loads(chimes("skip", made, "--json").out)[0]["next_run_at"]
    assert skipped > before
    day = f"{skipped[:4]}-05-05"
    moved = json.loads(chimes("move", made, "--to", f"{day}T12:00:00", "--json").out)[0]
    assert moved["next_run_at"] == f"{day}T05:00:00Z"
    assert chimes("move", made, "--to", "whenever").code == 6
    span = ("--from", "2020-06-01T00:00:00Z", "--to", "2022-06-01T00:00:00Z")
    dry = chimes("backfill", made, *span, "--dry-run")
    assert dry.out.split() == ["2021-01-01T02:00:00Z", "2022-01-01T02:00:00Z"]
    assert "2 slots would run" in dry.err
    pace = ("--concurrency", "2", "--overlap", "allow")
    real = chimes("backfill", made, *span, *pace, "-q")
    assert len(real.out.split()) == 2
    assert chimes("backfill", made, *span, "--overlap", "skip").code == 2
    assert chimes("backfill", made, *span, "--concurrency", "0").code == 2
    assert chimes("backfill", made, "--from", "x", "--to", "y").code == 6
    assert chimes("upcoming", "--for", "1h").code == 0
    assert chimes("upcoming", "--for", "soon").code == 6


def test_rm_confirms_only_on_a_terminal(chimes: Client) -> None:
    made = chimes.add()
    refused = chimes("rm", made)
    assert refused.code == 1
    assert "--yes" in refused.err
    assert chimes("rm", made, "--yes").out.strip() == made
    assert chimes("show", made).code == 3
    assert chimes("rm", made, "--yes").code == 3


def test_no_input_behaves_like_no_terminal(chimes: Client, server: Server, sink: str) -> None:
    env = {"CHIMES_URL": server.url}
    code, seen = run_and_answer(["add", *FAR, "--http", sink, "--no-input"], "", env)
    assert code == 0
    assert "[y/N]" not in seen
    made = chimes.add()
    assert run_and_answer(["rm", made, "--no-input"], "", env)[0] == 1


EVIL = "evil \x1b]52;c;aGk=\x07\x1b[2J\u202e\u009b31m"


@pytest.fixture
def evil_server(server: Server) -> Iterator[str]:
    """A server that returns names with control characters, which a real one rejects."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Evil(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            item = {"id": "x\tid\n", "name": EVIL, "enabled": True, "words": "a\nb"}
            body = json.dumps({"items": [item], "next_cursor": None}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    receiver = HTTPServer(("127.0.0.1", 0), Evil)
    thread = threading.Thread(target=receiver.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{receiver.server_address[1]}"
    receiver.shutdown()
    receiver.server_close()
    thread.join()


def test_control_characters_in_names_are_escaped(cli: Cli, evil_server: str) -> None:
    for format in ([], ["--json"], ["--ndjson"], ["-q"]):
        found = cli("ls", *format, CHIMES_URL=evil_server)
        assert found.code == 0
        assert all(char.isprintable() or char in "\t\n" for char in found.out)
    plain = cli("ls", CHIMES_URL=evil_server)
    assert len(plain.rows) == 1
    assert "\\x1b]52" in plain.out
    assert json.loads(cli("ls", "--json", CHIMES_URL=evil_server).out)[0]["name"] == EVIL


def on_terminal(arguments: list[str], columns: int, env: dict[str, str]) -> str:
    """The output of a command on a terminal."""
    import fcntl
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*CHIMES, *arguments],
        env=environment(TERM="xterm-256color", **env),
        stdin=slave,
        stdout=slave,
        stderr=subprocess.DEVNULL,
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(master)
    assert process.wait(60) == 0
    return seen.decode()


def test_table_fits_the_terminal(chimes: Client, server: Server) -> None:
    name = f"wide {uuid.uuid4().hex}"
    made = chimes.add(name=name)
    url = {"CHIMES_URL": server.url}
    wide = on_terminal(["ls", name], 200, url)
    assert "WHEN" in wide
    assert "\x1b[1m" in wide
    # A prefix that commands accept.
    assert made not in wide
    assert f"{made[:8]} " in wide
    narrow = on_terminal(["ls", name], 60, url)
    assert "WHEN" not in narrow
    assert made not in narrow
    assert f"{made[:8]} " in narrow
    plain = on_terminal(["ls", name], 200, url | {"NO_COLOR": "1"})
    assert "\x1b" not in plain
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in narrow.splitlines()) <= 60


def test_table_fits_80_columns_with_unique_ids(chimes: Client, server: Server) -> None:
    word = uuid.uuid4().hex[:8]
    made = [chimes.add(name=f"{word} the {count} one") for count in ("first", "second")]
    seen = on_terminal(["ls", word], 80, {"CHIMES_URL": server.url, "NO_COLOR": "1"})
    head, *rows = seen.splitlines()
    assert {"ID", "NAME", "NEXT", "WHEN"} <= set(head.split())
    assert max(map(len, seen.splitlines())) <= 80
    assert all(word in row and "-01-01 02:00 +00" in row for row in rows)
    # Ids of the same minute share a prefix; the abbreviations are still unique.
    shown = [row.split()[0] for row in rows]
    assert all(len(each) >= 8 for each in shown)
    found = [[id_ for id_ in made if id_.startswith(each)] for each in shown]
    assert sorted(found) == sorted([each] for each in made)


def test_next_prints_notes_below_the_table() -> None:
    arguments = ["next", "30 2 * * *", "--tz", "America/New_York", "--from", "2027-03-13T00:00:00Z"]
    seen = on_terminal(arguments, 80, {})
    assert "2027-03-14T03:00:00-04:00: its time is skipped" in seen


def test_show_prints_labels_on_a_terminal(chimes: Client, server: Server) -> None:
    made = chimes.add("/", "--label", "team=x")
    text = on_terminal(["show", made], 120, {"CHIMES_URL": server.url})
    assert "Target" in text
    assert "POST http://127.0.0.1" in text
    lines = chimes("show", made).rows
    assert ["id", made] in lines
    assert ["labels", '{"team": "x"}'] in lines


def test_show_finds_runs_too(chimes: Client, server: Server) -> None:
    chimes.add("/404", name="shown")
    assert chimes("run", "shown", "--wait").code == 8
    run = chimes("runs", "shown", "-q", "-n", "1").out.strip()
    lines = dict(line for line in chimes("show", run).rows if len(line) == 2)
    assert (lines["id"], lines["status"], lines["schedule"]) == (run, "failed", "shown")
    assert lines["why"]
    assert json.loads(chimes("show", run, "--json").out)["schedule_name"] == "shown"
    missing = chimes("show", "neither")
    assert (missing.code, "No schedule" in missing.err) == (3, True)


def run_and_answer(arguments: list[str], answer: str, env: dict[str, str]) -> tuple[int, str]:
    """Runs a command on a terminal and answers its prompt; returns exit code and output."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*CHIMES, *arguments], env=environment(**env), stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
        if b"[y/N]" in seen and answer:
            os.write(master, answer.encode() + b"\n")
            answer = ""
    os.close(master)
    return process.wait(60), seen.decode()


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1)])
def test_add_confirms_on_a_terminal(server: Server, sink: str, answer: str, code: int) -> None:
    name = f"asked {uuid.uuid4().hex}"
    arguments = ["add", *FAR, "--http", sink, "--name", name]
    ended, seen = run_and_answer(arguments, answer, {"CHIMES_URL": server.url})
    assert ended == code
    assert seen.index("09:00:00+07:00") < seen.index("Create it? [y/N]")
    assert ("Nothing was created" in seen) is (code == 1)


def test_run_with_overridden_parameters(chimes: Client) -> None:
    made = chimes.add("/200", "--body", '{"day": "monday", "copies": 1}')
    found = chimes("run", made, "--param", "copies=2", "--param", "day=friday", "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)[0]["target"]["body"] == '{"day": "friday", "copies": 2}'
    assert json.loads(chimes("show", made, "--json").out)["target"]["body"].endswith("1}")
    whole = chimes("run", made, "--body", "other", "--json")
    assert json.loads(whole.out)[0]["target"]["body"] == "other"
    assert chimes("run", made, "--param", "copies").code == 2
    assert chimes("run", made, "--prompt", "x").code == 6
    assert chimes("run", made, "--message", "x").code == 6
    added = chimes("add", *FAR, "--message", "tea", "--name", "tea once", "--yes", "--json")
    printed = json.loads(added.out)
    made = (printed[0] if isinstance(printed, list) else printed)["id"]
    other = chimes("run", made, "--message", "coffee", "--json")
    assert json.loads(other.out)[0]["target"]["text"] == "coffee"


def test_long_tables_go_through_the_pager(tmp_path: Path) -> None:
    pager = {"PAGER": "sed s/^/PAGED:/"}
    many = ["next", "* * * * *", "-n", "40"]
    assert on_terminal(many, 100, pager).count("PAGED:") >= 40
    assert "PAGED:" not in on_terminal(["next", "* * * * *"], 100, pager)
    for variables in ({**pager, "NO_PAGER": "1"}, {"PAGER": ""}, {"PAGER": "cat"}):
        assert on_terminal(many, 100, variables).count(":00+00:00") == 40
    piped = spawn(*many, cwd=tmp_path, env=pager)
    assert (piped.code, "PAGED:" in piped.out) == (0, False)


def test_columns_that_matter_are_shown_in_100_columns(chimes: Client, server: Server) -> None:
    name = f"a report with a rather long name {uuid.uuid4().hex[:6]}"
    made = chimes.add(name=name)
    url = {"CHIMES_URL": server.url}
    assert chimes("skip", made, "--reason", "holiday").code == 0
    listed = on_terminal(["ls", name], 100, url)
    assert {"NAME", "STATE", "NEXT", "WHEN"} <= set(_plain(listed).splitlines()[0].split())
    assert "\x1b[32mactive" in listed
    runs = on_terminal(["runs", made], 100, url)
    head, row = _plain(runs).splitlines()
    assert {"ID", "STATUS", "SCHEDULE", "PLANNED", "WHY"} <= set(head.split())
    assert "skipped by a user" in row
    assert "\x1b[33mskipped" in runs
    short = row.split()[0]
    assert len(short) == 8
    assert chimes("logs", short).code == 0
    head, row = _plain(on_terminal(["audit", "--verb", "skip", "-n", "1"], 100, url)).splitlines()
    assert "ACTOR" in head
    assert "…" in row  # The id of the schedule gives way.


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_backfills_of_more_than_a_thousand_slots_run_in_chunks(chimes: Client) -> None:
    target = ("--http", "http://127.0.0.1:9/", "--paused")
    made = chimes("add", "* * * * *", *target, "-q").out.strip()
    until, since = datetime.now(UTC), datetime.now(UTC) - timedelta(minutes=2500)
    options = ["--from", since.isoformat(), "--to", until.isoformat(), "--dry-run"]
    found = chimes("backfill", made, *options)
    slots = found.out.split()
    assert found.code == 0, found.err
    # One request of the API takes 1,000 slots.
    assert 2499 <= len(slots) <= 2501
    assert slots == sorted(set(slots))
    assert chimes("backfill", made, "--from", "1h ago", "--to", "now", "--dry-run").code == 0
    limited = ("--concurrency", "3", "--overlap", "allow")
    assert chimes("backfill", made, *options, *limited).code == 2
