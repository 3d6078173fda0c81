"""What a reader of the plan should mind."""

import numpy as np

from capmodel.engines import engine_doubt
from capmodel.planner.demand import Demand
from capmodel.planner.sizing import Option
from capmodel.planner.verify import Verified
from capmodel.steptime import StepTime


def doubts(
    chosen: Option,
    verified: tuple[Verified, ...],
    coverable: bool,
    load: Demand,
    engine: str | None,
) -> list[str]:
    """What to mind about the chosen fleet, a sentence each.

    coverable: whether `replicas_high` keeps the promises at the slow end of the step time.
    engine: as asked for, if any.
    """
    lines = []
    candidate = chosen.replica.candidate
    if candidate.gpu.assumption:
        lines.append(candidate.gpu.assumption)
    if not chosen.price.given:
        lines.append(
            f"price of {candidate.gpu.name} from the catalogue: {chosen.price.source}; give yours"
        )
    if verified and verified[-1].missed:
        names = [name.upper() for name in verified[-1].missed]
        lines.append(
            f"at the slow end of the step time {' and '.join(names)} "
            f"{'is' if len(names) == 1 else 'are'} missed; {chosen.replicas_high} replicas "
            + ("would be needed" if coverable else "miss a promise there too")
        )
    if load.refused:
        lines.append(
            f"{load.refused} of {load.n_requests + load.refused:,} requests pass the model's "
            "context limit; an engine refuses them, and they are left out"
        )
    step_time = chosen.replica.step_time
    if isinstance(step_time, StepTime):
        lines += _extrapolation(step_time, chosen, load, engine)
        if engine is None and not step_time.basis.startswith("vllm"):
            lines.append(
                f"no engine was named: step times are from {step_time.basis}, scheduling as vLLM "
                "does it (--engine)"
            )
    if chosen.replica.low_factor == chosen.replica.high_factor == 1.0:
        lines.append("the calibration has no interval here, so low and high equal the estimate")
    doubt = engine_doubt(engine)
    if doubt:
        lines.append(doubt)
    if load.mix.hit_share > 0:
        lines.append("sized for prefix hits: a cold cache needs more, see the what-ifs")
    return lines


def _extrapolation(
    step_time: StepTime, chosen: Option, load: Demand, engine: str | None
) -> list[str]:
    """What the calibration's rows do not say about the chosen fleet."""
    if step_time.coverage is None:
        where = f"on {chosen.replica.candidate.gpu.name}"
        where = f"of {engine} {where}" if engine else where
        return [f"extrapolation: no rows {where}, coefficients of {step_time.basis}"]
    batch, context = np.array([chosen.estimate.batch]), np.array([load.mix.held_mean])
    beyond = (*step_time.lacks, *step_time.coverage.beyond(batch, context))
    return [f"extrapolation: {reason} ({step_time.basis})" for reason in beyond]
