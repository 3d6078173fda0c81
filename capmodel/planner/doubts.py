"""What a reader of the plan should mind."""

from collections.abc import Iterable

import numpy as np

from capmodel.engines import engine_doubt
from capmodel.planner.demand import Demand
from capmodel.planner.sizing import Option
from capmodel.planner.verify import Verified
from capmodel.steptime import StepTime
from capmodel.units import format_dollars


def doubts(
    chosen: Option,
    verified: tuple[Verified, ...],
    coverable: bool,
    load: Demand,
    engine: str | None,
    instead: Option | Verified | None = None,
) -> list[str]:
    """What to mind about the chosen fleet, a sentence each.

    coverable: whether `replicas_high` keeps the promises at the slow end of the step time.
    engine: as asked for, if any. instead: the cheapest fleet that rows cover better.
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
        if instead is not None:
            other = instead.option if isinstance(instead, Verified) else instead
            lines.append(_instead(chosen, other, load))
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


def _instead(chosen: Option, instead: Option, load: Demand) -> str:
    candidate = instead.replica.candidate
    much = "wholly" if unmeasured(instead, load) == 0 else "better"
    more = instead.dollars_per_hour / chosen.dollars_per_hour - 1 if chosen.dollars_per_hour else 0
    return (
        f"measured runs cover {much}: {instead.n_gpus} x {candidate.gpu.name} as "
        f"{instead.replicas}{instead.divided} of tp {candidate.tp}, {candidate.weight_dtype} "
        f"weights and {candidate.kv_dtype} cache, "
        f"{format_dollars(instead.dollars_per_hour)}/h ({more:+.0%})"
    )


def unmeasured(option: Option, load: Demand) -> int:
    """0 where rows of this engine and GPU cover the fleet, 1 in part, 2 where there are none.

    Step times that are not ours do not say, and count as measured.
    """
    step_time = option.replica.step_time
    if not isinstance(step_time, StepTime):
        return 0
    if step_time.coverage is None:
        return 2
    return 1 if _extrapolation(step_time, option, load, None) else 0


def surer(chosen: Option, options: Iterable[Option], load: Demand) -> list[Option]:
    """Of `options`, by cost, those that rows cover better than the chosen one: wholly before in
    part, and of each the cheapest first."""
    own = unmeasured(chosen, load)
    known = [(unmeasured(option, load), option) for option in options] if own else []
    return [option for level in range(own) for grade, option in known if grade == level]


def _extrapolation(
    step_time: StepTime, chosen: Option, load: Demand, engine: str | None
) -> list[str]:
    """What the calibration's rows do not say about the chosen fleet."""
    if step_time.coverage is None:
        where = f"on {chosen.replica.candidate.gpu.name}"
        where = f"of {engine} {where}" if engine else where
        return [f"extrapolation: no rows {where}, coefficients of {step_time.basis}"]
    batch, context = np.array([chosen.decode_batch]), np.array([load.mix.held_mean])
    return [f"extrapolation: {reason}" for reason in step_time.beyond(batch, context)]
