"""`--on plan`: the first option of the plan that a place has is carried out there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tonnage.api.launching import prepare
from tonnage.api.planned_places import first_planned, has_option
from tonnage.api.plans import plan
from tonnage.errors import InputError, PlanRefused
from tonnage.places.contract import PlaceFinding
from tonnage.places.file import SSHPlace, read_places
from tonnage.places.ssh.executor import SSHMachine
from tonnage.planning.plan import MachineOption
from tonnage.recipes.starters import make_starter
from tonnage.runs import RunFolder
from tonnage.settings import current_settings

WORKLOAD = Path(__file__).parents[2] / "examples" / "bert-finetune.tonnage.yaml"


def place(name: str, machine: str, **more: Any) -> str:
    """A machine with an SSH server in places.toml."""
    words: dict[str, Any] = {
        "kind": "ssh", "host": "127.0.0.1", "port": 9, "folder": "/srv/tonnage", "cores": 4, "memory_gib": 16,
        "gpus": 1, "gpu_memory_gib": 16, **({"machine": machine} if machine else {}), **more,
    }  # fmt: skip
    return f"[places.{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in words.items())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options() -> list[MachineOption]:
    return [one for one in plan(WORKLOAD).options if isinstance(one, MachineOption)]


def of(option: MachineOption) -> str:
    return f"{option.provider}/{option.instance_type}"


def refuse(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """Places whose check refuses; the list gets the names that are asked."""
    asked: list[str] = []

    def check(place: SSHMachine, _: RunFolder) -> tuple[PlaceFinding, ...]:
        asked.append(place.name)
        return (PlaceFinding(kind="refused", message=f"{place.name}: no quota"),) if place.name in names else ()

    monkeypatch.setattr(SSHMachine, "check", check)
    return asked


def test_only_exactly_these_machines() -> None:
    """Another region, purchase, number, platform or type is another option."""
    option = options()[0]
    given = {"kind": "ssh", "host": "box", "folder": "/srv/x", "cores": 4, "memory_gib": 16, "machine": of(option)}
    assert has_option(SSHPlace.model_validate(given), option)
    same = {"region": option.region, "purchase": option.purchase}
    assert has_option(SSHPlace.model_validate(given | same), option)
    for key, other in {"region": "mars-1", "purchase": "reserved_3y", "machine": "aws/none"}.items():
        assert not has_option(SSHPlace.model_validate(given | {key: other}), option)
    assert not has_option(SSHPlace.model_validate({**given, "machine": None}), option)


def test_sagemaker_has_its_own_instance_type(home: Path) -> None:
    """Its place needs no `machine`: instance type, region and spot say it; a bare machine of that type is not it."""
    (home / "places.toml").write_text(
        '[places.sm]\nkind = "sagemaker"\nbucket = "s3://b/t"\nregion = "us-east-1"\ntime_limit_minutes = 60\n'
        'image = "1.dkr.ecr.us-east-1.amazonaws.com/t@sha256:' + "0" * 64 + '"\ncores = 4\nmemory_gib = 16\n'
        'role = "arn:aws:iam::123456789012:role/run"\ninstance_type = "ml.g4dn.xlarge"\n'
    )
    [found] = read_places((home / "places.toml",)).places.values()
    through = plan(WORKLOAD, platforms=("sagemaker",), providers=("aws",)).options
    had = [one for one in through if isinstance(one, MachineOption) and has_option(found, one)]
    assert [(one.instance_type, one.platform, one.purchase) for one in had] == [
        ("g4dn.xlarge", "sagemaker", "on_demand")
    ]
    assert not any(has_option(found, one) for one in options() if one.platform == "vm")


def test_the_first_option_whose_place_refuses_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the plan's order, not in that of places.toml; a place that refuses is asked once and said."""
    best, second, third = options()[:3]
    (home / "places.toml").write_text(place("c", of(third)) + place("b", of(second)) + place("a", of(best)))
    asked = refuse(monkeypatch, "a")
    found = first_planned(current_settings(), str(WORKLOAD), RunFolder(home / "runs" / "check"))
    assert (found.place, found.option.rank, found.refused) == ("b", second.rank, ("a: no quota",))
    assert asked == ["a", "b"]
    assert "not a: no quota" in found.line()
    refuse(monkeypatch, "a", "b", "c")
    with pytest.raises(PlanRefused, match="a: no quota; b: no quota; c: no quota"):
        first_planned(current_settings(), str(WORKLOAD), RunFolder(home / "runs" / "check"))


def test_a_dry_run_asks_no_place_and_has_the_plans_cost(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits in money are held against the option's price, where the place states none."""
    for name, text in make_starter("sequence-classification").items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    file = home / "sequence-classification.tonnage.yaml"
    best = next(one for one in plan(file).options if isinstance(one, MachineOption))
    (home / "places.toml").write_text(place("box", of(best), region=best.region, purchase=best.purchase))
    asked = refuse(monkeypatch, "box")
    launch = prepare(current_settings(), str(file), {"on": "plan"}, dry_run=True)
    assert asked == []
    assert launch.planned is not None
    assert launch.planned.document()["cost_usd"]["value"] == best.cost_usd.value
    assert launch.spec.guard.usd_per_hour == best.usd_per_instance_hour * best.count
    assert launch.cost is not None
    assert launch.cost["usd_per_hour"] == best.usd_per_instance_hour * best.count
    stated = prepare(current_settings(), str(file), {"on": "plan", "usd_per_hour": 9.0}, dry_run=True)
    assert stated.spec.guard.usd_per_hour == 9.0


def test_what_no_plan_or_no_place_can_do(home: Path) -> None:
    """Each refusal says what to write or to look at."""
    settings, nowhere = current_settings(), RunFolder(home / "runs" / "check")
    (home / "places.toml").write_text(place("bare", ""))
    with pytest.raises(InputError, match="no place says which machine"):
        first_planned(settings, str(WORKLOAD), nowhere)
    (home / "places.toml").write_text(place("other", "aws/x1e.32xlarge"))
    with pytest.raises(PlanRefused, match="no place has an option of the plan"):
        first_planned(settings, str(WORKLOAD), nowhere)
    with pytest.raises(InputError, match="has no plan"):
        first_planned(settings, "spec.json", nowhere)
    (home / "places.toml").write_text(place("plan", "aws/p5.48xlarge"))
    with pytest.raises(InputError, match="cannot be the name"):
        first_planned(settings, str(WORKLOAD), nowhere)
