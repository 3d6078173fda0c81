"""Step times from datasheets at fixed efficiencies: a calibration one can follow by hand."""

from dataclasses import dataclass

import numpy as np

from capmodel.traffic import step_traffic


@dataclass(frozen=True)
class NameplateStep:
    """weights / (0.8 BW) + cache / (0.6 BW) + prompt FLOP / (0.5 peak) + 30 us a layer."""

    fixed_s: float
    per_sequence_s: float
    per_cached_s: float
    per_prompt_s: float
    low_factor: float = 0.9
    high_factor: float = 1.1
    calibration_id: str = "nameplate"

    def seconds(self, batch, cached_tokens, prefill_tokens=0.0):
        return (
            self.fixed_s
            + self.per_sequence_s * batch
            + self.per_cached_s * cached_tokens
            + self.per_prompt_s * prefill_tokens
        )


@dataclass(frozen=True)
class NameplateCalibration:
    low_factor: float = 0.9
    high_factor: float = 1.1

    def step_time(self, model, gpu, *, tp=1, weight_dtype="bf16", kv_dtype="bf16", engine=None):
        traffic = step_traffic(model, weight_dtype, kv_dtype, tp)
        bandwidth = gpu.bandwidth_bytes_per_s
        if bandwidth is None:
            raise ValueError(f"no bandwidth for {gpu.name}")
        peak = gpu.matmul_flops_per_s(weight_dtype)
        experts = sum(e.n_experts * e.bytes_each for e in traffic.experts)
        return NameplateStep(
            fixed_s=(traffic.dense_bytes + experts) / bandwidth / 0.8
            + 3e-5 * traffic.layers * (1 + 0.3 * np.log2(tp)),
            per_sequence_s=traffic.flop_per_token / peak / 0.5
            + traffic.kv_fixed_read / bandwidth / 0.6,
            per_cached_s=sum(g.slope for g in traffic.kv_read) / bandwidth / 0.6,
            per_prompt_s=traffic.prefill_flop_per_token / peak / 0.5,
            low_factor=self.low_factor,
            high_factor=self.high_factor,
        )
