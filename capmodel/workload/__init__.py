"""Workloads: arrivals, lengths, shared prefixes, promises, and traces of real ones."""

from capmodel.workload.demand import SharedPrefix, Workload, arrival_times
from capmodel.workload.lengths import Empirical, Fixed, Lengths, Lognormal, Uniform
from capmodel.workload.requests import Requests
from capmodel.workload.slo import Slo
from capmodel.workload.traces import read_trace

__all__ = [
    "Empirical",
    "Fixed",
    "Lengths",
    "Lognormal",
    "Requests",
    "SharedPrefix",
    "Slo",
    "Uniform",
    "Workload",
    "arrival_times",
    "read_trace",
]
