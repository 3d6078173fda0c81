"""What a start-up command decides about the cache, for any engine."""

from dataclasses import dataclass

from capmodel.arguments import COUNT, COUNT_OR_NONE, GPUS, Span, flag, number, text
from capmodel.dtypes import kv_dtype_name
from capmodel.words import shown

STATE_MODES = ("none", "align", "all")
LATENT_FORMS = ("latent", "latent+v", "heads")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Start-up settings that decide how an engine lays its cache out.

    version: as the log prints it ("0.11.0"; "V0" after it names vLLM's first engine); None is the
    newest version known here. block_size: tokens a block, None = the engine's default.
    pp: pipeline stages. context_parallel: GPUs one sequence is divided over (vLLM's DCP).
    draft_layers, draft_tokens: layers of a draft head that keep a cache, tokens verified a step.

    vLLM: max_num_batched_tokens, which windowed layers hold on top of their window;
    batches_in_flight, None = what the version has; prefix_caching and state_mode ("none",
    "align", "all"; None = what prefix caching asks for) of hybrid models; hybrid_manager, off
    where `--disable-hybrid-kv-cache-manager` or a connector forces it.
    SGLang: swa_ratio, the share of the full pool's tokens the sliding pool holds.
    llama.cpp: slots (`--parallel`), unified (`--kv-unified`), micro_batch (`-ub`), full_windows
    (`--swa-full`), latent, what MLA layers store: "latent" (the latent once), "latent+v" (its
    value part again, builds of spring 2025) or "heads" (older GGUF files: whole heads).
    """

    kv_dtype: str = "bf16"
    tp: int = 1
    pp: int = 1
    context_parallel: int = 1
    version: str | None = None
    block_size: int | None = None
    draft_layers: int = 0
    draft_tokens: int = 0
    max_num_batched_tokens: int = 8192
    batches_in_flight: int | None = None
    prefix_caching: bool | None = None
    state_mode: str | None = None
    hybrid_manager: bool = True
    swa_ratio: float = 0.8
    slots: int = 1
    unified: bool = False
    micro_batch: int = 512
    full_windows: bool = False
    latent: str = "latent"

    def __post_init__(self) -> None:
        kv_dtype_name(self.kv_dtype)
        if self.version is not None:
            text("version", self.version, "a version such as 0.11.0, or None")
        for name, span in _COUNTS.items():
            value = getattr(self, name)
            if value is not None or name not in _MAY_BE_NONE:
                object.__setattr__(self, name, number(name, value, span))
        for name in ("hybrid_manager", "unified", "full_windows"):
            flag(name, getattr(self, name))
        if self.prefix_caching is not None:
            flag("prefix_caching", self.prefix_caching)
        if self.state_mode is not None:
            _one_of("state_mode", self.state_mode, STATE_MODES)
        _one_of("latent", self.latent, LATENT_FORMS)
        number("swa_ratio", self.swa_ratio, _RATIO)


_COUNTS = {
    "tp": GPUS, "pp": COUNT, "context_parallel": COUNT, "block_size": COUNT,
    "draft_layers": COUNT_OR_NONE, "draft_tokens": COUNT_OR_NONE,
    "max_num_batched_tokens": COUNT, "batches_in_flight": COUNT, "slots": COUNT,
    "micro_batch": COUNT,
}  # fmt: skip
_MAY_BE_NONE = {"block_size", "batches_in_flight"}
_RATIO = Span("a number in (0, 1]", 0.0, 1.0, open_low=True)


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"Got {name}={shown(value)}, but expected one of {', '.join(known)}")
