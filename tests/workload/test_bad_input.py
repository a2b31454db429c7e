"""Bad workload files: each gets file, line, key, value and hint; nothing ever gets a traceback."""

from __future__ import annotations

from datetime import datetime

import pytest

from tonnage.errors import WorkloadError
from tonnage.workload.file.kinds import KINDS
from tonnage.workload.file.problems import model_at
from tonnage.workload.jobs import Workload
from tonnage.workload.loading import parse_workload

from .faults import ALL, AS_OF, BATCH, FILE, SERVE, TABULAR, TRAIN, parse, swap


@pytest.mark.parametrize("name", ALL)
def test_each_fault_is_told_with_file_line_key_value_and_hint(name: str) -> None:
    """Each bad text raises WorkloadError: exit 2, file and line, key, what was found, what to do."""
    bad = ALL[name]
    with pytest.raises(WorkloadError) as caught:
        parse(bad.text)
    error = caught.value
    assert (error.file, error.line, error.key) == (FILE, bad.line, bad.key)
    assert bad.says in str(error)
    assert bad.hint in (error.hint or "")
    assert str(error).startswith(f"{FILE}:{bad.line}: " if bad.line else f"{FILE}: ")
    assert error.exit_code == 2
    assert len(str(error)) < 2000


@pytest.mark.parametrize("text", [TRAIN, SERVE, BATCH + "  items: 5\n", TABULAR])
def test_the_texts_the_faults_are_put_in_are_good(text: str) -> None:
    """Without its fault each text is a workload, so each error above is due to the fault."""
    assert isinstance(parse(text), Workload)


def test_an_alias_bomb_is_refused_at_once() -> None:
    """A billion laughs is stopped at its first alias, nothing is expanded."""
    layers = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30))
    with pytest.raises(WorkloadError, match="alias"):
        parse("l0: &l0 [lol]\n" + layers)


def test_all_faults_are_told_at_once_in_the_order_of_the_file() -> None:
    """The first fault heads the message with the hint; each other has a line with its own place and hint."""
    text = swap(swap(TRAIN, "67_000", "67k"), "global_batch: 32", "global_bach: 0\n  epochs: 3")
    with pytest.raises(WorkloadError) as caught:
        parse(swap(text, "bert-base-uncased", "bert-bas-uncased"))
    lines = str(caught.value).splitlines()
    assert [line.split(" ")[0] for line in lines] == [f"{FILE}:{number}:" for number in (2, 4, 7, 8)]
    assert "hint: write 67000" in lines[1]
    assert "'global_batch'" in lines[2]
    assert "did you mean `data.epochs`?" in lines[3]
    assert (caught.value.hint or "").startswith("for `model`: did you mean 'bert-base-uncased'")


def test_a_hundred_faults_are_cut_short() -> None:
    """A file of another kind altogether does not fill the screen."""
    with pytest.raises(WorkloadError, match=r"\.\.\. and 81 more") as caught:
        parse(TRAIN + "".join(f"zz{number}: 1\n" for number in range(101)))
    assert len(str(caught.value).splitlines()) == 21


def test_without_a_file_name_the_line_is_reported() -> None:
    """Text from elsewhere has no file; line and key still stand."""
    with pytest.raises(WorkloadError, match=r"^4: `data.samples`: found 0"):
        parse_workload(swap(TRAIN, "67_000", "0"), file=None, folder=None, as_of=AS_OF)


def test_the_clock_must_carry_a_zone() -> None:
    """A naive `as_of` is the caller's bug, not the user's."""
    with pytest.raises(ValueError, match="time zone"):
        parse_workload(TRAIN, file=None, folder=None, as_of=datetime(2026, 11, 20))


def test_model_at_walks_optional_and_nested_sections() -> None:
    """The unknown-key hint finds the section a path leads to, and None where it leads nowhere."""
    found = model_at(KINDS["train"], ("train", "lora"))
    assert found is not None
    assert set(found.model_fields) == {"kind", "rank", "targets", "tokens"}
    assert model_at(KINDS["train"], ("kind", "x")) is None
