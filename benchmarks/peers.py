"""The peer's estimate and ours beside each other, on the same measured serving rows, in one run.

    python benchmarks/peers.py RUNS [--json] [--seed 0]

RUNS: the sample of measured deployments that AIConfigurator publishes (silicon_sample.csv, or a
part of it). The peer is aiconfigurator-core, in an environment that also holds capmodel.
Both answer for the same rows: aggregated ones with a measured TPOT that no check of ours sets
aside. Ours is a calibration fitted without the deployments it answers for (five folds, other
deployments of the table on the training side). The peer is not fitted here; its source says that
some of its factors were tuned on measured runs of this kind. A refusal is counted, not graded.
Disaggregated rows are left out: the core package prices one worker's steps, and the rate matching
of prefill and decode workers is not in it.
"""

import argparse
import json
import logging
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from capmodel.calibration import Calibration, fit
from capmodel.datasets.kernel_tables import PACKAGE, VERSION, data_folder
from capmodel.evaluation import score
from capmodel.ingest import read_files
from capmodel.quality import screen_runs
from capmodel.quality.intake import plain_columns
from capmodel.splits import split_named, split_runs
from capmodel.words import one_line

PEER, OURS = f"{PACKAGE} {VERSION}", "capmodel"
TITLES = {"each": "", "both": "on the rows that both answer",
          "both_as_named": "on those the peer answers as the file names them"}  # fmt: skip
FIGURES = ("mape", "median_ape", "bias")
FOLDS, ALONE = 5, 20  # ALONE: rows of a fold that ours is timed on one at a time

# What the peer is told of a row, in the file's own columns.
RAW = ("id", "backend", "system", "model_path", "mode", "gemm_quant_mode", "moe_quant_mode")
# What makes two rows one deployment for the peer, so that one session answers both.
SESSION = ("backend", "system", "model_path", "gemm_quant_mode", "moe_quant_mode", "weight_dtype",
           "tp", "pp", "dp", "ep")  # fmt: skip
# Names in the file -> the same model as the package carries it; nothing is downloaded.
SAME_MODEL = {"meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
              "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
              "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
              "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
              "zhipuai/GLM-5": "zai-org/GLM-5"}  # fmt: skip
GEMM_OF_NAME = {"FP8": "fp8", "NVFP4": "nvfp4"}  # where the file leaves the mode out
# quant_method of a checkpoint -> the weights it holds, as the runs table says it.
STORED = {"fp8": "fp8", "mxfp4": "mxfp4", "compressed-tensors": "int4"}


@dataclass(frozen=True, slots=True)
class Asked:
    """One deployment, as the peer is asked for it; a mode of None is the peer's own choice."""

    model: str
    system: str
    backend: str
    degrees: tuple[int, int, int, int]  # tp, pp, dp, ep
    gemm: str | None
    moe: str | None


Session = Callable[[Any], float]  # TPOT [s] of a row; raises where it refuses


@dataclass(slots=True)
class Answers:
    """What one side said of every row.

    tpot_s: [s], NaN where refused, (rows,). as_named: answered by the modes that the file names,
    (rows,). reasons: refusal -> rows. seconds: processor times by what they were spent on.
    """

    tpot_s: np.ndarray
    as_named: np.ndarray
    reasons: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def graded_rows(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Rows that both sides see, with the peer's columns, and what became of the others.

    The frame also holds disaggregated rows that ours may learn from; `aggregated` says which are
    graded. Raises ValueError where `path` is not the sample of measured deployments.
    """
    found = read_files([path], "auto")
    if found.refused or not len(found.runs):
        nothing = f"{path}: no row holds a decode step"
        raise ValueError(found.refused[0].reason if found.refused else nothing)
    raw = pd.read_csv(path, dtype=str).fillna("") if path.suffix == ".csv" else pd.DataFrame()
    if missing := [name for name in RAW if name not in raw]:
        what = "expected the sample of measured deployments (AIConfigurator's silicon_sample.csv)"
        raise ValueError(f"{path} lacks {', '.join(missing)}; {what}")
    screened = screen_runs(found.runs)
    told = raw.drop_duplicates("id").set_index("id")[list(RAW[1:])]
    rows = screened.used.join(told, on="run_id").reset_index(drop=True)
    rows["aggregated"] = rows["mode"] == "agg"
    return rows, {
        "read": len(raw),
        "without_a_step": found.aside["rule"].value_counts().to_dict(),
        "set_aside": screened.aside["rule"].value_counts().to_dict(),
        "disaggregated_not_asked": int((~rows["aggregated"]).sum()),
        "graded": int(rows["aggregated"].sum()),
    }


def readings(row: Any, stored: Callable[[str], str | None]) -> list[Asked]:
    """How the peer is asked for a row: by the modes the file names, then by the model's own.

    stored: weights of a checkpoint, by its name in the package. The second reading is asked only
    where the checkpoint holds the weights that the row says, so that a mode the file misnames
    (gpt-oss as nvfp4, MiniMax experts as plain fp8) is not held against the peer.
    """
    name = str(row.model_path)
    model = SAME_MODEL.get(name, name)
    gemm, moe = row.gemm_quant_mode or None, row.moe_quant_mode or None
    if gemm is None and name in SAME_MODEL:
        gemm = GEMM_OF_NAME.get(name.rsplit("-", 1)[-1])
    degrees = int(row.tp), int(row.pp), int(row.dp), int(row.ep)
    named = Asked(model, str(row.system), str(row.backend), degrees, gemm, moe)
    if (gemm or moe) and stored(model) == str(row.weight_dtype):
        return [named, replace(named, gemm=None, moe=None)]
    return [named]


def ask(
    rows: pd.DataFrame, reading: Callable[[Any], list[Asked]],
    opener: Callable[[Asked], Session],
) -> Answers:  # fmt: skip
    """Every row's estimate, deployment by deployment, each in a session opened once.

    rows: columns SESSION, batch_size, input_len and output_len. A row that no reading answers is
    refused, for the reason the last one gave. Progress goes to standard error.
    """
    answers = Answers(np.full(len(rows), np.nan), np.zeros(len(rows), dtype=bool))
    sessions: dict[Asked, Session | Exception] = {}
    groups = rows.groupby(list(SESSION), dropna=False, sort=True).indices
    for done, own in enumerate(groups.values(), start=1):
        asked = reading(rows.iloc[own[0]])
        for place, row in zip(own, rows.iloc[own].itertuples(), strict=True):
            which, value = _first_answer(asked, row, opener, sessions, answers)
            if isinstance(value, Exception):
                reason = refusal(value)
                answers.reasons[reason] = answers.reasons.get(reason, 0) + 1
            else:
                answers.tpot_s[place], answers.as_named[place] = value, which == 0
        if done % 10 == 0 or done == len(groups):
            print(f"  {PEER}, deployment {done}/{len(groups)}", file=sys.stderr, flush=True)
    return answers


def _first_answer(
    asked: list[Asked], row: Any, opener: Callable[[Asked], Session],
    sessions: dict[Asked, Session | Exception], answers: Answers,
) -> tuple[int, float | Exception]:  # fmt: skip
    """Number of the first reading that is answered and its estimate [s], or the last error."""
    error: Exception = ValueError("nothing was asked")
    for number, one in enumerate(asked):
        new = one not in sessions
        start = time.process_time()
        try:
            session = sessions[one] = sessions.get(one) or opener(one)
            if isinstance(session, Exception):
                raise session
            value = float(session(row))
            if not (np.isfinite(value) and value > 0):
                raise ValueError("its estimate is no time")
        except Exception as refused:  # noqa: BLE001  the peer's errors are of no one family
            error = refused
            sessions.setdefault(one, refused)
            continue
        answers.seconds["ready" if new else "answer"].append(time.process_time() - start)
        return number, value
    return -1, error


def refusal(error: Exception) -> str:
    """Why the peer refuses, without paths and shapes, so that like refusals count together."""
    text = re.sub(r"(perf database error: )+", "", one_line(error))
    text = re.sub(r'for \w+Key \{.*?((?<!_)quant|architecture): "(\w+)".*', r"for \2", text)
    text = re.sub(r"\s*(at|\(first:) /.*", "", text)
    return text[:100].rstrip(" ;:,.") or type(error).__name__


def held_out(rows: pd.DataFrame, seed: int) -> Answers:
    """Our estimate of every aggregated row, by a calibration fitted without its deployment.

    rows: used rows with features and `aggregated`. Seconds: a fold's fit is what makes it ready;
    an answer is a row predicted alone, its features included.
    """
    answers = Answers(np.full(len(rows), np.nan), np.ones(len(rows), dtype=bool))
    rng = np.random.default_rng(seed)
    for train, test in split_runs(rows, split_named("deployment"), FOLDS, seed):
        start = time.process_time()
        calibration = fit(rows.iloc[train], name="peers")
        answers.seconds["ready"].append(time.process_time() - start)
        own = test[rows["aggregated"].to_numpy()[test]]
        plain = plain_columns(rows.iloc[own])
        if plain.empty:
            continue
        start = time.process_time()
        answers.tpot_s[own] = calibration.predict(plain)
        answers.seconds["row of a table"].append((time.process_time() - start) / len(plain))
        for place in rng.permutation(len(plain))[:ALONE]:
            start = time.process_time()
            calibration.predict(plain.iloc[[place]])
            answers.seconds["answer"].append(time.process_time() - start)
            answers.seconds["step"].append(step_seconds(calibration, rows.iloc[own[place]]))
    return answers


def step_seconds(calibration: Calibration, row: pd.Series) -> float:
    """Processor time [s] of one step of the row's StepTime, the prompts of others inside."""
    step = calibration.step_time(
        row["model"], row["gpu"], tp=int(row["tp"]), pp=int(row["pp"]), dp=int(row["dp"]),
        weight_dtype=row["weight_dtype"], kv_dtype=row["kv_dtype"], engine=row["engine"],
    )  # fmt: skip
    batch, context = float(row["batch_size"]), float(row["context_len"])
    given = batch, batch * context, float(row["prefill_tokens"]), float(row["input_len"])
    start = time.process_time()
    for _ in range(100):
        step.seconds(*given)
    return (time.process_time() - start) / 100


def errors(measured: np.ndarray, predicted: np.ndarray, backend: np.ndarray) -> dict[str, Any]:
    """FIGURES where there is a prediction [s], overall and by backend; all (rows,)."""
    there = np.isfinite(predicted)
    parts = {str(name): there & (backend == name) for name in np.unique(backend)}
    return {
        **_scores(measured[there], predicted[there]),
        "by_backend": {name: _scores(measured[own], predicted[own]) for name, own in parts.items()},
    }


def compared(rows: pd.DataFrame, sides: dict[str, Answers]) -> dict[str, Any]:
    """What each side answered, how far off it was, and both on the rows that all answered.

    rows: aggregated ones. sides: answers by name, in the order of `rows`.
    """
    measured = rows["step_time_s"].to_numpy(float)
    backend = rows["backend"].to_numpy(str)
    both = np.all([np.isfinite(side.tpot_s) for side in sides.values()], axis=0)
    named = both & np.all([side.as_named for side in sides.values()], axis=0)
    found: dict[str, Any] = {"each": {}, "both": {}, "both_as_named": {}}
    for name, side in sides.items():
        found["each"][name] = {
            **errors(measured, side.tpot_s, backend),
            "refused": int((~np.isfinite(side.tpot_s)).sum()),
            "reasons": dict(sorted(side.reasons.items(), key=lambda item: -item[1])),
            "seconds": {what: median(taken) for what, taken in side.seconds.items()},
            "longest_ready_s": max(side.seconds["ready"], default=None),
        }
        for key, own in (("both", both), ("both_as_named", named)):
            found[key][name] = errors(measured[own], side.tpot_s[own], backend[own])
    return found


def open_peer(asked: Asked) -> Session:
    """A warm session of the peer: its kernel tables, the model and the engine it compiles.

    Asked as the peer's own accuracy check asks it: measured kernels only, the version that the
    package answers by default, prompts prefilled one at a time. Raises what the peer raises.
    """
    from aiconfigurator_core.sdk import RuntimeConfig, models
    from aiconfigurator_core.sdk.backends.factory import get_backend
    from aiconfigurator_core.sdk.config_builders import build_model_config
    from aiconfigurator_core.sdk.perf_database import get_database_view

    if not _configuration(asked.model).is_file():
        raise ValueError(f"the package carries no configuration of {asked.model}")
    database = get_database_view(asked.system, asked.backend, "current")
    if database is None:
        raise ValueError(f"no kernel tables of {asked.backend} on {asked.system}")
    name, backend, system = asked.model, asked.backend, asked.system
    (tp, pp, dp, ep), modes = asked.degrees, (asked.gemm, None, None, asked.moe)
    config = build_model_config(tp, pp, dp, tp * dp // ep, ep, *modes)
    models.resolve_context_fmha_by_data(config, name, database, backend, is_context_role=True)
    models.resolve_dsv4_moe_arch(config, name, system_name=system, backend_name=backend)
    models.resolve_nvfp4_for_system(config, system, name, backend_name=backend)
    model = models.get_model(name, config, backend)

    def tpot(row: Any) -> float:
        batch, isl = max(1, round(row.batch_size / row.dp)), int(row.input_len)
        point = RuntimeConfig(batch_size=batch, isl=isl, osl=int(row.output_len))
        # A backend of its own for each row: it remembers answers, and repeats would cost nothing.
        summary = get_backend(backend).run_agg(model, database, point, ctx_tokens=isl)
        if summary.check_oom():
            raise ValueError("by its own count the model does not fit in memory")
        return float(summary.get_result_dict()["tpot"]) / 1e3

    return tpot


def stored_weights(model: str) -> str | None:
    """What the package's configuration of a model says its checkpoint holds, None where bf16."""
    path = _configuration(model)
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    own = {**config.get("text_config", {}), **config}.get("quantization_config", {})
    return STORED.get(str(own.get("quant_method")))


def told(found: dict[str, Any]) -> str:
    """The comparison as text."""
    rows = found["rows"]
    aside = {**rows["without_a_step"], **rows["set_aside"]}
    why = ", ".join(f"{n:,} {rule}" for rule, n in aside.items())
    lines = [
        f"{rows['read']:,} rows: {rows['graded']:,} aggregated ones graded",
        f"{sum(aside.values()):,} set aside for both: {why}",
        f"{rows['disaggregated_not_asked']:,} disaggregated ones not asked: the peer's core "
        "package matches no prefill and decode workers",
        f"\n{'TPOT, errors in %':28}{'rows':>7}{'refused':>9}{'MAPE':>8}{'median':>8}{'bias':>8}",
    ]
    for key, title in TITLES.items():
        lines += [f"\n{title}"] if title else []
        for name, side in found[key].items():
            lines.append(_line(name, side))
            lines += [_line(f"  {backend}", own) for backend, own in side["by_backend"].items()]
    peer, ours = found["each"][PEER], found["each"][OURS]
    lines += [
        "\nprocessor time, medians",
        f"  {PEER}: a session with its first answer {_time(peer, 'ready')}, the longest "
        f"{peer['longest_ready_s'] or 0:.1f} s; each later answer {_time(peer, 'answer')}",
        f"  {OURS}: a fit {_time(ours, 'ready')}; a row alone {_time(ours, 'answer')}; a row of a "
        f"table {_time(ours, 'row of a table')}; a step of a StepTime, which begins no request, "
        f"{_time(ours, 'step')}",
    ]
    lines += ["\nrefused by the peer"] if peer["reasons"] else []
    lines += [f"  {n:5,}  {reason}" for reason, n in peer["reasons"].items()]
    return "\n".join(lines)


def _line(name: str, side: dict[str, Any]) -> str:
    shares = ("-" if side[key] is None else f"{100 * side[key]:.1f}" for key in FIGURES)
    figures = "".join(f"{share:>8}" for share in shares)
    return f"{name:28}{side['n']:>7,}{side.get('refused', ''):>9}{figures}"


def _scores(measured: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    found = score(measured, predicted) if len(measured) else {}
    return {"n": len(measured), **{key: found.get(key) for key in FIGURES}}


def _time(side: dict[str, Any], what: str) -> str:
    seconds = side["seconds"].get(what, float("nan"))
    size, unit = (1.0, "s") if seconds >= 1 else (1e-3, "ms") if seconds >= 1e-3 else (1e-6, "us")
    return f"{seconds / size:.3g} {unit}"


def _configuration(model: str) -> Any:
    folder = resources.files("aiconfigurator_core") / "model_configs"
    return folder / f"{model.replace('/', '--')}_config.json"


def run(path: Path, seed: int) -> dict[str, Any]:
    """The whole comparison on the rows of `path`; progress on standard error."""
    rows, counts = graded_rows(path)
    print(f"  ours, {FOLDS} folds of deployments", file=sys.stderr, flush=True)
    ours = held_out(rows, seed)
    kept = rows["aggregated"].to_numpy()
    ours = replace(ours, tpot_s=ours.tpot_s[kept], as_named=ours.as_named[kept])
    asked = rows[kept].reset_index(drop=True)
    peer = ask(asked, lambda row: readings(row, stored_weights), open_peer)
    return {"runs": path.name, "rows": counts, "seed": seed, "folds": FOLDS,
            **compared(asked, {PEER: peer, OURS: ours})}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """0, or 2 with one line where the peer is absent or the runs cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="the sample of measured deployments, a CSV file")
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    try:
        data_folder()  # says what to install where the peer is absent
        logging.getLogger("aiconfigurator_core").setLevel(logging.CRITICAL)  # tells of every table
        found = run(asked.runs, asked.seed)
    except (ValueError, OSError) as error:
        print(f"peers: {one_line(error)}", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=1) if asked.json else told(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
