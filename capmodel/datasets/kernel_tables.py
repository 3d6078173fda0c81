"""Kernel times measured on GPUs, as aiconfigurator-core ships them, ready to look up.

Tables (Apache-2.0, ai-dynamo/aiconfigurator): GEMM over (m, n, k); generation attention over
(batch, context) for each head layout; latent (MLA) attention; MoE; all-reduce. Times there are
in milliseconds, here in seconds. Nothing is extrapolated: outside the measured range a time is NaN.
"""

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from capmodel.words import shown

PACKAGE = "aiconfigurator-core"
VERSION = "0.12.0"

BATCHES = 2 ** np.arange(10)  # 1 to 512: measured points of every table
CONTEXTS = 2 ** np.arange(7, 18)  # 128 to 131,072: tokens attended, measured points

# Catalogue name -> folder of the tables.
SYSTEMS = {
    "a100-80gb-sxm": "a100_sxm",
    "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm",
    "b200-sxm": "b200_sxm",
    "l40s": "l40s",
}
# Engine -> folder, newest version that has every table; A100 was measured with older ones.
ENGINES = {"tensorrt-llm": "trtllm", "vllm": "vllm", "sglang": "sglang"}
_VERSIONS = {"trtllm": "1.3.0rc20", "vllm": "0.24.0", "sglang": "0.5.14"}
_A100_VERSIONS = {"trtllm": "1.0.0", "vllm": "0.14.0", "sglang": "0.5.10"}
_L40S_OTHER = {("comm", "vllm"): "0.22.0", ("mla", "trtllm"): "1.0.0"}

_SKEW = "power_law_1.01"  # the only routing skew measured on all five GPUs

MoeKey = tuple[str, int, int, int, int, int]
GemmGrid = tuple[np.ndarray, np.ndarray, np.ndarray]  # log n, log k, log seconds[m, n, k]


@dataclass(frozen=True, slots=True)
class KernelTables:
    """Measured times [s] of one GPU under one engine.

    gemm: by dtype, log-seconds on the grid (BATCHES, n, k).
    attention: by (kv dtype, head_dim, heads, kv heads, window), shape (BATCHES, CONTEXTS).
    latent: by (kv dtype, heads), the same shape; latent_bmm: by heads, shape (BATCHES,).
    moe: by (dtype, hidden, expert width, top k, experts, tp), shape (BATCHES,).
    all_reduce: by tp, log elements and log seconds.
    """

    gpu: str
    engine: str
    engine_version: str
    gemm: dict[str, GemmGrid]
    attention: dict[tuple[str, int, int, int, int], np.ndarray]
    latent: dict[tuple[str, int], np.ndarray]
    latent_bmm: dict[int, np.ndarray]
    moe: dict[MoeKey, np.ndarray]
    all_reduce: dict[int, tuple[np.ndarray, np.ndarray]]

    def gemm_time(self, dtype: str, n: float, k: float) -> np.ndarray:
        """Time [s] of an n x k matrix times each of BATCHES columns, shape (10,).

        Measured in m; between measured n and k interpolated in the logarithms.
        """
        if dtype not in self.gemm:
            return np.full(len(BATCHES), np.nan)
        log_n, log_k, seconds = self.gemm[dtype]
        i, a = _between(log_n, n)
        j, b = _between(log_k, k)
        if i is None or j is None:
            return np.full(len(BATCHES), np.nan)
        low = _mix(seconds[:, i, j], seconds[:, i + 1, j], a)
        high = _mix(seconds[:, i, j + 1], seconds[:, i + 1, j + 1], a)
        return np.exp(_mix(low, high, b))

    def all_reduce_time(self, tp: int, elements: np.ndarray) -> np.ndarray:
        """Time [s] of summing `elements` 16-bit numbers over `tp` GPUs."""
        if tp == 1:
            return np.zeros(len(elements))
        if tp not in self.all_reduce:
            return np.full(len(elements), np.nan)
        size, seconds = self.all_reduce[tp]
        wanted = np.log(elements)
        return np.exp(np.interp(wanted, size, seconds, left=np.nan, right=np.nan))


def data_folder() -> Path:
    """Folder of the installed package's tables.

    Raises ValueError, saying how to install it, when it is absent or of another version.
    """
    how = f"install it with: pip install 'capmodel[silicon]' ({PACKAGE}=={VERSION}, Linux x86-64)"
    spec = importlib.util.find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"{PACKAGE} is not installed; {how}")
    found = importlib.metadata.version(PACKAGE)
    if found != VERSION:
        raise ValueError(f"Got {PACKAGE} {found}, but expected {VERSION}; {how}")
    return Path(spec.submodule_search_locations[0]) / "systems" / "data"


def checked_folder(folder: str | Path) -> Path:
    """`folder`, which holds one folder a GPU, as `data_folder` does. Raises ValueError."""
    if not isinstance(folder, str | Path):
        raise ValueError(f"Got folder={shown(folder)}, but expected the path of a folder")
    folder = Path(folder)
    lacks = [name for name in SYSTEMS.values() if not (folder / name).is_dir()]
    if lacks:
        raise ValueError(
            f"Got folder {folder} without {', '.join(lacks)}, but expected the tables of "
            f"{PACKAGE} {VERSION}, as they lie in its systems/data"
        )
    return folder


def read_tables(folder: Path, gpu: str, engine: str) -> KernelTables:
    """The tables of one GPU (a key of SYSTEMS) under one engine (a key of ENGINES).

    Raises ValueError for another GPU or engine.
    """
    for what, value, known in (("GPU", gpu, SYSTEMS), ("engine", engine, ENGINES)):
        if value not in known:
            raise ValueError(f"Got {what} {shown(value)}, but expected one of {', '.join(known)}")
    system, name = SYSTEMS[gpu], ENGINES[engine]
    version = (_A100_VERSIONS if system == "a100_sxm" else _VERSIONS)[name]

    def table(kind: str, file: str) -> pd.DataFrame | None:
        used = _L40S_OTHER.get((kind, name), version) if system == "l40s" else version
        path = folder / system / kind / name / used / f"{file}.parquet"
        return pd.read_parquet(path) if path.exists() else None

    return KernelTables(
        gpu=gpu,
        engine=engine,
        engine_version=version,
        gemm=_gemm(table("gemm", "gemm_perf")),
        attention=_attention(table("attention", "generation_attention_perf")),
        latent=_latent(table("mla", "generation_mla_perf")),
        latent_bmm=_latent_bmm(table("mla_bmm", "mla_bmm_perf")),
        moe=_moe(table("moe", "moe_perf")),
        all_reduce=_all_reduce(table("comm", "custom_allreduce_perf")),
    )


def _gemm(table: pd.DataFrame | None) -> dict[str, GemmGrid]:
    if table is None:
        return {}
    grids = {}
    for dtype, rows in table[table["m"].isin(BATCHES)].groupby("gemm_dtype"):
        n, k = np.unique(rows["n"]), np.unique(rows["k"])
        cube = np.full((len(BATCHES), len(n), len(k)), np.inf)
        at = (
            np.log2(rows["m"]).astype(int),
            np.searchsorted(n, rows["n"]),
            np.searchsorted(k, rows["k"]),
        )
        np.minimum.at(cube, at, rows["latency"].to_numpy() / 1e3)
        cube[np.isinf(cube)] = np.nan
        grids[str(dtype)] = _dense(np.log(n), np.log(k), np.log(cube))
    return grids


def _dense(log_n: np.ndarray, log_k: np.ndarray, cube: np.ndarray) -> GemmGrid:
    """Drop the n and k at which most of the table is empty (one engine measured a few extra)."""
    full_n = np.isfinite(cube).mean(axis=(0, 2)) > 0.5
    full_k = np.isfinite(cube).mean(axis=(0, 1)) > 0.5
    return log_n[full_n], log_k[full_k], cube[:, full_n][:, :, full_k]


def _attention(table: pd.DataFrame | None) -> dict[tuple[str, int, int, int, int], np.ndarray]:
    if table is None:
        return {}
    if "window_size" not in table:
        table = table.assign(window_size=0)
    keys = ["kv_cache_dtype", "head_dim", "num_heads", "num_key_value_heads", "window_size"]
    return _surfaces(table, keys)  # type: ignore[return-value]


def _latent(table: pd.DataFrame | None) -> dict[tuple[str, int], np.ndarray]:
    if table is None:
        return {}
    return _surfaces(table, ["kv_cache_dtype", "num_heads"])  # type: ignore[return-value]


def _surfaces(table: pd.DataFrame, keys: list[str]) -> dict[tuple[object, ...], np.ndarray]:
    """Times [s] over (BATCHES, CONTEXTS) for each value of `keys`; the fastest kernel counts.

    `step` tokens are cached before the step, so `step + 1` are attended.
    """
    table = table[table["batch_size"].isin(BATCHES) & (table["step"] + 1).isin(CONTEXTS)]
    code, values = pd.MultiIndex.from_frame(table[keys]).factorize()
    cube = np.full((len(values), len(BATCHES), len(CONTEXTS)), np.inf)
    row = np.log2(table["batch_size"]).astype(int)
    column = np.log2(table["step"] + 1).astype(int) - int(np.log2(CONTEXTS[0]))
    np.minimum.at(cube, (code, row, column), table["latency"].to_numpy() / 1e3)
    cube[np.isinf(cube)] = np.nan
    return {_key(value): cube[i] for i, value in enumerate(values)}


def _key(value: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(part if isinstance(part, str) else int(part) for part in value)  # type: ignore[call-overload]


def _latent_bmm(table: pd.DataFrame | None) -> dict[int, np.ndarray]:
    """Absorbed projections before and after latent attention, added up, in 16 bits."""
    if table is None:
        return {}
    rows = table[(table["bmm_dtype"] == "bfloat16") & table["num_tokens"].isin(BATCHES)]
    best = rows.groupby(["num_heads", "op_name", "num_tokens"])["latency"].min() / 1e3
    added = best.groupby(["num_heads", "num_tokens"]).agg(["sum", "count"])
    both = added["sum"].where(added["count"] == 2).unstack().reindex(columns=BATCHES)
    return {int(str(heads)): row.to_numpy() for heads, row in both.iterrows()}


def _moe(table: pd.DataFrame | None) -> dict[MoeKey, np.ndarray]:
    """Expert kernels at one routing skew, the fastest of each point.

    Left out: TensorRT-LLM's `min_latency` kernels (at 8 tokens over 8 experts they are timed
    three times faster than memory allows), and curves that no engine would run, because the
    same experts in 16 bits, or on half the GPUs, are faster: kernels without a tuned
    configuration. Those are 145 of the 2,361 curves up to tp 8, most of them vLLM's fp8 experts
    on H100 and H200.
    """
    if table is None:
        return {}
    keys = ["moe_dtype", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size"]
    rows = table[
        (table["moe_ep_size"] == 1)
        & (table["distribution"] == _SKEW)
        & table["num_tokens"].isin(BATCHES)
        & ~table["kernel_source"].astype(str).str.contains("min_latency")
    ]
    best = rows.groupby([*keys, "num_tokens"])["latency"].min().unstack() / 1e3
    best = best.reindex(columns=BATCHES)
    curves: dict[MoeKey, np.ndarray] = {
        _key(key): row.to_numpy()  # type: ignore[misc, arg-type]
        for key, row in best.iterrows()
    }
    return {key: own for key, own in curves.items() if not _outrun(key, own, curves)}


def _outrun(key: MoeKey, own: np.ndarray, curves: dict[MoeKey, np.ndarray]) -> bool:
    """Whether 16-bit experts or half the GPUs are a tenth faster, over the batches both have."""
    dtype, *shape, tp = key
    rivals = [("bfloat16", *shape, tp)] if dtype != "bfloat16" else []
    rivals += [(dtype, *shape, tp // 2)] if tp > 1 else []
    ratios = [own / curves[rival] for rival in rivals if rival in curves]
    return any(np.nanmedian(ratio) > 1.1 for ratio in ratios if np.isfinite(ratio).any())


def _all_reduce(table: pd.DataFrame | None) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Within CUDA graphs, as engines decode. `message_size` counts 16-bit elements."""
    if table is None:
        return {}
    if "backend" in table:
        table = table[~table["backend"].astype(str).str.endswith("eager")]
    curves = {}
    for tp, rows in table.groupby("num_gpus"):
        best = rows.groupby("message_size")["latency"].min() / 1e3
        curves[int(str(tp))] = (np.log(best.index.to_numpy(float)), np.log(best.to_numpy()))
    return curves


def _between(grid: np.ndarray, value: float) -> tuple[int | None, float]:
    """Index of the grid point below log(value) and the share of the way to the next one."""
    wanted = np.log(value)
    if not grid[0] - 1e-9 <= wanted <= grid[-1] + 1e-9:
        return None, 0.0
    i = int(np.clip(np.searchsorted(grid, wanted + 1e-9) - 1, 0, len(grid) - 2))
    return i, float(np.clip((wanted - grid[i]) / (grid[i + 1] - grid[i]), 0, 1))


def _mix(low: np.ndarray, high: np.ndarray, share: float) -> np.ndarray:
    """Linear mix that does not look at the end it does not need (which may be unmeasured)."""
    if share < 1e-6:
        return low
    if share > 1 - 1e-6:
        return high
    return (1 - share) * low + share * high
