"""Budget and concurrency: what fits on a GPU, in the textbook's mode and the engine's."""

from capmodel.memory.budget import MEMORY_FRACTION, MemoryBudget, memory_budget
from capmodel.memory.compare import LogComparison, compare_log, log_settings
from capmodel.memory.concurrency import max_concurrency
from capmodel.memory.curves import Curves, cache_curves, concurrency_curves, context_axis
from capmodel.memory.levers import Fit, Lever, explain_fit
from capmodel.memory.reserve import StepLimits, activation_bytes, default_limits
from capmodel.memory.start_log import StartLog, parse_start_log, read_start_log
from capmodel.memory.variants import attention_variants

__all__ = [
    "MEMORY_FRACTION",
    "Curves",
    "Fit",
    "Lever",
    "LogComparison",
    "MemoryBudget",
    "StartLog",
    "StepLimits",
    "activation_bytes",
    "attention_variants",
    "cache_curves",
    "compare_log",
    "concurrency_curves",
    "context_axis",
    "default_limits",
    "explain_fit",
    "log_settings",
    "max_concurrency",
    "memory_budget",
    "parse_start_log",
    "read_start_log",
]
