"""The lines engines print about memory and cache, as patterns.

A field and a pattern whose first group that takes part is its value; `*_bytes` groups are GiB.
"""

_SIZE = r"(-?[\d.]+) ?(?:GiB|GB)"

VLLM_LINES = (
    ("version", r"(?:LLM engine \(|vLLM version:? ?|version )v?(0\.\d+\.\d+)"),
    ("model", r"with config: model='([^']+)'"),
    ("served", r"'model(?:_tag)?': '([^']+)'"),
    ("tp", r"tensor_parallel_size(?:=|': )(\d+)"),
    ("pp", r"pipeline_parallel_size(?:=|': )(\d+)"),
    ("context_parallel", r"decode_context_parallel_size(?:=|': )(\d+)"),
    ("dtype", r"[ ,]dtype=torch\.(\w+)"),
    ("kv_dtype", r"kv_cache_dtype(?:=|': ')(\w+)"),
    ("max_model_len", r"(?:max_seq_len=|max_model_len': |Maximum concurrency for )([\d,]+)"),
    ("block_size", r"(?:Setting attention block size to |block_size': |block_size=)(\d+)"),
    ("max_num_batched_tokens", r"max_num_batched_tokens(?:=|': )(\d+)"),
    ("max_num_seqs", r"max_num_seqs(?:=|': )(\d+)"),
    ("prefix_caching", r"enable_prefix_caching(?:=|': )(True|False)"),
    ("state_mode", r"(?:Mamba cache mode is set to |mamba_cache_mode(?:=|': ))'(\w+)'"),
    ("draft_tokens", r"num_speculative_tokens(?:=|': )(\d+)"),
    ("fraction", r"(?:gpu_memory_|GPU memory )utilization(?:=|': | is \(| \()([\d.]+)"),
    ("total_bytes", rf"(?:total_gpu_memory(?:=| \()|Free memory on device \([\d.]+/){_SIZE}"),
    ("weights_bytes", rf"(?:odel loading took|weights take|weights took|Actual usage is) {_SIZE}"),
    ("activation_bytes", rf"peak memory takes {_SIZE}|{_SIZE} for peak activation"),
    ("peak_bytes", rf"peak_torch_memory={_SIZE}"),
    ("non_torch_bytes", rf"(?:non_torch_memory(?:=| takes ){_SIZE}|{_SIZE} for non-torch)"),
    ("graphs_bytes", rf"CUDA graph memory: {_SIZE}|raph capturing .* took {_SIZE}"),
    ("available_bytes", rf"(?:KV cache memory: |for KV Cache is |kv_cache_size=){_SIZE}"),
    ("blocks", r"# (?:GPU|cuda|gpu) blocks: (\d+)|[^#] ?GPU blocks: (\d+)"),
    ("tokens", r"GPU KV cache size: ([\d,]+) tokens"),
    ("concurrency", r"tokens per request: ([\d.]+)x"),
)  # fmt: skip

SGLANG_LINES = (
    ("model", r"model_path='([^']+)'"),
    ("tp", r"tp_size=(\d+)"),
    ("pp", r"pp_size=(\d+)"),
    ("dtype", r"dtype=torch\.(\w+)"),
    ("kv_dtype", r"kv_cache_dtype='(\w+)'"),
    ("max_model_len", r"context_len=(\d+)"),
    ("block_size", r"page_size=(\d+)"),
    ("fraction", r"mem_fraction_static=([\d.]+)"),
    ("weights_bytes", rf"Load weight end\..*mem usage={_SIZE}"),
    ("graphs_bytes", rf"Capture cuda graph end\..*mem usage={_SIZE}"),
    ("key_bytes", rf"K size: {_SIZE}"),
    ("value_bytes", rf"V size: {_SIZE}"),
    ("available_bytes", rf"KV size: {_SIZE}"),
    ("tokens", r"#tokens: (\d+)|max_total_num_tokens=(\d+)"),
)

TENSORRT_LLM_LINES = (
    ("version", r"TensorRT-LLM version:? (\d+\.\d+\.\d+)"),
    ("model", r"model=?'([^']+)'"),
    ("block_size", r"[Tt]okens per block: (\d+)"),
    ("max_model_len", r"max_seq_len[=:] ?(\d+)"),
    ("weights_bytes", rf"Loaded engine size: {_SIZE}"),
    ("available_bytes", rf"Allocated {_SIZE} for max tokens in paged KV cache"),
    ("tokens", r"for max tokens in paged KV cache \((\d+)\)"),
)

LLAMA_CPP_LINES = (
    ("model", r"general\.name\s+str\s+= (.+)"),
    ("max_model_len", r"n_ctx\s+= (\d+)"),
    ("micro_batch", r"n_ubatch\s+= (\d+)"),
    ("slots", r"n_seq_max\s+= (\d+)"),
    ("unified", r"kv_unified\s+= (true|false)"),
    ("kv_dtype", r"K \((\w+)\)"),
    ("value_dtype", r"V \((\w+)\)"),
)

SIGNS = (
    ("llama.cpp", r"llama_kv_cache|llama_context|llama_new_context|KV self size"),
    ("tensorrt-llm", r"paged KV cache|TensorRT-LLM|TRT-LLM"),
    ("sglang", r"KV Cache is allocated|ServerArgs|max_total_num_tokens"),
    ("vllm", r"vllm|vLLM|GPU KV cache size|Available KV cache memory|(?:GPU|cuda) blocks"),
)
LINES = {
    "vllm": VLLM_LINES,
    "sglang": SGLANG_LINES,
    "tensorrt-llm": TENSORRT_LLM_LINES,
    "llama.cpp": LLAMA_CPP_LINES,
}
