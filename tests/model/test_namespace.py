"""The default namespace and its former names."""

from chimes.model.ids import (
    canonical_namespace,
    declared_id,
    declared_ids,
    id_namespace,
    stored_namespaces,
)


def test_former_namespace_names_map_to_the_default() -> None:
    assert [canonical_namespace(each) for each in ("default", "native", "catbird", "ksana")] == [
        "default",
        "default",
        "default",
        "ksana",
    ]
    for name in ("default", "native", "catbird"):
        assert stored_namespaces(name) == ("default", "native", "catbird")
    assert stored_namespaces("ksana") == ("ksana",)


def test_declared_ids_match_earlier_versions() -> None:
    assert declared_id("default", "nightly", 1) == declared_id("catbird", "nightly", 1)
    assert declared_id("default", "nightly", 1) == "f8430bc2-fd3e-5814-b39e-f100ce9c01b7"
    assert declared_id("sync", "nightly", 1) not in declared_ids("default", "nightly")
    assert declared_id("default", "nightly", 20) in declared_ids("default", "nightly")
    assert id_namespace("sync") == "sync"
