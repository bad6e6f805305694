"""No user-facing text bypasses the message catalogues.

`python -m tests.i18n_bypass` prints the same findings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.i18n_bypass import ALLOWED, EXCLUDED_FILES, SOURCE, Finding, findings, is_allowed
from tests.tables import each_row


@pytest.fixture(scope="module")
def source_findings() -> list[Finding]:
    """All findings, including allowed ones."""
    return findings([SOURCE], allowed=())


def test_no_user_facing_text_in_the_source_bypasses_the_catalogues(
    source_findings: list[Finding],
) -> None:
    assert [str(each) for each in source_findings if not is_allowed(each, ALLOWED)] == []


def test_every_exclusion_and_exception_is_still_needed(source_findings: list[Finding]) -> None:
    assert [name for name, _ in EXCLUDED_FILES if not (SOURCE / name).exists()] == []
    unused = [
        entry for entry in ALLOWED if not any(is_allowed(each, [entry]) for each in source_findings)
    ]
    assert unused == []


PLANTED = {
    "bare": [
        'raise NotFound("no such run")',
        'raise NotFound("Gone")',
        'raise NotFound(f"no run {run}")',
        'raise InvalidInput(_("x {y}", y=1), hint="try again later")',
        'text = "no such run"\n    raise NotFound(text)',
        'raise NotFound("no run" if run else _("no such run"))',
        'raise NotFound("no run %s" % run)',
        'raise NotFound("no run {}".format(run))',
        'raise NotFound("no run: " + run)',
        'click.echo("Deleted")',
        'click.confirm(f"Delete {run}?")',
        'raise RequestRejected(409, "starting", "it is starting")',
        'FieldError(name="a", detail="needed", code="missing")',
        'raise bad("this is wrong")',
    ],
    "prose": [
        'return {"reason": "the store cannot be reached"}',
        'return f"{run} is over"',
        'runner.log("info", "not sent at all")',
    ],
    "glued": [
        'raise NotFound(f"{run}: {error.message}")',
        "return f\"{_('no such run')}!\"",
        'return _("no such run") + "!"',
        'return "see " + _("no such run")',
        'return _("no such run %s") % run',
        'return _("no such run {}").format(run)',
    ],
    "template": ["raise NotFound(_(run))", 'return counted("{count} run", run, 2)'],
    "piece": [
        'return _("{what} is wrong", what="the name of it")',
        'return _("{what} is wrong", what=f"the name {run}")',
        'return _("no {run}{more}", run=run, more=" and others" if run else "")',
    ],
    "": [
        'raise NotFound(_("no such run"))',
        'raise NotFound(_("no run {run!r}", run=run))',
        "click.echo(run)",
        '_log.warning("a run was lost: %s", error.message)',
        'raise ValueError("an aware datetime is needed")',
        'assert run, "there is a run"',
        'return counted("{count} run", "{count} runs", 2)',
        'raise bad("field_name")',
        'return "SELECT id FROM runs"',
    ],
}


@each_row(("rule", "line"), [(rule, line) for rule, lines in PLANTED.items() for line in lines])
def test_planted_untranslatable_text_is_found(tmp_path: Path, rule: str, line: str) -> None:
    file = tmp_path / "planted.py"
    file.write_text(
        "def bad(message: str) -> NotFound:\n    return NotFound(message)\n\n"
        f'def planted(run, error, runner):\n    """Not a word of this is shown."""\n    {line}\n'
    )
    assert {each.rule for each in findings([file])} == ({rule} if rule else set())
