"""TPOT and TTFT by simulation against measured serving runs, deployments held out.

Each row of the measured table is a closed loop of clients, all starting at once, ten requests
each: the protocol of the benchmark that most rows are from. A roofline with its learned correction
is fitted on the other deployments' TPOT; the row's step time is what that fit says of its
deployment, and the simulator plays the clients. What simulated TTFT lacks of measured TTFT on the
other deployments gives each engine's front end, as the planner has it, and whether its runs over a
grid of lengths marched in lockstep (`of_one_length`). A learned correction of the same kind as the
step time's is graded beside it; its distances were chosen on three draws of the folds.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from planner_correction import TPOT, TTFT, Correction
from scipy.optimize import nnls

from capmodel.features import add_features
from capmodel.gpus import load_gpu
from capmodel.kvcache import BlockTable, RequestCost
from capmodel.roofline import RooflineRegressor
from capmodel.shapes import load_shape
from capmodel.simulation import FrontEnd, Server, mixed, prefill_first, simulate
from capmodel.simulation.table import tabulated
from capmodel.splits import groups_of, split_named
from capmodel.steptime import StepTime, build_step_time
from capmodel.traffic import StepTraffic, step_traffic
from capmodel.workload import Requests, Uniform

FOLDS = 5
# Tokens of one step: the engines' defaults in the launch scripts of these runs.
BUDGET = {"vllm": 8192, "tensorrt-llm": 8192, "sglang": 16384}
TPOT_RIDGE, TTFT_RIDGE = 0.1, 0.3


@dataclass(frozen=True, slots=True)
class Fitted:
    """Roofline and correction fitted on some deployments' TPOT."""

    roofline: RooflineRegressor
    correction: Correction | None

    def tpot_s(self, features: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """TPOT of each row without a simulation [s], and the correction's factor, (rows,)."""
        base = self.roofline.predict(features)
        if self.correction is None:
            return base, np.ones(len(features))
        factor = self.correction.factor(features)
        return base * factor, factor

    def step(self, row: pd.Series) -> tuple[StepTime, StepTraffic]:
        """The roofline's step time of the row's deployment, and what it moves."""
        gpu, tp, dp = load_gpu(row["gpu"]), int(row["tp"]), int(row["dp"])
        shape = load_shape(row["model"])
        traffic = step_traffic(shape, row["weight_dtype"], row["kv_dtype"], tp, dp)
        level = self.roofline.level(row["engine"], row["gpu"])
        found = build_step_time(
            traffic,
            gpu,
            self.roofline.coefficients_[level].values,
            peak_flops_per_s=gpu.matmul_flops_per_s(row["weight_dtype"]),
            tp=tp,
            pp=int(row["pp"]),
            dp=dp,
            kv_dtype=row["kv_dtype"],
        )
        # The simulator counts the attention of a prompt chunk by chunk itself.
        return replace(found, costs=tuple(replace(c, prompt_s=0.0) for c in found.costs)), traffic


def fit(features: pd.DataFrame, learned: bool = True) -> Fitted:
    """Roofline and correction on `features`, rows of `add_features` with `tpot_s`."""
    roofline = RooflineRegressor().fit(features, features["tpot_s"])
    if not learned:
        return Fitted(roofline, None)
    base, target = roofline.predict(features), features["tpot_s"].to_numpy()
    return Fitted(roofline, Correction(TPOT, TPOT_RIDGE).fit(features, base, target))


def server_of(row: pd.Series, step: StepTime, traffic: StepTraffic, factor: float) -> Server:
    """The row's replica: all attention ranks as one, their pools together.

    factor: the learned correction at the row's operating point, for all its steps.
    """
    longest, clients = int(row["input_len"] + row["output_len"]), int(row["concurrency"])
    size = 32
    # The table keeps rows whose clients were all resident, so the pool holds at least them.
    blocks = 2 * clients * -(-longest // size)
    budget = max(BUDGET.get(row["engine"], 8192), clients + 1) * step.dp
    attention = traffic.prefill_attention_flop
    return Server(
        tabulated(step, clients, longest, 2 * budget),
        blocks,
        RequestCost((BlockTable("full", 1, size),), 0.0),
        max_num_seqs=max(1, clients),
        max_batched_tokens=budget,
        attention_tokens=traffic.prefill_flop_per_token / (2 * attention)
        if attention
        else math.inf,
        step_scale=factor,
        batching=prefill_first if row["engine"] == "sglang" else mixed,
    )


def play(row: pd.Series, server: Server, spread: float, rounds: float) -> dict[str, float]:
    """Simulated TPOT and TTFT of the row [s].

    spread: lengths lie within this share of the nominal one, to both sides. The clients of these
    runs drew 80 to 100 % of it; the fit knows the nominal lengths only, so its coefficients have
    taken the mean in, and what is left to play is the width.
    """
    clients = int(row["concurrency"])
    n = int(min(max(clients * rounds, 20), max(6000, 3 * clients)))
    rng = np.random.default_rng(1)
    requests = Requests(
        np.zeros(n),
        around(int(row["input_len"]), spread).draw(n, rng),
        around(int(row["output_len"]), spread).draw(n, rng),
    )
    result = simulate(requests, server, concurrency=clients)
    return {
        "tpot_sim_s": float(np.nanmean(result.tpot_s)),
        "ttft_sim_s": float(result.ttft_s.mean()),
        "ttft_sim_p50_s": float(np.median(result.ttft_s)),
    }


def around(tokens: int, spread: float) -> Uniform:
    """Lengths within `spread` of `tokens`, as a share."""
    return Uniform(max(1, round(tokens * (1 - spread))), round(tokens * (1 + spread)))


def of_one_length(rows: pd.DataFrame) -> np.ndarray:
    """Whether each row is of the sweep whose requests may all have been of one length, (rows,).

    It went over 1,024 to 4,096 prompt and 128 to 512 output tokens; the others vary lengths.
    """
    short = rows["input_len"].isin([1024, 2048, 4096]) & (rows["output_len"] <= 512)
    dated = rows["run_id"].str.contains(r"^20\d\d_\d\d_\d\d_|_cfg\d+$|gap_analysis", regex=True)
    return (short & ~dated).to_numpy()


def measured(path: str) -> pd.DataFrame:
    """Aggregated rows with features, the suspect ones left out."""
    from capmodel.ingest import read_runs

    runs = read_runs(path)
    runs = runs[runs["step_time_definition"] == "tpot"]
    suspect = runs["flags"].astype(str).str.contains("suspect_source|queued")
    # What starting a request costs is no part of a step, so the fit must do without it.
    return add_features(runs[~suspect].reset_index(drop=True)).drop(columns=["requests"])


def folds_of(features: pd.DataFrame, seed: int = 0) -> np.ndarray:
    """Fold of each row, deployments kept together, shape (rows,)."""
    groups = groups_of(features, split_named("deployment"))
    order = np.random.default_rng(seed).permutation(groups.max() + 1)
    return (order % FOLDS)[groups]


def played(
    features: pd.DataFrame, folds: np.ndarray, spread: float, rounds: float, learned: bool
) -> pd.DataFrame:
    """Simulated TPOT and TTFT of every row by a fit without its fold, in the order of rows."""
    parts = []
    for fold in range(FOLDS):
        test = features[folds == fold]
        fitted = fit(features[folds != fold], learned)
        direct, factors = fitted.tpot_s(test)
        rows = []
        fixed = of_one_length(test)
        for (_, row), factor, lockstep in zip(test.iterrows(), factors, fixed, strict=True):
            server = server_of(row, *fitted.step(row), float(factor))
            found = play(row, server, spread, rounds)
            alike = play(row, server, 0.0, rounds) if lockstep else found
            rows.append({**found, "ttft_alike_s": alike["ttft_sim_s"]})
        parts.append(pd.DataFrame(rows, index=test.index).assign(direct_s=direct))
    return pd.concat(parts).sort_index()


def front_end(rows: pd.DataFrame) -> FrontEnd:
    """What simulated TTFT lacks of measured TTFT: least absolute relative error, none negative.

    rows: ttft_s, ttft_sim_s, direct_s, concurrency, input_len.
    """
    target = rows["ttft_s"].to_numpy()
    lacking = 1 - rows["ttft_sim_s"].to_numpy() / target
    step = rows["direct_s"].to_numpy()
    further = step * rows["input_len"].to_numpy() / 1024
    terms = np.column_stack([np.ones(len(rows)), step, rows["concurrency"], further])
    terms /= target[:, None]
    weight = np.ones(len(rows))
    for _ in range(15):
        scaled = terms * weight[:, None]
        norm = np.sqrt((scaled**2).mean(axis=0)) + 1e-30
        found = nnls(scaled / norm, weight * lacking)[0] / norm
        weight = 1 / np.sqrt(np.maximum(np.abs(terms @ found - lacking), 0.03))
    return FrontEnd(*(float(value) for value in found))


def with_front_end(rows: pd.DataFrame, ends: FrontEnd) -> np.ndarray:
    """TTFT of rows of one engine [s], (rows,)."""
    known = zip(rows["direct_s"], rows["concurrency"], rows["input_len"], strict=True)
    return rows["ttft_sim_s"].to_numpy() + [ends.delay_s(*one) for one in known]


def calibrated(rows: pd.DataFrame) -> tuple[FrontEnd, bool]:
    """The front end of one engine, and whether its runs of one length marched in lockstep."""
    found = []
    for alike in (False, True):
        own = marching(rows, alike)
        ends = front_end(own)
        error = np.abs(with_front_end(own, ends) / own["ttft_s"] - 1)
        found.append((float(error.median()), alike, ends))
    _, alike, ends = min(found, key=lambda one: one[0])
    return ends, alike


def marching(rows: pd.DataFrame, alike: bool) -> pd.DataFrame:
    """`rows` with the simulated TTFT of lengths all alike, where that is said of them."""
    return rows.assign(ttft_sim_s=rows["ttft_alike_s"]) if alike else rows


def first_tokens(rows: pd.DataFrame, folds: np.ndarray) -> pd.DataFrame:
    """TTFT of every row: with the other folds' front end, and with their correction [s]."""
    front = np.full(len(rows), np.nan)
    learned = np.full(len(rows), np.nan)
    for fold in range(FOLDS):
        base = np.full(len(rows), np.nan)
        for _, mine in _by_engine(rows):
            ends, alike = calibrated(rows[mine & (folds != fold)])
            base[mine] = with_front_end(marching(rows[mine], alike), ends)
        train, test = folds != fold, folds == fold
        target = rows["ttft_s"].to_numpy()[train]
        correction = Correction(TTFT, TTFT_RIDGE).fit(rows[train], base[train], target)
        front[test] = base[test]
        learned[test] = base[test] * correction.factor(rows[test])
    return pd.DataFrame({"ttft_front_s": front, "ttft_learned_s": learned}, index=rows.index)


def _by_engine(rows: pd.DataFrame) -> Iterable[tuple[str, np.ndarray]]:
    for engine in sorted(rows["engine"].unique()):
        yield str(engine), (rows["engine"] == engine).to_numpy()


def nearest(features: pd.DataFrame, folds: np.ndarray, target: str) -> np.ndarray:
    """The baseline: the row of another deployment nearest in everything that is known."""
    names = ["concurrency", "input_len", "output_len", "tp", "dp", "weight_stored_bytes",
             "kv_bytes_per_token", "gpu_bandwidth", "gpu_peak_flops"]  # fmt: skip
    points = np.log2(np.maximum(features[names].to_numpy(float), 1e-9))
    codes = pd.get_dummies(features[["engine", "model", "weight_dtype"]]).to_numpy(float) * 3
    points = np.column_stack([points, codes])
    found = np.full(len(features), np.nan)
    values = features[target].to_numpy()
    for fold in range(FOLDS):
        train = np.flatnonzero(folds != fold)
        for row in np.flatnonzero(folds == fold):
            distance = ((points[train] - points[row]) ** 2).sum(axis=1)
            found[row] = values[train[int(np.argmin(distance))]]
    return found


def evaluate(
    path: str,
    *,
    every: int = 1,
    spread: float = 0.1,
    rounds: float = 10.0,
    learned: bool = True,
    seed: int = 0,
) -> pd.DataFrame:
    """Every `every`-th row, measured, simulated and by its nearest neighbour.

    seed: of the deployments' folds.
    """
    features = measured(path).iloc[::every].reset_index(drop=True)
    folds = folds_of(features, seed)
    rows = pd.concat([features, played(features, folds, spread, rounds, learned)], axis=1)
    rows = pd.concat([rows, first_tokens(rows, folds)], axis=1)
    return rows.assign(
        fold=folds,
        tpot_nearest_s=nearest(features, folds, "tpot_s"),
        ttft_nearest_s=nearest(features, folds, "ttft_s"),
    )


ESTIMATES = {
    "TPOT, fit alone": ("direct_s", "tpot_s"),
    "TPOT, simulated": ("tpot_sim_s", "tpot_s"),
    "TPOT, nearest row": ("tpot_nearest_s", "tpot_s"),
    "TTFT, simulated, engine alone": ("ttft_sim_s", "ttft_s"),
    "TTFT, simulated, with front end": ("ttft_front_s", "ttft_s"),
    "TTFT, the same, corrected": ("ttft_learned_s", "ttft_s"),
    "TTFT, nearest row": ("ttft_nearest_s", "ttft_s"),
}


def inside(rows: pd.DataFrame, estimate: str, target: str) -> np.ndarray:
    """Whether each row lies in its 90 % interval, shape (rows,).

    The interval is conformal: the 0.9 quantile of |log ratio| of the other folds.
    """
    ratio = np.abs(np.log(rows[estimate] / rows[target])).to_numpy()
    folds = rows["fold"].to_numpy()
    limits = {
        fold: np.quantile(ratio[folds != fold], 0.9)
        for fold in np.unique(folds)
        if (folds != fold).any()
    }
    return ratio <= np.array([limits.get(fold, np.nan) for fold in folds])


def scores(rows: pd.DataFrame) -> pd.DataFrame:
    """One line per estimate: rows, MAPE, median APE, median ratio, coverage of a 90 % interval."""
    lines = []
    for name, (estimate, target) in ESTIMATES.items():
        ratio = rows[estimate] / rows[target]
        lines.append(
            {
                "estimate": name,
                "rows": len(rows),
                "mape": (ratio - 1).abs().mean(),
                "median_ape": (ratio - 1).abs().median(),
                "median_ratio": ratio.median(),
                "coverage_90": inside(rows, estimate, target).mean(),
            }
        )
    return pd.DataFrame(lines)


def by_group(rows: pd.DataFrame) -> pd.DataFrame:
    """MAPE, median APE and coverage by engine and GPU: simulated TPOT, TTFT with the front end."""
    found = {}
    for kind, estimate in (("tpot", "tpot_sim_s"), ("ttft", "ttft_front_s")):
        target = f"{kind}_s"
        graded = rows.assign(
            error=(rows[estimate] / rows[target] - 1).abs(), within=inside(rows, estimate, target)
        )
        groups = graded.groupby(["engine", "gpu"])
        found[f"{kind}_mape"] = groups["error"].mean()
        found[f"{kind}_median"] = groups["error"].median()
        found[f"{kind}_coverage"] = groups["within"].mean()
    return pd.DataFrame(found).assign(rows=rows.groupby(["engine", "gpu"]).size())
