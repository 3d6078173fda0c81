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
# # A new GPU in ten runs
#
# A GPU nobody has measured is predicted from all others, and that can be far off. A few well chosen
# runs may mend most of it. Here one GPU is hidden from the fit, ten of its runs are chosen without
# looking at their times, and what they teach is graded on all its other rows.

# %% tags=["parameters"]
runs_file = ""  # a runs file, folder or glob; empty: the bundled silicon runs
gpu = ""  # the GPU to hide; empty: l40s of the bundled runs, the rarest of yours
engine = ""  # under which engine; empty: the one with most rows on that GPU
n_runs = 10  # runs it gets
n_rows = 1000  # rows of other GPUs to fit, at most
draws = 3  # random choices to compare with
seed = 0

# %%
import numpy as np
import pandas as pd
from IPython.display import SVG, display

import capmodel as cm
from capmodel.datasets.default import default_runs_path
from capmodel.evaluation import cross_validate, score, used_rows
from capmodel.features import shape_of_row
from capmodel.plots import calibration as figures
from capmodel.plots.learning import draw_learning
from capmodel.plots.style import figure, to_svg
from capmodel.suggestion import covariance, most_telling

# %% [markdown]
# ## Hide one GPU
#
# All its rows are hidden, those of other engines too: nothing of it is known but its datasheet.

# %%
rows = used_rows(cm.read_runs(runs_file or default_runs_path()))
sizes = rows.groupby(["gpu", "engine"]).size()
roomy = sizes[sizes >= n_runs + 20]
hidden = gpu or ("l40s" if not runs_file else roomy.groupby("gpu").sum().idxmin())
under = engine or roomy[hidden].idxmax()
others = rows[rows["gpu"] != hidden]
mine = rows[(rows["gpu"] == hidden) & (rows["engine"] == under)].reset_index(drop=True)
rest = others.sample(min(n_rows, len(others)), random_state=seed).sort_index()
print(f"{under} on {hidden}: {len(mine):,} rows hidden; {len(rest):,} rows of other GPUs are left")

# %%
splits = ["model", "gpu"]  # what is new here, and so what the intervals are taken from
graded = cross_validate(rest, splits=splits, estimators=["regressor"], seed=seed)
base = cm.fit(rest, name="others", grade_card=graded)
measured = mine["step_time_s"].to_numpy()
cold = score(measured, base.predict(mine))
print(f"without any run of it: MAPE {cold['mape']:.1%}, bias {cold['bias']:+.1%}")

# %% [markdown]
# ## Which runs to make
#
# The step times of a GPU are uncertain together: one run tells of its neighbours, and a few tell
# the coefficients. The runs are chosen one by one for what they leave uncertain in all the others.
# No measured time takes part, so the list can be made before the GPU arrives. Here only steps that
# were in fact measured can be chosen; `capmodel fit --suggest` chooses among all that fit.

# %%
some = np.sort(np.random.default_rng(seed).permutation(len(mine))[:400])
between = covariance(base.estimator.physics, mine.iloc[some], (under, hidden))
telling, left = most_telling(between, n_runs)
chosen = some[telling]
columns = ["model", "tp", "weight_dtype", "kv_dtype", "batch_size", "context_len"]
mine.loc[chosen, columns].assign(uncertainty_left=left.round(3)).reset_index(drop=True)

# %% [markdown]
# ## What they teach
#
# The coefficients are shrunk towards those of all engines and GPUs, as far as the runs leave them
# open; what they miss is learned near the runs. Held out: every row of the GPU that was not run.
# Where the others predict a GPU well already, a few runs change little (of the bundled runs, try
# `gpu = "b200-sxm"`).


# %%
def adapted_to(places):
    return base.adapt(mine.iloc[places], name=f"{hidden} in {len(places)} runs")


def graded_on_others(known, places):
    held = mine.drop(mine.index[places])
    return score(held["step_time_s"].to_numpy(), known.predict(held))["mape"]


rng = np.random.default_rng(seed)
found = [{"runs": 0, "choice": "none", "mape": cold["mape"]}]
for n in [count for count in (3, 5, 8, 10, 15, 20) if count < n_runs] + [n_runs]:
    drawn = [rng.permutation(len(mine))[:n] for _ in range(draws)]
    errors = [graded_on_others(adapted_to(places), places) for places in drawn]
    found.append({"runs": n, "choice": "random", "mape": float(np.median(errors))})
    after = adapted_to(chosen[:n])  # the last of them, with all the runs it gets
    error = graded_on_others(after, chosen[:n])
    found.append({"runs": n, "choice": "suggested", "mape": error})
learned = pd.DataFrame(found).assign(engine=under, gpu=hidden)
learned.pivot(index="runs", columns="choice", values="mape").round(3)

# %%
with figure(6.7, 3.0) as fig:
    draw_learning(fig.subplots(), learned)
    display(SVG(to_svg(fig)))

# %% [markdown]
# Before and after, on the rows that were not run:

# %%
held = mine.drop(mine.index[chosen])
times = held["step_time_s"].to_numpy()
with figure(6.7, 3.0) as fig:
    panels = fig.subplots(1, 2)
    for axes, known, title in zip(panels, (base, after), ("no run", f"{n_runs} runs"), strict=True):
        figures.draw_predicted(axes, times, known.predict(held))
        axes.set_title(title)
    display(SVG(to_svg(fig)))

# %% [markdown]
# ## The coefficients
#
# Those that ten runs give, beside those of all its rows. A coefficient the runs do not tell apart
# stays where other GPUs have it.

# %%
everything = cm.fit(mine, name="all rows")
four = {}
for name, known in (("others", base), (f"{n_runs} runs", after), ("all rows", everything)):
    own = known.summary
    pair = own[(own["engine"] == under) & (own["gpu"] == hidden)]
    level = pair if len(pair) else own[(own["engine"] == under) & (own["gpu"] == "(all)")]
    level = level if len(level) else own[(own["engine"] == "(all)")]
    four[name] = level.set_index("coefficient")["value"][["c_step", "c_w", "c_kv", "c_f"]]
pd.DataFrame(four).T.assign(c_step=lambda t: 1e6 * t["c_step"]).rename(
    columns={"c_step": "c_step [us]"}
).round(2)

# %% [markdown]
# ## How sure
#
# The interval of one step, before and after, against the row that was measured. Afterwards it rests
# on the errors of ten rows, each left out in turn, and is kept wide for their fewness: it need not
# be narrower than before, though the errors are.

# %%
row = held.iloc[len(held) // 2]
step = {"batch_size": row["batch_size"], "context_len": row["context_len"], "tp": int(row["tp"]),
        "weight_dtype": row["weight_dtype"], "kv_dtype": row["kv_dtype"]}  # fmt: skip
said, shape = {}, shape_of_row(row.to_dict())
for name, known in (("no run", base), (f"{n_runs} runs", after)):
    one = cm.predict(shape, hidden, engine=under, calibration=known, **step)
    said[name] = {"low [ms]": one.low_s, "estimate [ms]": one.step_time_s, "high [ms]": one.high_s}
print(f"{row['model']} at batch {row['batch_size']:.0f}, {row['context_len']:.0f} cached tokens each:")
print(f"measured {1e3 * row['step_time_s']:.2f} ms")
(1e3 * pd.DataFrame(said).T.astype(float)).round(2)

# %% [markdown]
# On a GPU of your own:
#
#     capmodel fit --suggest 10 --model llama-3.1-8b --gpu my_gpu.toml --engine vllm
#     capmodel fit my_ten_runs.csv --adapt silicon -o mine.json
#     capmodel plan --model llama-3.1-8b --gpu my_gpu.toml --calibration mine.json ...
