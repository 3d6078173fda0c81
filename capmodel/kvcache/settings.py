"""What a start-up command decides about the cache, for any engine."""

from dataclasses import dataclass

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
        for name in ("tp", "pp", "context_parallel", "max_num_batched_tokens", "slots"):
            if getattr(self, name) < 1:
                raise ValueError(f"Got {name}={getattr(self, name)}, but expected at least 1")
        for name in ("block_size", "batches_in_flight", "micro_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"Got {name}={value}, but expected at least 1")
        for name in ("draft_layers", "draft_tokens"):
            if getattr(self, name) < 0:
                raise ValueError(f"Got {name}={getattr(self, name)}, but expected 0 or more")
        if self.state_mode is not None and self.state_mode not in STATE_MODES:
            raise ValueError(
                f"Got state_mode={self.state_mode!r}, but expected one of {', '.join(STATE_MODES)}"
            )
        if self.latent not in LATENT_FORMS:
            raise ValueError(
                f"Got latent={self.latent!r}, but expected one of {', '.join(LATENT_FORMS)}"
            )
        if not 0 < self.swa_ratio <= 1:
            raise ValueError(f"Got swa_ratio={self.swa_ratio}, but expected a number in (0, 1]")
