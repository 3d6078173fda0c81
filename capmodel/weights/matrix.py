"""One matrix of a model, with everything memory and traffic need to know about it."""

from dataclasses import dataclass

PARTS = ("attention", "indexer", "state", "mlp", "experts", "shared", "router", "norm",
         "embedding", "head", "mtp", "tower")  # fmt: skip

# Parts a decode step does not stream: tables looked up row by row, layers an engine runs only
# for speculation, encoders that ran before.
UNREAD_PARTS = frozenset({"embedding", "mtp", "tower"})


@dataclass(frozen=True, slots=True)
class Matrix:
    """`count` equal matrices of `elements` numbers each.

    part: where it belongs, one of PARTS. A tied table is one matrix of part "head".
    name: module path inside a layer, as checkpoints spell it ("self_attn.q_proj"); vectors of a
        layer are gathered under one name.
    elements, count: numbers in one copy; copies in the whole model (layers, times experts).
    split: how GPUs share it.
        "tp": each of tp GPUs holds 1/tp. "vocab": the same, over vocabulary rows.
        "kv": whole KV heads, replicated once tp exceeds `kv_heads`.
        "replicated": every GPU of the tp group holds all of it.
        "expert": `count` copies over tp x (data-parallel ranks) with expert parallelism, else
        each copy split by tp; the bytes of a tp group are the same either way.
        Layer split (pp) divides `count`; embedding and head sit on the end stages. Under
        data-parallel attention only "expert" matrices are split, all others are whole per rank.
    quantised: a weight dtype applies to it; else it stays in 16 bits (norms, routers, tables).
    kv_heads: KV heads of a "kv" matrix.
    n_experts, top_k: set on experts. A token touches `top_k` of each layer's `n_experts` copies,
        so a batch reads `layers * n_experts * (1 - (1 - top_k/n_experts)**batch)` of them under
        uniform routing; all other read matrices are read once per step, whatever the batch.
    """

    part: str
    name: str
    elements: int
    count: int
    split: str
    quantised: bool
    kv_heads: int = 0
    n_experts: int = 0
    top_k: int = 0

    @property
    def layers(self) -> int:
        """Layers that hold it (1 for tables)."""
        return self.count // self.n_experts if self.n_experts else self.count

    @property
    def total(self) -> int:
        """Parameters in the whole model."""
        return self.elements * self.count

    @property
    def active(self) -> int:
        """Parameters one token passes through."""
        if self.part in ("mtp", "tower"):
            return 0
        return self.elements * self.layers * self.top_k if self.n_experts else self.total

    @property
    def is_read(self) -> bool:
        """Whether a decode step streams it from memory (experts: those touched)."""
        return self.part not in UNREAD_PARTS

    def gpu_share(self, tp: int) -> float:
        """Fraction of it on each GPU of a tensor-parallel group of `tp`."""
        if self.split == "replicated":
            return 1.0
        if self.split == "kv":
            return max(1, -(-self.kv_heads // tp)) / self.kv_heads
        return 1.0 / tp
