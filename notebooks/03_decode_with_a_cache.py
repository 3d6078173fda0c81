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
# # Decoding with a cache
#
# A decoder makes one token at a time. Each new token attends to all tokens before it, through
# their keys and values. Those do not change once they are made: causal attention lets a token
# see only its past. So they can be kept. That is all a KV cache is.
#
# This notebook runs a small decoder with random weights, in NumPy, with the cache and without,
# and counts what it does. The bytes below are sizes of arrays, not results of a formula.

# %% tags=["parameters"]
n_tokens = 16
seed = 0

# %%
import numpy as np
import pandas as pd
from IPython.display import SVG, display

from capmodel.kvcache import kv_bytes
from capmodel.lab import Counters, ToyDecoder, make_config
from capmodel.lab.config import KINDS
from capmodel.lab.paging_story import paged_requests
from capmodel.lab.proof import prove
from capmodel.lab.steps import decode_steps
from capmodel.plots.lab import draw_held, draw_work
from capmodel.plots.style import figure, to_svg

# %% [markdown]
# ## The same tokens, with and without

# %%
decoder = ToyDecoder.random(make_config("gqa", n_layers=1), seed)
with_cache, without = Counters(), Counters()
kept = decoder.generate([[1]], n_tokens, decoder.new_cache(), with_cache)
computed_anew = decoder.generate([[1]], n_tokens, None, without)
print("the same tokens:", (kept == computed_anew).all())
print("key projections:", with_cache.key_projections, "against", without.key_projections)

# %% [markdown]
# For n tokens that is n against 1 + 2 + ... + n: for 16 tokens, 136. Without the cache every step computes
# the keys and values of the whole past again, only to find the same numbers.

# %%
config = make_config("gqa")
tokens = np.random.default_rng(seed).integers(0, config.vocab_size, n_tokens)
decoder = ToyDecoder.random(config, seed, "float32")
cached = decode_steps(decoder, tokens, cached=True)
uncached = decode_steps(decoder, tokens, cached=False)
with figure(5.0, 2.8) as fig:
    draw_work(fig.subplots(), cached, uncached)
    display(SVG(to_svg(fig)))

# %% [markdown]
# The cached line is nearly flat, not flat: projections cost the same every step, attention over
# the past costs a little more with every token.
#
# **Prefill and decode are different work.** Prefill computes all prompt tokens at once: large
# matrix products, bound by arithmetic. Decode computes one token a step: every weight and the whole
# cache are read to make it, so it is bound by memory traffic. The cache is filled in the first and
# read in the second.
#
# **The cache does not save memory, it costs memory.** It saves work. What is held and read
# grows with every token; here are the bytes of the arrays.

# %%
pd.DataFrame(cached)[["length", "tokens_computed", "tokens_read", "flop", "cache_bytes"]]

# %% [markdown]
# **It belongs to inference only.** In training all tokens of a text are known, so one causal pass
# computes every position, and there is nothing to keep from step to step. And only keys and
# values are kept: a query is used once, by its own token.
#
# ## What each kind of attention keeps
#
# Fewer KV heads keep less (MHA, GQA, MQA). MLA keeps one latent for all heads, with a small
# key that carries RoPE beside it. A windowed layer stops growing; here, as in most models
# that have them, only every other layer is windowed (4 tokens, with `sinks` the first two besides),
# so the whole goes on at half the pace. The right column is the package's formula, which knows
# nothing of these arrays.

# %%
held = {
    kind: decode_steps(ToyDecoder.random(make_config(kind), seed, "float32"), tokens, True)
    for kind in KINDS
}
pd.DataFrame(
    {
        kind: {
            "first token [byte]": steps[0].cache_bytes,
            "all tokens [byte]": steps[-1].cache_bytes,
            "kv_bytes [byte]": kv_bytes(make_config(kind).shape, n_tokens, kv_dtype="fp32"),
        }
        for kind, steps in held.items()
    }
).T.astype(int)

# %%
with figure(5.0, 2.8) as fig:
    draw_held(fig.subplots(), held)
    display(SVG(to_svg(fig)))

# %% [markdown]
# ## Three things with similar names
#
# - The **KV cache** keeps one request's own past, from step to step.
# - **Paging** says where those bytes lie: in blocks, listed in a table, so that a request need not
#   have one long piece of memory. It changes no number.
# - **Prefix sharing** ("prompt caching") lets another request that starts with the same tokens
#   use blocks that are already there. It spares their prefill and their bytes;
#   decoding is as before.
#
# Three requests with a common opening, in blocks of four tokens:

# %%
requests, pool = paged_requests(block_size=4, seed=seed)
print(f"{pool.nbytes:,} bytes in use, {pool.apart_nbytes:,} if nothing were shared")
pd.DataFrame(requests).set_index("name")

# %% [markdown]
# `tokens_computed` falls where blocks are shared; each still decodes its own answer one token
# a step, and each answers exactly as it would alone.
#
# ## The claims, checked

# %%
checks = prove(seed)
pd.set_option("display.max_colwidth", None)
pd.DataFrame(checks)

# %%
print(sum(check.holds for check in checks), "of", len(checks), "hold")
