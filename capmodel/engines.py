"""Serving engines by the names this package knows, and what to doubt about another name."""

import difflib
from functools import lru_cache

from capmodel.words import one_line, shown

# Name -> other spellings in use for it.
ENGINES = {
    "vllm": (),
    "sglang": ("sgl",),
    "tensorrt-llm": ("trtllm", "trt-llm", "tensorrtllm", "trt"),
    "llama.cpp": ("llamacpp", "llama-cpp", "ggml"),
    "deepspeed": (),
    "deepspeed-mii": ("mii", "deepspeed-fastgen"),
    "lmdeploy": ("turbomind",),
    "tgi": ("text-generation-inference",),
    "transformers": ("huggingface", "pytorch"),
    "mlx": ("mlx-lm",),
    "exllama": ("exllamav2", "exllamav3"),
    "mlc-llm": ("mlc",),
    "ktransformers": (),
    "sambaflow": (),
    "aphrodite": (),
    "synthetic": (),  # generated runs
}
# Engines that copy the router's choice to the host and wait for it in every layer (llama.cpp's
# mul_mat_id), so that stages of a model with experts do not work on several passes at once.
WAIT_FOR_ROUTING = frozenset({"llama.cpp"})
_PLACE_OF = {
    _bare: name
    for name, others in ENGINES.items()
    for _bare in (name.replace("-", "").replace(".", ""), *(o.replace("-", "") for o in others))
}


def known_engine(name: str | None) -> str | None:
    """The name an engine has here, whatever spelling is asked for; an unknown one as it is.

    None is None. Raises ValueError for what is no text.
    """
    if name is None:
        return None
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"Got engine={shown(name)}, but expected a name such as vllm, or None")
    return _known(name)


@lru_cache(maxsize=256)
def _known(name: str) -> str:
    wanted = one_line(name.strip().lower())
    return wanted if wanted in ENGINES else _PLACE_OF.get(_bare_name(wanted), wanted)


def nearest_engines(name: str, count: int = 2) -> list[str]:
    """Known engines whose name or another spelling of it comes nearest to `name`, best first."""
    near = difflib.get_close_matches(_bare_name(name), _PLACE_OF, n=count + 1, cutoff=0.6)
    return list(dict.fromkeys(_PLACE_OF[found] for found in near))[:count]


def engine_doubt(name: str | None) -> str | None:
    """What to doubt about an engine's name; None for a known one, and for none at all.

    Rows and coefficients are found by the name, so `vlm` shares nothing with `vllm`.
    """
    wanted = (name or "").strip().lower()
    if not wanted or wanted in ENGINES:
        return None
    bare = _bare_name(wanted)
    if bare in _PLACE_OF:
        return f"engine {wanted!r} is called {_PLACE_OF[bare]!r} here; rows of that name are others"
    near = nearest_engines(wanted)
    if near:
        return f"engine {wanted!r} is none of those known; did you mean {' or '.join(near)}?"
    known = ", ".join(name for name in ENGINES if name != "synthetic")
    return f"engine {wanted!r} is none of those known ({known}); it stands by itself"


def _bare_name(name: str) -> str:
    return "".join(mark for mark in name.strip().lower() if mark.isalnum())
