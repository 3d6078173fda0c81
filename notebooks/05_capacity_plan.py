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
# # How many GPUs, which ones, and what will users feel?
#
# A capacity plan from a workload: the load and its lengths, the promises made to users, every GPU
# that could do it, and the cheapest fleet that keeps its promises when the requests are played
# through a simulator of continuous batching.

# %% tags=["parameters"]
runs_file = ""  # measured runs to calibrate on; empty: the shipped calibrations
trace = ""  # Azure, Mooncake or plain CSV; empty: log-normal lengths at `rate`
model = "llama-3.1-8b"
gpus = ["h100", "a100-80gb", "l40s"]
rate = 12.0  # requests per second, where no trace is given
slo_ttft_p95 = 1.0  # seconds
slo_tpot_p95 = 0.04  # seconds
seed = 0

# %%
from dataclasses import asdict, replace

import pandas as pd
from IPython.display import SVG, display

import capmodel as cm
from capmodel.evaluation import cross_validate, used_rows
from capmodel.plots import plan as figures
from capmodel.plots.choices import Swing, draw_tornado
from capmodel.plots.style import figure, plain_number, to_svg
from capmodel.simulation import context_limit, power_of_two, simulate, summarise, whole_request
from capmodel.workload import Lognormal

pd.set_option("display.max_colwidth", None, "display.float_format", plain_number)

# %% [markdown]
# ## The plan
#
# Candidates are sized from their steady state; the cheapest few are then simulated, and the
# smallest fleet that keeps its promises is taken. Own runs are graded first: how far off they leave
# held-out steps is the interval of the step time.

# %%
calibration = None
if runs_file:
    rows = used_rows(cm.read_runs(runs_file))
    splits = ["random", "deployment", "model", "gpu"]  # what the intervals are taken from
    card = cross_validate(rows, splits=splits, estimators=["roofline", "regressor"], seed=seed)
    calibration = cm.fit(rows, name="own", grade_card=card)
load = (
    {"trace": trace}
    if trace
    else {"rate": rate, "input_len": Lognormal(900, 0.9, 6000), "output_len": Lognormal(180, 0.8, 1500)}
)
plan = cm.plan(
    model,
    gpus,
    **load,
    slo_ttft_p95=slo_ttft_p95,
    slo_tpot_p95=slo_tpot_p95,
    calibration=calibration,
    seed=seed,
)
print(plan.message, *plan.warnings, sep="\n- ")

# %%
document = plan.to_dict()
pd.DataFrame(document["latency"]).drop(columns="from").T

# %% [markdown]
# ## The load it is sized for
#
# A trace is planned for its busiest stretch and paid for on average.

# %%
with figure(7.0, 2.4) as fig:
    figures.draw_load(fig.subplots(), plan.demand.requests.arrival_s)
    display(SVG(to_svg(fig)))

# %% [markdown]
# ## What users feel
#
# The same requests on the planned fleet, and on one with a replica more and one less.

# %%
server = plan.chosen.replica.server(plan.demand.prefix_cache, plan.demand.longest)
sizes = sorted({max(1, plan.chosen.replicas - 1), plan.chosen.replicas, plan.chosen.replicas + 1})
results = {n: simulate(plan.demand.requests, server, replicas=n) for n in sizes}
names = {n: f"{n} replica{'s' if n > 1 else ''}" for n in sizes}
with figure(7.0, 5.0) as fig:
    top, bottom = fig.subplots(2, 1)
    ttft = {names[n]: result.ttft_s for n, result in results.items()}
    tpot = {names[n]: result.tpot_s for n, result in results.items()}
    figures.draw_latency(top, ttft, "Time to the first token", slo_ttft_p95)
    figures.draw_latency(bottom, tpot, "Time per further token", slo_tpot_p95)
    display(SVG(to_svg(fig)))

# %% [markdown]
# ## What if
#
# One thing changed, the fleet sized again.

# %%
pd.DataFrame([asdict(row) for row in plan.what_ifs])

# %% [markdown]
# ## What moves the cost
#
# Each input at its low and high end, the rest as planned, replicas as fractions.

# %%
with figure(7.0, 2.6) as fig:
    swings = [
        Swing(row.name, row.low, row.high, row.low_input, row.high_input)
        for row in plan.sensitivities
    ]
    draw_tornado(fig.subplots(), swings, plan.sensitivities[0].base, "Cost of the fleet [$/h]")
    display(SVG(to_svg(fig)))
for row in document["sensitivities_left_out"]:
    print(f"not drawn, {row['name']}: {row['reason']}")

# %% [markdown]
# ## Alternatives
#
# Fleets that none beats on both cost and time per request.

# %%
pd.DataFrame(document["pareto"]).dropna(axis="columns", how="all")

# %% [markdown]
# ## Why the cache is paged
#
# Reserving for the longest context keeps most of the cache empty; blocks waste half a block per
# request. The requests are the plan's, all waiting at once, in a pool a tenth as large.

# %%
longest = plan.shape.max_context if plan.shape.max_context else plan.demand.longest
limit = min(longest, 4 * plan.demand.longest)
blocks = max(int(server.cost.blocks(limit)), server.pool_blocks // 10)
small = replace(server, pool_blocks=blocks, prefix_cache=False)
ways = {
    "longest context": replace(small, reservation=context_limit(limit)),
    "power of two": replace(small, reservation=power_of_two),
    "whole request (oracle)": replace(small, reservation=whole_request),
    "paged": small,
}
requests = plan.demand.requests.head(400)
packed = replace(requests, arrival_s=0 * requests.arrival_s)
held = {name: summarise(simulate(packed, way), warmup=0.0) for name, way in ways.items()}
with figure(7.0, 2.2) as fig:
    figures.draw_waste(fig.subplots(), list(held), [summary.waste for summary in held.values()])
    display(SVG(to_svg(fig)))

# %%
pd.DataFrame(document["assumptions"])
