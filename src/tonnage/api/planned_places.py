"""Where a plan is carried out: the first of its options whose machines a place of places.toml has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.failover import refusal_at
from tonnage.api.placing import known_places
from tonnage.errors import InputError, PlanRefused
from tonnage.reports.wording import render_bought, render_duration, render_machines, render_money_interval
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.places.file import AnyPlace, WrittenPlace
    from tonnage.planning.plan import MachineOption, Option
    from tonnage.runs.folder import RunFolder
    from tonnage.settings import Settings

NAMED: Final = 3  # options that a refusal names


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPlace:
    """An option of a plan and the place that has its machines."""

    place: str
    option: MachineOption
    refused: tuple[str, ...]  # places that have an option ranked before it, and what prevents the run there

    @property
    def usd_per_hour(self) -> float:
        """Of all machines, by the plan."""
        return self.option.usd_per_instance_hour * self.option.count

    def line(self) -> str:
        """What is carried out, for a person."""
        time = self.option.time_s
        took = "" if time is None else f" in {render_duration(time.value)}"
        before = "".join(f"; not {one}" for one in self.refused)
        cost = render_money_interval(self.option.cost_usd)
        return f"option {self.option.rank} of the plan: {bought_words(self.option)}, {cost}{took}{before}"

    def document(self) -> dict[str, Any]:
        """The same for `-o json`; USD and seconds with the ends of their 80 % interval."""
        option = self.option
        ends = {"cost_usd": option.cost_usd, "time_s": option.time_s}
        return {
            "rank": option.rank, "provider": option.provider, "instance_type": option.instance_type,
            "region": option.region, "purchase": option.purchase, "platform": option.platform, "count": option.count,
            "line": self.line(), "usd_per_hour": self.usd_per_hour, "layout": option.layout,
            "refused": list(self.refused),
            **{
                key: None if one is None else {"value": one.value, "low": one.low, "high": one.high}
                for key, one in ends.items()
            },
        }  # fmt: skip


def first_planned(settings: Settings, file: str, folder: RunFolder, *, ask: bool = True) -> PlannedPlace:
    """Plan a workload file, and take its first option that a place has and whose `check` refuses nothing.

    `ask`: False asks no place. InputError where the file cannot be planned or no place says which machine of the
    catalog it is; PlanRefused where nothing fits or no place has an option.
    """
    from tonnage.api.plans import plan

    if file.endswith(".json"):
        raise InputError("a spec.json has no plan", hint="`--on plan` takes the workload file it was made from")
    read = known_places(settings)
    places = read.places
    wrong = [f"{name}: {fault.message}" for name, fault in read.faults.items()]
    if not any(place.catalog_machine for place in places.values()):
        hint = 'machine = "PROVIDER/TYPE" in places.toml, as `tonnage plan` names them: docs/places.md'
        raise InputError("; ".join(["no place says which machine of the catalog it has", *wrong]), hint=hint)
    options = plan(file, settings=settings).options
    if not options:
        raise PlanRefused("nothing in the plan does the work", hint=f"`tonnage plan {file}` says why")
    refused: dict[str, str] = {}
    for name, option in _had(options, places):
        if ask and name not in refused and (fault := refusal_at(settings, name, folder)):
            refused[name] = fault
        if name not in refused:
            return PlannedPlace(place=name, option=option, refused=(*wrong, *refused.values()))
    if refused:
        against = "; ".join([*wrong, *refused.values()])
        raise PlanRefused(against, hint="`tonnage places check PLACE` says what mends it")
    best = "; ".join(bought_words(one) for one in options[:NAMED])
    said = "; ".join([f"no place has an option of the plan, whose best are {best}", *wrong])
    raise PlanRefused(said, hint=_hint(options, places, file))


def _had(options: Sequence[Option], places: Mapping[str, WrittenPlace]) -> Iterator[tuple[str, MachineOption]]:
    """Each option that a place has, with the place, in the plan's order."""
    from tonnage.planning.plan import MachineOption

    for option in options:
        for name, place in places.items():
            if isinstance(option, MachineOption) and has_option(place, option):
                yield name, option


def has_option(place: AnyPlace, option: MachineOption) -> bool:
    """Whether a run at the place has exactly the machines of the option, bought as it says."""
    machine = place.catalog_machine
    return (
        machine is not None
        and (machine.platform, machine.provider) == (option.platform, option.provider)
        and machine.instance_type == option.instance_type
        and machine.region in (None, option.region)
        and machine.purchase in (None, option.purchase)
        and place.machines == option.count
    )


def bought_words(option: Option) -> str:
    """Machines, where and how they are bought, for a person."""
    where = f" in {option.region}" if option.region else ""
    bought = render_bought(option.purchase, option.platform)
    return f"{render_machines(option.count, option.instance_type)} at {option.provider}{where}, {bought}"


def _hint(options: Sequence[Option], places: Mapping[str, WrittenPlace], file: str) -> str:
    """What places have, and which of their platforms the plan does not look at."""
    known = {name: place.catalog_machine for name, place in places.items() if place.catalog_machine is not None}
    had = ", ".join(
        f"{name}: {one.instance_type}, {render_bought(one.purchase, one.platform)}" for name, one in known.items()
    )
    unseen = sorted({one.platform for one in known.values()} - {option.platform for option in options})
    if unseen:
        return f"{had}; `constraints.platforms` with {', '.join(unseen)} in it lets the plan see more"
    return f"{had}; `tonnage explain {file} TYPE` says what became of one in the plan"
