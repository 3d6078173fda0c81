"""Hold the lab's decoder against Transformers, cache on and off, on tiny random models.

    pip install torch transformers
    python tools/oracle_lab.py

Prints one line a case and exits with 1 if logits differ by more than LIMIT. Transformers keeps
its norms and angles in float32 whatever the weights are, so everything runs in float32 here.
"""

import sys
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    DynamicCache,
    GptOssConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention

from capmodel.lab.arithmetic import BLAS
from capmodel.lab.attention import Pass, softmax_attention
from capmodel.lab.config import ToyConfig
from capmodel.lab.counters import Counters
from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.language_model import load_language_model
from capmodel.lab.parameters import LatentWeights, LayerWeights, Parameters, SoftmaxWeights
from capmodel.lab.rope import rope_table
from capmodel.shapes.attention import LatentAttention, SoftmaxAttention

LIMIT = 2e-5  # of the largest logit
PROMPT, LENGTH, VOCAB, HIDDEN, MLP, LAYERS = 5, 14, 64, 32, 48, 2

Case = tuple[str, PreTrainedModel, ToyDecoder]


def main() -> int:
    """Run every case; 0 when all agree."""
    torch.manual_seed(0)
    warnings.simplefilter("ignore", FutureWarning)  # past_key_values is being renamed
    failed = 0
    gaps = [(name, largest_gap(theirs.eval(), ours)) for name, theirs, ours in cases()]
    for name, gap in [
        *gaps,
        ("gpt-oss, one windowed attention layer with sink logits", sink_gap()),
    ]:
        failed += gap > LIMIT
        print(f"{'agrees' if gap <= LIMIT else 'DIFFERS':8s} {gap:.1e}  {name}")
    return int(failed > 0)


def largest_gap(theirs: PreTrainedModel, ours: ToyDecoder) -> float:
    """Largest difference of logits over both caches on and off, over the largest logit."""
    vocab = ours.config.vocab_size
    tokens = np.random.default_rng(0).integers(0, vocab, (2, LENGTH))
    ids = torch.from_numpy(tokens)
    with torch.no_grad():
        reference = theirs(ids, use_cache=False).logits.numpy()
        past = DynamicCache(config=theirs.config)
        cached = [theirs(ids[:, :PROMPT], past_key_values=past, use_cache=True).logits.numpy()]
        for i in range(PROMPT, LENGTH):
            step = theirs(ids[:, i : i + 1], past_key_values=past, use_cache=True)
            cached.append(step.logits.numpy())
    cache = ours.new_cache()
    own = [ours.forward(tokens[:, :PROMPT], cache)]
    own += [ours.forward(tokens[:, i : i + 1], cache) for i in range(PROMPT, LENGTH)]
    found = (np.concatenate(cached, 1), ours.forward(tokens), np.concatenate(own, 1))
    gaps = [np.abs(logits - reference).max() for logits in found]
    return float(max(gaps) / np.abs(reference).max())


def sink_gap() -> float:
    """Largest difference of one gpt-oss attention layer's output, over its largest number.

    Only the layer: the rest of that model is a mixture of experts.
    """
    window = 4
    config = GptOssConfig(
        hidden_size=HIDDEN, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        sliding_window=window, layer_types=["sliding_attention"], num_hidden_layers=1,
        attention_bias=False,
    )  # fmt: skip
    config._attn_implementation = "eager"
    theirs = GptOssAttention(config, 0).eval()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, LENGTH, HIDDEN)).astype(np.float32)
    distance = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
    hidden = np.where((distance >= 0) & (distance < window), 0, -np.inf).astype(np.float32)
    table = rope_table(np.arange(LENGTH), 8, dtype="float32")
    with torch.no_grad():
        theirs.sinks.normal_()
        angles = tuple(torch.from_numpy(part)[None] for part in table)
        mask = torch.from_numpy(hidden)[None, None]
        expected = theirs(torch.from_numpy(x), angles, attention_mask=mask)[0].numpy()
    state = {name: value.numpy().T for name, value in theirs.state_dict().items()}
    weights = SoftmaxWeights(*(state[f"{n}_proj.weight"] for n in "qkvo"), state["sinks"])
    kind = SoftmaxAttention(4, 2, 8, 8, window=window, sinks=True)
    run = Pass(np.arange(LENGTH), BLAS, Counters(), 10_000.0, 1e-5, 0, False)
    found = softmax_attention(x, kind, weights, None, run)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def cases() -> Iterator[Case]:
    """(name, their model, ours with the same weights)."""
    sizes = {
        "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": MLP,
        "num_hidden_layers": LAYERS, "num_attention_heads": 4, "initializer_range": 0.2,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    }  # fmt: skip
    for name, heads, dim, tied in (
        ("MHA", 4, 8, False),
        ("GQA", 2, 12, True),
        ("MQA", 1, 8, False),
    ):
        config = LlamaConfig(
            **sizes, num_key_value_heads=heads, head_dim=dim, tie_word_embeddings=tied
        )
        layer = SoftmaxAttention(4, heads, dim, dim)
        yield f"Llama, {name}, head_dim {dim}", *pair(LlamaForCausalLM(config), layer)
    config = MistralConfig(**sizes, num_key_value_heads=2, head_dim=8, sliding_window=4)
    config._attn_implementation = "eager"
    layer = SoftmaxAttention(4, 2, 8, 8, window=4)
    yield "Mistral, window of 4", *pair(MistralForCausalLM(config), layer)
    config = DeepseekV3Config(
        **sizes, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=12, qk_nope_head_dim=8,
        qk_rope_head_dim=4, v_head_dim=6, first_k_dense_replace=LAYERS, rope_interleave=False,
        n_routed_experts=2, num_experts_per_tok=1, n_group=1, topk_group=1,
    )  # fmt: skip
    theirs = DeepseekV3ForCausalLM(config)
    latent = LatentAttention(4, None, 12, 8, 4, 6)
    for absorbed in (False, True):
        how = "absorbed" if absorbed else "expanded"
        yield f"DeepSeek-V3, MLA {how} here", *pair(theirs, latent, absorbed)
    yield trained()


def trained() -> Case:
    """The shipped model, put into Transformers."""
    model = load_language_model()
    ours = model.decoder
    layer = ours.config.layers[0]
    if not isinstance(layer, SoftmaxAttention):
        raise ValueError(f"Got a {type(layer).__name__} layer, but expected SoftmaxAttention")
    config = LlamaConfig(
        vocab_size=ours.config.vocab_size, hidden_size=ours.config.hidden_size,
        intermediate_size=ours.config.intermediate, num_hidden_layers=len(ours.config.layers),
        num_attention_heads=layer.n_heads, num_key_value_heads=layer.n_kv_heads,
        head_dim=layer.head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": ours.config.rope_base},
        rms_norm_eps=ours.config.norm_eps, tie_word_embeddings=False,
    )  # fmt: skip
    theirs = LlamaForCausalLM(config)
    state = {
        "model.embed_tokens.weight": ours.parameters.embedding,
        "model.norm.weight": ours.parameters.final_norm,
        "lm_head.weight": ours.parameters.output.T,
    }
    for i, weights in enumerate(ours.parameters.layers):
        attention, at = weights.attention, f"model.layers.{i}."
        if not isinstance(attention, SoftmaxWeights):
            raise ValueError("Got latent weights, but expected softmax attention")
        state |= {
            at + "input_layernorm.weight": weights.attention_norm,
            at + "post_attention_layernorm.weight": weights.mlp_norm,
            **{at + f"self_attn.{n}_proj.weight": getattr(attention, n).T for n in "qkvo"},
            **{at + f"mlp.{n}_proj.weight": getattr(weights, n).T for n in ("gate", "up", "down")},
        }
    theirs.load_state_dict({name: torch.tensor(np.array(value)) for name, value in state.items()})
    return "the shipped model as a Llama", theirs, ours


def pair(
    theirs: PreTrainedModel, kind: SoftmaxAttention | LatentAttention, absorbed: bool = False
) -> tuple[PreTrainedModel, ToyDecoder]:
    """Their model with random norms, and ours with its weights."""
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            if "norm" in name:
                weight.normal_(1.0, 0.1)
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    layers = []
    for i in range(LAYERS):
        part = {
            name.removeprefix(f"model.layers.{i}."): value.T
            for name, value in state.items()
            if name.startswith(f"model.layers.{i}.")
        }
        attention = latent(part, kind) if isinstance(kind, LatentAttention) else softmax(part)
        layers.append(
            LayerWeights(
                part["input_layernorm.weight"],
                attention,
                part["post_attention_layernorm.weight"],
                *(part[f"mlp.{name}_proj.weight"] for name in ("gate", "up", "down")),
            )
        )
    parameters = Parameters(
        state["model.embed_tokens.weight"],
        tuple(layers),
        state["model.norm.weight"],
        state["lm_head.weight"].T,
    )
    config = ToyConfig((kind,) * LAYERS, HIDDEN, VOCAB, MLP)
    return theirs, ToyDecoder(config, parameters, absorbed=absorbed)


def softmax(part: dict[str, np.ndarray]) -> SoftmaxWeights:
    """Llama's and Mistral's four matrices."""
    return SoftmaxWeights(*(part[f"self_attn.{name}_proj.weight"] for name in "qkvo"))


def latent(part: dict[str, np.ndarray], kind: LatentAttention) -> LatentWeights:
    """DeepSeek's joint down- and up-projections, cut into the lab's."""
    down = part["self_attn.kv_a_proj_with_mqa.weight"]
    up = part["self_attn.kv_b_proj.weight"].reshape(kind.kv_lora_rank, kind.n_heads, -1)
    up = up.swapaxes(0, 1)
    return LatentWeights(
        part["self_attn.q_proj.weight"],
        down[:, : kind.kv_lora_rank],
        down[:, kind.kv_lora_rank :],
        part["self_attn.kv_a_layernorm.weight"],
        up[..., : kind.qk_nope_head_dim],
        up[..., kind.qk_nope_head_dim :],
        part["self_attn.o_proj.weight"],
    )


if __name__ == "__main__":
    sys.exit(main())
