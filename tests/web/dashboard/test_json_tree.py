"""JSON tree: limits, completeness within them, escaping."""

from __future__ import annotations

from chimes.web.dashboard.run.views import (
    MAX_CHILDREN,
    MAX_DEPTH,
    MAX_NODES,
    MAX_TEXT,
    TreeNode,
    tree_of,
)


def leaves(node: TreeNode) -> int:
    return 1 + sum(leaves(each) for each in node.children)


def test_every_json_type_is_shown() -> None:
    tree = tree_of({"a": [1, 2.5, True, False, None, "x"], "b": {}, "c": object})
    listed, empty, other = tree.children
    assert (tree.kind, tree.size, tree.name) == ("object", 3, None)
    assert [(each.name, each.kind, each.text) for each in listed.children] == [
        ("0", "number", "1"),
        ("1", "number", "2.5"),
        ("2", "word", "true"),
        ("3", "word", "false"),
        ("4", "word", "null"),
        ("5", "text", "x"),
    ]
    assert (empty.kind, empty.size, empty.hidden) == ("object", 0, 0)
    assert other.kind == "text"
    assert tree.open
    assert listed.open


def test_control_characters_are_made_visible() -> None:
    (node,) = tree_of({"a\u202eb": "c\x00d"}).children
    assert node.name == "a⟨U+202E⟩b"
    assert node.text == "c⟨U+0000⟩d"


def test_big_values_are_truncated() -> None:
    (long,) = tree_of(["x" * (MAX_TEXT + 5)]).children
    assert (len(long.text), long.truncated, long.size) == (MAX_TEXT, True, MAX_TEXT + 5)
    wide = tree_of(list(range(MAX_CHILDREN + 7)))
    assert (len(wide.children), wide.hidden) == (MAX_CHILDREN, 7)
    assert not tree_of([list(range(100))]).children[0].open
    huge = tree_of([[[0] * 100] * 100] * 100)
    assert leaves(huge) <= MAX_NODES + 1
    assert huge.children[-1].hidden or huge.hidden


def test_depth_is_limited() -> None:
    value: object = 1
    for _ in range(100_000):
        value = [value]
    depth, node = 0, tree_of(value)
    while node.children:
        depth, node = depth + 1, node.children[0]
    assert depth == MAX_DEPTH
    assert node.hidden == 1
