"""TPOT and TTFT by simulation against measured serving runs, deployments held out.

Each row of the measured table is a closed loop of clients, all starting at once. A roofline with
its learned correction is fitted on the other deployments' TPOT; the row's step time is then what
that fit says of its deployment, and the simulator plays the clients. One figure is fitted beside
it, per engine and GPU: how much slower or faster prompts are than the TPOT rows say, from the
other deployments' TTFT.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from capmodel.features import add_features
from capmodel.gpus import Gpu, load_gpu
from capmodel.kvcache import BlockTable, RequestCost
from capmodel.regressor import ROOFLINE, TrafficRegressor
from capmodel.roofline import NAMES, RooflineRegressor
from capmodel.shapes import load_shape
from capmodel.simulation import Server, mixed, prefill_first, simulate
from capmodel.splits import groups_of, split_named
from capmodel.traffic import StepTraffic, step_traffic
from capmodel.workload import Requests, Uniform

FOLDS = 5
_BUDGET = {"vllm": 8192, "tensorrt-llm": 8192, "sglang": 16384}


@dataclass(slots=True)
class DeploymentStep:
    """Step time of one deployment from roofline coefficients, as plain floats.

    scale: the learned correction, decode and prompts alike. prompt_scale: on prompts alone.
    """

    traffic: StepTraffic
    gpu: Gpu
    peak: float
    coefficients: dict[str, float]
    dp: int
    scale: float = 1.0
    prompt_scale: float = 1.0
    fixed_s: float = field(init=False)
    per_sequence_s: float = field(init=False)
    per_prompt_s: float = field(init=False)
    experts: list[tuple[float, float]] = field(init=False)

    def __post_init__(self) -> None:
        c, t, gpu = self.coefficients, self.traffic, self.gpu
        bandwidth = float(gpu.bandwidth_bytes_per_s or 1.0)
        link = gpu.link_bytes_per_s
        per_link = c["c_link"] * t.all_reduce_bytes / link if link else 0.0
        self.fixed_s = (
            c["c_step"] * t.layers
            + c["c_w"] * t.dense_bytes / bandwidth
            + c["c_reduce"] * t.all_reduces
        )
        self.per_sequence_s = (
            c["c_f"] * t.flop_per_token / self.peak
            + c["c_kv"] * t.kv_fixed_read / bandwidth
            + c["c_sequence"]
            + per_link
        ) / self.dp
        self.per_prompt_s = (
            c["c_prefill"] * t.prefill_flop_per_token / self.peak + per_link / self.dp
        )
        self.experts = [
            (c["c_w"] * e.n_experts * e.bytes_each / bandwidth, math.log1p(-e.top_k / e.n_experts))
            for e in t.experts
        ]

    def seconds(self, batch: float, cached_tokens: float, prefill_tokens: float = 0.0) -> float:
        """One step [s] of all attention ranks; the sequences are spread evenly over them."""
        c, bandwidth = self.coefficients, float(self.gpu.bandwidth_bytes_per_s or 1.0)
        context = cached_tokens / batch if batch else 0.0
        ranked = batch / self.dp
        attention = sum(g.slope * min(context, g.limit) for g in self.traffic.attention_flop)
        cache = sum(g.slope * min(context, g.limit) for g in self.traffic.kv_read)
        seconds = (
            self.fixed_s
            + self.per_sequence_s * batch
            + ranked * c["c_kv"] * cache / bandwidth
            + ranked * (c["c_f"] + c["c_attention"]) * attention / self.peak
        )
        for whole, missed in self.experts:
            seconds -= whole * math.expm1(missed * (batch + prefill_tokens))
        seconds += self.prompt_scale * self.per_prompt_s * prefill_tokens
        return self.scale * seconds


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fit on other deployments. prompt_scale: by (engine, gpu)."""

    roofline: RooflineRegressor
    regressor: TrafficRegressor | None

    def step(self, row: pd.Series, correction: float, prompt_scale: float) -> DeploymentStep:
        """The step time of the row's deployment."""
        gpu = load_gpu(row["gpu"])
        shape = load_shape(row["model"])
        traffic = step_traffic(
            shape, row["weight_dtype"], row["kv_dtype"], int(row["tp"]), int(row["dp"])
        )
        found = self.roofline.coefficients_[self.roofline.level(row["engine"], row["gpu"])]
        named = defaultdict(float, zip(NAMES, found.values, strict=True))
        return DeploymentStep(
            traffic,
            gpu,
            gpu.matmul_flops_per_s(row["weight_dtype"]),
            named,
            int(row["dp"]),
            math.exp(correction),
            prompt_scale,
        )


def fit(features: pd.DataFrame, learned: bool = True) -> Fitted:
    """Roofline and correction on `features`, rows of `add_features` with `tpot_s`."""
    roofline = RooflineRegressor().fit(features, features["tpot_s"])
    if not learned:
        return Fitted(roofline, None)
    with_floor = features.assign(**{ROOFLINE: roofline.predict(features)})
    return Fitted(roofline, TrafficRegressor().fit(with_floor, features["tpot_s"]))


def server_of(row: pd.Series, step: DeploymentStep) -> Server:
    """The row's replica: all attention ranks as one, their pools together."""
    traffic, gpu = step.traffic, step.gpu
    memory = 0.9 * float(gpu.memory_reported_bytes or 0.93 * gpu.memory_bytes)
    longest = int(row["input_len"] + row["output_len"])
    request = traffic.kv_fixed_stored + sum(
        g.slope * min(longest, g.limit) for g in traffic.kv_stored
    )
    per_token = request / longest
    pool = max(memory - traffic.weight_stored_bytes - 4e9, 0.0) / per_token * step.dp
    size = 32
    # The table keeps rows whose clients were all resident, so the pool holds at least them.
    blocks = max(int(pool // size), int(row["concurrency"]) * -(-longest // size))
    budget = max(_BUDGET.get(row["engine"], 8192), int(row["concurrency"]) + 1)
    attention = traffic.prefill_attention_flop
    return Server(
        step,
        blocks,
        RequestCost((BlockTable("full", 1, size),), 0.0),
        max_num_seqs=max(1, int(row["concurrency"])),
        max_batched_tokens=budget * step.dp,
        attention_tokens=traffic.prefill_flop_per_token / (2 * attention)
        if attention
        else math.inf,
        batching=prefill_first if row["engine"] == "sglang" else mixed,
    )


def play(row: pd.Series, step: DeploymentStep, spread: float, rounds: float) -> dict[str, float]:
    """Simulated TPOT and TTFT of the row [s]. spread: shortest length over nominal."""
    clients = int(row["concurrency"])
    n = int(min(max(clients * rounds, 20), 6000))
    rng = np.random.default_rng(1)
    requests = Requests(
        np.zeros(n),
        Uniform.around(int(row["input_len"]), spread).draw(n, rng),
        Uniform.around(int(row["output_len"]), spread).draw(n, rng),
    )
    result = simulate(requests, server_of(row, step), concurrency=clients)
    return {
        "tpot_mean_s": float(np.nanmean(result.tpot_s)),
        "tpot_p50_s": float(np.nanmedian(result.tpot_s)),
        "ttft_mean_s": float(result.ttft_s.mean()),
        "ttft_p50_s": float(np.median(result.ttft_s)),
    }


def measured(path: str) -> pd.DataFrame:
    """Aggregated rows with features, the suspect ones left out."""
    from capmodel.ingest import read_runs

    runs = read_runs(path)
    runs = runs[runs["step_time_definition"] == "tpot"]
    suspect = runs["flags"].astype(str).str.contains("suspect_source|queued")
    return add_features(runs[~suspect].reset_index(drop=True))


def folds_of(features: pd.DataFrame, seed: int = 0) -> np.ndarray:
    """Fold of each row, deployments kept together, shape (rows,)."""
    groups = groups_of(features, split_named("deployment"))
    order = np.random.default_rng(seed).permutation(groups.max() + 1)
    return (order % FOLDS)[groups]


def evaluate(
    features: pd.DataFrame,
    *,
    every: int = 1,
    spread: float = 0.8,
    rounds: float = 6.0,
    learned: bool = True,
) -> pd.DataFrame:
    """Measured and simulated TPOT and TTFT of every `every`-th row, held out by deployment."""
    folds = folds_of(features)
    rows = []
    for fold in range(FOLDS):
        train, test = features[folds != fold], features[folds == fold].iloc[::every]
        fitted = fit(train, learned)
        corrections = np.zeros(len(test))
        direct = fitted.roofline.predict(test)
        if fitted.regressor is not None:
            corrections, _ = fitted.regressor.correct(test.assign(**{ROOFLINE: direct}))
        for (_, row), correction, floor in zip(
            test.iterrows(), corrections, direct, strict=True
        ):
            step = fitted.step(row, float(correction), 1.0)
            rows.append(
                {
                    **row[["run_id", "engine", "gpu", "model", "concurrency", "input_len",
                           "output_len", "tpot_s", "ttft_s"]].to_dict(),
                    "fold": fold,
                    "direct_tpot_s": floor * math.exp(correction),
                    **play(row, step, spread, rounds),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)
