"""Continuous batching against a paged block pool, event to event."""

from capmodel.simulation.front_end import FrontEnd, front_end_of
from capmodel.simulation.loop import PrefillPool, simulate
from capmodel.simulation.policies import (
    context_limit,
    first_come,
    least_loaded,
    mixed,
    on_demand,
    power_of_two,
    prefill_first,
    round_robin,
    same_prefix,
    shortest_prompt,
    whole_request,
)
from capmodel.simulation.records import ReplicaTotals, Simulation
from capmodel.simulation.server import PAGED, Server, StepTimeLike
from capmodel.simulation.summary import Summary, replicate, summarise

__all__ = [
    "PAGED",
    "FrontEnd",
    "PrefillPool",
    "ReplicaTotals",
    "Server",
    "Simulation",
    "StepTimeLike",
    "Summary",
    "context_limit",
    "first_come",
    "front_end_of",
    "least_loaded",
    "mixed",
    "on_demand",
    "power_of_two",
    "prefill_first",
    "replicate",
    "round_robin",
    "same_prefix",
    "shortest_prompt",
    "simulate",
    "summarise",
    "whole_request",
]
