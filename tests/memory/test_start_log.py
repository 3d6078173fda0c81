"""Start-up logs read and laid beside the estimate. The lines are of each engine's form."""

import pytest

from capmodel.kvcache import EngineSettings
from capmodel.memory import attention_variants, compare_log, parse_start_log, read_start_log
from capmodel.shapes import GatedDeltaNet, LayerGroup, ModelShape, SoftmaxAttention, load_shape
from capmodel.units import GIB

# Figures of L001 (vLLM 0.11, Qwen3-14B).
V1 = """
\x1b[36m(APIServer pid=1)\x1b[0m INFO non-default args: {'model_tag': 'served', 'model': 'served',
 'max_model_len': 32768, 'gpu_memory_utilization': 0.9, 'max_num_seqs': 64}
(EngineCore pid=7) INFO Initializing a V1 LLM engine (v0.11.0) with config: model='qwen3-14b', \
dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=1, kv_cache_dtype=auto
INFO Model loading took 27.5185 GiB and 5.3 seconds
INFO Available KV cache memory: 6.51 GiB
INFO GPU KV cache size: 42,656 tokens
INFO Maximum concurrency for 32,768 tokens per request: 1.30x
INFO Graph capturing finished in 20 secs, took 0.67 GiB
"""
# Figures of L002 (vLLM 0.6.4, Llama-3.1-8B, RTX 3090).
V0 = """
Loading model weights took 14.9888 GB
Memory profiling results: total_gpu_memory=23.58GiB peak_torch_memory=17.06GiB \
non_torch_memory=0.35GiB kv_cache_size=3.81GiB gpu_memory_utilization=0.90
# GPU blocks: 1952, # CPU blocks: 2048
Maximum concurrency for 20000 tokens per request: 1.56x
"""
# Figures of L142 (vLLM 0.20.0, Qwen3.6-35B-A3B, prefix caching): the printed size is not
# concurrency x length.
HYBRID = """
INFO version 0.20.0
INFO Mamba cache mode is set to 'align' for Qwen3_5MoeForConditionalGeneration by default
INFO Initializing a V1 LLM engine (v0.20.0) with config: model='none', max_seq_len=65536, \
tensor_parallel_size=1, kv_cache_dtype=fp8_e4m3, enable_prefix_caching=True
INFO Setting attention block size to 2096 tokens to ensure that attention page size is >= mamba
INFO Estimated CUDA graph memory: 0.43 GiB total
INFO Available KV cache memory: 82.42 GiB
INFO GPU KV cache size: 2,158,880 tokens
INFO Maximum concurrency for 65,536 tokens per request: 108.50x
"""
# Figures of L005 (SGLang 0.4.9, Qwen3-235B, tp 4); SGLang's GB are GiB.
SGLANG = """
server_args=ServerArgs(model_path='qwen3-235b-a22b', tp_size=4, mem_fraction_static=0.93, \
kv_cache_dtype='auto', page_size=1)
Load weight end. type=Qwen3Moe, dtype=torch.bfloat16, avail mem=20 GB, mem usage=55.54 GB.
KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB
max_total_num_tokens=367404, chunked_prefill_size=8192, context_len=40960
"""
TENSORRT = "[TensorRT-LLM][INFO] Allocated 26.91 GiB for max tokens in paged KV cache (220480)."
# Figures of L064 (llama.cpp, an 8B shape of Qwen3).
LLAMA_CPP = """
llama_model_loader: - kv   2: general.name str              = Qwen3-8B
llama_context: n_seq_max     = 1
llama_context: n_ctx         = 8192
llama_context: n_ubatch      = 512
llama_kv_cache: size = 1152.00 MiB (  8192 cells,  36 layers,  1/1 seqs), K (f16):  576.00 MiB, \
V (f16):  576.00 MiB
"""


def test_what_each_engine_says_is_read():
    log = parse_start_log(V1)
    assert (log.engine, log.version, log.model, log.kv_dtype) == (
        "vllm", "0.11.0", "qwen3-14b", "bfloat16",
    )  # fmt: skip
    assert (log.tokens, log.concurrency, log.max_model_len) == (42_656, 1.30, 32_768)
    assert (log.max_num_seqs, log.fraction) == (64, 0.9)
    assert log.available_bytes == 6.51 * GIB
    assert log.rounding_bytes == pytest.approx(0.005 * GIB)

    log = parse_start_log(V0)
    assert (log.blocks, log.tokens, log.version) == (1952, 31_232, "0.6 V0")
    assert log.activation_bytes == pytest.approx((17.06 - 14.9888) * GIB)

    log = parse_start_log(HYBRID)
    assert (log.state_mode, log.block_size, log.prefix_caching) == ("align", 2096, True)
    assert log.graphs_bytes == 0.43 * GIB

    log = parse_start_log(SGLANG)
    assert (log.engine, log.tp, log.tokens) == ("sglang", 4, 367_404)
    assert log.available_bytes == pytest.approx(16.46 * GIB)

    log = parse_start_log(TENSORRT)
    assert (log.engine, log.tokens) == ("tensorrt-llm", 220_480)

    log = parse_start_log(LLAMA_CPP)
    assert (log.engine, log.max_model_len, log.kv_dtype) == ("llama.cpp", 8192, "f16,f16")
    assert log.cache_bytes == 1152 * 2**20


def test_the_least_rank_decides():
    ranks = "INFO Available KV cache memory: 5.71 GiB\nINFO Available KV cache memory: 3.58 GiB"
    assert parse_start_log(ranks).available_bytes == 3.58 * GIB


def test_text_of_no_engine_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no line that vLLM"):
        parse_start_log("hello")
    with pytest.raises(ValueError, match="cannot be read"):
        read_start_log(tmp_path / "absent.log")


@pytest.mark.parametrize(
    ("text", "model"),
    [(V1, "qwen3-14b"), (V0, "llama-3.1-8b"), (SGLANG, None), (TENSORRT, "llama-3.1-8b")],
)
def test_the_replay_agrees_with_the_log(text, model):
    comparison = compare_log(
        parse_start_log(text), model, max_model_len=4096 if model is None else None
    )
    assert abs(comparison.tokens_error) < 0.0015
    assert comparison.concurrency_error is None or abs(comparison.concurrency_error) < 0.001


def test_a_hybrid_log_is_explained_step_by_step():
    shape = ModelShape(
        "qwen3.6-35b-a3b",
        2048,
        248_320,
        (
            LayerGroup(10, SoftmaxAttention(16, 2, 256, 256), None),
            LayerGroup(30, None, None, state=GatedDeltaNet(16, 32, 128, 128, 4)),
        ),
    )
    comparison = compare_log(parse_start_log(HYBRID), shape)
    steps = {step.name: step for step in comparison.cache}
    assert comparison.tokens_error == 0
    assert comparison.concurrency_error == 0
    # 10,240 bytes a token would be 8.6 million tokens; states and whole blocks take the rest.
    assert steps["unit"].concurrency == pytest.approx(131.9, abs=0.1)
    assert steps["windows and states"].concurrency < steps["unit"].concurrency
    assert steps["page unification"].concurrency == pytest.approx(108.5, abs=0.01)
    assert steps["as printed"].tokens == 2_158_880


def test_windows_in_flight_are_a_step_of_their_own():
    log = parse_start_log(
        "INFO Available KV cache memory: 50.00 GiB\nINFO vLLM version 0.26.0\n"
        "INFO Maximum concurrency for 131,072 tokens per request: 1.00x"
    )
    steps = {step.name: step for step in compare_log(log, "gpt-oss-120b").cache}
    assert steps["window in flight"].concurrency < steps["page unification"].concurrency


def test_memory_is_laid_out_part_by_part():
    comparison = compare_log(
        parse_start_log(V0),
        "llama-3.1-8b",
        settings=EngineSettings(version="0.6.4", max_num_batched_tokens=20_000),
    )
    parts = {part.name: part for part in comparison.memory}
    assert parts["cache"].logged_bytes == 3.81 * GIB
    assert "3.81 GiB" in parts["cache"].note
    for name in ("weights", "activation peak"):
        assert parts[name].estimate_bytes == pytest.approx(parts[name].logged_bytes, rel=0.01)
    assert parts["cache"].estimate_bytes == pytest.approx(3.81 * GIB, rel=0.05)


def test_with_a_gpu_the_datasheet_s_unit_is_told_from_the_driver_s():
    comparison = compare_log(parse_start_log(V1), gpu="a100-40gb-sxm")
    total = comparison.memory[0]
    assert total.estimate_bytes == pytest.approx(39.38 * GIB, rel=1e-3)
    assert "40 GB would be 37.25 GiB" in total.note


def test_llama_cpp_is_compared_by_its_bytes():
    comparison = compare_log(parse_start_log(LLAMA_CPP), "qwen3-8b")
    assert comparison.bytes_error == 0


def test_a_log_without_a_model_asks_for_it():
    with pytest.raises(ValueError, match="--model"):
        compare_log(parse_start_log(V0))


def test_variants_keep_layers_and_windows():
    own = attention_variants(load_shape("llama-2-7b"))
    assert list(own) == ["MHA", "GQA 8", "MQA", "MLA"]
    assert own["MHA"] is load_shape("llama-2-7b")
    assert list(attention_variants(load_shape("deepseek-v3"))) == ["MHA", "MLA"]
    assert "GQA 8/4" in attention_variants(load_shape("mimo-v2-flash"))
