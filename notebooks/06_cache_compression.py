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
# # What a smaller cache costs
#
# A cache can be made smaller by storing fewer bits, by forgetting tokens, or by coding the bytes
# without loss. The first two change answers. How much is a measurement, not an opinion, so here is
# a real (if very small) language model that was trained on text and on questions whose answers
# stand far back, and graded on both.
#
# Read the results for what they show: which ways of shrinking break what, and in which order.
# The sizes of the effects belong to this model; a large one differs (its keys have stronger outlier
# channels, its context is longer, it has more heads to spare).

# %% tags=["parameters"]
text_rows = 12
question_rows = 8
budgets = (128, 64, 32, 16)
seed = 0

# %%
from dataclasses import asdict

import pandas as pd
from IPython.display import SVG, display

from capmodel.lab.breaking import breaking_points
from capmodel.lab.compress import evictions, full_cache, measure, treatments
from capmodel.lab.entropy import DTYPES, code_cache, held_entries
from capmodel.lab.language_model import load_language_model, model_card
from capmodel.lab.predicted import code_given_twin
from capmodel.plots.lab import draw_perplexity, draw_retrieval
from capmodel.plots.style import figure, to_svg

# %% [markdown]
# ## The model
#
# Its perplexity on books it never saw, beside the best n-gram model of the same training text, and
# the share of far-back questions it answers with its whole cache.

# %%
model = load_language_model()
card = asdict(model_card(model))
pd.Series({name: f"{v:,.4g}" if isinstance(v, float) else str(v) for name, v in card.items()})

# %%
print(model.complete("And it came to pass in those days, that", 50))

# %% [markdown]
# ## Fewer bits
#
# A scale is shared by a token, by one head of a token, or by a channel over a group of tokens; keys
# are stored before or after RoPE turns them. Bytes count scales and zero points, so int4 is not a
# quarter of 16 bits. Change is relative to the full cache; the interval is Student's t over windows
# of text.

# %%
quantised = [t for t in treatments() if t.family != "evicted"]
outcomes = list(measure(model, quantised, text_rows, question_rows, seed))
table = pd.DataFrame(outcomes).set_index("name")
table[["bytes_share", "perplexity", "change", "change_low", "change_high", "retrieval"]].round(4)

# %% [markdown]
# ## Fewer tokens
#
# Four rules for who is forgotten. Text needs mostly the near past, so perplexity hardly notices a
# window of half the context; questions need one particular token far back, and a rule that goes by
# age has thrown it away. Heavy hitters keep what was attended to, which here includes the facts,
# down to about half of the cache, and then lose them too. **A method that is graded by perplexity
# alone looks harmless long after it has lost the facts.**

# %%
forgotten = list(
    measure(model, [full_cache(), *evictions(budgets)], text_rows, question_rows, seed)
)
evicted = pd.DataFrame(forgotten[1:])
evicted.pivot(index="policy", columns="budget", values=["change", "retrieval"]).round(3)

# %%
pd.DataFrame(breaking_points(forgotten, forgotten[0].retrieval)).set_index("policy")

# %% [markdown]
# ## Quality against bytes

# %%
entries = held_entries(model, text_rows)
codings = [code_cache(entries, dtype) for dtype in DTYPES]
with figure(7.2, 3.4) as fig:
    left, right = fig.subplots(1, 2)
    draw_perplexity(left, [*outcomes, *forgotten[1:]], codings)
    draw_retrieval(right, [*outcomes, *forgotten[1:]])
    right.legend(loc="upper left", bbox_to_anchor=(0.0, 0.97))
    display(SVG(to_svg(fig)))

# %% [markdown]
# ## The same numbers in fewer bytes
#
# Lossless coding can only use what is predictable: in floats the exponent, hardly the mantissa.
# The bounds are entropies of single bytes, so a coder that finds repeats can beat them; knowing the
# channel helps because each has its own range. The first layer's values depend on the token alone:
# where a word comes again its bytes come again, and zstd on the bytes as they lie finds them.

# %%
coded = pd.DataFrame(codings).set_index("dtype").round(2)
coded.assign(plane_bits=[", ".join(f"{bits:.2f}" for bits in row) for row in coded["plane_bits"]])

# %% [markdown]
# Published lossless ratios of up to about 4 come from somewhere else: a cheaper model runs beside,
# guesses the cache, and only the difference is coded. Here the guess is made by this model's own
# twin with rounded weights, and the length is that of an ideal coder.

# %%
twins = ("e4m3", "int8", "int4")
pd.DataFrame([code_given_twin(model, twin, text_rows) for twin in twins]).round(2)
