"""The page of a comparison: weights are parameters, nothing is planned again, changed files are seen."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.web.conftest import DAY, EXAMPLES, Open

import tonnage
from tonnage.reports.comparison.report import render_comparison

NAME = "h2o-vs-pytorch"


def test_weights_of_the_address_turn_the_answer(server: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `tonnage compare --weight` says it; after the first request no workload is planned."""
    client, address = server(), f"/api/v1/compare/compare~{NAME}"
    file = EXAMPLES / "compare" / f"{NAME}.tonnage.yaml"
    plain = client.get(address)
    assert plain.text == render_comparison(tonnage.compare(file, as_of=DAY), "json")
    weights = {"cost": 0.0, "scaling": 10.0}
    wanted = render_comparison(tonnage.compare(file, weights=weights, as_of=DAY), "json")
    monkeypatch.setattr("tonnage.api.plans.make_plan", lambda *_, **__: pytest.fail("it was planned again"))
    weighed = client.get(address, params=weights)
    assert weighed.text == wanted
    assert weighed.text != plain.text
    page = client.get(f"/compare/compare~{NAME}", params=weights).text
    assert 'id="s-scaling" name="scaling" min="0.0" max="10.0" step="0.5" value="10.0"' in page


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("compare/compare~h2o-vs-pytorc", 404, "did you mean 'compare~h2o-vs-pytorch'"),
        ("compare/bert-finetune", 404, "no comparison is named"),
        (f"compare/compare~{NAME}?csot=3", 400, "did you mean 'cost'"),
        (f"compare/compare~{NAME}?cost=-1", 400, "expected 0 to"),
        (f"compare/compare~{NAME}?cost=nan", 400, "expected 0 to"),
    ],
)
def test_what_cannot_be_compared(server: Open, path: str, status: int, said: str) -> None:
    """A problem with what to do next."""
    answer = server().get(f"/api/v1/{path}")
    assert (answer.status_code, said in answer.text) == (status, True), answer.text


def test_a_changed_file_is_compared_anew(server: Open, tmp_path: Path) -> None:
    """The workload that a comparison names is read again when it was changed."""
    shutil.copytree(EXAMPLES / "compare", tmp_path / "compare")
    for file in EXAMPLES.glob("*.yaml"):
        shutil.copy(file, tmp_path)
    client = server(folder=tmp_path)

    def asked() -> Any:
        return client.get(f"/api/v1/compare/compare~{NAME}").json()

    before = asked()
    work = tmp_path / "gbm-5m-rows.tonnage.yaml"
    work.write_text(work.read_text(encoding="utf-8").replace("rows: 5_000_000", "rows: 50_000_000"), encoding="utf-8")
    assert asked() != before


def test_comparisons_have_their_own_page(server: Open) -> None:
    """The list leads to it, not to a plan of what is none."""
    page = server().get("/workloads").text
    assert f'href="/compare/compare~{NAME}"' in page
    assert f'href="/plan/compare~{NAME}"' not in page
    assert 'href="/plan/bert-finetune"' in page
