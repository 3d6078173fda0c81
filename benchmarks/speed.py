"""Speed figures of the main job, printed; nothing here fails.

Run with `make bench`. Machines are noisy: compare figures of one run with each other only.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd

import capmodel as cm
from capmodel.datasets import load_silicon_runs
from capmodel.estimators import Corrected
from capmodel.roofline import RooflineRegressor, design


def best_of(call: Callable[[], object], repeats: int = 5) -> float:
    """Least wall time of several calls [s]."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def per_call(call: Callable[[], object], n: int = 2000) -> float:
    """Mean time of a call once warm [s], the best of three rounds."""
    call()

    def loop() -> None:
        for _ in range(n):
            call()

    return best_of(loop, 3) / n


def scattered(runs: pd.DataFrame) -> pd.DataFrame:
    """The deployments of `runs`, each row at a batch and context of its own, seeded."""
    rng = np.random.default_rng(0)
    batch = np.exp2(rng.uniform(0, 9, len(runs))).round().astype(int)
    context_len = np.exp2(rng.uniform(7, 15, len(runs))).round().astype(int)
    return runs.assign(batch_size=batch, context_len=context_len)


def main() -> None:
    code = "import time; t = time.perf_counter(); import capmodel; print(time.perf_counter() - t)"
    imported = min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                             check=True).stdout)
        for _ in range(3)
    )  # fmt: skip
    runs = load_silicon_runs()
    million = pd.concat([runs] * (1_000_000 // len(runs) + 1), ignore_index=True).iloc[:1_000_000]
    featured = cm.add_features(runs)
    target = featured["step_time_s"].to_numpy(float)
    roofline = RooflineRegressor().fit(featured, target)
    terms = design(featured)
    values = np.array(roofline.coefficients_[()].values)
    repeated = np.tile(terms, (200, 1))
    fitted = Corrected().fit(featured, target)
    unlike = cm.add_features(scattered(runs))
    static = cm.add_features(runs.assign(
        input_len=runs["context_len"], output_len=64, step_time_definition="e2e_over_output"
    ))  # fmt: skip
    whole = Corrected().fit(static, target)
    rows = [
        ("import capmodel", imported, "s", 0.5),
        ("add_features, 1M rows", len(million) / best_of(lambda: cm.add_features(million), 2),
         "rows/s", 1e6),
        ("roofline from prepared terms", len(repeated) / best_of(lambda: repeated @ values),
         "rows/s", 5e6),
        ("regressor from prepared features",
         len(featured) / best_of(lambda: fitted.predict(featured)), "rows/s", 3e5),
        ("the same, no two rows share a step",
         len(unlike) / best_of(lambda: fitted.predict(unlike)), "rows/s", 3e5),
        ("the same, prompts inside: no kernel curves",
         len(static) / best_of(lambda: whole.predict(static)), "rows/s", 3e5),
        ("fit, 24k rows, roofline and correction",
         best_of(lambda: Corrected().fit(featured, target), 2), "s", 5.0),
        ("predict_step_time, roofline", 1e6 * per_call(lambda: cm.predict_step_time(
            "llama-3-8b", "h100", batch_size=32, context_len=4096, method="roofline")), "us", 100),
        ("predict_step_time, regressor", 1e6 * per_call(lambda: cm.predict_step_time(
            "llama-3-8b", "h100", batch_size=32, context_len=4096)), "us", 1000),
    ]  # fmt: skip
    print(f"{'what':42} {'measured':>14}  {'aim':>12}")
    for name, value, unit, aim in rows:
        print(f"{name:42} {value:14,.4g}  {aim:12,.4g} {unit}")


if __name__ == "__main__":
    main()
