"""AIConfigurator's sample of measured deployments (silicon_sample.csv), as it stands.

- Client concurrency is batch_size x attention_dp_size, in disaggregated rows decode_batch_size x
  decode_attention_dp_size per worker; it is taken as admitted, since the launch scripts set
  max_num_seqs to it or above, and rows that cannot have been resident are caught by the memory
  check. Disaggregated rows without a decode batch or worker count are set aside: what was decoded
  together is unknown. `id` repeats the concurrency (c64) and, in most, tp and ep: rows whose id
  contradicts the columns are set aside.
- Where tp and ep are both above 1 the file stores their product as tp (tp 64 for tp 8, ep 8; the id
  says so): undone and flagged `parallelism_mended`.
- Multi-node rows with tp 12, 20, 24, 28, 48, 52 or 72 name the GPUs, not a tensor split: set aside.
- `mode` agg: TPOT, the prefill of others inside. disagg: TPOT of a decode-only worker.
- Weights: precision, else the ending of the model's name, else bf16. gpt-oss is MXFP4.
- The cache dtype stands in no column. It follows the launch scripts that the rows come from
  (InferenceX): fp8 under TensorRT-LLM, on Blackwell, and for MiniMax; bf16 under vLLM and SGLang on
  Hopper; bf16 where weights are. Flagged `kv_dtype_assumed`.
- `nvidia/...-FP8` 8B rows and TTFT above 20 s are suspect: flagged `suspect_source`, `queued`.
- Kimi-K2.5's language model has the shape of Kimi-K2.
- Lengths are nominal; the InferenceX clients drew them uniformly from 0.8 to 1.0 of nominal.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from capmodel.ingest.serving import add_flag, either, numbers, set_aside

VARIABLE_MAP = {
    "id": "run_id",
    "backend": "engine",
    "backend_version": "engine_version",
    "model_path": "model",
    "system": "gpu",
    "precision": "weight_dtype",
    "mode": "mode [text]",
    "isl": "input_len",
    "osl": "output_len",
    "batch_size": "agg_batch",
    "tp_size": "agg_tp",
    "pp_size": "agg_pp",
    "attention_dp_size": "agg_dp",
    "moe_ep_size": "agg_ep",
    "decode_batch_size": "dec_batch",
    "decode_num_workers": "workers",
    "decode_tp_size": "dec_tp",
    "decode_pp_size": "dec_pp",
    "decode_attention_dp_size": "dec_dp",
    "decode_moe_ep_size": "dec_ep",
    "silicon_ttft_ms": "ttft_s [ms]",
    "silicon_tpot_ms": "tpot_s [ms]",
}

_ENGINES = {"trtllm": "tensorrt-llm", "vllm": "vllm", "sglang": "sglang"}
_SAME_SHAPE = {"moonshotai/Kimi-K2.5": "moonshotai/Kimi-K2-Instruct"}
_BLACKWELL = ("b200", "b300", "gb200", "gb300")
_QUEUED_S = 20.0
_KEEP = ("run_id", "engine", "engine_version", "model", "gpu", "input_len", "output_len",
         "ttft_s", "tpot_s")  # fmt: skip


def recognises(first: Mapping[str, object]) -> bool:
    """True for this table's header."""
    return {"silicon_ttft_ms", "silicon_tpot_ms", "model_path", "system"} <= first.keys()


def read_aiconfigurator(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of RUNS, unchecked. One row in, one row out."""
    disagg = (raw["mode"].astype(str) == "disagg").to_numpy()
    tp, pp, dp, ep, batch = (
        np.where(disagg, numbers(raw, f"dec_{name}"), numbers(raw, f"agg_{name}"))
        for name in ("tp", "pp", "dp", "ep", "batch")
    )
    dp, ep, pp = (np.where(values >= 1, values, 1.0) for values in (dp, ep, pp))
    concurrency = batch * dp
    ids = raw["run_id"].astype(str)
    named = {key: _from_id(ids, key) for key in ("c", "tp", "ep")}
    squared = ~disagg & (tp * dp > 1) & (named["tp"] * named["ep"] == tp * dp) & (named["ep"] > 1)
    unnamed = np.isnan(named["tp"])
    squared |= ~disagg & unnamed & _is_squared(numbers(raw, "agg_ep"), tp, dp)
    true_gpus = np.sqrt(tp * dp)
    tp, dp = (
        np.where(squared, np.where(dp > 1, 1.0, true_gpus), tp),
        np.where(squared, np.where(dp > 1, true_gpus, 1.0), dp),
    )
    ep = np.where(squared, true_gpus, ep)
    workers = np.where(disagg, numbers(raw, "workers"), 1.0)
    runs = raw[[name for name in _KEEP if name in raw]].assign(
        source="AIConfigurator silicon sample, measured serving runs",
        engine=raw["engine"].map(_ENGINES).fillna(raw["engine"]),
        model=raw["model"].replace(_SAME_SHAPE),
        gpu=raw["gpu"].str.replace("_sxm", "-sxm"),
        weight_dtype=_weights(raw), tp=tp, pp=pp, dp=dp, ep=ep, n_gpus=tp * pp * dp,
        batch_size=concurrency, concurrency=concurrency,
        context_len=numbers(raw, "input_len") + numbers(raw, "output_len") / 2,
        step_time_s=numbers(raw, "tpot_s"),
        step_time_definition=np.where(disagg, "tpot_decode_only", "tpot"),
    )  # fmt: skip
    runs["kv_dtype"] = _cache(runs)
    runs["run_id"] = ids
    _mark(runs, disagg, concurrency, workers, named["c"], squared)
    return runs


def _mark(runs: pd.DataFrame, disagg: np.ndarray, concurrency: np.ndarray,
          workers: np.ndarray, named: np.ndarray, squared: np.ndarray) -> None:  # fmt: skip
    reason = "the decode batch or the number of decode workers is not given"
    set_aside(runs, disagg & np.isnan(concurrency * workers), "no_batch", reason)
    degrees = numbers(runs, "tp")
    odd = (degrees > 0) & (np.exp2(np.round(np.log2(np.fmax(degrees, 1)))) != degrees)
    reason = "tp is no power of two, so it splits no head count: the true degrees are not recorded"
    set_aside(runs, odd, "parallelism_unknown", reason)
    offered = either(concurrency * workers, np.zeros(len(runs)))
    clash = ~np.isnan(named) & (offered > 0) & (named != offered)
    reason = "batch_size x attention_dp_size is not the client concurrency that the id names"
    set_aside(runs, clash, "batch_contradiction", reason)
    add_flag(runs, np.ones(len(runs), dtype=bool), "kv_dtype_assumed")
    add_flag(runs, squared, "parallelism_mended")
    small = runs["model"].astype(str).str.match(r"nvidia/.*8B.*-FP8$").to_numpy()
    add_flag(runs, small, "suspect_source")
    add_flag(runs, numbers(runs, "ttft_s") > _QUEUED_S, "queued")


def _is_squared(ep: np.ndarray, tp: np.ndarray, dp: np.ndarray) -> np.ndarray:
    """tp x dp holds ep twice: more than 8 GPUs in one node's square, or two degrees at once."""
    gpus = tp * dp
    return (ep > 1) & ((ep * ep == gpus) | ((ep == gpus) & (tp == dp) & (tp > 1)))


def _from_id(ids: pd.Series, key: str) -> np.ndarray:
    found = ids.str.extract(rf"_{key}(\d+)(?:_|$)", expand=False)
    return pd.to_numeric(found, errors="coerce").to_numpy(float)


def _weights(raw: pd.DataFrame) -> pd.Series:
    model = raw["model"].astype(str)
    given = raw["weight_dtype"].astype(str)
    ending = model.str.extract(r"-(FP8|NVFP4)$", expand=False).str.lower().fillna("bf16")
    given = given.where(given != "", ending)
    return given.mask(model.str.contains("gpt-oss") & (given == "fp4"), "mxfp4")


def _cache(runs: pd.DataFrame) -> np.ndarray:
    blackwell = runs["gpu"].str.split("-").str[0].isin(_BLACKWELL)
    mini = runs["model"].astype(str).str.startswith("MiniMaxAI/")
    fp8 = (runs["weight_dtype"] != "bf16") & (blackwell | mini | (runs["engine"] == "tensorrt-llm"))
    return np.where(fp8, "fp8", "bf16")
