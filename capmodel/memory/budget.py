"""Where a GPU's memory goes: the textbook's budget and the engine's."""

from dataclasses import dataclass, fields

from capmodel.arguments import BYTES, FRACTION, GPUS, number
from capmodel.gpus import GpuLike, load_gpu
from capmodel.kvcache import check_tp
from capmodel.memory.reserve import (
    GRAPHS_BYTES,
    NON_TORCH_BYTES,
    StepLimits,
    activation_bytes,
    default_limits,
)
from capmodel.shapes import ModelLike, load_shape
from capmodel.weights import weight_bytes
from capmodel.words import shown

# Of a GPU's memory, what an engine uses where nothing else is said.
MEMORY_FRACTION = 0.92
MODES = ("nameplate", "engine")


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """One GPU's memory in named parts [byte].

    mode: "nameplate" (fraction of the datasheet's decimal GB, weights = parameters x flat bytes,
    nothing else) or "engine" (fraction of what the driver reports, weights as stored, and what
    the engine takes beside them). reserve_given: the reserve was stated, and stands whole in
    `activation_bytes`; otherwise activation, graphs and non-torch are estimates.
    """

    mode: str
    capacity_bytes: float
    fraction: float
    weights_bytes: float
    activation_bytes: float = 0.0
    graphs_bytes: float = 0.0
    non_torch_bytes: float = 0.0
    reserve_given: bool = False

    @property
    def usable_bytes(self) -> float:
        """`fraction` of the capacity [byte]."""
        return self.capacity_bytes * self.fraction

    @property
    def reserve_bytes(self) -> float:
        """What is neither weights nor cache [byte]."""
        return self.activation_bytes + self.graphs_bytes + self.non_torch_bytes

    @property
    def cache_bytes(self) -> float:
        """What is left for the cache, at least 0 [byte]."""
        return max(0.0, self.usable_bytes - self.weights_bytes - self.reserve_bytes)

    @property
    def shortfall_bytes(self) -> float:
        """By how much weights and reserve alone are over the usable memory, 0 if not [byte]."""
        return max(0.0, self.weights_bytes + self.reserve_bytes - self.usable_bytes)

    def parts(self) -> dict[str, float]:
        """Every part by its name, bytes; they add up to the capacity where the weights fit."""
        taken = {
            field.name: float(getattr(self, field.name))
            for field in fields(self)
            if field.name.endswith("_bytes") and field.name != "capacity_bytes"
        }
        outside = self.capacity_bytes - self.usable_bytes
        return {**taken, "cache_bytes": self.cache_bytes, "outside_bytes": outside}


def memory_budget(
    model: ModelLike,
    gpu: GpuLike,
    *,
    weight_dtype: str | None = "bf16",
    tp: int = 1,
    memory_fraction: float = MEMORY_FRACTION,
    mode: str = "nameplate",
    reserve_bytes: float | None = None,
    limits: StepLimits | None = None,
) -> MemoryBudget:
    """The budget of one of `tp` GPUs that hold `model`.

    reserve_bytes: what is neither weights nor cache [byte]; None is 0 in nameplate mode and the
    sum of the estimates of `memory.reserve` in engine mode. limits: sequences and tokens of a
    step, None = what `vllm serve` takes for this GPU.

    Raises ValueError for an unknown mode, a fraction outside (0, 1], a negative reserve, a tp
    that does not divide the heads, and in engine mode for a GPU whose driver-reported memory no
    source gives. Source: PHYSICS section 4.
    """
    shape, device = load_shape(model), load_gpu(gpu)
    tp = number("tp", tp, GPUS)
    check_tp(shape, tp)
    if not isinstance(mode, str) or mode not in MODES:
        raise ValueError(f"Got mode={shown(mode)}, but expected one of {', '.join(MODES)}")
    memory_fraction = number("memory_fraction", memory_fraction, FRACTION)
    if reserve_bytes is not None:
        reserve_bytes = float(number("reserve_bytes", reserve_bytes, BYTES))
    if limits is not None and not isinstance(limits, StepLimits):
        raise ValueError(f"Got limits={shown(limits)}, but expected a StepLimits or None")
    weights = float(weight_bytes(shape, weight_dtype, tp, mode=mode))
    if mode == "nameplate":
        return MemoryBudget(
            mode,
            device.memory_bytes,
            memory_fraction,
            weights,
            activation_bytes=reserve_bytes or 0.0,
            reserve_given=reserve_bytes is not None,
        )
    if device.memory_reported_bytes is None:
        raise ValueError(
            f"No source gives the memory a driver reports for GPU {device.name}; use "
            "mode='nameplate', or give memory_reported_bytes in an entry of your own"
        )
    if reserve_bytes is not None:
        parts = (reserve_bytes, 0.0, 0.0)
    else:
        limits = limits or default_limits(device)
        parts = (activation_bytes(shape, limits, tp), GRAPHS_BYTES, NON_TORCH_BYTES)
    return MemoryBudget(
        mode,
        device.memory_reported_bytes,
        memory_fraction,
        weights,
        *parts,
        reserve_given=reserve_bytes is not None,
    )
