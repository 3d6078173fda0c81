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
# # What is in these runs?
#
# The first look at a runs table, before anything is fitted: which attention layouts, batches and
# contexts it holds, where it has gaps, what bounds each step, and where a larger batch stops paying.

# %% tags=["parameters"]
runs_file = ""  # a runs file, folder or glob; empty: the bundled silicon runs
n_rows = 0  # keep that many rows, evenly spread; 0: all

# %%
import pandas as pd
from IPython.display import SVG, display

from capmodel.datasets import load_silicon_runs
from capmodel.ingest import read_runs
from capmodel.plots import profile as figures
from capmodel.plots.style import figure, plain_number, to_svg
from capmodel.profile import profile_runs
from capmodel.saturation import ceiling_counts

pd.set_option("display.max_colwidth", None, "display.float_format", plain_number)

runs = read_runs(runs_file) if runs_file else load_silicon_runs()
if n_rows:
    runs = runs.iloc[:: max(1, len(runs) // n_rows)]
found = profile_runs(runs)
found.summary

# %% [markdown]
# ## Layouts
#
# The cache of one token differs between layouts, by as much as the table says: a GPU that serves
# hundreds of requests of a model that keeps little may serve a handful of one that keeps much.

# %%
found.layouts

# %% [markdown]
# ## Ranges and coverage
#
# A fitted model is only as good as the corner it was asked about. Empty cells are where it
# extrapolates.

# %%
found.ranges

# %%
with figure(7.0, 3.6) as fig:
    figures.draw_coverage(fig.subplots(), found.features)
    display(SVG(to_svg(fig)))

# %%
found.missing.head(20)

# %% [markdown]
# ## Throughput
#
# Decode reads all weights once per step, whatever the batch, so tokens/s grows almost in
# proportion to the batch for as long as the weights dominate.

# %%
with figure(7.0, 3.4) as fig:
    figures.draw_throughput(fig.subplots(), found.features)
    display(SVG(to_svg(fig)))

# %% [markdown]
# ## What bounds a step
#
# Seconds to read the weights, to read the cache and to compute, each at the datasheet's figure.
# How far below the roofline a step lies is what a fit explains. None can lie above it: a row that
# does is mistaken, and `capmodel run` sets it aside as `below_floor`.

# %%
with figure(7.0, 3.6) as fig:
    figures.draw_roofline(fig.subplots(), found.features)
    display(SVG(to_svg(fig)))

# %%
with figure(7.0, 3.0) as fig:
    figures.draw_bounds(fig.subplots(), found.bounds)
    display(SVG(to_svg(fig)))

# %% [markdown]
# ## Where more batch stops paying
#
# A series is one deployment at one context. It is flat once doubling the batch gains less than a
# tenth. What to expect in decode is the cache: it fills the memory, or reading it takes the time;
# compute seldom binds. What stops the series of these runs is counted here.

# %%
ceiling_counts(found.saturation)

# %%
with figure(7.0, 2.8) as fig:
    figures.draw_ceilings(fig.subplots(), ceiling_counts(found.saturation))
    display(SVG(to_svg(fig)))
