"""One answer: must-haves, then the cost of the horizon with moving, then judgement among what costs alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tonnage.comparison.changes import AnswerChange, at_volume
from tonnage.comparison.comparing import Comparison
from tonnage.comparison.compliance import ComplianceStanding, Match
from tonnage.comparison.horizons import WEEKS_PER_MONTH, Bill, EntryCost
from tonnage.comparison.scoring import Score
from tonnage.comparison.verdict import DecisionInputs, Preference, decide_verdict, weeks_to_return
from tonnage.errors import WorkloadError
from tonnage.reports.blocks import Bullets, Paragraph, Table
from tonnage.reports.comparison.choice import advice_section, implied_lines, summary_section
from tonnage.reports.comparison.verdict_words import headline
from tonnage.sizing.estimates import Figure

YEAR = 12 * WEEKS_PER_MONTH


def around(value: float, spread: float = 0.3) -> Figure:
    return Figure(value=value, low=value * (1 - spread), high=value * (1 + spread))


def bill(run: float, *, once: float = 0.0, weeks: float | None = None, spread: float = 0.3) -> Bill:
    return Bill(run=around(run, spread), people=None, entry=EntryCost(usd=around(once), weeks=weeks))


def points(**scores: float) -> dict[str, Score]:
    return {key: Score(value=value, low=value, high=value, basis="judged") for key, value in scores.items()}


def inputs(bills: Mapping[str, Bill], **changes: object) -> DecisionInputs:
    """Of `a`, `b` and so on, over a year, without rules; `b` is judged far better than all others."""
    scores = {name: points(cost=5, scaling=5 if name == "b" else 1) for name in bills}
    standing = ComplianceStanding(needs=(), matches=dict.fromkeys(bills, ()))
    made = DecisionInputs(
        bills=bills, lacking={}, standing=standing, preference=Preference(), scores=scores,
        weights={"cost": 3.0, "scaling": 25.0}, worth={}, origin=None, weeks=YEAR,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def test_judgement_does_not_outvote_money() -> None:
    """25 points of weight for `b` choose it at the same cost, and not at 2.9 times the cost."""
    alike = decide_verdict(inputs({"a": bill(100), "b": bill(110)}))
    assert (alike.choice, alike.ground) == ("b", "judgement")
    dear = decide_verdict(inputs({"a": bill(100), "b": bill(290)}))
    assert (dear.choice, dear.ground) == ("a", "cost")


def test_wide_intervals_do_not_make_equals() -> None:
    """Intervals of people-hours overlap at twice the cost; judgement still pays at most three tenths."""
    wide = decide_verdict(inputs({"a": bill(100, spread=0.9), "b": bill(180, spread=0.9)}))
    assert wide.choice == "a"
    near = decide_verdict(inputs({"a": bill(100, spread=0.9), "b": bill(125, spread=0.9)}))
    assert near.choice == "b"
    apart = decide_verdict(inputs({"a": bill(100, spread=0.01), "b": bill(125, spread=0.01)}))
    assert apart.choice == "a"


def test_a_move_that_never_pays_back_is_out() -> None:
    """600 once for 40 a month pays after 15 months: not within 12, though costs overlap and judgement prefers it."""
    bills = {"a": bill(100), "b": bill(60, once=600, weeks=0)}
    year = decide_verdict(inputs(bills, origin="a"))
    assert year.choice == "a"
    out = year.out_of("b")
    assert out is not None
    assert out.kind == "not paid back in time"
    assert out.weeks == pytest.approx(15 * WEEKS_PER_MONTH)
    longer = decide_verdict(inputs(bills, origin="a", weeks=1.4 * YEAR))
    assert longer.choice == "b"
    dearer = decide_verdict(inputs({"a": bill(100), "b": bill(101)}, origin="a")).out_of("b")
    assert dearer is not None
    assert dearer.weeks is None


def test_the_weeks_to_return_are_those_of_the_verdict() -> None:
    """Just before them the move is out, just after it is in; time to get there included."""
    bills = {"a": bill(100), "b": bill(60, once=200, weeks=8)}
    weeks = weeks_to_return(inputs(bills, origin="a"), "b")
    assert weeks is not None
    assert weeks == pytest.approx(8 + 5 * WEEKS_PER_MONTH)
    assert decide_verdict(inputs(bills, origin="a", weeks=0.99 * weeks)).choice == "a"
    assert decide_verdict(inputs(bills, origin="a", weeks=1.01 * weeks)).choice == "b"


def test_where_staying_is_not_allowed_a_move_need_not_pay() -> None:
    """The dearer one is chosen where today's breaks a rule."""
    broken = Match(standard="hipaa", answer="not attested", scope="", evidence=())
    standing = ComplianceStanding(needs=("hipaa",), matches={"a": (broken,), "b": ()})
    found = decide_verdict(inputs({"a": bill(100), "b": bill(500, once=1000, weeks=5)}, origin="a", standing=standing))
    assert found.choice == "b"
    assert [one.kind for one in found.out] == ["breaks a rule"]


def test_what_an_aspect_is_worth_is_money() -> None:
    """4 points of 50 dollars a month pay for 190 dollars more, and not for 210."""
    dear = {"a": bill(100, spread=0.0), "b": bill(290, spread=0.0)}
    paid = decide_verdict(inputs(dear, worth={"scaling": 50.0}))
    assert (paid.choice, paid.ground) == ("b", "worth")
    assert decide_verdict(inputs({**dear, "b": bill(310, spread=0.0)}, worth={"scaling": 50.0})).choice == "a"


def test_rules_prefer_among_equals_and_exclude_where_they_must() -> None:
    """A preferred alternative wins among those that cost alike; a must leaves it alone, whatever it costs."""
    alike = {"a": bill(100), "b": bill(110), "c": bill(105)}
    assert decide_verdict(inputs(alike, preference=Preference(alternatives=("c",)))).choice == "c"
    dear = {**alike, "c": bill(300)}
    assert decide_verdict(inputs(dear, preference=Preference(alternatives=("c",)))).choice == "b"
    found = decide_verdict(inputs(dear, preference=Preference(leaf="so", alternatives=("c",), must=True)))
    assert (found.choice, found.ground) == ("c", "only one")
    assert {one.kind for one in found.out} == {"excluded by the rules"}


def test_nothing_left() -> None:
    """Where each fails a must-have there is no answer, and each says which."""
    found = decide_verdict(inputs({"a": bill(100, weeks=80), "b": replace(bill(1), run=None)}))
    assert found.choice is None
    assert [(one.alternative, one.kind) for one in found.out] == [("a", "not reached in time"), ("b", "cost not known")]


def text_of(found: Comparison) -> str:
    section = summary_section(found)
    lines = [part.text for part in section.parts if isinstance(part, Paragraph)]
    return "\n".join([*lines, *(item for part in section.parts if isinstance(part, Bullets) for item in part.items)])


def test_one_answer_is_said(compared: Callable[..., Comparison], standard: str) -> None:
    """Rules that name another alternative do not make a second recommendation."""
    found = compared(standard.replace("custom_fine_tuning: false", "custom_fine_tuning: true"))
    title = found.title_of[found.answer.choice or ""]
    assert headline(found).startswith(f"Choose {title}: $")
    assert text_of(found).count("Choose ") == 1
    assert "The rules choose" not in text_of(found)
    assert "the score prefers" not in text_of(found)


def changed(found: Comparison, change: AnswerChange) -> DecisionInputs:
    """The inputs a little beyond the change's threshold."""
    given = found.answer.inputs
    beyond = change.at * (1.002 if change.at > change.now else 0.998)
    bills = dict(given.bills)
    if change.kind in ("price of the choice", "price of another"):
        run = bills[change.subject].run
        assert run is not None
        bills[change.subject] = replace(bills[change.subject], run=run.scaled(beyond / run.value))
        return replace(given, bills=bills)
    if change.kind == "people-hours":
        people = bills[change.subject].people
        assert people is not None
        bills[change.subject] = replace(bills[change.subject], people=people.scaled(beyond / people.value))
        return replace(given, bills=bills)
    if change.kind == "horizon":
        return replace(given, weeks=beyond)
    if change.kind == "worth":
        return replace(given, premium={change.subject: beyond})
    if change.kind == "volume":
        return at_volume(given, found.totals, change.at * (1.02 if change.at > 1 else 0.98))
    assert change.then is not None
    return replace(given, standing=replace(given.standing, matches={**given.standing.matches, change.then: ()}))


@pytest.mark.parametrize("more", ["", "decide_over: medium\n", "worth: {pipelines: 20 USD/month}\n"])
def test_what_would_change_it_holds_when_tried(compared: Callable[..., Comparison], standard: str, more: str) -> None:
    """Each change, made, leads to the answer that it names; a little before it the answer still holds."""
    found = compared(standard.replace("people: 2}", "people: 6}") + more)
    assert {one.kind for one in found.answer.changes} >= {"worth", "horizon"}
    for one in found.answer.changes:
        assert one.then != found.answer.choice
        assert decide_verdict(changed(found, one)).choice == one.then


def test_a_rule_that_keeps_the_best_out_is_named(compared: Callable[..., Comparison], standard: str) -> None:
    """Where SageMaker would be the answer but for a rule, that stands under what would change it."""
    text = standard.split("migration:")[0].replace("employees: 120", "employees: 120, compliance: [c5]")
    text = text.replace("- self-managed-aws\n", "- {name: self-managed-aws, attests: {C5: our copy}}\n")
    text = text.replace('title: "Databricks <b>"', 'title: "Databricks <b>", attests: {C5: our copy}')
    found = compared(text)
    rule = [one for one in found.answer.changes if one.kind == "rule"]
    assert [one.then for one in rule] == ["sagemaker"]


def test_people_that_decide_are_said(compared: Callable[..., Comparison], standard: str) -> None:
    """Machines of one's own cost less to run; the hours of running them make SageMaker the answer, and that is said."""
    found = compared(standard.split("migration:")[0] + "only_these_weights: true\nweights: {cost: 1}\n")
    assert (found.answer.choice, found.answer.without_people) == ("sagemaker", "self-managed-aws")
    assert "they decide, without them Self-managed GPU machines on AWS would be chosen" in text_of(found)


@pytest.mark.parametrize("value", ["500", "500 USD", "much", "500 EUR/month", "500/month", "true"])
def test_a_worth_needs_its_unit(compared: Callable[..., Comparison], standard: str, value: str) -> None:
    """A bare number, another currency or no span of time is refused with the form to write."""
    with pytest.raises(WorkloadError, match=r"dollars with their unit, such as 500 USD/month") as caught:
        compared(standard + f"worth: {{scaling: {value}}}\n")
    assert "500 USD/month" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("key", "said"), [("cost", "is money already"), ("purpose", "not scored"), ("scalin", "named")]
)
def test_a_worth_is_of_a_judged_aspect(compared: Callable[..., Comparison], standard: str, key: str, said: str) -> None:
    """Money, unscored criteria and names that are none cannot be worth something."""
    with pytest.raises(WorkloadError, match=said):
        compared(standard + f"worth: {{{key}: 5 USD/month}}\n")


def test_a_year_has_twelve_months(compared: Callable[..., Comparison], standard: str) -> None:
    """6,000 a year are 500 a month."""
    assert compared(standard + 'worth: {scaling: "$6,000 per year"}\n').request.worth == {"scaling": 500.0}


def test_weights_show_their_price(compared: Callable[..., Comparison], standard: str) -> None:
    """Weight 4.5 beside cost 3 x 1.5 points a doubling: one point is worth as much again as the whole bill."""
    found = compared(standard + "weights: {cost: 3, scaling: 4.5}\n")
    month = found.totals[found.answer.choice or ""].usd_per_month
    assert month is not None
    (price,) = [one for one in found.answer.implied if one.criterion == "scaling"]
    assert price.usd_per_month == pytest.approx(month.value)
    assert any("Scaling, weight 4.5: you would pay" in line for line in implied_lines(found))


def test_sizes_that_are_told_the_same_are_one_row(compared: Callable[..., Comparison]) -> None:
    """A row for each size stands only where they differ."""
    found = compared()
    tables = [part for part in advice_section(found).parts if isinstance(part, Table)]
    rows = {one.size.name: [] for one in found.advice}  # type: dict[str, list[str | None]]
    for one in found.advice:
        rows[one.size.name].append(one.verdict.choice)
    alike = len({tuple(row) for row in rows.values()}) == 1
    assert len(tables[0].rows) == (1 if alike else 3)
    assert len({row[1:] for row in tables[0].rows}) == (1 if alike else len({tuple(one) for one in rows.values()}))
