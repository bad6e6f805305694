"""Labels of audit verbs and object kinds."""

from __future__ import annotations

import html

import pytest

from chimes.web.dashboard.core.audit import KIND_LABELS, VERB_LABELS, kind_label, verb_label
from tests.builders import an_entry
from tests.web.dashboard.audit_verbs import literals_of
from tests.web.dashboard.browsing import browsing


def test_every_audit_verb_and_object_kind_has_a_label() -> None:
    """One test for both: parsing the source takes longest."""
    verbs, kinds = literals_of("verb"), literals_of("kind")
    assert {each.word for each in verbs} >= {"create", "pause", "skip", "sign_in", "regress"}
    assert {each.word for each in kinds} >= {"schedule", "run", "session", "store"}
    assert [each for each in verbs if each.word not in VERB_LABELS] == []
    assert [each for each in kinds if each.word not in KIND_LABELS] == []
    assert set(VERB_LABELS) - {each.word for each in verbs} == set(), "labels without a verb"
    assert set(KIND_LABELS) - {each.word for each in kinds} == set(), "labels without a kind"


def test_unknown_verbs_are_shown_unchanged() -> None:
    assert verb_label("levitate") == "levitate"
    assert kind_label("moon") == "moon"


def test_labels_are_unique() -> None:
    assert len(set(VERB_LABELS.values())) == len(VERB_LABELS)


async def test_the_audit_page_shows_labels_and_filters_by_verb() -> None:
    async with browsing() as browser:
        await browser.rig.store.append_audit(an_entry(verb="pause", object_kind="schedule"))
        await browser.rig.store.append_audit(an_entry(verb="levitate", object_kind="moon"))
        page = (await browser.get("/ui/system/audit")).text
        assert '<span title="pause">paused a schedule</span>' in page
        assert '<span title="levitate">levitate</span>' in page
        assert '<option value="pause">paused a schedule (pause)</option>' in page
        found = (await browser.get("/ui/system/audit?verb=pause")).text
        assert '<option value="pause" selected>' in found
        assert "levitate" not in found
        rare = (await browser.get("/ui/system/audit?verb=levitate")).text
        assert '<option value="levitate" selected>levitate</option>' in rare


@pytest.mark.parametrize("verb", ["create_key", "<b>"])
async def test_today_shows_labels(verb: str) -> None:
    async with browsing() as browser:
        await browser.rig.create()
        await browser.rig.store.append_audit(an_entry(verb=verb, object_kind="key"))
        page = (await browser.get("/ui/")).text
        shown = html.escape(verb)
        words = "created a key" if verb == "create_key" else shown
        assert f'<b title="{shown}">{words}</b>' in page
