"""The planner's own dicts, today's: each kind of plan is a document."""

from dataclasses import dataclass

import pytest

from capmodel.planner import InfeasiblePlan, plan
from capmodel.report.html import render_html
from capmodel.report.pdf import render_pdf
from capmodel.report.plan import plan_document


@dataclass(frozen=True)
class _Step:
    """10 ms a step, 0.1 ms a sequence, 50 ns a cached token, 20 us a prompt token."""

    low_factor: float = 0.9
    high_factor: float = 1.2
    calibration_id: str = "by hand"

    def seconds(self, batch, cached_tokens, prefill_tokens=0.0):
        return 0.010 + 1e-4 * batch + 5e-8 * cached_tokens + 2e-5 * prefill_tokens


class _Calibration:
    def step_time(self, model, gpu, **options):
        return _Step()


CASES = {
    "open": {"rate": 3.0},
    "closed": {"concurrency": 20, "tp": 4, "simulate": False},
    "free": {"rate": 3.0, "price": 0.0, "simulate": False},
    "impossible": {"rate": 3.0, "slo_tpot_p95": 0.001},
    "too_large": {"rate": 3.0, "tp": 1, "weight_dtype": "bf16"},
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_planner_says_is_a_document(name):
    arguments = {"input_len": 1000, "output_len": 100, **CASES[name]}
    try:
        made = plan("llama-3-70b", "h100", calibration=_Calibration(), **arguments)
    except InfeasiblePlan as error:
        assert name in ("impossible", "too_large")
        made = error.plan
    document = plan_document(made.to_dict())
    if name == "open":
        assert render_pdf(document).startswith(b"%PDF")
    assert "</html>" in render_html(document)


def test_a_plan_writes_itself(tmp_path):
    made = plan(
        "llama-3-70b",
        "h100",
        calibration=_Calibration(),
        rate=1.0,
        input_len=500,
        output_len=50,
        tp=4,
        simulate=False,
    )
    made.write_pdf(tmp_path / "plan.pdf")
    assert (tmp_path / "plan.pdf").read_bytes().startswith(b"%PDF")
