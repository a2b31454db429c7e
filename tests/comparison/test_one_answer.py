"""Every place of a report that recommends names the same alternative, in every form; a move has one payback."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import pytest
from tests.comparison.shipped import COMPARED, compared_example

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.verdict import payback_of
from tonnage.reports.comparison.board import board_sections
from tonnage.reports.comparison.content import build_sections
from tonnage.reports.comparison.markdown import sections_markdown
from tonnage.reports.comparison.report import render_comparison, render_decision
from tonnage.reports.rendering import Look


@lru_cache
def texts(example: str) -> dict[str, str]:
    """What a reader gets: the whole report, the board's pages, the terminal, on one line each."""
    found = compared_example(example)
    forms = {
        "whole": sections_markdown(found, build_sections(found)),
        "html": render_comparison(found, "html"),
        "board": sections_markdown(found, board_sections(found)),
        "terminal": render_comparison(found, "table", Look(width=400)),
        "explain": render_decision(found, "md"),
    }
    return {form: re.sub(r"<[^>]+>", "", text).replace("\\", "").replace("&#39;", "'") for form, text in forms.items()}


def own_row(found: Comparison) -> list[dict[str, Any]]:
    """The JSON recommendation for the reader's own size and horizon."""
    rows = json.loads(render_comparison(found, "json"))["recommendation"]
    sizes = {one.size.name for one in found.own_advice}
    return [row for row in rows if row["organisation"] in sizes and row["horizon"] == found.request.decide_over]


@pytest.mark.parametrize("example", COMPARED)
def test_every_place_that_recommends_names_the_answer(example: str) -> None:
    """The answer, the rules' effect, the row of the horizon decided over and the split read one value."""
    found = compared_example(example)
    document = json.loads(render_comparison(found, "json"))
    choice = document["answer"]["choice"]
    assert choice == found.answer.choice
    assert document["decision"]["answer"] == choice
    assert [row["choice"] for row in own_row(found)] == [choice]
    assert [row["cost_usd"] for row in own_row(found)] == [document["answer"]["cost_usd"]]
    if not document["split"]["worth_it"]:
        assert set(document["split"]["places"].values()) == {choice}
        assert document["split"]["usd"] == document["answer"]["cost_usd"]


@pytest.mark.parametrize("form", ["whole", "html", "board", "terminal", "explain"])
@pytest.mark.parametrize("example", COMPARED)
def test_no_sentence_chooses_another(example: str, form: str) -> None:
    """«Choose NAME» stands for the answer alone; what a rule set says stands in quotation marks, and where it is
    another it is said why the answer stays."""
    found, text = compared_example(example), texts(example)[form]
    title = found.title_of[found.answer.choice or ""]
    others = [one for name, one in found.title_of.items() if name != found.answer.choice]
    assert f"Choose {title}: $" in text
    for other in others:
        assert f"Choose {other}: " not in text
    if found.answer.rules.kind == "overruled" and form not in ("board",):
        assert f"The answer stays {title}" in text


def test_a_rule_set_that_names_another_is_overruled_in_words() -> None:
    """The hand-written tree names Databricks, 35 % dearer: the report says that it does not count, and why."""
    found = compared_example("bert-databricks-vs-bedrock")
    assert (found.answer.rules.kind, found.answer.rules.named) == ("overruled", ("databricks",))
    assert "databricks" not in [one.alternative for one in found.answer.verdict.contenders if one.level]
    text = texts("bert-databricks-vs-bedrock")["whole"]
    assert "The rules lead to «Choose Databricks»" in text
    assert "this leaf counts only among alternatives that cost alike. Databricks: $" in text


@pytest.mark.parametrize("example", COMPARED)
def test_a_move_has_one_payback(example: str) -> None:
    """Each section reads the weeks of `payback_of`, and says them beside the horizon; none says «never» of a move that
    pays back later."""
    found = compared_example(example)
    for form, text in texts(example).items():
        assert "pays for itself" not in text, form
        if "never pays back" in text:
            assert any(one.weeks is None for one in found.answer.verdict.out), form
    weeks = {}
    for one in found.answer.verdict.out:
        if one.kind == "not paid back in time":
            back = payback_of(found.answer.inputs, one.alternative)
            assert back is not None
            assert back.weeks == one.weeks
            weeks[one.alternative] = back.weeks
    target = found.migration.move.target if found.migration is not None else None
    if target in weeks and weeks[target] is not None:
        said = f"only after {round(weeks[target]):,} weeks"
        whole = texts(example)["whole"]
        assert whole.count(said) >= 2, "in the summary and in the migration plan"


def test_an_estimated_fee_has_its_interval_wherever_it_is_shown() -> None:
    """Serving at Databricks stands on an estimated fee: each cost of it has both ends."""
    found = compared_example("bert-databricks-vs-bedrock")
    (row,) = [one for one in found.totals["databricks"].rows if one.kind == "serve"]
    shown = [row.option, *row.purchases]
    assert row.fee_estimate is not None
    assert all(one is not None and one.cost_usd.low < one.cost_usd.value < one.cost_usd.high for one in shown)
    assert row.usd_per_month == (row.option.cost_usd if row.option else None)


def test_the_pictures_say_what_is_known_of_what() -> None:
    """A latency that the user states is not shown as predicted; a model has one name."""
    found = compared_example("bert-databricks-vs-bedrock")
    (architecture,) = [one for one in build_sections(found) if one.key == "architecture"]
    pictures = {one.title: one.mermaid for one in architecture.parts if hasattr(one, "mermaid")}
    bedrock = pictures["Amazon Bedrock"]
    assert "600 ms<br>stated" in bedrock
    assert "amazon.nova-micro" not in bedrock
    assert "predicted" in pictures["Self-managed GPU machines on AWS"]


def test_a_save_of_the_whole_job_is_no_checkpoint() -> None:
    """A picture has checkpoints where work on spot machines is saved before its end, and nowhere else."""
    shown = []
    for example in ("bert-databricks-vs-bedrock", "h2o-vs-pytorch"):
        found = compared_example(example)
        (architecture,) = [one for one in build_sections(found) if one.key == "architecture"]
        pictures = {one.title: one.mermaid for one in architecture.parts if hasattr(one, "mermaid")}
        for name, total in found.totals.items():
            spots = [one.option.spot for one in total.rows if one.option is not None and one.option.spot is not None]
            saved = any(one.interval_h < one.work_h for one in spots)
            assert ("Checkpoints" in pictures[found.title_of[name]]) is saved, (example, name)
            shown.append((bool(spots), saved))
    assert {(True, True), (True, False)} <= set(shown)
