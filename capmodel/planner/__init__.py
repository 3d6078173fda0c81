"""From a workload to GPUs, latency and money."""

from capmodel.planner.errors import InfeasiblePlan
from capmodel.planner.main import plan
from capmodel.planner.result import Plan

__all__ = ["InfeasiblePlan", "Plan", "plan"]
