"""llama-bench: JSON, JSONL, CSV or Markdown; one row a test.

`tg N` decodes one sequence from `depth`: step = 1 / (tokens/s), mean context depth + N / 2, batch
1. `-b` (n_batch) is the prompt tokens of a prefill pass, not sequences. `pp` rows hold no decode.
Devices split the layers (split_mode layer) or the rows of each matrix (row); how many there are
stands in no field, so more than one must be given. GGUF mixtures (Q4_K_M and like) are not
int4: `weight_bits` is the file's size over its parameters, and the row is flagged.
"""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from capmodel.ingest.serving import add_flag, numbers, set_aside

VARIABLE_MAP = {
    "model_type": "model",
    "model": "model",
    "gpu_info": "gpu",
    "build_number": "engine_version",
    "build_commit": "engine_version",
    "model_size": "model_size",
    "model_n_params": "model_n_params",
    "type_k": "type_k [text]",
    "type_v": "type_v [text]",
    "n_prompt": "n_prompt",
    "n_gen": "n_gen",
    "n_depth": "n_depth",
    "n_batch": "prefill_chunk",
    "avg_ts": "tokens_per_s",
}

_TEST = re.compile(r"^(?:pp ?(?P<pp>\d+))?(?:\+?tg ?(?P<tg>\d+))?(?: @ d(?P<depth>\d+))?$")
_SIZES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_COUNTS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
# Quantisation in a model's name -> the nearest dtype of the package; plain types are exact.
_PLAIN = {"F32": "fp32", "F16": "fp16", "BF16": "bf16", "Q8_0": "int8"}


def recognises(first: Mapping[str, object]) -> bool:
    """True for a record or a table header of this tool."""
    fields = {"n_prompt", "n_gen", "avg_ts", "model_type"} <= first.keys()
    return fields or {"model", "size", "params", "test", "t/s"} <= first.keys()


def from_markdown(table: pd.DataFrame) -> pd.DataFrame:
    """The Markdown table in the fields of the other forms, as text and numbers."""
    tests = table["test"].str.extract(_TEST).fillna("0")
    out = pd.DataFrame({
        "model": table["model"],
        "n_prompt": tests["pp"], "n_gen": tests["tg"], "n_depth": tests["depth"],
        "model_size": _scaled(table["size"], _SIZES),
        "model_n_params": _scaled(table["params"], _COUNTS),
        "avg_ts": table["t/s"].str.split("±").str[0].str.strip(),
    })  # fmt: skip
    for ours, theirs in (("n_batch", "n_batch"), ("type_k", "type_k"), ("type_v", "type_v")):
        if theirs in table:
            out[ours] = table[theirs]
    return out


def read_llama_bench(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of RUNS, unchecked; `pp` and mixed tests are marked to be set aside."""
    prompt, output, depth = (numbers(raw, name) for name in ("n_prompt", "n_gen", "n_depth"))
    depth = np.nan_to_num(depth)
    bits = 8 * numbers(raw, "model_size") / numbers(raw, "model_n_params")
    name = raw["model"].astype(str)
    quant = name.str.extract(r"\b(BF16|F16|F32|Q\d\w*|IQ\d\w*|MXFP4\w*)\b", expand=False).fillna("")
    plain = quant.map(_PLAIN)
    nearest = pd.Series(np.select([bits > 6, bits > 0], ["int8", "int4"], ""), index=raw.index)
    nearest = nearest.where(~quant.str.startswith("MXFP4"), "mxfp4")
    keep = [name for name in ("gpu", "engine_version", "prefill_chunk") if name in raw]
    keys = [raw[name].replace("", "f16").astype(str) for name in ("type_k", "type_v")]
    runs = raw[keep].assign(
        engine="llama.cpp",
        model=name.str.replace(r"\s+(BF16|F16|F32|Q\d\w*|IQ\d\w*|MXFP4).*$", "", regex=True),
        weight_dtype=plain.fillna(nearest),
        kv_dtype=keys[0] + "," + keys[1],
        batch_size=1.0,
        context_len=depth + output / 2,
        output_len=np.where(output > 0, output, np.nan),
        step_time_s=1.0 / numbers(raw, "tokens_per_s"),
        step_time_definition="decode_step",
        weight_bits=bits,
    )
    runs.loc[~(runs["context_len"] >= 1), "context_len"] = 1.0
    add_flag(runs, plain.isna() & (quant != ""), "gguf_mixture")
    set_aside(
        runs,
        (output > 0) & (prompt > 0),
        "prefill_and_decode",
        "prompt and output were timed together",
    )
    set_aside(runs, ~(output > 0), "prefill_only", "a prompt-processing test holds no decode step")
    set_aside(runs, ~(numbers(raw, "tokens_per_s") > 0), "no_step", "the test has no tokens/s")
    return runs


def _scaled(cells: pd.Series, factors: Mapping[str, float]) -> pd.Series:
    parts = cells.str.extract(r"^\s*([\d.]+)\s*(\w+)\s*$")
    return pd.to_numeric(parts[0], errors="coerce") * parts[1].map(dict(factors))
