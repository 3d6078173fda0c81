"""The forms of the requests. Fields are the keyword names of the Python functions."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_STEPS = 10_000  # of one batch prediction
MOST_CHOICES = 16  # of one list of GPUs, degrees or dtypes
MOST_REQUESTS = 20_000  # of a trace
MOST_CLIENTS = 20_000  # three times as many requests are simulated

Name = Annotated[str, Field(min_length=1, max_length=200)]
Dtype = Annotated[str, Field(min_length=1, max_length=40)]
Engine = Annotated[str, Field(min_length=1, max_length=40)]
Positive = Annotated[float, Field(gt=0, le=1e12)]
Share = Annotated[float, Field(gt=0, lt=1)]
Tokens = Annotated[int, Field(ge=1, le=100_000_000)]
Degree = Annotated[int, Field(ge=1, le=4096)]
Sequences = Annotated[int, Field(ge=1, le=1_000_000)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Model = Annotated[
    Name | dict[str, Any],
    Field(
        description="A catalogue name, a Hugging Face id in the catalogue, or the content of a "
        "config.json. Paths are not opened.",
        examples=["llama-3-70b"],
    ),
]
GpuBody = Annotated[
    Name | dict[str, Any],
    Field(description="A name, an alias, or the fields of a GPU.", examples=["h100-sxm"]),
]
Calibrated = Annotated[
    dict[str, Any] | None,
    Field(description="The content of a calibration file; null: the shipped ones."),
]
Numbers = Annotated[
    Positive | Annotated[list[Positive], Field(min_length=1, max_length=MOST_STEPS)],
    Field(description="A number, or as many as there are steps.", examples=[8, [1, 8, 64]]),
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class PredictBody(_Body):
    """One decode step, or many: batch_size, context_len and tp broadcast."""

    model: Model
    gpu: GpuBody
    batch_size: Numbers
    context_len: Numbers
    tp: Degree | Annotated[list[Degree], Field(min_length=1, max_length=MOST_STEPS)] = 1
    weight_dtype: Dtype = "bf16"
    kv_dtype: Dtype = "bf16"
    engine: Engine | None = None
    method: Literal["regressor", "roofline"] = "regressor"
    calibration: Calibrated = None
    interval: Share | None = 0.9


class KvBody(_Body):
    """The cache, and with a gpu what fits. A list of contexts gives the curve."""

    model: Model
    context_len: Tokens | Annotated[list[Tokens], Field(min_length=1, max_length=MOST_STEPS)]
    batch_size: Sequences = 1
    kv_dtype: Dtype = "bf16"
    tp: Degree = 1
    gpu: GpuBody | None = None
    weight_dtype: Dtype | None = "bf16"
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = 0.92
    mode: Literal["nameplate", "engine"] = "nameplate"
    reserve_bytes: Annotated[float, Field(ge=0, le=1e15)] | None = None
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    block_size: Annotated[int, Field(ge=1, le=4096)] = 16


class LogNormalBody(_Body):
    """Log-normal lengths of a mean [tokens] and a coefficient of variation."""

    mean: Annotated[float, Field(ge=1, le=1e7)]
    cv: Annotated[float, Field(ge=0, le=10)]


class PrefixBody(_Body):
    """A prefix that prompts share: its tokens, and the share of prompts that have it."""

    tokens: Annotated[int, Field(ge=1, le=10_000_000)]
    share: Annotated[float, Field(ge=0, le=1)] = 1.0


TraceNumbers = Annotated[
    list[Annotated[float, Field(ge=0, le=1e9)]], Field(min_length=1, max_length=MOST_REQUESTS)
]


class TraceBody(_Body):
    """Requests of a trace: arrivals [s] that never fall, prompt and output tokens."""

    arrival_s: TraceNumbers
    prompt_tokens: TraceNumbers
    output_tokens: TraceNumbers


Choices = Annotated[list[Dtype], Field(min_length=1, max_length=MOST_CHOICES)]
Lengths = Annotated[float, Field(ge=1, le=1e7)] | LogNormalBody | None
Price = Annotated[float, Field(gt=0, le=1e6)]


class PlanBody(_Body):
    """A workload to GPUs, latency and money. Null fields are searched, or have no limit."""

    model: Model
    gpu: GpuBody | Annotated[list[GpuBody], Field(min_length=1, max_length=MOST_CHOICES)] | None = (
        None
    )
    rate: Annotated[float, Field(gt=0, le=1e6)] | None = Field(None, examples=[5.0])
    concurrency: Annotated[int, Field(ge=1, le=MOST_CLIENTS)] | None = None
    trace: TraceBody | None = None
    input_len: Lengths = Field(None, examples=[1000])
    output_len: Lengths = Field(None, examples=[200])
    slo_ttft_p95: Annotated[float, Field(gt=0, le=1e6)] | None = None
    slo_tpot_p95: Annotated[float, Field(gt=0, le=1e6)] | None = None
    slo_e2e_p95: Annotated[float, Field(gt=0, le=1e6)] | None = None
    tp: Degree | Annotated[list[Degree], Field(min_length=1, max_length=MOST_CHOICES)] | None = None
    weight_dtype: Dtype | Choices | None = None
    kv_dtype: Dtype | Choices | None = None
    price: Price | Annotated[dict[Name, Price], Field(max_length=64)] | None = None
    calibration: Calibrated = None
    simulate: bool = True
    seed: Seed = 0
    engine: Engine | None = None
    cv: Annotated[float, Field(ge=0, le=10)] = 1.0
    prefix: PrefixBody | None = None
    prefix_cache: bool = True
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = 0.92
    disaggregate: bool = False
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")] | None = None


Cell = str | float | int | bool | None
Rows = Annotated[
    list[Annotated[dict[Name, Cell], Field(min_length=1, max_length=80)]],
    Field(min_length=1, max_length=30_000, description="Rows of the runs table, as objects."),
]


class FitBody(_Body):
    """Runs as rows; grade false skips the held-out grade and with it the interval."""

    runs: Rows
    name: Annotated[str, Field(max_length=80)] = "calibration"
    grade: bool = True
    seed: Seed = 0
    figures: bool = Field(False, description="Also the grade card's figures, as SVG.")


class GradeBody(_Body):
    """Cross-validate runs; or fit them and grade test; or grade them with a calibration."""

    runs: Rows
    test: Rows | None = None
    calibration: Calibrated = None
    splits: list[Literal["random", "config", "deployment", "model", "gpu"]] | None = None
    estimators: (
        list[Literal["raw_linear", "raw_boosting", "nearest", "roofline", "regressor"]] | None
    ) = None
    seed: Seed = 0
    figures: bool = False


class LabQuery(BaseModel):
    """What the lab shows."""

    model_config = ConfigDict(extra="forbid")

    n_tokens: Annotated[int, Field(ge=1, le=64)] = 16
    seed: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    model: Name = "llama-3-70b"
    context_len: Annotated[int, Field(ge=1, le=10_000_000)] = 131_072
    block_size: Annotated[int, Field(ge=1, le=32)] = 4
