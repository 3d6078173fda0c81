"""What each rule means, in a line: of the checks, and of the readers that met such a row first."""

# Rule -> its meaning. A rule may set rows aside, flag them, or do one or the other by degree.
GLOSSES = {
    # Readers: what a file says of its own rows.
    "all_failed": "no request of the run came back",
    "no_decode": "a single token was generated, so nothing was decoded",
    "no_step": "the tool gives no time per output token and nothing to derive it from",
    "no_batch": "how many sequences were decoded together is not told",
    "prefill_only": "a prompt-processing test holds no decode step",
    "prefill_and_decode": "prompt and output were timed together",
    "parallelism_unknown": "the parallel degrees recorded cannot be the true ones",
    "batch_contradiction": "the batch is not the concurrency that the row's name says",
    "differenced": "went into a clean decode step with a run of another output length",
    "kv_dtype_assumed": "the cache's dtype is not recorded; taken from the launch scripts",
    "parallelism_mended": "tp was stored as tp x ep, and is undone",
    "suspect_source": "the source's figures for this model do not fit its others",
    "queued": "first tokens came after more than 20 s: requests waited in a queue",
    "gguf_mixture": "a GGUF mixture of several widths; its bits per weight are kept",
    "all_stages": "a summary of all stages of a run: loads may be mixed in it",
    "tpot_from_median_ttft": "time per token from the median first token, for want of the mean",
    # Names and units.
    "unknown_model": "the model is in no catalogue, and the row brings no shape of its own",
    "unknown_gpu": "the GPU is in no catalogue, and the row brings no figures of its own",
    "no_features": "its bytes and FLOP cannot be counted; the reason names what is wrong",
    "unknown_engine": "the engine's name is none of those known; its rows stand by themselves",
    "wrong_unit": "most rows of the file are off by one factor: a column is in another unit",
    "unit_slip": "the step is a thousand or a million times what it can take: another unit",
    # Physics.
    "no_bandwidth": "no source gives the GPU's bandwidth, so there is no floor to hold it to",
    "below_floor": "faster than its bytes can be read or its FLOP done",
    "below_expected": "reads less than the experts that random prompts would touch",
    "over_memory": "weights and cache do not fit the memory, so the batch never ran as one",
    "nearly_full": "weights and cache nearly fill the memory; part of the batch may have waited",
    # How it was measured.
    "incomplete": "fewer requests came back than were sent",
    "short_output": "outputs ended before the length asked for",
    "short_run": "too short: mostly ramp-up",
    "concurrency_not_reached": "fewer sequences decoded together than offered",
    "warm_prefix": "prompts came from a warm prefix cache",
    "chunk_counting": "streamed chunks are not tokens",
    "speculative": "speculative decoding: a token is no step",
    "contradiction": "throughput and latency cannot both be true",
    "gpu_count": "the parallel degrees do not give the GPU count",
    "replicas": "more GPUs than the degrees: several copies; the batch may be that of all",
    # Rows against each other.
    "copied": "the same time to the last digit as another row: listed twice",
    "repeated": "one configuration measured several times; kept, repeats measure the noise",
    "warm_up": "slower than a run with as much or more work: it loaded or warmed up",
    "fixed_time": "much of the time does not grow with the output: loading or warm-up",
}


def gloss(rule: str) -> str:
    """What a rule means, in a line; empty for a flag of the table's own."""
    return GLOSSES.get(rule, "")
