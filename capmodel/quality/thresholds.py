"""The limits of every row check, in one place; each is an argument of `check_runs`."""

from dataclasses import dataclass

SET_ASIDE = "set_aside"
FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits of the row checks. Shares are fractions, times [s].

    floor_share: a step below this share of its physical floor cannot be.
    memory_share: weights and cache above this share of the marketed memory were not resident.
    full_share: from this share on a row is flagged, since an engine keeps some 10 % to itself.
    slower_than_larger: a run this many times slower than a larger one, or than its twin, was
    disturbed. The 4,286 rows of Argonne's table have disturbed runs from 1.35 up, others to 1.22.
    fixed_time_share: time that does not grow with the output, above this share of the latency.
    fixed_time_flag: the same, flagged.
    unit_ratio: a step this many times its physical floor and launch time is in another unit.
    completed_share: requests that came back, of those sent; any shortfall is flagged.
    output_share: tokens generated, of those asked for.
    duration_latencies: length of a run, in mean request latencies.
    concurrency_share: sequences decoded together, of those offered.
    prefix_hit_share: prompt tokens that came from a warm cache.
    tokens_per_chunk: chunk gap over time per token (or its inverse); from here on chunks are not
    tokens.
    accepted_tokens: mean tokens per verified step of speculative decoding.
    agreement: relative difference of two figures that must agree.
    """

    floor_share: float = 1.0
    memory_share: float = 1.0
    full_share: float = 0.9
    slower_than_larger: float = 1.3
    fixed_time_share: float = 0.5
    fixed_time_flag: float = 0.2
    unit_ratio: float = 300.0
    completed_share: float = 0.95
    output_share: float = 0.95
    duration_latencies: float = 3.0
    concurrency_share: float = 0.8
    prefix_hit_share: float = 0.05
    tokens_per_chunk: float = 1.2
    accepted_tokens: float = 1.05
    agreement: float = 0.2

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ValueError(f"Got {name} {value!r}, but expected a positive number")
