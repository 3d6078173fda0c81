"""Words of the plan that a manager may not know."""

GLOSSARY = (
    ("Batch", "Requests that are decoded together: one step gives each of them one token."),
    ("Bind", "What a step spends most of its time on; making anything else faster helps little."),
    ("Block", "The unit an engine hands out cache memory in; a request holds whole blocks."),
    ("Cost a million tokens", "The fleet's hourly cost, split over the tokens it handles an hour."),
    ("E2E", "Time from a request's arrival to its last token."),
    ("KV cache", "What the model keeps of every token it has seen, in GPU memory, until the "
     "request ends. It grows with every token."),
    ("MAPE", "Mean absolute error in percent of the measured value."),
    ("p95", "The value that 95 of 100 requests stay below."),
    ("Preemption", "The engine throws a request's cache away to make room and computes it again."),
    ("Prefill", "Reading the prompt, before the first token comes out."),
    ("Prefix cache", "Cache kept of a prompt's beginning that several requests share."),
    ("Promise (SLO)", "What users were told: a limit that 95 of 100 requests keep."),
    ("Replica", "One complete copy of the model on its GPUs; the fleet is several of them."),
    ("Roofline", "Step time reckoned from bytes read and arithmetic done, over what the GPU's "
     "memory and processors achieve."),
    ("Step", "One pass of the model over the batch."),
    ("TP", "Tensor parallelism: how many GPUs one replica is split over."),
    ("TPOT", "Time per output token after the first; how fast text appears."),
    ("TTFT", "Time to the first token; how long users wait before anything appears."),
    ("Utilisation", "Load over the most a replica can sustain."),
)  # fmt: skip
