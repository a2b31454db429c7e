"""Device profiles: curves, files, and whose machine a profile is of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.calibration.local_file import find_profile, profile_text, read_profile, save_profile
from tonnage.calibration.local_profile import DeviceCurve, MachineIdentity, MeasuredPoint, Timing
from tonnage.errors import InputError
from tonnage.testing.devices import fake_profile


def point(size: float, seconds: float) -> MeasuredPoint:
    timing = Timing(median_s=seconds, low_quartile_s=seconds, high_quartile_s=seconds, repeats=3)
    return MeasuredPoint(size=size, amount=size, timing=timing)


def curve(*points: MeasuredPoint) -> DeviceCurve:
    return DeviceCurve(operation="product", precision="fp32", threads=1, unit="flop", points=points)


def test_a_curve_goes_through_its_points_and_stays_level_beyond() -> None:
    """1 ns a unit at 1e3, 0.1 ns at 1e5: a geometric mean half way, the end's rate beyond it."""
    measured = curve(point(1e3, 1e-6), point(1e5, 1e-5))
    assert measured.seconds(1e3, 1e3) == pytest.approx(1e-6)
    assert measured.per_unit_s(1e4) == pytest.approx(1e-9 * 0.1**0.5)
    assert measured.seconds(1e7, 1e7) == pytest.approx(1e-3)


def test_a_call_smaller_than_any_measured_costs_as_much_as_the_smallest() -> None:
    """The floor of a call: ten units take what a thousand take."""
    assert curve(point(1e3, 1e-6), point(1e5, 1e-5)).seconds(10.0, 10.0) == pytest.approx(1e-6)


def test_points_must_grow_and_quartiles_stand_around_the_median() -> None:
    """What cannot have been measured is no curve."""
    with pytest.raises(ValueError, match="growing size"):
        curve(point(1e5, 1e-5), point(1e3, 1e-6))
    with pytest.raises(ValueError, match="quartiles"):
        Timing(median_s=1.0, low_quartile_s=2.0, high_quartile_s=3.0, repeats=3)


def test_a_profile_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """Every figure, and the same bytes again; nothing else is left in the folder."""
    profile, file = fake_profile(usd_per_hour=0.3), tmp_path / "devices" / "p.json"
    save_profile(profile, file)
    assert read_profile(file) == profile
    assert profile_text(read_profile(file)) == file.read_text(encoding="utf-8")
    assert [one.name for one in file.parent.iterdir()] == ["p.json"]


def broken(change: dict[str, object]) -> str:
    return json.dumps(json.loads(profile_text(fake_profile())) | change)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read"), ("{", "cannot be read"), ("[]", "not a device profile"), ("{}", "not a device profile"),
        (broken({"schema": "tonnage/device-profile@9"}), "not a device profile"),
        (broken({"curves": []}), "damaged"), (broken({"identity": None}), "damaged"),
        (broken({"surprise": 1}), "damaged"), (broken({"framework_bytes": -1}), "damaged"),
        (broken({"adapter_library_bytes": -1}), "damaged"),
        (broken({"usd_per_hour": -1}), "damaged"),
        (profile_text(fake_profile()).replace('"time_log_sd": 0.2', '"time_log_sd": NaN'), "cannot be read"),
        (profile_text(fake_profile()).replace('"median_s": ', '"median_s": -'), "damaged"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_with_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    """Empty, cut, foreign, of another version, with figures that cannot be: one clear refusal each."""
    file = tmp_path / "p.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said) as caught:
        read_profile(file)
    assert "tonnage calibrate --local" in str(caught.value.hint)


def test_a_profile_of_another_machine_is_refused_unless_asked_for(tmp_path: Path) -> None:
    """The processor's name and its cores tell; `other_machine` lets it through."""
    profile = fake_profile()
    save_profile(profile, tmp_path / "devices" / f"{profile.name}.json")
    elsewhere = replace(profile.identity, processor="Other CPU (family 2 model 2)")
    with pytest.raises(InputError, match="another machine"):
        find_profile(profile.name, tmp_path, elsewhere)
    assert find_profile(profile.name, tmp_path, elsewhere, other_machine=True) == profile
    assert find_profile(profile.name, tmp_path, profile.identity) == profile


def test_local_is_the_newest_profile_of_this_machine(tmp_path: Path) -> None:
    """Older ones and those of other machines do not count; without any the command to run is named."""
    old = fake_profile(name="local-old")
    new = replace(fake_profile(name="local-new"), made_at="2026-11-21T00:00:00+00:00")
    foreign = replace(fake_profile(name="local-foreign", processor="X"), made_at="2026-12-01T00:00:00+00:00")
    for one in (old, new, foreign):
        save_profile(one, tmp_path / "devices" / f"{one.name}.json")
    assert find_profile("local", tmp_path, old.identity) == new
    nowhere = MachineIdentity(processor="Y", physical_cores=1, logical_cores=1, architecture="arm64", memory_gib=1.0)
    with pytest.raises(InputError, match=r"3 of other machines"):
        find_profile("local", tmp_path, nowhere)


def test_an_unknown_name_is_told_with_what_is_there(tmp_path: Path) -> None:
    """The profiles at home are named."""
    save_profile(fake_profile(), tmp_path / "devices" / "local-fake-2c.json")
    with pytest.raises(InputError) as caught:
        find_profile("local-fkae", tmp_path, fake_profile().identity)
    assert "local-fake-2c" in str(caught.value.hint)
