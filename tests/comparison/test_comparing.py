"""Computed rows, crossings, recommendation and split, on figures of a planner made for the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.computed import Total
from tonnage.comparison.crossings import cost_at
from tonnage.comparison.horizons import WEEKS_PER_MONTH, EntryCost, payback
from tonnage.comparison.splitting import best_split
from tonnage.reports.reasons.comparison import split_words
from tonnage.reports.wording import render_money
from tonnage.sizing.estimates import Figure

BOTH = ("workloads: [{file: tune.yaml, jobs_per_month: 30}]",
        "workloads: [{file: tune.yaml, jobs_per_month: 30}, {file: answer.yaml}]")  # fmt: skip
SERVICE = ("workloads: [{file: tune.yaml, jobs_per_month: 30}]", "workloads: [{file: answer.yaml}]")


def test_costs_are_run_plus_people(compared: Callable[..., Comparison]) -> None:
    """30 jobs of 10 dollars, and 20 hours at 100; intervals add up end by end."""
    total = compared().totals["self-managed-aws"]
    assert total.run_usd_per_month is not None
    assert total.run_usd_per_month.value == pytest.approx(300.0)
    assert total.usd_per_month is not None
    assert total.usd_per_month.value == pytest.approx(300.0 + 20 * 100)
    assert total.usd_per_month.low == pytest.approx(240.0 + 8 * 100)
    assert total.usd_per_month.high == pytest.approx(450.0 + 60 * 100)
    assert total.usd_per_month.basis == "assumed"


def test_without_a_rate_people_are_not_counted(compared: Callable[..., Comparison], standard: str) -> None:
    """No rate is not a rate of zero: people and set-up are not known, run cost is."""
    total = compared(standard.replace(", usd_per_hour: 100", "")).totals["self-managed-aws"]
    assert total.people_usd_per_month is None
    assert total.setup_usd is None
    assert total.usd_per_month == total.run_usd_per_month


def test_own_hours_replace_the_profiles(compared: Callable[..., Comparison], standard: str) -> None:
    """Hours in the compare file stand in for those of the profile."""
    mine = "{name: self-managed-aws, operation_hours_per_month: {low: 1, likely: 2, high: 3, because: we run it today}}"
    total = compared(standard.replace("- self-managed-aws", f"- {mine}")).totals["self-managed-aws"]
    assert total.people_usd_per_month is not None
    assert total.people_usd_per_month.value == pytest.approx(200.0)


def test_break_even_in_closed_form(compared: Callable[..., Comparison]) -> None:
    """aws 2000 + 300 f beside sagemaker 600 + 360 f: they cost the same at f = 1400 / 60."""
    found = compared()
    one = next(one for one in found.crossings if {one.first, one.second} == {"self-managed-aws", "sagemaker"})
    assert one.factor == pytest.approx(1400 / 60)
    assert one.cheaper_above == "self-managed-aws"
    assert one.method == "closed form"
    costs = [cost_at(found.totals[name], 1400 / 60) for name in ("self-managed-aws", "sagemaker")]
    assert costs[0] == pytest.approx(costs[1])


def test_break_even_of_a_service(compared: Callable[..., Comparison], standard: str) -> None:
    """Tokens 300 + 20 f against machines 600 + max(50, 6 f): the machines are cheaper above the crossing."""
    text = standard.replace(*SERVICE).replace("- sagemaker", "- sagemaker\n  - bedrock")
    found = compared(text)
    one = next(one for one in found.crossings if {one.first, one.second} == {"sagemaker", "bedrock"})
    assert one.factor is not None
    assert one.factor == pytest.approx(300 / 14, rel=1e-6)
    assert one.cheaper_above == "sagemaker"
    assert one.method == "planned anew"
    at = [cost_at(found.totals[name], one.factor) for name in ("sagemaker", "bedrock")]
    assert at[0] == pytest.approx(at[1], rel=1e-6)


def test_break_even_of_one_workload(compared: Callable[..., Comparison], standard: str) -> None:
    """Of several workloads each is compared by itself too, among all that can do it, people left out."""
    found = compared(standard.replace(*BOTH).replace("- sagemaker", "- sagemaker\n  - bedrock"))
    one = next(
        one for one in found.crossings if (one.work, one.first, one.second) == ("answer", "sagemaker", "bedrock")
    )
    assert one.factor == pytest.approx(2.5, rel=1e-6)  # 20 f reaches the 50 dollars of the smallest fleet
    assert {one.work for one in found.crossings} == {"", "tune", "answer"}
    assert not any("databricks" in (one.first, one.second) for one in found.crossings if one.work == "answer")


def test_what_cannot_be_done_is_not_ranked(compared: Callable[..., Comparison], standard: str) -> None:
    """An alternative that cannot do all the work is out of the ranking, and its cost is not known rather than
    partial."""
    found = compared(standard.replace(*BOTH))
    assert found.able == ("self-managed-aws", "sagemaker")
    assert {one.alternative for one in found.ranking} == {"self-managed-aws", "sagemaker"}
    assert found.totals["databricks"].usd_per_month is None
    assert "cost" not in found.scores["databricks"]
    outs = [advice.verdict.out_of("databricks") for advice in found.advice]
    assert all(out is not None and (out.kind, out.work) == ("cannot do the work", "answer") for out in outs)


def test_what_takes_longer_than_the_horizon_is_out(compared: Callable[..., Comparison]) -> None:
    """Within two weeks one stays where one is; over a year the move counts once, and today's bill until it is done."""
    found = compared()
    short, _, long = (one.verdict for one in found.own_advice)
    assert short.choice == "self-managed-aws"
    assert {one.alternative: one.kind for one in short.out} == {
        "databricks": "not reached in time",
        "sagemaker": "not reached in time",
    }
    known = {one.alternative: one.usd for one in (*long.contenders, *long.out)}
    moved, stayed = known["databricks"], known["self-managed-aws"]
    assert moved is not None
    assert stayed is not None
    months = 52 * 7 / (365.25 / 12)
    entry = found.entries["databricks"]
    assert entry.usd is not None
    assert entry.weeks is not None
    moving = entry.weeks * 7 / (365.25 / 12)
    there, here = 30 * 14 + 8 * 100, 30 * 10 + 20 * 100
    assert moved.value == pytest.approx(here * moving + there * (months - moving) + entry.usd.value)
    assert stayed.value == pytest.approx(here * months)


@pytest.mark.parametrize(
    ("employees", "size"), [(1, "startup"), (49, "startup"), (50, "mid-size"), (500, "enterprise")]
)
def test_sizes_of_organisations(compared: Callable[..., Comparison], standard: str, employees: int, size: str) -> None:
    """The size follows from the people."""
    found = compared(standard.replace("employees: 120", f"employees: {employees}")).size
    assert found is not None
    assert found.name == size


def test_a_split_pays_for_every_platform_used(compared: Callable[..., Comparison], standard: str) -> None:
    """The split is no dearer than the answer, and counts people and entry of each platform in it: here too much."""
    split = compared(standard.replace(*BOTH).replace("- sagemaker", "- sagemaker\n  - bedrock")).split
    assert split.usd is not None
    assert split.single_usd is not None
    assert split.cheapest is not None
    assert split.usd.value <= split.single_usd.value + 1e-9
    assert split.cheapest.usd.value > split.single_usd.value
    assert set(dict(split.places).values()) == {split.single}
    assert not split.worth_it


def test_a_split_that_saves(compared: Callable[..., Comparison], standard: str) -> None:
    """With little operation each workload goes where it runs cheapest, and the saving is said."""
    hours = "{low: 0, likely: 0, high: 0, because: none}"
    text = standard.replace(*BOTH).replace("- sagemaker", f"- {{name: sagemaker, operation_hours_per_month: {hours}}}")
    text = text.replace("- self-managed-aws", f"- {{name: self-managed-aws, operation_hours_per_month: {hours}}}")
    text = text.replace("jobs_per_month: 30", "jobs_per_month: 30")
    split = compared(text + "profiles: []\n").split
    assert split.usd_per_month is not None
    assert split.usd_per_month.value == pytest.approx(30 * 10 + 50)


def test_trade_offs_name_leads_of_a_point(compared: Callable[..., Comparison]) -> None:
    """Strengths lead the mean of the others by a point at least, weaknesses trail it."""
    for one in compared().trade_offs:
        assert all(lead >= 1 for _, lead in one.better)
        assert all(lead <= -1 for _, lead in one.worse)


def test_the_leaf_means_things(compared: Callable[..., Comparison], standard: str) -> None:
    """A leaf that names a profile prefers it; data that must not leave excludes model APIs, whatever they cost."""
    found = compared(standard.replace("custom_fine_tuning: false", "custom_fine_tuning: true"))
    assert found.answer.inputs.preference.alternatives == ("databricks",)
    text = standard.replace("rules: seed-databricks-bedrock", "rules: computed-cost").split("needs:")[0]
    text = text.replace(*SERVICE).replace("- sagemaker", "- sagemaker\n  - bedrock")
    assert compared(text).answer.choice == "bedrock"
    private = compared(text + "needs: {must_not_leave_account: true}")
    assert private.decision.leaf is not None
    assert (private.decision.leaf.name, private.answer.choice) == ("not-an-api", "sagemaker")
    out = private.answer.verdict.out_of("bedrock")
    assert out is not None
    assert out.kind == "excluded by the rules"


def test_payback_ends() -> None:
    """Best: cheap move, dear origin, cheap target; worst the other way round, where it may never pay; all after the
    weeks of moving."""
    entry = EntryCost(usd=Figure(value=1000.0, low=500.0, high=2000.0), weeks=3.0)
    before = Figure(value=300.0, low=200.0, high=400.0)
    after = Figure(value=100.0, low=50.0, high=250.0)
    found = payback(entry, before, after)
    months = [None if one is None else (one - 3.0) / WEEKS_PER_MONTH for one in (found.weeks, found.low, found.high)]
    assert months == [pytest.approx(5.0), pytest.approx(500 / 350), None]


FIRST, SECOND = "self-managed-aws", "sagemaker"
NOTHING = EntryCost(usd=None, weeks=None)


def spread_over_two(found: Comparison, times: float) -> dict[str, Total]:
    """Each work is cheap on another platform; the spread of both costs `times` the answer."""
    rows, alone = found.totals[FIRST].rows, found.answer.verdict.chosen
    assert alone is not None
    people = sum(one.value for name in (FIRST, SECOND) if (one := found.answer.inputs.bills[name].people) is not None)
    run = times * alone.usd.value / (found.answer.inputs.weeks / WEEKS_PER_MONTH) - people
    usd = Figure(value=run / 2, low=run / 2, high=run / 2)
    free = {
        FIRST: (replace(rows[0], usd_per_month=usd), replace(rows[1], usd_per_month=None)),
        SECOND: (replace(rows[0], alternative=SECOND, usd_per_month=None),
                 replace(rows[1], alternative=SECOND, usd_per_month=usd)),
    }  # fmt: skip
    return {name: replace(found.totals[name], rows=free[name]) for name in free}


@pytest.mark.parametrize(("times", "ground"), [(1.2, "saves nothing"), (0.97, "saves too little"), (0.9, "saves")])
def test_a_split_must_save_enough_for_a_second_platform(
    compared: Callable[..., Comparison], standard: str, times: float, ground: str
) -> None:
    """Against the cheapest single alternative, which is the answer here."""
    found = compared(standard.replace(*BOTH).split("migration:")[0])
    totals, answer = spread_over_two(found, times), found.answer
    split = best_split(totals, answer.inputs, answer.verdict, lambda *_: NOTHING)
    assert (split.ground, split.worth_it, split.least) == (ground, ground == "saves", split.single)


def test_a_split_is_set_against_the_cheapest_whatever_the_answer(
    compared: Callable[..., Comparison], standard: str
) -> None:
    """Where the answer is a dearer one, ground, saving and sentence are against the cheapest, which is named."""
    found = compared(standard.replace(*BOTH).split("migration:")[0])
    totals, answer = spread_over_two(found, 0.97), found.answer
    cheapest = answer.verdict.chosen
    assert cheapest is not None
    other = next(name for name in answer.inputs.bills if name != cheapest.alternative)
    dearer = replace(cheapest, alternative=other, usd=cheapest.usd.scaled(1.25))
    verdict = replace(answer.verdict, choice=other, contenders=(cheapest, dearer))
    split = best_split(totals, answer.inputs, verdict, lambda *_: NOTHING)
    assert (split.ground, split.single, split.least) == ("saves too little", other, cheapest.alternative)
    assert split.saves_usd == pytest.approx(0.03 * cheapest.usd.value)
    said = split_words(split, found.title_of)
    assert f"less than {found.title_of[cheapest.alternative]} alone" in said
    assert render_money(0.03 * cheapest.usd.value) in said


def test_platforms_of_a_split_are_set_up_one_after_the_other(
    compared: Callable[..., Comparison], standard: str
) -> None:
    """Half the horizon each is reached at its end, a little more is not."""
    found = compared(standard.replace(*BOTH).split("migration:")[0])
    totals, inputs = spread_over_two(found, 0.5), replace(found.answer.inputs, origin=None)
    for weeks, ground in ((0.49, "saves"), (0.51, "one place")):
        entry = EntryCost(usd=None, weeks=weeks * inputs.weeks)
        assert best_split(totals, inputs, found.answer.verdict, lambda *_, to=entry: to).ground == ground


def test_hours_of_a_split_that_are_not_known_are_named(compared: Callable[..., Comparison], standard: str) -> None:
    """They count as none beside those of the others, and the sentence says whose."""
    found = compared(standard.replace(*BOTH).split("migration:")[0])
    totals, inputs = spread_over_two(found, 0.5), found.answer.inputs
    bills = {name: replace(bill, people=None) if name == SECOND else bill for name, bill in inputs.bills.items()}
    split = best_split(totals, replace(inputs, bills=bills), found.answer.verdict, lambda *_: NOTHING)
    assert split.without_hours_of == (SECOND,)
    assert f"but not those of {found.title_of[SECOND]}" in split_words(split, found.title_of)
    known = best_split(totals, inputs, found.answer.verdict, lambda *_: NOTHING)
    assert known.without_hours_of == ()
    assert "but not those of" not in split_words(known, found.title_of)


def test_a_volume_that_can_be_carried_has_a_cost(compared: Callable[..., Comparison], standard: str) -> None:
    """Where nothing carries the next volume of the grid, the cost in between is planned there, not unknown."""
    found = compared(standard.replace(*BOTH)).totals["sagemaker"]
    (row,) = [one for one in found.rows if one.kind == "serve"]
    ends = tuple(replace(point, usd_per_month=None) if point.factor > 1 else point for point in row.at_volumes)

    def replan(factor: float) -> Figure | None:
        return Figure(value=70.0, low=60.0, high=80.0) if factor <= 1.5 else None

    cut = replace(found, rows=tuple(replace(one, at_volumes=ends, replan=replan) if one is row else one
                                    for one in found.rows))  # fmt: skip
    people = found.people_usd_per_month
    others = sum(one.usd_per_month.value for one in found.rows if one is not row and one.usd_per_month is not None)
    assert cost_at(cut, 1.5) == pytest.approx(70.0 + 1.5 * others + (people.value if people is not None else 0.0))
    assert cost_at(cut, 1.6) == float("inf")
