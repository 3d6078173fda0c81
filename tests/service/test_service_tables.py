"""CSV downloads: what a spreadsheet would run stays text; a plan that cannot be has its rows."""

import csv
import io

import pytest

import capmodel as cm
from capmodel.planner import InfeasiblePlan
from capmodel.service.tables import plan_csv, to_csv


@pytest.mark.parametrize("text", ["=1+1", "+cmd|x", "-2", "@sum(a)", "\t=1", "\r=1"])
def test_formulas_are_quoted(text: str) -> None:
    rows = list(csv.reader(io.StringIO(to_csv([{"a": text}], ["a"]), newline="")))
    assert rows[1] == ["'" + text]


def test_numbers_stay_numbers_and_gaps_empty() -> None:
    rows = list(csv.reader(io.StringIO(to_csv([{"a": -1.5, "b": None}], ["a", "b", "c"]))))
    assert rows[1] == ["-1.5", "", ""]


def test_every_deployment_looked_at_is_a_row() -> None:
    with pytest.raises(InfeasiblePlan) as refused:
        cm.plan("llama-3-70b", "a10", tp=1, rate=1, input_len=100, output_len=10, simulate=False)
    assert refused.value.plan is not None
    document = refused.value.plan.to_dict()
    rows = list(csv.DictReader(io.StringIO(plan_csv(document))))
    assert len(rows) == len(document["rejected"])
    assert all(row["status"].startswith("set aside") and row["reason"] for row in rows)
