"""Whether intervals cover steps with larger batches or longer contexts than any that was fitted.

Rows beyond a limit are held out of a table, the rest are fitted, and the rows beyond are counted
that lie in the 90 % interval, by how many doublings they are beyond. The shares stand for the
intervals as they are and, to compare with, for those of unseen models throughout.

    python benchmarks/reach.py [RUNS.csv CALIBRATION.json]

RUNS: by default the bundled runs; CALIBRATION: whose bounds are tried, by default the shipped one.
"""

import argparse
from importlib.resources import files

import numpy as np
import pandas as pd

import capmodel as cm
from capmodel.bands import Bands, Reach
from capmodel.datasets import load_silicon_runs
from capmodel.estimators import Corrected
from capmodel.evaluation import used_rows
from capmodel.ingest import read_runs
from capmodel.intervals import Intervals
from capmodel.words import one_line

LIMITS = {"batch_size": (1, 8, 32), "context_len": (256, 512, 4096)}
COVERAGE, FEWEST = 0.9, 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="?", help="a runs table; by default the bundled runs")
    parser.add_argument("calibration", nargs="?", help="whose bounds are tried on RUNS")
    asked = parser.parse_args()
    if asked.runs and not asked.calibration:
        parser.error("RUNS without CALIBRATION; give both, or neither")
    shipped = files("capmodel") / "calibrations" / "silicon.json"
    try:
        rows = used_rows(read_runs(asked.runs) if asked.runs else load_silicon_runs())
        calibration = cm.load_calibration(asked.calibration or str(shipped))
    except ValueError as error:
        parser.error(one_line(error))
    if calibration.intervals is None:
        parser.error(f"{asked.calibration} has no intervals; fit it without --no-grade")
    print(f"{'fitted up to':20} {'doublings':>9} {'rows':>6} {'MAPE':>6}  inside 90 %: "
          "as of unseen models, as they are")  # fmt: skip
    for column, limits in LIMITS.items():
        for limit in limits:
            train = (rows[column] <= 1.5 * limit).to_numpy()
            if train.sum() >= FEWEST and (~train).sum() >= FEWEST:
                _print(rows, train, column, limit, calibration.intervals)


def _print(
    rows: pd.DataFrame, train: np.ndarray, column: str, limit: int, intervals: Intervals
) -> None:
    seconds = rows["step_time_s"].to_numpy(float)
    held = rows[~train].reset_index(drop=True)
    predicted = Corrected().fit(rows[train], seconds[train]).predict(held)
    missed = seconds[~train] / predicted
    flat, wide = np.full(len(held), np.nan), np.full(len(held), np.nan)
    beyond = np.full(len(held), np.nan)
    known = rows[train].groupby(["engine", "gpu"])
    reaches = {pair: _reach(own) for pair, own in known}
    for pair, own in held.groupby(["engine", "gpu"]):
        if pair not in reaches:
            continue
        batch, context = (own[name].to_numpy(float) for name in LIMITS)
        reach, level = reaches[pair], tuple(map(str, pair))
        bands = intervals.bands(level, "regressor", None, reach)
        everything = Reach((0.0, np.inf), (0.0, np.inf))
        still = Bands((), bands.new_model, (), None, everything)
        beyond[own.index] = sum(reach.doublings(batch, context))
        for into, tried in ((flat, still), (wide, bands)):
            found = tried.factors(COVERAGE, batch, context)
            assert found is not None
            at = missed[own.index]
            into[own.index] = (at >= found[0]) & (at <= found[1])
    for doubling in range(9):
        here = (beyond > doubling) & (beyond <= doubling + 1)
        if here.sum() >= FEWEST:
            mape = 100 * np.abs(1 / missed[here] - 1).mean()
            print(f"{column + ' ' + str(limit):20} {doubling:>6}-{doubling + 1} {here.sum():6} "
                  f"{mape:5.1f}%  {flat[here].mean():.2f} {wide[here].mean():.2f}")  # fmt: skip


def _reach(own: pd.DataFrame) -> Reach:
    ranges = [(float(own[name].min()), float(own[name].max())) for name in LIMITS]
    return Reach(*ranges)


if __name__ == "__main__":
    main()
