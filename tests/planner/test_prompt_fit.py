"""The fit of prompts and front ends behind the planner's constants: what was put in comes out."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from capmodel.planner.prompts import PromptCost, PromptParts

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
fits = pytest.importorskip("planner_prompts", reason="no benchmarks beside an installed package")


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_prompts_come_out_of_the_ttft_they_went_into(seed, lockstep):
    rng, n, truth = np.random.default_rng(seed), 200, PromptCost(1.4, 2.0, 1.5e-7, 0.8)
    rows = pd.DataFrame({
        "concurrency": 2.0 ** rng.integers(0, 9, n),
        "input_len": 2.0 ** rng.integers(7, 14, n),
        "direct_s": rng.uniform(0.004, 0.04, n),
    })  # fmt: skip
    parts = [
        PromptParts(*(10 ** rng.uniform((-6, -11), (-4, -9))), int(rng.integers(20, 90)), link)
        for link in rng.uniform(0, 1e-5, n)
    ]
    experts, tokens = rng.uniform(0, 0.02, n), rows["input_len"].to_numpy()
    costs = np.array([truth.seconds(one) for one in parts])
    prompt = costs[:, 0] * tokens + costs[:, 1] * tokens**2 / 2 + experts
    share = fits.LOCKSTEP_SHARE if lockstep else fits.MIXED_SHARE
    waited = (1 + share * rows["concurrency"]) * prompt
    rows["ttft_s"] = 0.02 + 3 * rows["direct_s"] + 0.001 * rows["concurrency"] + waited
    found = fits.prompt_cost(rows, parts, experts, lockstep)
    for name in ("matmul", "attention", "layer_s", "link"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=1e-4)
    ends = fits.front_end(rows.assign(ttft_sim_s=waited))
    assert (ends.fixed_s, ends.steps) == (pytest.approx(0.02), pytest.approx(3.0))
    assert ends.per_request_s == pytest.approx(0.001)
