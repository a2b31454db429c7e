"""The same run at several places: statistics against published tables, failed cells, the report; a real run of each."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import tonnage
from tonnage.api.place_benches import carry_out
from tonnage.errors import InputError, TonnageError, WorkloadError
from tonnage.reports.place_bench import PlacesBenched, place_bench_report
from tonnage.reports.rendering import render_report
from tonnage.side_by_side.places import compare_places
from tonnage.side_by_side.spread import chi_squared, chi_squared_quantile, place_difference, repeat_spread, student

RUN = Path(__file__).parents[2] / "examples" / "package-sections.tonnage.yaml"


@pytest.mark.parametrize(
    ("free", "share", "value"),
    [(1, 0.95, 3.841), (2, 0.1, 0.211), (5, 0.9, 9.236), (10, 0.05, 3.940), (30, 0.99, 50.892)],
)  # fmt: skip
def test_chi_squared_as_its_table_has_it(free: int, share: float, value: float) -> None:
    """NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.4, to its three digits."""
    assert chi_squared_quantile(share, free) == pytest.approx(value, abs=6e-4)
    assert chi_squared(value, free) == pytest.approx(share, abs=3e-4)


@pytest.mark.parametrize(
    ("free", "share", "value"), [(1, 0.9, 3.078), (2, 0.975, 4.303), (4, 0.95, 2.132), (30, 0.99, 2.457)]
)
def test_student_as_its_table_has_it(free: int, share: float, value: float) -> None:
    """NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2; and it is symmetrical."""
    assert student(value, free) == pytest.approx(share, abs=2e-4)
    assert student(-value, free) == pytest.approx(1 - share, abs=2e-4)


def test_the_intervals_cover_what_they_say() -> None:
    """Of 500 places with a variation of 5 %, four runs each, 80 % of the intervals hold it; the confidence that it
    lies below 5 % is above 90 % for a tenth of them, since it does not."""
    draw = random.Random(3)
    found = [repeat_spread([100 * 1.05 ** draw.gauss(0, 1) for _ in range(4)]) for _ in range(500)]
    inside = [one.sd_fraction is not None and one.sd_fraction.low <= 0.0488 <= one.sd_fraction.high for one in found]
    sure = [one.confidence is not None and one.confidence > 0.9 for one in found]
    assert sum(inside) / 500 == pytest.approx(0.8, abs=0.055)
    assert sum(sure) / 500 == pytest.approx(0.1, abs=0.04)


def test_alike_and_different_places() -> None:
    """Close and quiet places are within 5 %, places 10 % apart are not, and loud ones stay open."""
    quiet = ("a", [100.0, 101.0, 100.5, 99.5])
    alike = place_difference(quiet, ("b", [101.0, 100.0, 101.5, 100.5]))
    apart = place_difference(quiet, ("c", [110.0, 111.0, 110.5, 109.5]))
    loud = place_difference(quiet, ("d", [90.0, 110.0, 100.0, 102.0]))
    assert alike is not None
    assert apart is not None
    assert loud is not None
    assert alike.confidence > 0.99
    assert apart.confidence < 0.01
    assert apart.ratio.value == pytest.approx(1.1, abs=0.002)
    assert 0.1 < loud.confidence < 0.9
    assert place_difference(quiet, ("e", [100.0])) is None
    equal = place_difference(("f", [5.0, 5.0]), ("g", [5.0, 5.0]))
    assert equal is not None
    assert equal.confidence == 1.0


def test_a_place_that_fails_is_a_failed_cell() -> None:
    """With its reason; the others go on, in every turn, and are compared."""
    asked: list[tuple[str, int]] = []

    def once(place: str, turn: int) -> float | str:
        asked.append((place, turn))
        if place == "down":
            raise TonnageError("down: no route to host")
        if place == "flaky" and turn == 1:
            return "lost: the machine was taken away"
        return 100.0 + turn

    said: list[str] = []
    cells = carry_out(("local", "down", "flaky"), 3, once, say=said.append)
    assert asked == [(place, turn) for turn in range(3) for place in ("local", "down", "flaky")]
    compared = compare_places(cells, 0.05)
    assert [(one.place, one.spread.repeats, one.failed) for one in compared.places] == [
        ("local", 3, 0), ("down", 0, 3), ("flaky", 2, 1),
    ]  # fmt: skip
    assert [(one.one, one.other) for one in compared.differences] == [("local", "flaky")]
    report = place_bench_report(PlacesBenched(name="bert", limit=0.05, cells=cells, compared=compared))
    page = render_report(report, "table")
    assert "down: 3 failed: down: no route to host" in page
    document = json.loads(render_report(report, "json"))
    assert document["schema"] == "tonnage/place-bench@1"
    assert document["cells"][5]["reason"] == "lost: the machine was taken away"
    assert document["places"][1]["samples_per_s"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"places": ("local",)}, "two or more"), ({"places": ("local", "local")}, "two or more"),
        ({"places": ("local", "b"), "repeats": 1}, "--repeats"), ({"places": ("local", "b"), "limit": 0.0}, "--limit"),
        ({"places": ("local", "b"), "timeout_minutes": 0.0}, "--timeout"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused(options: dict[str, object], said: str) -> None:
    """Before any run begins."""
    with pytest.raises(InputError, match=said):
        tonnage.bench_places("none.yaml", tonnage.BenchPlacesOptions(**options))  # type: ignore[arg-type]


FILE = """bench:
  name: homes
  run: bert.tonnage.yaml
  places: [local, box]
  repeats: 2
  limit: 0.1
  timeout: 5m
"""


def test_a_bench_file_names_the_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as the options say; `tonnage bench FILE` is `bench places FILE` then, and takes no options besides."""
    asked: list[tuple[str, str, object]] = []

    def runs(file: str, name: str, options: object, settings: object) -> object:
        del settings
        asked.append((file, name, options))
        return lambda place, turn: 100.0 + turn + len(place)

    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tonnage.api.place_benches._runs", runs)
    monkeypatch.setattr("tonnage.api.placing.executor_at", lambda *_: None)
    workload = tmp_path / "bert.tonnage.yaml"
    text = RUN.read_text(encoding="utf-8").replace("data/package", "rows/package")
    workload.write_text(text, encoding="utf-8")
    for one in ("train", "validation", "test"):
        (tmp_path / "rows").mkdir(exist_ok=True)
        (tmp_path / "rows" / f"package-sections-{one}.jsonl").write_text('{"text": "a", "label": "b"}\n' * 9, "utf-8")
    file = tmp_path / "homes.yaml"
    file.write_text(FILE, encoding="utf-8")
    found = tonnage.bench_places(file).found
    assert found.name == "homes"
    assert [(one.place, one.turn) for one in found.cells] == [("local", 0), ("box", 0), ("local", 1), ("box", 1)]
    options = tonnage.BenchPlacesOptions(places=("local", "box"), repeats=2, limit=0.1, timeout_minutes=5.0)
    assert [(one, other) for one, _, other in asked] == [(str(workload), options)]
    with pytest.raises(InputError, match="says itself at which places"):
        tonnage.bench_places(file, options)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [("[local, box]", "[local]", "names fewer than two"), ("[local, box]", "[a, b, a]", "names 'a' twice"),
     ("repeats: 2", "repeats: 1", "bench.repeats"), ("limit: 0.1", "limit: 5", "bench.limit"),
     ("run: bert.tonnage.yaml", "data: []", "bench.data"), ("limit", "limits", "bench.limits")],
)  # fmt: skip
def test_a_file_that_cannot_be_used_names_its_key(tmp_path: Path, old: str, new: str, words: str) -> None:
    """All keys are checked before anything runs."""
    file = tmp_path / "homes.yaml"
    file.write_text(FILE.replace(old, new), encoding="utf-8")
    with pytest.raises(WorkloadError, match=words):
        tonnage.bench_places(file)
