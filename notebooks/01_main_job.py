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
# # From measured runs to a capacity plan
#
# What `capmodel run` does, step by step: read the runs, turn each row into bytes and FLOP, set
# aside what cannot be true, fit the physics and what it leaves, grade both on rows they did not see,
# and say what one deployment can do.

# %% tags=["parameters"]
runs_file = ""  # a runs file, folder or glob; empty: the bundled silicon runs
n_rows = 0  # so many rows at random; 0: all of yours, 2,000 of the bundled ones
splits = ["random", "config", "deployment", "model", "gpu"]
estimators = ["raw_linear", "nearest", "roofline", "regressor"]  # "raw_boosting" takes minutes more
model = ""  # what the plan is for; empty: the pair the runs cover best
gpu = ""
seed = 0

# %%
import numpy as np
import pandas as pd
from IPython.display import SVG, display

import capmodel as cm
from capmodel.datasets.default import default_runs_path
from capmodel.evaluation import cross_validate
from capmodel.features import FEATURES
from capmodel.mainjob import choose_deployment, used_by
from capmodel.plots import calibration as figures
from capmodel.plots.steps import StepCurve, draw_step_time, draw_terms, draw_tokens_per_s
from capmodel.plots.style import figure, to_svg
from capmodel.quality import screen_runs

pd.set_option("display.max_colwidth", None)

# %% [markdown]
# ## Read
#
# One row is one measured configuration. The target is `step_time_s`, one decode step.

# %%
runs = cm.read_runs(runs_file or default_runs_path())
kept = n_rows or (len(runs) if runs_file else 2000)
runs = runs.sample(min(kept, len(runs)), random_state=seed).sort_index()
print(f"{len(runs):,} rows")
runs[["engine", "model", "gpu", "tp", "batch_size", "context_len", "step_time_s"]].head()

# %% [markdown]
# ## Set aside what cannot be true
#
# A step faster than its bytes at the datasheet's bandwidth is not fast, it is wrong. Every check
# has a name, and no row is dropped in silence.

# %%
screened = screen_runs(runs)
used, aside = screened.used.reset_index(drop=True), screened.aside
print(f"{len(used):,} rows used, {len(aside):,} set aside")
aside.groupby("rule")["reason"].agg(rows="size", for_example="first") if len(aside) else "none"

# %%
pd.DataFrame(used_by(used))

# %% [markdown]
# ## Bytes and FLOP
#
# A decode step reads every weight once and the whole cache once. Both follow from the model's
# shape and the row's batch and context; the measured time takes no part in it.

# %%
shown = ["weight_read_bytes", "kv_read_bytes", "flop", "floor_s"]
pd.DataFrame({"meaning": {name: FEATURES[name] for name in shown}}).join(
    used[shown].describe().T[["min", "50%", "max"]]
)

# %% [markdown]
# ## The grade card
#
# Mean absolute error on rows held out, by how much is held out with them. Random rows flatter:
# the row's near twin stays in training. Leaving a model or a GPU out is what a new deployment is
# like. `raw_...` and `nearest` see the columns as they stand; they are what physics has to beat.

# %%
card = cross_validate(used, splits=splits, estimators=estimators, seed=seed)
made = list(card.table["split"].unique())
errors = card.table.pivot(index="estimator", columns="split", values="mape")
display(errors.loc[estimators, made].round(3))
noise = card.noise_floor_mape
print("noise floor (repeats of one configuration):", "none" if noise is None else f"{noise:.1%}")
for split, reason in card.absent.items():
    print(f"no {split} split: {reason}")

# %%
with figure(6.7, 2.6) as fig:
    grades = {name: errors.loc[name, made].tolist() for name in estimators}
    figures.draw_grades(fig.subplots(), made, grades, card.noise_floor_mape)
    display(SVG(to_svg(fig)))

# %% [markdown]
# Predicted against measured by the last estimator, on held-out rows of the first split:

# %%
held = card.cell(made[0], estimators[-1])
engines = used["engine"].to_numpy()[held["row"].to_numpy()]
with figure(6.7, 3.0) as fig:
    left, right = fig.subplots(1, 2)
    measured, predicted = held["step_time_s"].to_numpy(), held["predicted_s"].to_numpy()
    figures.draw_predicted(left, measured, predicted, engines)
    figures.draw_residuals(
        right, 1e3 * measured, predicted / measured - 1, "Measured step [ms]", card.noise_floor_mape
    )
    display(SVG(to_svg(fig)))

# %% [markdown]
# ## What the fit found
#
# Four coefficients per engine and GPU: seconds of fixed work per layer, and how many times longer
# than the datasheet's bandwidth and peak each part takes. A coefficient at zero, or one that the
# rows do not tell, is a finding; the fit says so.

# %%
calibration = cm.fit(used, name="notebook", grade_card=card)
found = calibration.summary.copy()
found["mape"] = found["mape"].round(3)
four = found.pivot(index=["engine", "gpu", "rows", "mape"], columns="coefficient", values="value")
four = four[["c_step", "c_w", "c_kv", "c_f"]].assign(c_step=1e6 * four["c_step"])
four.rename(columns={"c_step": "c_step [us]"}).round(3)

# %%
at_zero = found[found["at_bound"]].groupby(["engine", "gpu"])["coefficient"]
at_zero.agg(", ".join).to_frame("at zero")

# %% [markdown]
# ## One deployment
#
# The pair of model and GPU that the rows cover best, or the one asked for: how long a step takes,
# how many tokens a second that is, and where the time goes. The band, where one is drawn, is where
# 90 % of held-out rows of the same kind fell; without enough of them there is none.

# %%
chosen = choose_deployment(used, model or None, gpu or None, None, None)
where = f"{chosen.shape.name} on {chosen.tp} x {chosen.gpu} under {chosen.engine}"
print(f"{where}:", *chosen.chosen_because.split("; "), sep="\n  ")
batch = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256])
common = dict(tp=chosen.tp, weight_dtype=chosen.weight_dtype, kv_dtype=chosen.kv_dtype)
longest = chosen.shape.max_context or 8192
contexts = sorted({min(1024, longest), min(4096, longest)})
answers = {
    length: cm.predict(
        chosen.shape, chosen.gpu, engine=chosen.engine, calibration=calibration,
        batch_size=batch, context_len=length, **common,
    )
    for length in contexts
}
curves = [
    StepCurve(
        f"{length:,} tokens", batch, one.step_time_s,
        batch <= cm.max_concurrency(chosen.shape, chosen.gpu, length, **common),
        one.low_s, one.high_s,
    )
    for length, one in answers.items()
]
with figure(6.7, 2.8) as fig:
    left, right = fig.subplots(1, 2)
    draw_step_time(left, curves)
    draw_tokens_per_s(right, curves)
    display(SVG(to_svg(fig)))

# %%
one = answers[contexts[0]]
with figure(6.7, 2.4) as fig:
    draw_terms(fig.subplots(), batch, {k: v for k, v in one.terms.items() if np.any(v)})
    display(SVG(to_svg(fig)))
print(*(one.extrapolation or ["rows of this engine, GPU and model lie near"]), sep="\n")

# %% [markdown]
# ## Who fits
#
# Requests that fit at once, by context, by the textbook's rule: the datasheet's memory less the
# weights. `capmodel kv --help` has the engine's own accounting.

# %%
lengths = [n for n in (2048, 4096, 8192, 16384, 32768, 65536, 131072) if n <= longest] or [longest]
room = pd.DataFrame(index=pd.Index(lengths, name="context"))
room["cache per request [GB]"] = [
    cm.kv_bytes(chosen.shape, n, kv_dtype=chosen.kv_dtype, tp=chosen.tp) / 1e9 for n in lengths
]
room["requests at once"] = [
    cm.max_concurrency(chosen.shape, chosen.gpu, n, **common) for n in lengths
]
room

# %% [markdown]
# From here: `05_capacity_plan` sizes a fleet for a load with promises to its users,
# `04_regressor` says why the learned part is what it is, and `calibration.save("mine.json")`
# keeps the fit for `capmodel predict --calibration mine.json`.
