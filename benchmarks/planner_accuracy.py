"""TPOT and TTFT by simulation against measured serving runs, deployments held out.

Each row of the measured table is a closed loop of clients, all starting at once, ten requests
each: the protocol of the benchmark that most rows are from. A calibration is fitted on the other
deployments, as `capmodel fit` does it; their TTFT tells what prompts take (`planner_prompts`). A
row's steps are what both say of its deployment, the simulator plays the clients, and each engine's
front end is what simulated TTFT lacks of measured TTFT, on training rows played by the same fit.
Nothing that a row is graded by has seen its deployment.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from planner_prompts import calibrated, marching, prompt_cost, with_front_end

from capmodel.calibration import Calibration
from capmodel.calibration import fit as fit_calibration
from capmodel.features import add_features
from capmodel.gpus import load_gpu
from capmodel.kvcache import BlockTable, RequestCost
from capmodel.planner.prompts import PromptCost, PromptParts, prompt_parts, with_prompt_seconds
from capmodel.shapes import load_shape
from capmodel.simulation import Server, mixed, prefill_first, simulate
from capmodel.simulation.table import tabulated
from capmodel.splits import groups_of, split_named
from capmodel.steptime import StepTime
from capmodel.traffic import step_traffic
from capmodel.workload import Requests, Uniform

FOLDS = 5
# Tokens of one step: the engines' defaults in the launch scripts of these runs.
BUDGET = {"vllm": 8192, "tensorrt-llm": 8192, "sglang": 16384}
# Of a fold's training rows, every how many-th is played for the front ends.
PLAYED = 3
# Fewer rows than this tell nothing of their own.
FEWEST = 15
# Decoding takes at least this share of a TPOT, whatever prompts are said to take.
DECODING = 0.15
# Further from the calibration's TPOT than this the simulation is played again, with what it lacked.
NEAR = 0.02


@dataclass(frozen=True, slots=True)
class Steps:
    """Decoding as one factor of a calibration's, prompts as their engine's."""

    step: StepTime
    factor: float

    def seconds(self, batch: Any, cached_tokens: Any, prefill_tokens: Any = 0.0) -> np.ndarray:
        """One step [s], arrays."""
        batch, prompts = np.asarray(batch, dtype=float), np.asarray(prefill_tokens, dtype=float)
        alone = self.step.seconds(batch, cached_tokens, np.zeros_like(prompts))
        both = self.step.seconds(batch, cached_tokens, prompts)
        return np.asarray(self.factor * alone + (both - alone))


@dataclass(frozen=True, slots=True)
class Fitted:
    """What the other deployments tell: steps, and each group's prompts."""

    calibration: Calibration
    prompts: dict[tuple[str, bool], PromptCost]


def step_of(calibration: Calibration, row: pd.Series) -> StepTime:
    """The roofline's step time of the row's deployment; the level comes from the whole fit."""
    return calibration.step_time(
        row["model"],
        row["gpu"],
        engine=row["engine"],
        method="roofline",
        weight_dtype=row["weight_dtype"],
        kv_dtype=row["kv_dtype"],
        **{name: int(row[name]) for name in ("tp", "pp", "dp")},
    )


def parts_of(row: pd.Series) -> PromptParts:
    """What a prompt token of the row's deployment asks for."""
    shape, gpu = load_shape(row["model"]), load_gpu(row["gpu"])
    traffic = step_traffic(
        shape, row["weight_dtype"], row["kv_dtype"], int(row["tp"]), int(row["dp"])
    )
    return prompt_parts(traffic, gpu, row["weight_dtype"])


def experts_s(step: StepTime, row: pd.Series) -> float:
    """What a prompt has read of experts, beyond those that the clients' decoding reads [s]."""
    alone = with_prompt_seconds(step, 0.0)
    batch, context = float(row["concurrency"]), float(row["context_len"])
    chunk = float(min(row["input_len"], budget_of(row)))
    chunks = math.ceil(row["input_len"] / budget_of(row))
    more = alone.seconds(batch, batch * context, chunk) - alone.seconds(batch, batch * context)
    return chunks * max(0.0, float(more))


def groups(rows: pd.DataFrame) -> Iterator[tuple[str, bool, np.ndarray]]:
    """Engine, whether of the sweep of fixed lengths, and which of `rows` are both."""
    fixed = of_one_length(rows)
    for engine in sorted(rows["engine"].unique()):
        for one in (False, True):
            yield str(engine), one, (rows["engine"] == engine).to_numpy() & (fixed == one)


def told_by(rows: pd.DataFrame, engine: str, own: np.ndarray) -> pd.DataFrame:
    """The group's own rows, or all of the engine where they are few."""
    return rows[own] if own.sum() >= FEWEST else rows[(rows["engine"] == engine).to_numpy()]


def fit(rows: pd.DataFrame) -> Fitted:
    """Calibration and prompts of `rows`, rows of `add_features` with tpot_s and ttft_s."""
    calibration = fit_calibration(rows)
    known = rows.assign(direct_s=calibration.predict(rows))
    prompts = {}
    for engine, fixed, own in groups(rows):
        told = told_by(known, engine, own)
        listed = [row for _, row in told.iterrows()]
        read = np.array([experts_s(step_of(calibration, row), row) for row in listed])
        prompts[engine, fixed] = prompt_cost(told, [parts_of(row) for row in listed], read, fixed)
    return Fitted(calibration, prompts)


def budget_of(row: pd.Series) -> int:
    """Tokens that one step of the row's deployment takes, of all attention ranks."""
    return max(BUDGET.get(row["engine"], 8192), int(row["concurrency"]) + 1) * int(row["dp"])


def server_of(row: pd.Series, step: StepTime, cost: PromptCost, lacking_s: float = 0.0) -> Server:
    """The row's replica: all attention ranks as one, their pools together.

    row: with direct_s, the TPOT that the calibration says. Prompts take no more than that leaves
    them, decoding takes the rest, and `lacking_s` [s] on top.
    """
    clients, prompt, output = (
        int(row[name]) for name in ("concurrency", "input_len", "output_len")
    )
    token, before = cost.seconds(parts_of(row))
    whole = token * prompt + before * prompt**2 / 2 + experts_s(step, row)
    beside = (clients - 1) / output * whole
    most = (1 - DECODING) * row["direct_s"]
    if beside > most:
        token, before, beside = (value * most / beside for value in (token, before, beside))
    bare = float(step.seconds(float(clients), clients * float(row["context_len"])))
    decoding = row["direct_s"] - beside + lacking_s
    factor = max(decoding, DECODING * row["direct_s"]) / bare
    size, longest = 32, prompt + output
    return Server(
        tabulated(
            Steps(with_prompt_seconds(step, token), factor), clients, longest, 2 * budget_of(row)
        ),
        # The table keeps rows whose clients were all resident, so the pool holds at least them.
        2 * clients * -(-longest // size),
        RequestCost((BlockTable("full", 1, size),), 0.0),
        max_num_seqs=max(1, clients),
        max_batched_tokens=budget_of(row),
        attention_tokens=token / before if token and before else math.inf,
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
    return add_features(runs[~suspect].reset_index(drop=True))


def folds_of(features: pd.DataFrame, seed: int = 0) -> np.ndarray:
    """Fold of each row, deployments kept together, shape (rows,)."""
    groups = groups_of(features, split_named("deployment"))
    order = np.random.default_rng(seed).permutation(groups.max() + 1)
    return (order % FOLDS)[groups]


def played(rows: pd.DataFrame, fitted: Fitted, spread: float, rounds: float) -> pd.DataFrame:
    """`rows` with simulated TPOT and TTFT [s], and TTFT with all lengths alike."""
    rows = rows.assign(direct_s=fitted.calibration.predict(rows))
    found = []
    for (_, row), fixed in zip(rows.iterrows(), of_one_length(rows), strict=True):
        known = step_of(fitted.calibration, row), fitted.prompts[row["engine"], bool(fixed)]
        server = server_of(row, *known)
        own = play(row, server, spread, rounds)
        lacking = row["direct_s"] - own["tpot_sim_s"]
        if abs(lacking) > NEAR * row["direct_s"]:
            server = server_of(row, *known, lacking)
            own = play(row, server, spread, rounds)
        alike = play(row, server, 0.0, rounds) if fixed else own
        found.append({**own, "ttft_alike_s": alike["ttft_sim_s"]})
    return rows.join(pd.DataFrame(found, index=rows.index))


def first_tokens(test: pd.DataFrame, train: pd.DataFrame) -> pd.Series:
    """TTFT of the played rows of `test` with the front ends that those of `train` tell [s]."""
    found = pd.Series(np.nan, index=test.index)
    for engine, fixed, own in groups(train):
        mine = (test["engine"] == engine).to_numpy() & (of_one_length(test) == fixed)
        if mine.any():
            ends, alike = calibrated(told_by(train, engine, own))
            found[mine] = with_front_end(marching(test[mine], alike), ends)
    return found


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
    path: str, *, every: int = 1, spread: float = 0.1, rounds: float = 10.0, seed: int = 0
) -> pd.DataFrame:
    """Every `every`-th row, measured, simulated and by its nearest neighbour.

    seed: of the deployments' folds.
    """
    features = measured(path).iloc[::every].reset_index(drop=True)
    folds = folds_of(features, seed)
    parts = []
    for fold in range(FOLDS):
        train = features[folds != fold]
        fitted = fit(train)
        test = played(features[folds == fold], fitted, spread, rounds)
        told = played(train[::PLAYED], fitted, spread, rounds)
        parts.append(test.assign(ttft_front_s=first_tokens(test, told)))
    return (
        pd.concat(parts)
        .sort_index()
        .assign(
            fold=folds,
            tpot_nearest_s=nearest(features, folds, "tpot_s"),
            ttft_nearest_s=nearest(features, folds, "ttft_s"),
        )
    )


def of_all(path: str, every: int = 1, spread: float = 0.1) -> Iterator[tuple[Any, ...]]:
    """Engine, whether of the sweep of fixed lengths, prompts, front end, lockstep: of all rows."""
    features = measured(path).iloc[::every].reset_index(drop=True)
    fitted = fit(features)
    told = played(features[::PLAYED], fitted, spread, 10.0)
    for engine, fixed, own in groups(told):
        yield engine, fixed, fitted.prompts[engine, fixed], *calibrated(told_by(told, engine, own))


ESTIMATES = {
    "TPOT, fit alone": ("direct_s", "tpot_s"),
    "TPOT, simulated": ("tpot_sim_s", "tpot_s"),
    "TPOT, nearest row": ("tpot_nearest_s", "tpot_s"),
    "TTFT, simulated, engine alone": ("ttft_sim_s", "ttft_s"),
    "TTFT, simulated, with front end": ("ttft_front_s", "ttft_s"),
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
