"""Any text, any structure and any value in a workload file: a workload, or one clear error."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tonnage.errors import WorkloadError
from tonnage.workload.file.kinds import KINDS
from tonnage.workload.jobs import Workload
from tonnage.workload.loading import parse_workload
from tonnage.workload.reference import EXAMPLES

from .faults import AS_OF, FILE, SERVE, TABULAR, TRAIN

KEYS = sorted({name for model in KINDS.values() for name in model.model_fields} | {"rank", "mean", "max", "x"})
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["train", "gpt2", "bert-base-uncased", "24h", "500ms", "2026-12-01", "H100:8", "aws", "spot"])
    | st.dates()
    | st.binary(max_size=5)
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner, max_size=4),
    max_leaves=20,
)


def try_parse(text: str) -> None:
    """A Workload or a WorkloadError with a message; any other exception fails the test."""
    try:
        workload = parse_workload(text, file=FILE, folder=None, as_of=AS_OF)
    except WorkloadError as error:
        assert str(error).startswith(FILE)  # noqa: PT017
        str(error).encode("utf-8")
        (error.hint or "").encode("utf-8")
    else:
        assert isinstance(workload, Workload)


@settings(deadline=None)
@given(TREES)
def test_any_structure_is_a_workload_or_a_workload_error(tree: Any) -> None:
    """Whatever YAML can say never brings another exception."""
    try_parse(yaml.safe_dump(tree, allow_unicode=True))


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_workload_or_a_workload_error(text: str) -> None:
    """Nor does text that is not YAML."""
    try_parse(text)


def _paths(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(tree, dict):
        return [path, *(deeper for name, entry in tree.items() for deeper in _paths(entry, (*path, name)))]
    return [path]


def _put(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    return {**tree, path[0]: _put(tree[path[0]], path[1:], value)}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_good_file_with_any_value_changed_is_a_workload_or_a_workload_error(data: st.DataObject) -> None:
    """One or two values of a good file replaced by anything: a fault is found or the file is still good."""
    tree = yaml.safe_load(data.draw(st.sampled_from([*EXAMPLES.values(), TRAIN, SERVE, TABULAR])))
    for _ in range(data.draw(st.integers(1, 2))):
        tree = _put(tree, data.draw(st.sampled_from(_paths(tree))), data.draw(TREES))
    try_parse(yaml.safe_dump(tree, allow_unicode=True))
