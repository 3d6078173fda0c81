"""What binds a decode step as its batch grows, and whether memory or compute ends the growth."""

import numpy as np
import numpy.typing as npt

from capmodel.roofline import FAMILIES
from capmodel.steptime import StepTime
from capmodel.traffic import StepTraffic, grown

Array = npt.NDArray[np.float64]

# Every batch up to here is evaluated; above it, as many spread evenly in the logarithm.
_BATCHES = 4096
_WORDS = {
    "weights": "weights", "kv": "the cache", "compute": "compute", "fixed": "fixed work",
    "communication": "communication", "prefill": "prefill",
}  # fmt: skip


def ceiling(
    step: StepTime,
    traffic: StepTraffic,
    context_len: float,
    memory_bytes: float,
    flops_per_s: float,
) -> str:
    """What takes longest at each batch of `context_len` tokens that fits, in one sentence.

    memory_bytes: of one GPU, weights and cache within it [byte]. flops_per_s: dense peak of the
    matmul; compute takes its fitted term or FLOP over peak, whichever is longer, so that rows
    which never were compute-bound do not make it free.
    """
    most = _most(traffic, context_len, memory_bytes)
    at = f"at context {context_len:,.0f}"
    if most < 1:
        return f"{at} memory ends it at once: the weights and the cache of one do not fit"
    batch = _batches(most)
    context = np.full(batch.shape, context_len)
    terms = {name: _spread(value, batch) for name, value in step.terms(batch, context).items()}
    flop = batch * (traffic.flop_per_token + grown(traffic.attention_flop, context))
    terms["compute"] = np.maximum(terms["compute"], flop / flops_per_s)
    winner = np.stack([terms[name] for name in FAMILIES]).argmax(axis=0)
    sentence = f"{at} {_phases(batch, winner)}{_overtaking(batch, terms, winner)}"
    compute = _first(batch, winner == FAMILIES.index("compute"))
    if compute is not None:
        full = f", before memory does at {most:,.0f}" if np.isfinite(most) else ""
        return f"{sentence}; compute ends it from batch {compute:,.0f} on{full}"
    if np.isfinite(most):
        return f"{sentence}; memory ends it at batch {most:,.0f}, compute never binds before"
    return f"{sentence}; neither memory nor compute ends it"


def _most(traffic: StepTraffic, context_len: float, memory_bytes: float) -> float:
    """The largest batch that fits beside the weights; infinite where nothing is kept."""
    each = traffic.kv_fixed_stored + float(grown(traffic.kv_stored, np.asarray(context_len)))
    free = memory_bytes - traffic.weight_stored_bytes
    if free < 0:
        return 0.0
    return float(np.floor(free / each)) if each else np.inf


def _batches(most: float) -> Array:
    most = min(most, 1e9)
    if most <= _BATCHES:
        return np.arange(1.0, most + 1.0)
    return np.unique(np.round(np.geomspace(1.0, most, _BATCHES)))


def _spread(value: float | Array, batch: Array) -> Array:
    return np.broadcast_to(np.asarray(value, float), batch.shape)


def _phases(batch: Array, winner: npt.NDArray[np.intp]) -> str:
    """`weights bind up to batch 12, the cache from there on`."""
    changes = np.flatnonzero(np.diff(winner)) + 1
    starts = [0, *changes.tolist()]
    names = [_WORDS[FAMILIES[winner[start]]] for start in starts]
    if len(starts) == 1:
        verb = "bind" if names[0] == "weights" else "binds"
        return f"{names[0]} {verb} at every batch that fits"
    ends = [batch[start - 1] for start in starts[1:]]
    verb = "bind" if names[0] == "weights" else "binds"
    said = [f"{names[0]} {verb} up to batch {ends[0]:,.0f}"]
    said += [f"{name} up to {end:,.0f}" for name, end in zip(names[1:], ends[1:], strict=False)]
    return ", ".join([*said, f"{names[-1]} from there on"])


def _overtaking(batch: Array, terms: dict[str, Array], winner: npt.NDArray[np.intp]) -> str:
    """Where reading the cache overtakes reading the weights, unless the phases say it already."""
    first = _first(batch, terms["kv"] > terms["weights"])
    if first is None:
        return ""
    place = int(np.searchsorted(batch, first))
    pair = [FAMILIES.index("weights"), FAMILIES.index("kv")]
    if place and [winner[place - 1], winner[place]] == pair:
        return ""
    return f" (the cache takes longer than the weights from batch {first:,.0f} on)"


def _first(batch: Array, where: npt.NDArray[np.bool_]) -> float | None:
    found = np.flatnonzero(where)
    return float(batch[found[0]]) if len(found) else None
