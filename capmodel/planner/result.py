"""The plan as an object; `to_dict` is what reports, files and the service read."""

import os
from dataclasses import dataclass
from typing import Any

from capmodel.planner.clients import ClientCap
from capmodel.planner.demand import Demand
from capmodel.planner.fleet import Fleet
from capmodel.planner.replica import Setting
from capmodel.planner.search import FrontPoint, Rejection
from capmodel.planner.sensitivity import LeftOut, Sensitivity
from capmodel.planner.sizing import Option
from capmodel.planner.steps import Crossover, StepRow
from capmodel.planner.variations import WhatIf
from capmodel.planner.verify import Verified
from capmodel.shapes import ModelShape
from capmodel.units import format_dollars, format_seconds
from capmodel.workload import Slo


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """A fleet for a workload, with what was looked at on the way.

    chosen: None where nothing meets the promises; `closest` is then what comes nearest.
    verified: the chosen fleet simulated at the low end, the estimate and the high end of its
    step time; empty without simulation. tried: every fleet simulated. fleet, clients, steps,
    crossover: of the chosen one. left_out: inputs without a sensitivity. instead: the cheapest
    fleet that measured runs cover better, as simulated where it was. date: ISO day.
    inputs: name and sha256 of every file it was made from. command: how to make it again, where
    it came from the command line. disaggregate: divided fleets were looked at as well.
    """

    shape: ModelShape
    demand: Demand
    slo: Slo
    setting: Setting
    seed: int
    message: str
    chosen: Option | None = None
    verified: tuple[Verified, ...] = ()
    tried: tuple[Verified, ...] = ()
    options: tuple[Option, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    closest: Rejection | None = None
    front: tuple[FrontPoint, ...] = ()
    fleet: Fleet | None = None
    clients: ClientCap | None = None
    steps: tuple[StepRow, ...] = ()
    crossover: Crossover | None = None
    what_ifs: tuple[WhatIf, ...] = ()
    sensitivities: tuple[Sensitivity, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    instead: Option | Verified | None = None
    warnings: tuple[str, ...] = ()
    date: str | None = None
    inputs: tuple[dict[str, str], ...] = ()
    command: str = ""
    disaggregate: bool = False

    def __repr__(self) -> str:
        return f"Plan({self.message!r})"

    @property
    def feasible(self) -> bool:
        """Whether a fleet was found that keeps the promises."""
        return self.chosen is not None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON: the one source of every report."""
        from capmodel.planner.document import plan_dict

        return plan_dict(self)

    def write_pdf(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as a PDF, whole or not at all. Raises ValueError for a bad path."""
        from capmodel.report import write_plan_pdf

        write_plan_pdf(self.to_dict(), path)

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as one self-contained HTML page. Raises ValueError for a bad path."""
        from capmodel.report import write_plan_html

        write_plan_html(self.to_dict(), path)


def headline(option: Option, verified: Verified | None) -> str:
    """The plan in a sentence."""
    candidate = option.replica.candidate
    many = "s" if option.replicas > 1 else ""
    text = (
        f"{option.n_gpus} x {candidate.gpu.name} as {option.replicas} replica{many}"
        f"{option.divided} of tp "
        f"{candidate.tp}, {candidate.weight_dtype} weights and {candidate.kv_dtype} cache: "
        f"{format_dollars(option.dollars_per_hour)}/h"
    )
    if verified is not None:
        text += f", TTFT p95 {format_seconds(verified.ttft_s)}"
        if verified.tpot_s > 0:  # answers of one token have none
            text += f", TPOT p95 {format_seconds(verified.tpot_s)}"
    return text
