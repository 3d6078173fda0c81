"""How many runs a new engine and GPU need: errors against the number of runs it was adapted to.

Each engine and GPU of a runs table is left out in turn, a calibration is fitted to the rest and
adapted to a few rows of the one left out: drawn at random (median of many draws), and chosen by
`capmodel fit --suggest` without looking at any measured time. A median hides how far draws lie
apart, so a second table says which share of the draws are worse than what was suggested.

    python benchmarks/few_runs.py RUNS [--draws 25] [--figure few_runs.png] [--json]
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from capmodel.adaptation import adapted
from capmodel.estimators import Corrected
from capmodel.evaluation import used_rows
from capmodel.ingest import read_runs
from capmodel.suggestion import covariance, most_telling
from capmodel.words import one_line

COUNTS = (3, 5, 8, 12, 20)
MOST = 300  # rows of one pair that a design chooses among, and that draws are graded on


def mape(estimator: Corrected, rows: pd.DataFrame) -> float:
    """Mean absolute percentage error, a fraction."""
    measured = rows["step_time_s"].to_numpy(float)
    return float(np.abs(estimator.predict(rows) / measured - 1).mean())


def curve_of(rows: pd.DataFrame, own: np.ndarray, draws: int, seed: int) -> list[dict[str, object]]:
    """Errors on the rows at positions `own`, left out of the fit, by number of runs and choice."""
    rng = np.random.default_rng(seed)
    rest = rows.drop(rows.index[own])
    base = Corrected()
    base.fit(rest, rest["step_time_s"].to_numpy(float))
    mine = rows.iloc[own].reset_index(drop=True)
    pair = str(mine["engine"].iloc[0]), str(mine["gpu"].iloc[0])
    some = np.sort(rng.permutation(len(mine))[:MOST])
    telling, _ = most_telling(covariance(base.physics, mine.iloc[some], pair), max(COUNTS))
    found = [{"engine": pair[0], "gpu": pair[1], "runs": 0, "choice": "none",
              "mape": mape(base, mine)}]  # fmt: skip
    for n in COUNTS:
        if n + 20 > len(mine):
            continue
        errors = []
        for _ in range(draws):
            order = rng.permutation(len(mine))
            fitted = adapted(base, mine.iloc[order[:n]])
            errors.append(mape(fitted, mine.iloc[order[n : n + MOST]]))
        chosen = some[telling[:n]]
        designed = mape(adapted(base, mine.iloc[chosen]), mine.drop(mine.index[chosen]))
        common = {"engine": pair[0], "gpu": pair[1], "runs": n}
        low, middle, high = (float(np.quantile(errors, share)) for share in (0.1, 0.5, 0.9))
        found.append({**common, "choice": "random", "mape": middle, "mape_p10": low,
                      "mape_p90": high})  # fmt: skip
        found.append({**common, "choice": "suggested", "mape": designed,
                      "draws_worse": float(np.mean(np.array(errors) > designed))})  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--draws", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    try:
        rows = used_rows(read_runs(asked.runs)).reset_index(drop=True)
    except ValueError as error:
        parser.error(one_line(error))
    groups = rows.groupby(["engine", "gpu"], observed=True).indices
    if len(groups) < 2 or asked.draws < 1:
        parser.error("one draw and two engines or GPUs are needed at least: one is left out")
    found: list[dict[str, object]] = []
    for place, (pair, own) in enumerate(groups.items(), start=1):
        print(f"  {place}/{len(groups)} {' on '.join(pair)}", file=sys.stderr, flush=True)
        found += curve_of(rows, np.asarray(own), asked.draws, asked.seed)
    table = pd.DataFrame(found)
    if asked.json:
        print(json.dumps(found, indent=1))
    else:
        wide = table.pivot_table(index=["engine", "gpu"], columns=["choice", "runs"], values="mape")
        wide.loc[("median", ""), :] = wide.median()
        print("MAPE [%], random: the median draw")
        print((100 * wide).round(1).to_string())
        worse = table.pivot_table(index=["engine", "gpu"], columns="runs", values="draws_worse")
        worse.loc[("mean", ""), :] = worse.mean()
        print("\nrandom draws worse than what was suggested [%], by runs")
        print((100 * worse).round(0).astype("Int64").to_string())
    if asked.figure:
        from capmodel.plots.learning import draw_learning
        from capmodel.plots.style import figure

        with figure() as fig:
            draw_learning(fig.subplots(), table)
            fig.savefig(asked.figure)


if __name__ == "__main__":
    main()
