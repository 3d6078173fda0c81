"""Datasheet facts of GPUs, and names for them.

Datasheet bandwidth and dense FLOP/s stand apart from the memory a driver reports.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from capmodel.arguments import Span, number
from capmodel.own_folder import NONE, State, own_folder
from capmodel.words import one_line, shown

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

# What a figure of one accelerator can be, generously [its unit], and how it is written.
_CAPACITY = (1e8, 1e13, "byte", "80 GB are written 80e9")
_SPEED = (5e9, 1e17, "byte/s", "3.35 TB/s are written 3.35e12")
_PEAK = (5e10, 1e18, "FLOP/s", "989 TFLOP/s are written 989e12")
_RANGES = {
    "memory_bytes": _CAPACITY,
    "memory_reported_bytes": _CAPACITY,
    "bandwidth_bytes_per_s": _SPEED,
    "link_bytes_per_s": (1e8, 1e14, "byte/s", "450 GB/s are written 450e9"),
    "tdp_w": (1.0, 1e5, "W", "700 W are written 700"),
    "price_low": (1e-3, 1e4, "$/h", "price is of one GPU for one hour"),
    "price_high": (1e-3, 1e4, "$/h", "price is of one GPU for one hour"),
}
_FIGURE = Span("a positive number", 0.0, 1e30, open_low=True, open_high=True)
# 16-bit FLOP per byte of bandwidth: the GPUs of the catalogue lie between 110 and 500.
_INTENSITY = (2.0, 2e4)
# PCIe 5.0 with 16 lanes, one direction [byte/s].
_FASTEST_BUS = 64e9


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. A figure that no source gives is None.

    memory_bytes: marketed, decimal [byte]. memory_reported_bytes: the least a driver was seen
    to report [byte]. bandwidth_bytes_per_s: datasheet [byte/s]. *_flops_per_s: dense peak
    [FLOP/s]. link_bytes_per_s: one direction within a node [byte/s]. price: [$/h].
    assumption: what a short alias was taken to mean; empty for a card asked for by its own name.
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

    @property
    def shares_bus(self) -> bool:
        """Whether its GPUs reach each other over a bus they share, PCIe, not links of their own."""
        link = self.link_bytes_per_s
        return link is not None and link <= _FASTEST_BUS

    def matmul_flops_per_s(self, weight_dtype: str) -> float:
        """Dense peak of the matmul that `weight_dtype` weights run in [FLOP/s].

        Raises ValueError where the catalogue has no figure for it.
        """
        for dtype in _MATMUL[weight_dtype]:
            peak = getattr(self, f"{dtype}_flops_per_s")
            if peak is not None:
                return float(peak)
        wanted = f"{_MATMUL[weight_dtype][0]}_flops_per_s"
        also = (
            "" if self.bandwidth_bytes_per_s else ", and bandwidth_bytes_per_s, which it lacks too,"
        )
        raise ValueError(
            f"GPU {self.name} has no peak FLOP/s for {weight_dtype} weights; "
            f"give {wanted}{also} in a TOML entry of your own"
        )


GpuLike = str | Mapping[str, object] | Path | Gpu


def load_gpu(gpu: GpuLike) -> Gpu:
    """The card that `gpu` means.

    gpu: a name or alias, the path of a TOML file, a dict of its fields, or a Gpu, returned as it
    is. A name is looked up in the folder named by CAPMODEL_CATALOG first, then in the catalogue.
    Raises ValueError for unknown names (listing the nearest), ambiguous ones (listing the
    candidates) and figures that cannot be.
    """
    if isinstance(gpu, Gpu):
        return gpu
    if isinstance(gpu, Mapping):
        return _build({"name": "my-gpu", **gpu}, "dict")
    if not isinstance(gpu, str | Path):
        raise ValueError(
            f"Got gpu={shown(gpu)}, but expected a name, the path of a TOML file, a dict of "
            "figures or a Gpu"
        )
    text = str(gpu)
    if text.lower().endswith(".toml"):
        return _from_file(Path(text))
    return _by_name(text, own_folder())


def gpu_names() -> list[str]:
    """Names of the catalogue, one's own entries included."""
    return sorted(_catalogue(own_folder()))


def gpu_entries() -> list[Gpu]:
    """The catalogue's cards by name, each with how its short name is read."""
    return [gpu for _, gpu in sorted(_catalogue(own_folder()).items())]


def is_shipped(name: str) -> bool:
    """True for a GPU whose figures are those of the package's own catalogue."""
    try:
        return load_gpu(name) == _by_name(name, NONE)
    except ValueError:
        return False


def implausible(figure: str, value: float) -> str | None:
    """Why `value` cannot be that figure of a GPU, with how it is written; None where it can.

    figure: the name of a field of `Gpu`, or `flops_per_s`.
    """
    low, high, unit, remedy = _RANGES.get(figure, _PEAK)
    if low <= value <= high:
        return None
    return f"expected {low:g} to {high:g} {unit}: {remedy}"


def out_of_proportion(bandwidth_bytes_per_s: float, flops_per_s: float) -> str | None:
    """Why the two cannot belong to one GPU; None where they can."""
    ratio = flops_per_s / bandwidth_bytes_per_s
    low, high = _INTENSITY
    if low <= ratio <= high:
        return None
    return (
        f"{flops_per_s:g} FLOP/s over {bandwidth_bytes_per_s:g} byte/s are {ratio:.3g} FLOP per "
        f"byte, but expected {low:g} to {high:g}: one of the two is in another unit "
        f"({_SPEED[3]}, {_PEAK[3]})"
    )


@lru_cache(maxsize=512)
def _by_name(text: str, own: State) -> Gpu:
    catalogue = _catalogue(own)
    wanted = _normal(text)
    index = {_normal(name): name for name in catalogue}
    for name, gpu in catalogue.items():
        for alias in gpu.aliases:
            index.setdefault(_normal(alias), name)
    if wanted in index:
        found = catalogue[index[wanted]]
        return replace(found, assumption="") if wanted == _normal(found.name) else found
    candidates = sorted(name for key, name in index.items() if key.startswith(wanted + "-"))
    candidates = list(dict.fromkeys(candidates))
    if len(candidates) > 1:
        raise ValueError(f"GPU {shown(text)} is ambiguous; say which: {', '.join(candidates)}")
    if len(candidates) == 1:
        return catalogue[candidates[0]]
    near = [index[key] for key in difflib.get_close_matches(wanted, index, n=6, cutoff=0.5)]
    hint = ", ".join(dict.fromkeys(near)) or ", ".join(sorted(catalogue))
    raise ValueError(
        f"Got GPU {shown(text)}, which is not in the catalogue; nearest: {hint} "
        "(`capmodel catalog gpus` lists all). An entry of your own is a TOML file: "
        "give its path, or a folder in CAPMODEL_CATALOG"
    )


@lru_cache(maxsize=8)
def _catalogue(own: State) -> dict[str, Gpu]:
    text = (files("capmodel") / "catalog" / "gpus.toml").read_text(encoding="utf-8")
    gpus = {
        name: _build({"name": name, **entry}, "gpus.toml")
        for name, entry in tomllib.loads(text).items()
    }
    folder, listed = own
    for name in (name for name, *_ in listed if "/" not in name and name.endswith(".toml")):
        path = Path(folder) / name
        if is_gpu_entry(_entry(path)):
            gpu = _from_file(path)
            gpus[gpu.name] = gpu
    return gpus


def is_gpu_entry(entry: Mapping[str, object]) -> bool:
    """Whether a TOML table means a GPU, complete or not: what figures it has are a GPU's."""
    figures = {field.name for field in fields(Gpu) if field.name.endswith(("_bytes", "_per_s"))}
    return bool(figures & set(entry)) and not {"groups", "base"} & set(entry)


def _from_file(path: Path) -> Gpu:
    return _build({"name": path.stem, **_entry(path)}, str(path))


def _entry(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        where, why = one_line(path), one_line(error)
        if isinstance(error, OSError):
            raise ValueError(f"GPU file {where} cannot be read: {error.strerror}") from error
        raise ValueError(f"GPU file {where} is not TOML: {why}") from error


def _build(entry: Mapping[str, object], where: str) -> Gpu:
    known = {field.name for field in fields(Gpu)}
    values: dict[str, object] = {}
    problems: list[str] = []
    for key, value in entry.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=2) or sorted(known)
            problems.append(f"unknown field {shown(key)}; did you mean {' or '.join(near)}?")
        elif key == "aliases":
            if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
                values[key] = tuple(one_line(item) for item in value)
            else:
                problems.append(f"aliases is {shown(value)}, but expected a list of names")
        elif key in _RANGES or key.endswith("_per_s"):
            wrong = _wrong_figure(key, value)
            if wrong:
                problems.append(f"{key} is {shown(value)}, but {wrong}")
            else:
                values[key] = float(value)  # type: ignore[arg-type]
        elif not isinstance(value, str) or (key == "name" and not value.strip()):
            problems.append(f"{key} is {shown(value)}, but expected a text")
        else:
            values[key] = one_line(value)
    if "memory_bytes" not in entry:
        needed = [key for key in ("bandwidth_bytes_per_s", "bf16_flops_per_s") if key not in entry]
        more = f" (and {' and '.join(needed)}, which step times need)" if needed else ""
        problems.append(f"memory_bytes is missing{more}")
    peak = values.get("bf16_flops_per_s", values.get("fp16_flops_per_s"))
    if isinstance(peak, float) and isinstance(values.get("bandwidth_bytes_per_s"), float):
        odd = out_of_proportion(values["bandwidth_bytes_per_s"], peak)  # type: ignore[arg-type]
        problems += [odd] if odd else []
    if problems:
        raise ValueError(
            f"GPU {one_line(entry['name'])} ({one_line(where)}): {'; '.join(problems)}"
        )
    return Gpu(**values)  # type: ignore[arg-type]


def _wrong_figure(key: str, value: object) -> str | None:
    try:
        return implausible(key, number(key, value, _FIGURE))
    except ValueError:
        return "expected a positive number"


def _normal(text: str) -> str:
    return text.strip().lower().replace("_", "-").replace(" ", "-")
