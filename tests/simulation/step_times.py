"""Step times with a closed form, for tests."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LinearStep:
    """fixed + per_sequence * batch + per_cached * cached + per_prompt * prompt tokens [s]."""

    fixed: float = 0.0
    per_sequence: float = 0.0
    per_cached: float = 0.0
    per_prompt: float = 0.0

    def seconds(self, batch, cached_tokens, prefill_tokens=0.0):
        return (
            self.fixed
            + self.per_sequence * batch
            + self.per_cached * cached_tokens
            + self.per_prompt * prefill_tokens
        )


# A round figure for an 8B model on an H100: 16 GB of weights, 131 kB a token, 3.35 TB/s.
DECODER = LinearStep(fixed=6e-3, per_sequence=2e-5, per_cached=5e-8, per_prompt=2.5e-5)
