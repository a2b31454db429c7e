"""Keys that differ between two files, and the files between."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tonnage.planning.whatif.key_changes import changed_keys, states_between

LEAVES = st.integers(0, 3) | st.sampled_from(["a", "b"]) | st.lists(st.integers(0, 2), max_size=2)
FILES: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.dictionaries(st.sampled_from("klmn"), LEAVES, max_size=4),
    lambda inner: st.dictionaries(st.sampled_from("klmn"), LEAVES | inner, max_size=4),
    max_leaves=12,
)


@given(before=FILES, after=FILES)
def test_the_last_state_is_the_file_after(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Whatever changed, the changes one after another lead from one file to the other; no change where none is."""
    kept = repr(before)
    changes = changed_keys(before, after)
    states = [state for _, state in states_between(before, changes)]
    assert _without_empty(states[-1] if states else before) == _without_empty(after)
    assert repr(before) == kept  # the file itself is left alone


def test_changes_are_in_the_order_of_the_file() -> None:
    """Keys of the new file first, in its order; then those that are gone."""
    before = {"model": "a", "gone": 1, "data": {"epochs": 1, "samples": 5}}
    after = {"data": {"samples": 6, "epochs": 1}, "model": "b"}
    assert [one.key for one in changed_keys(before, after)] == ["data.samples", "model", "gone"]


def _without_empty(value: Any) -> Any:
    """A section that lost its last key says as much as none."""
    if not isinstance(value, dict):
        return value
    inner = {name: _without_empty(entry) for name, entry in value.items()}
    return {name: entry for name, entry in inner.items() if entry != {}}
