"""Datasheet facts of GPUs, and names for them.

Datasheet bandwidth and dense FLOP/s stand apart from the memory a driver reports.
"""

import difflib
import os
import tomllib
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

# The dtype a matmul runs in, by weight dtype, best first: int4 and int8 weights are
# weight-only (dequantised to 16 bits), fp8 and fp4 fall back to 16 bits without hardware.
_MATMUL = {
    "fp32": ("fp32",),
    "bf16": ("bf16", "fp16"),
    "fp16": ("fp16", "bf16"),
    "fp8": ("fp8", "bf16", "fp16"),
    "int8": ("bf16", "fp16"),
    "int4": ("bf16", "fp16"),
    "nvfp4": ("fp4", "bf16", "fp16"),
    "mxfp4": ("fp4", "bf16", "fp16"),
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. A figure that no source gives is None.

    memory_bytes: marketed, decimal [byte]. memory_reported_bytes: the least a driver was seen
    to report [byte]. bandwidth_bytes_per_s: datasheet [byte/s]. *_flops_per_s: dense peak
    [FLOP/s]. link_bytes_per_s: one direction within a node [byte/s]. price: [$/h].
    assumption: what a short alias was taken to mean.
    """

    name: str
    memory_bytes: float
    vendor: str = ""
    memory_reported_bytes: float | None = None
    bandwidth_bytes_per_s: float | None = None
    bf16_flops_per_s: float | None = None
    fp16_flops_per_s: float | None = None
    fp8_flops_per_s: float | None = None
    int8_flops_per_s: float | None = None
    fp4_flops_per_s: float | None = None
    fp32_flops_per_s: float | None = None
    link_bytes_per_s: float | None = None
    interconnect: str = ""
    tdp_w: float | None = None
    price_low: float | None = None
    price_high: float | None = None
    price_source: str = ""
    source: str = ""
    notes: str = ""
    assumption: str = ""
    aliases: tuple[str, ...] = ()

    def matmul_flops_per_s(self, weight_dtype: str) -> float:
        """Dense peak of the matmul that `weight_dtype` weights run in [FLOP/s].

        Raises ValueError where the catalogue has no figure for it.
        """
        for dtype in _MATMUL[weight_dtype]:
            peak = getattr(self, f"{dtype}_flops_per_s")
            if peak is not None:
                return float(peak)
        raise ValueError(
            f"GPU {self.name} has no peak FLOP/s for {weight_dtype} weights; "
            f"give {_MATMUL[weight_dtype][0]}_flops_per_s in a TOML entry of your own"
        )


def load_gpu(gpu: "str | dict[str, object] | Path | Gpu") -> Gpu:
    """The card that `gpu` means.

    gpu: a name or alias, the path of a TOML file, a dict of its fields, or a Gpu, returned as it
    is. A name is looked up in the folder named by CAPMODEL_CATALOG first, then in the catalogue.
    Raises ValueError for unknown names (listing the nearest), ambiguous ones (listing the
    candidates) and figures that cannot be.
    """
    if isinstance(gpu, Gpu):
        return gpu
    if isinstance(gpu, dict):
        name = gpu.get("name", "my-gpu")
        return _build(
            str(name), {key: value for key, value in gpu.items() if key != "name"}, "dict"
        )
    text = str(gpu)
    if text.lower().endswith(".toml"):
        return _from_file(Path(text))
    return _by_name(text, os.environ.get("CAPMODEL_CATALOG", ""))


def gpu_names() -> list[str]:
    """Names of the catalogue, one's own entries included."""
    return sorted(_catalogue(os.environ.get("CAPMODEL_CATALOG", "")))


@lru_cache(maxsize=512)
def _by_name(text: str, own_folder: str) -> Gpu:
    catalogue = _catalogue(own_folder)
    wanted = _normal(text)
    index = {_normal(name): name for name in catalogue}
    for name, gpu in catalogue.items():
        for alias in gpu.aliases:
            index.setdefault(_normal(alias), name)
    if wanted in index:
        return catalogue[index[wanted]]
    candidates = sorted(name for key, name in index.items() if key.startswith(wanted + "-"))
    candidates = list(dict.fromkeys(candidates))
    if len(candidates) > 1:
        raise ValueError(f"GPU {text!r} is ambiguous; say which: {', '.join(candidates)}")
    if len(candidates) == 1:
        return catalogue[candidates[0]]
    near = [index[key] for key in difflib.get_close_matches(wanted, index, n=6, cutoff=0.5)]
    hint = ", ".join(dict.fromkeys(near)) or ", ".join(sorted(catalogue))
    raise ValueError(
        f"Got GPU {text!r}, which is not in the catalogue; nearest: {hint}. "
        "An entry of your own is a TOML file: give its path, or a folder in CAPMODEL_CATALOG"
    )


@lru_cache(maxsize=8)
def _catalogue(own_folder: str) -> dict[str, Gpu]:
    text = (files("capmodel") / "catalog" / "gpus.toml").read_text(encoding="utf-8")
    gpus = {name: _build(name, entry, "gpus.toml") for name, entry in tomllib.loads(text).items()}
    if own_folder:
        for path in sorted(Path(own_folder).glob("*.toml")):
            if "memory_bytes" in path.read_text(encoding="utf-8"):
                gpu = _from_file(path)
                gpus[gpu.name] = gpu
    return gpus


def _from_file(path: Path) -> Gpu:
    try:
        entry = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"GPU file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"GPU file {path} is not TOML: {error}") from error
    name = str(entry.pop("name", path.stem))
    return _build(name, entry, str(path))


def _build(name: str, entry: dict[str, object], where: str) -> Gpu:
    known = {field.name for field in fields(Gpu)} - {"name"}
    for key in entry:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=2) or sorted(known)
            raise ValueError(
                f"GPU {name} ({where}): unknown field {key!r}; did you mean {' or '.join(near)}?"
            )
    values: dict[str, object] = {}
    for key, value in entry.items():
        if key == "aliases":
            values[key] = tuple(str(item) for item in value) if isinstance(value, list) else ()
        elif key.endswith(("_bytes", "_per_s", "_w")) or key in ("price_low", "price_high"):
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0 < value < 1e30
            ):
                raise ValueError(
                    f"GPU {name} ({where}): {key} is {value!r}, but expected a positive number"
                )
            values[key] = float(value)
        else:
            values[key] = str(value)
    if "memory_bytes" not in values:
        raise ValueError(f"GPU {name} ({where}): memory_bytes is missing")
    return Gpu(name=name, **values)  # type: ignore[arg-type]


def _normal(text: str) -> str:
    return text.strip().lower().replace("_", "-").replace(" ", "-")
