"""The main job: runs in; grade card, calibration, rows set aside and capacity plan out.

Everything is computed first and written last, each file whole or not at all.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from capmodel import __version__
from capmodel.calibration import Calibration, fit
from capmodel.evaluation import GradeCard, cross_validate
from capmodel.features import shape_of_row
from capmodel.gpus import load_gpu
from capmodel.kvcache import kv_bytes, kv_bytes_per_token
from capmodel.memory import MEMORY_FRACTION, max_concurrency
from capmodel.prediction import predict
from capmodel.quality import screen_runs
from capmodel.roofline import NAMES
from capmodel.shapes import ModelShape, load_shape
from capmodel.weights import weight_bytes

Progress = Callable[[str, int, int], None]

CONTEXTS = (2048, 4096, 8192, 16384, 32768, 65536, 131072)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
NOT_MODELLED = (
    "how a request's latency builds up under arriving load: see capmodel plan",
    "speculative decoding, prefix caching and prompts that share experts",
    "other tenants, thermal limits, a network between nodes",
    "engine versions: told apart only where the runs name them and held-out deployments gain by it",
)


@dataclass(frozen=True, slots=True)
class Deployment:
    """The pair of model and GPU the plan is for, and why it."""

    shape: ModelShape
    gpu: str
    engine: str | None
    tp: int
    weight_dtype: str
    kv_dtype: str
    chosen_because: str


@dataclass(frozen=True)
class MainJob:
    """What the job found; `write` puts it into a folder."""

    used: pd.DataFrame = field(repr=False)
    aside: pd.DataFrame = field(repr=False)
    card: GradeCard = field(repr=False)
    calibration: Calibration
    deployment: Deployment
    inputs: tuple[dict[str, str], ...]
    seed: int
    command: str

    def metrics(self) -> dict[str, Any]:
        """The content of metrics.json."""
        counts = self.aside["rule"].value_counts()
        return {
            "schema_version": 1,
            "package_version": __version__,
            "seed": self.seed,
            "target": "step_time_s",
            "inputs": list(self.inputs),
            "rows": {
                "read": len(self.used) + len(self.aside),
                "used": len(self.used),
                "set_aside": {str(rule): int(n) for rule, n in counts.items()},
                "used_by": used_by(self.used),
            },
            "noise_floor_mape": self.card.noise_floor_mape,
            "splits": self.card.to_dict(),
            "absent_splits": self.card.absent,
            "calibration_id": self.calibration.calibration_id,
        }

    def write(self, out: Path) -> list[Path]:
        """Write metrics.json, calibration.json, runs_set_aside.csv and capacity_plan.pdf."""
        from capmodel.report import write_run_pdf

        out.mkdir(parents=True, exist_ok=True)
        metrics = out / "metrics.json"
        _replace(metrics, json.dumps(self.metrics(), indent=2, allow_nan=False) + "\n")
        calibration = out / "calibration.json"
        self.calibration.save(calibration)
        aside = out / "runs_set_aside.csv"
        columns = ["run_id", "file", "row", "rule", "reason", "source", "engine", "model", "gpu",
                   "tp", "batch_size", "context_len", "step_time_s", "floor_s"]  # fmt: skip
        _replace(aside, self.aside.reindex(columns=columns).to_csv(index=False))
        plan = out / "capacity_plan.pdf"
        write_run_pdf(self.summary(), plan)
        return [plan, metrics, calibration, aside]

    def summary(self) -> dict[str, Any]:
        """The dict the PDF is made from."""
        chosen = self.deployment
        common = {"weight_dtype": chosen.weight_dtype, "kv_dtype": chosen.kv_dtype}
        shape, gpu = chosen.shape, load_gpu(chosen.gpu)
        contexts = [n for n in CONTEXTS if shape.max_context is None or n <= shape.max_context]
        contexts = contexts or [shape.max_context or CONTEXTS[0]]
        fits = [
            {
                "context_len": length,
                "kv_bytes_per_request": float(
                    kv_bytes(shape, length, kv_dtype=chosen.kv_dtype, tp=chosen.tp)
                ),
                "max_concurrency": int(
                    max_concurrency(
                        shape,
                        gpu,
                        length,
                        tp=chosen.tp,
                        weight_dtype=chosen.weight_dtype,
                        kv_dtype=chosen.kv_dtype,
                        memory_fraction=MEMORY_FRACTION,
                    )
                ),
            }
            for length in contexts
        ]
        metrics = self.metrics()
        return {
            "title": f"Capacity of {shape.name} on {chosen.tp} x {gpu.name}",
            "date": None,
            "package_version": __version__,
            "calibration_id": self.calibration.calibration_id,
            "command": self.command,
            "synthetic": bool(self.used["source"].str.contains("synthetic", case=False).any()),
            "inputs": list(self.inputs),
            "sources": sorted(map(str, self.used["source"].dropna().unique())),
            "rows": {key: metrics["rows"][key] for key in ("read", "used", "set_aside")},
            "used_by": metrics["rows"]["used_by"],
            "noise_floor_mape": self.card.noise_floor_mape,
            "deployment": {
                "model": shape.name, "gpu": gpu.name, "engine": chosen.engine, "tp": chosen.tp,
                **common, "chosen_because": chosen.chosen_because,
            },
            "memory": {
                "mode": "nameplate",
                "capacity_bytes": gpu.memory_bytes,
                "memory_fraction": MEMORY_FRACTION,
                "weight_bytes": float(weight_bytes(shape, chosen.weight_dtype, chosen.tp)),
                "kv_bytes_per_token": float(
                    kv_bytes_per_token(shape, chosen.kv_dtype, chosen.tp)
                ),
            },
            "fits": fits,
            "sweep": self._sweep(contexts, fits),
            "grade_card": [
                {key: _json(value) for key, value in row.items()}
                for row in self.card.table.to_dict("records")
            ],
            "absent_splits": self.card.absent,
            "coefficients": self._coefficients(),
            "not_modelled": list(NOT_MODELLED),
        }  # fmt: skip

    def _sweep(self, contexts: list[int], fits: list[dict[str, Any]]) -> list[dict[str, Any]]:
        chosen = self.deployment
        shown = contexts[:: max(1, len(contexts) // 2)][:2]
        rows = []
        for length in shown:
            most = next(f["max_concurrency"] for f in fits if f["context_len"] == length)
            batches = sorted({*BATCHES, most} - {0})
            found = predict(
                chosen.shape, chosen.gpu, batch_size=np.array(batches, float), context_len=length,
                tp=chosen.tp, weight_dtype=chosen.weight_dtype, kv_dtype=chosen.kv_dtype,
                engine=chosen.engine, calibration=self.calibration,
            )  # fmt: skip
            low, high = np.asarray(found.low_s), np.asarray(found.high_s)
            for place, batch in enumerate(batches):
                rows.append({
                    "batch_size": batch, "context_len": length,
                    "step_time_s": float(np.asarray(found.step_time_s)[place]),
                    "low_s": float(low[place]) if low.ndim else None,
                    "high_s": float(high[place]) if high.ndim else None,
                    "tokens_per_s": float(np.asarray(found.tokens_per_s)[place]),
                    "binding": str(np.asarray(found.binding)[place]),
                    "fits": batch <= most,
                    "terms": {
                        name: float(np.asarray(value)[place])
                        for name, value in found.terms.items()
                    },
                })  # fmt: skip
        return rows

    def _coefficients(self) -> list[dict[str, Any]]:
        found = []
        for key, own in self.calibration.estimator.physics.roofline.coefficients_.items():
            names = ("c_step", "c_w", "c_kv", "c_f")
            found.append({
                "engine": key[0] if key else "all", "gpu": key[1] if len(key) > 1 else "all",
                "rows": own.n_rows, "mape": own.mape, "at_bound": list(own.at_bound),
                **{name: own[name] for name in names},
                "standard_errors": {
                    name: _json(own.standard_errors[NAMES.index(name)]) for name in names
                },
            })  # fmt: skip
        return found


def run_main_job(
    runs: pd.DataFrame,
    *,
    inputs: tuple[dict[str, str], ...] = (),
    model: str | None = None,
    gpu: str | None = None,
    engine: str | None = None,
    tp: int | None = None,
    name: str = "runs",
    command: str = "capmodel run",
    seed: int = 0,
    left_out: pd.DataFrame | None = None,
    progress: Progress | None = None,
) -> MainJob:
    """Features, checks, grade card, calibration and deployment from a checked runs table.

    model, gpu: what the plan is for; by default the pair the runs cover best. left_out: rows
    that reading already set aside, with `rule` and `reason`. Raises ValueError when no row is
    left or a name is unknown.
    """
    screened = screen_runs(runs)
    aside = screened.aside
    if left_out is not None and len(left_out):
        aside = pd.concat([aside, left_out], ignore_index=True)
    if not len(screened.used):
        rules = aside["rule"].value_counts()
        counts = ", ".join(f"{n} by {rule}" for rule, n in rules.items())
        raise ValueError(
            f"none of the {len(runs)} rows can be used; set aside: {counts}; for example "
            f"{aside['reason'].iloc[0]}"
        )
    used = screened.used.reset_index(drop=True)
    deployment = choose_deployment(used, model, gpu, engine, tp)
    card = cross_validate(used, seed=seed, progress=progress)
    by_rule = {str(rule): int(n) for rule, n in aside["rule"].value_counts().items()}
    calibration = fit(used, name=name, command=command, grade_card=card, set_aside=by_rule)
    return MainJob(used, aside, card, calibration, deployment, inputs, seed, command)


def choose_deployment(
    used: pd.DataFrame, model: str | None, gpu: str | None, engine: str | None, tp: int | None
) -> Deployment:
    """The deployment asked for, open parts filled with what the rows cover best."""
    rows, asked = used, []
    if model is not None:
        wanted = load_shape(model).name
        asked.append(f"model {wanted} was asked for")
        shapes = {name: _shape_in(used, name) for name in used["model"].unique()}
        rows = rows[
            rows["model"].map({name: shape.name for name, shape in shapes.items()}) == wanted
        ]
    if gpu is not None:
        card = load_gpu(gpu).name
        asked.append(f"gpu {card} was asked for")
        cards = {name: _card_name(name) for name in used["gpu"].unique()}
        rows = rows[rows["gpu"].map(cards) == card]
    if engine is not None:
        asked.append(f"engine {engine} was asked for")
        rows = rows[rows["engine"] == engine.lower()]
    if tp is not None:
        rows = rows[rows["tp"] == tp]
    covered = len(rows) > 0
    base = rows if covered else used
    pair = _best_covered(base, ["model", "gpu"])
    of_pair = base[(base["model"] == pair["model"]) & (base["gpu"] == pair["gpu"])]
    best = pair | _best_covered(of_pair, ["engine", "tp", "weight_dtype", "kv_dtype"])
    if covered:
        batches = of_pair["batch_size"].nunique()
        why = (
            f"{len(of_pair):,} of {len(used):,} rows are of that model and GPU, at {batches} "
            f"batch {'sizes' if batches > 1 else 'size'}, the best covered; {best['engine']} at "
            f"tp {best['tp']} is its best covered deployment"
        )
    else:
        why = "no row is of it: predictions rest on other models or GPUs"
    return Deployment(
        shape=load_shape(model) if model else _shape_in(used, str(best["model"])),
        gpu=gpu or str(best["gpu"]),
        engine=engine or str(best["engine"]), tp=tp or int(best["tp"]),
        weight_dtype=str(best["weight_dtype"]), kv_dtype=str(best["kv_dtype"]),
        chosen_because="; ".join([*asked, why]),
    )  # fmt: skip


def used_by(used: pd.DataFrame) -> list[dict[str, Any]]:
    """Used rows per engine and GPU, most first."""
    sizes = used.groupby(["engine", "gpu"], sort=True).size().reset_index(name="rows")
    sizes = sizes.sort_values("rows", ascending=False, kind="stable")
    return [
        {"engine": str(e), "gpu": str(g), "rows": int(n)}
        for e, g, n in sizes.itertuples(index=False)
    ]


def _best_covered(rows: pd.DataFrame, keys: list[str]) -> dict[str, Any]:
    """The combination of `keys` at most batch sizes, then in most rows, then the first in order.

    Many rows at one batch say nothing of the curve over the batch that a plan is read from.
    """
    seen = rows.groupby(keys, sort=True)["batch_size"].agg(["nunique", "size"])
    best = seen.sort_values(["nunique", "size"], ascending=False, kind="stable").index[0]
    return dict(zip(keys, best, strict=True))


def _shape_in(used: pd.DataFrame, name: str) -> ModelShape:
    """The shape of a model as the rows give it, by its columns or by its name."""
    return shape_of_row(used[used["model"] == name].iloc[0].to_dict())  # type: ignore[arg-type]


def _card_name(name: str) -> str:
    try:
        return load_gpu(name).name
    except ValueError:
        return name


def _json(value: object) -> Any:
    if isinstance(value, float) and value != value:
        return None
    return value


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


__all__ = ["Deployment", "MainJob", "choose_deployment", "run_main_job", "used_by"]
