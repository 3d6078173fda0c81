# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The learned part, and what else was tried
#
# The roofline explains a step by what it reads and computes. What it leaves is small but not
# noise: kernels have steps, engines have habits. This notebook measures what a learned correction
# takes of that, on the runs it is given, and what the other candidates would have taken. Every
# number is computed here, but for the records at the end.

# %% tags=["parameters"]
runs_file = ""  # a runs file, folder or glob; empty: the bundled silicon runs
n_rows = 0  # so many rows at random; 0: all of yours, 1,200 of the bundled ones
trees = 400  # of the boosted candidate, 31 leaves each
seed = 0

# %%
import time
from dataclasses import dataclass, field

import lightgbm as lgb
import numpy as np
import pandas as pd
from IPython.display import SVG, display

import capmodel as cm
from capmodel.datasets.default import default_runs_path
from capmodel.estimators import Corrected, Roofline
from capmodel.evaluation import score, used_rows
from capmodel.kernel_rows import steady
from capmodel.plots.calibration import draw_residuals
from capmodel.plots.style import figure, to_svg
from capmodel.pooling import versions_mixed
from capmodel.regressor import COORDINATES, ROOFLINE, TrafficRegressor
from capmodel.roofline import RooflineRegressor
from capmodel.splits import Split, split_named, split_runs, why_absent

pd.set_option("display.max_colwidth", None)

# %%
runs = cm.read_runs(runs_file or default_runs_path())
kept = n_rows or (len(runs) if runs_file else 1200)
runs = runs.sample(min(kept, len(runs)), random_state=seed).sort_index()
used = used_rows(runs)
target = used["step_time_s"].to_numpy()
print(f"{len(used):,} rows used of {len(runs):,}")

# %% [markdown]
# ## How it is measured
#
# Three ways to hold rows out. Random rows ask whether the correction can fill in between its own
# rows. Models held out, a fifth of them at a time, ask whether it does harm where it has none. A
# GPU held out asks whether it knows when to be silent.

# %%
ways = [
    split_named("random"),
    Split("models", ("model",), False, "a fifth of the models"),
    split_named("gpu"),
]
ways = [way for way in ways if why_absent(used, way) is None]


def held_out(make, rows=used, by=ways):
    """MAPE by way of holding out, and seconds of a fit."""
    found, fitting = {}, []
    for way in by:
        predicted = np.empty(len(rows))
        for train, test in split_runs(rows, way, seed=seed):
            start = time.perf_counter()
            estimator = make()
            estimator.fit(rows.iloc[train], target[train])
            fitting.append(time.perf_counter() - start)
            predicted[test] = estimator.predict(rows.iloc[test])
        found[way.name] = score(target, predicted)["mape"]
    return {**found, "fit [s]": np.median(fitting)}


# %% [markdown]
# ## What the roofline leaves
#
# Errors of the roofline on its own rows. A pattern over the batch is something to learn; a cloud
# is not.

# %%
physics = Roofline().fit(used, target)
left_over = physics.predict(used) / target - 1
with figure(6.7, 2.6) as fig:
    left, right = fig.subplots(1, 2)
    draw_residuals(left, used["batch_size"].to_numpy(), left_over, "Batch [sequences]")
    draw_residuals(right, used["context_len"].to_numpy(), left_over, "Context [tokens]")
    display(SVG(to_svg(fig)))

# %%
batches = pd.cut(used["batch_size"], [0, 1, 4, 16, 64, 256, np.inf])
pd.DataFrame({"batch": batches, "off": left_over}).groupby("batch", observed=True)["off"].agg(
    rows="size", mean="mean", mean_absolute=lambda values: values.abs().mean()
).round(3)

# %% [markdown]
# ## The candidates
#
# - one roofline for everything, and one per engine and GPU;
# - boosted trees on what the roofline leaves, with the traffic features, engine and GPU;
# - kernel ridge on what the roofline leaves, one per engine and GPU, on logarithmic coordinates
#   of traffic (Matern 5/2). Far from its rows it fades to nothing. This is `TrafficRegressor`.
# - curves of kernels, where steps are decoding alone: the step is a sum over its matrix products,
#   attention, experts and all-reduces, and each kind of kernel has a curve on its own coordinates
#   (`capmodel.curves`). A new model is then predicted from kernels of other models.
# - what the package does: the one of the last two that wins on deployments held out of its rows.
#
# Trees on the raw columns are in the grade card as `raw_boosting`.

# %%
NUMBERS = [
    "batch_size", "context_len", "tp", "layers", "kv_bytes_per_token", "weight_read_bytes",
    "kv_read_bytes", "flop", "attention_flop", "arithmetic_intensity", "weight_s", "kv_s",
    "flop_s", "all_reduces", "prefill_tokens", "prefill_s", "weight_stored_bytes", "routed",
]
LEVELS = {
    name: {value: number for number, value in enumerate(sorted(used[name].unique()))}
    for name in ("engine", "gpu")
}


@dataclass
class BoostedResidual:
    """LightGBM on log(step time / roofline)."""

    physics: Roofline = field(default_factory=Roofline)

    def fit(self, rows, seconds):
        self.physics.fit(rows, seconds)
        settings = {
            "num_leaves": 31, "learning_rate": 0.05, "min_data_in_leaf": 5, "seed": seed,
            "num_threads": 1, "deterministic": True, "verbose": -1,
        }
        left = np.log(seconds / self.physics.predict(rows))
        data = lgb.Dataset(self.matrix(rows), left, categorical_feature=[0, 1])
        self.booster = lgb.train(settings, data, trees)

    def predict(self, rows):
        correction = self.booster.predict(self.matrix(rows), num_threads=1)
        return self.physics.predict(rows) * np.exp(correction)

    def matrix(self, rows):
        codes = [rows[name].map(LEVELS[name]).to_numpy(float) for name in LEVELS]
        return np.column_stack([*codes, rows[NUMBERS].to_numpy(float)])


class Apart(Corrected):
    """Without curves of kernels, whether they win or not."""

    fit = Corrected._fit_apart


class Curves(Corrected):
    """With them wherever an engine and GPU has rows enough."""

    fit = Corrected._fit_curves


candidates = {
    "one roofline": lambda: Roofline(roofline=RooflineRegressor(pooled=True)),
    "roofline per engine and GPU": Roofline,
    f"{trees} boosted trees on its residual": BoostedResidual,
    "kernel ridge on its residual": Apart,
    "curves of kernels": Curves,
    "as the package chooses": Corrected,
}
if not steady(used).all():
    del candidates["curves of kernels"]
    print("no curves of kernels: prompts are inside these steps, which are then more than kernels")
tried = pd.DataFrame({name: held_out(make) for name, make in candidates.items()}).T
tried.round(4)

# %% [markdown]
# Read across: the first column is what interpolation gains, the others what it risks. A candidate
# that wins on random rows and loses on held-out models has learned the models by heart.
#
# ## Where the correction speaks
#
# Similarity is 1 on a fitted row and falls to 0 far from all. With models held out, the correction
# should help where it is near and fade where it is far.

# %%
parts = []
for way in ways[1:]:
    for train, test in split_runs(used, way, seed=seed):
        own = Apart().fit(used.iloc[train], target[train])
        rows = used.iloc[test]
        parts.append(
            pd.DataFrame(
                {
                    "held out": way.name,
                    "similarity": own.similarity(rows),
                    "roofline": np.abs(own.physics.predict(rows) / target[test] - 1),
                    "corrected": np.abs(own.predict(rows) / target[test] - 1),
                }
            )
        )
if parts:
    each = pd.concat(parts, ignore_index=True)
    near = pd.cut(each.pop("similarity"), [-0.01, 0.1, 0.5, 0.8, 0.95, 1.01])
    grouped = each.groupby(["held out", near], observed=True)
    display(grouped.mean().join(grouped.size().rename("rows")).round(3))

# %% [markdown]
# ## Which coordinates matter
#
# The same correction without one coordinate at a time, on random rows: what the error becomes.

# %%
pd.DataFrame({"meaning": COORDINATES})


# %%
@dataclass
class Blind:
    """The correction without some columns; the roofline keeps them."""

    hidden: tuple
    physics: Roofline = field(default_factory=Roofline)
    correction: TrafficRegressor = field(default_factory=TrafficRegressor)

    def fit(self, rows, seconds):
        self.physics.fit(rows, seconds)
        self.correction.fit(self.seen(rows), seconds)

    def predict(self, rows):
        return self.correction.predict(self.seen(rows))

    def seen(self, rows):
        gone = {name: 1.0 for name in self.hidden}
        return rows.assign(**{ROOFLINE: self.physics.predict(rows)}, **gone)


blind = {
    "nothing": (),
    "context": ("context_len",),
    "size of the model": ("weight_stored_bytes", "layers"),
    "cache per token": ("kv_bytes_per_token",),
    "tensor parallelism": ("tp",),
}
hidden = {name: held_out(lambda own=own: Blind(own), by=ways[:1]) for name, own in blind.items()}
pd.DataFrame(hidden).T.rename_axis("hidden").round(4)

# %% [markdown]
# ## How stiff, how many rows
#
# `ridge` is how much scatter a row is allowed; `max_landmarks` how many rows carry a correction.

# %%
stiffness = [(0.002, 256), (0.02, 256), (0.2, 256), (0.02, 64)]
found = {
    pair: held_out(lambda own=pair: Apart(correction=TrafficRegressor(*own)), by=ways[:2])
    for pair in stiffness
}
pd.DataFrame(found).T.rename_axis(["ridge", "max_landmarks"]).round(4)

# %% [markdown]
# ## What the physics itself needed
#
# A correction is no substitute for a missing term. Each line takes one idea away from the roofline
# and grades it again: the prior that decides what the rows leave open, the extra cost of reading an
# expert, prompts that go through in passes, benchmarks that decode one prompt many times over
# (which touch few experts). An idea that these runs do not use changes nothing.

# %%
def features_without(column):
    """The used rows as if the runs table had no such column."""
    return cm.add_features(used.drop(columns=[column])) if column in used else used


def with_prior(weight):
    return lambda: Roofline(roofline=RooflineRegressor(prior_weight=weight))


needed = {
    "as it is": held_out(Roofline),
    "without the prior": held_out(with_prior(1e-3)),
    "without the expert term": held_out(Roofline, used.assign(expert_s=0.0)),
    "prompts in one pass": held_out(Roofline, features_without("prefill_chunk")),
    "prompts taken as all different": held_out(Roofline, features_without("distinct_prompts")),
}
pd.DataFrame(needed).T[[way.name for way in ways]].round(4)

# %% [markdown]
# The package keeps the last candidate because it was the simplest that won where it was built.
# Whether that holds on your runs, the tables above say.
#
# ## Rows that mix engine versions
#
# Where rows of one engine and GPU come from several versions, coefficients are held near those of
# the engine and the correction is shared (`capmodel.pooling`), if deployments held out of the rows
# at hand gain by it. `pooled` says what was chosen.

# %%
mixed = versions_mixed(used)
{"versions mixed": mixed, "pooled": Corrected().fit(used, target).shared is not None}

# %% [markdown]
# ## What was tried elsewhere, and what it scored
#
# Mean absolute errors [%] on tables that are not bundled or too large for a notebook, held out by
# the splits of the grade card. These are records, not computed here; settings of the pooled
# candidate were chosen on the serving table's own deployment split, so its score flatters a little.
#
# | serving table, 1,539 rows | deployment | model | GPU |
# |---|---|---|---|
# | roofline by pair | 21.0 | 32.5 | 23.8 |
# | kernel ridge by pair (as before) | 19.8 | 32.2 | 23.8 |
# | the same, engine version in the kernel | 18.6 | 32.6 | 23.8 |
# | shared kernel with version, roofline by pair | 18.1 | 32.7 | 23.4 |
# | kernel ridge by pair, roofline held near the engine's | 16.5 | 28.2 | 20.9 |
# | both: pooled, chosen by inner deployments | 13.4 | 27.3 | 19.8 |
#
# | Argonne, 4,116 rows | random | deployment | model |
# |---|---|---|---|
# | kernel ridge by pair (before) | 2.7 | 6.7 | 9.0 |
# | roofline held near the engine's, weakly | | 7.4 | 8.8 |
# | the same, as firmly as on serving rows | | 7.8 | 9.9 |
# | before any rows: cache term 1.1 ± 0.1, attention ± 200, experts 0.5 | 2.7 | 6.6 | 8.5 |
# | the same, prompt passes of routed models wait for each other in llama.cpp | 2.7 | 6.4 | 8.3 |
# | the same, a row speaks by 0.95 for other models | 2.5 | 6.2 | 8.0 |
# | by 0.85 | 2.5 | 6.5 | 8.1 |
# | by 0.5 | 2.7 | 8.1 | 9.0 |
# | by 0.95, cache term ± 0.3, attention ± 60 (kept) | 2.5 | 6.1 | 8.1 |
#
# Where all models share cache heads among query heads, rows cannot tell reading the cache from
# attention's work, and the fit had put the first at zero; a model with a head of cache for every
# query head was then far off. With attention ± 200 a new GPU gained less from eight runs (25 %
# where ± 60 leaves 18), so the last row was kept. Of the 8.1 points 1.7 are three groups of rows
# whose like no other model shows: Llama-2-7B under vLLM on two and four Max 1550, Mixtral under
# llama.cpp on Max 1550 and MI300X.
#
# | silicon, all rows as landmarks, three of the folds | random | deployment | model |
# |---|---|---|---|
# | kernel ridge by pair, coordinates as they are | 4.1 | 8.5 | 9.7 |
# | kernels of matmul, attention and links apart, each by its share of the step | 3.5 | 7.0 | 8.8 |
# | the same plus a tenth of the kernel as it is | 3.0 | 7.0 | 8.4 |
#
# Kernels by share win on silicon runs and lose on the others (Argonne, deployment: 7.3 against
# 6.6 at the time). What came of it are the curves of kernels, which leave the linearised share
# behind: seconds add up over kernels. Where prompts are inside (Argonne, serving) they are not
# tried, and nothing changes.
#
# | silicon, some of the folds, settings tried one by one | random | model |
# |---|---|---|
# | kernel ridge by pair (before), three pairs | 5.2 | 8.3 |
# | curves by pair, each with a plane under it | 3.0 | 5.6 |
# | the same, planes ten or a hundred times flatter | 3.0 | 5.5 |
# | the same without planes (kept) | 3.0 | 5.4 |
# | planes, and kernel ridge on what the curves leave | 2.8 | 5.5 |
# | flat planes, 280, 260 and 200 landmarks | 2.8 | 5.4 |
# | mean of curves and kernel ridge, in the logarithm | 3.6 | 6.3 |
# | the same, weighted by nearness to fitted kernels | 2.9 | 5.6 |
# | curves, first version, all pairs | 3.0 | 5.7 |
# | the same, by GPU, engines as one | 8.0 | 12.8 |
# | the same, by GPU, then by pair on what they leave | 3.2 | 7.6 |
# | the same, of all, then by GPU, then by pair | 3.5 | 14.8 |
# | curves of 90 landmarks, five pairs | 3.9 | 5.9 |
# | of 160 | 3.2 | 4.6 |
# | of 250 (220 are kept) | 2.9 | 4.3 |
#
# With a GPU held out, curves of an engine's other GPUs are 20 to 23 % off and the roofline 15 %, so
# none are carried over. With a model held out, what is left on silicon is mostly experts of a
# shape that few other models have (gpt-oss-120b 15 %, 8 experts of which 2: 11 %), then kernels
# smaller than any seen. The folds above were those the settings were chosen on; the grade card's
# are others in part.
