"""What a simulation leaves: one flat record per request, and the integrals of each replica."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from capmodel.simulation.ledger import Ledger
from capmodel.workload.requests import Requests

if TYPE_CHECKING:
    from capmodel.simulation.replica import Replica


@dataclass(frozen=True, slots=True)
class ReplicaTotals:
    """Integrals over one replica's time.

    busy_s: [s] in steps. area_*: [count x s]: sequences decoding, tokens cached, blocks held,
    requests in the system. block_tokens: tokens a
    block holds, NaN where windows or states take blocks too.
    """

    prefill_only: bool
    busy_s: float
    steps: int
    area_decoding: float
    area_tokens: float
    area_blocks: float
    area_system: float
    peak_blocks: int
    pool_blocks: int
    block_tokens: float


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """Times [s] and counts per request, arrays of shape (n,), in order of arrival.

    first_s: end of the step that made the first token. hit_tokens: prompt tokens found in the
    prefix cache. prefilled_tokens: prompt tokens computed, recomputation included.
    """

    arrival_s: NDArray[np.float64]
    admitted_s: NDArray[np.float64]
    first_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    hit_tokens: NDArray[np.int64]
    prefilled_tokens: NDArray[np.int64]
    preemptions: NDArray[np.int64]
    replica: NDArray[np.int64]
    totals: tuple[ReplicaTotals, ...]

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def ttft_s(self) -> NDArray[np.float64]:
        """Arrival to first token [s]."""
        return self.first_s - self.arrival_s

    @property
    def tpot_s(self) -> NDArray[np.float64]:
        """(finish - first) / (output - 1) [s]; NaN for a single token."""
        steps = self.output_tokens - 1
        span = self.finish_s - self.first_s
        return np.divide(span, steps, out=np.full(len(steps), np.nan), where=steps > 0)

    @property
    def e2e_s(self) -> NDArray[np.float64]:
        """Arrival to last token [s]."""
        return self.finish_s - self.arrival_s

    @property
    def end_s(self) -> float:
        """When the last request finished [s]."""
        return float(self.finish_s.max())

    def table(self) -> pd.DataFrame:
        """One row per request."""
        columns = {
            "arrival_s": self.arrival_s,
            "admitted_s": self.admitted_s,
            "first_s": self.first_s,
            "finish_s": self.finish_s,
            "ttft_s": self.ttft_s,
            "tpot_s": self.tpot_s,
            "e2e_s": self.e2e_s,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "hit_tokens": self.hit_tokens,
            "prefilled_tokens": self.prefilled_tokens,
            "preemptions": self.preemptions,
            "replica": self.replica,
        }
        return pd.DataFrame(columns)


def collect(
    requests: Requests, ledger: Ledger, arrived: list[float], replicas: Sequence["Replica"]
) -> Simulation:
    """The finished ledger as arrays. Raises RuntimeError when a request never finished."""
    finish = np.array(ledger.finish)
    if np.isnan(finish).any():
        stuck = int(np.isnan(finish).sum())
        raise RuntimeError(
            f"{stuck} requests never finished: the scheduler stopped making progress"
        )
    order = np.argsort(np.array(arrived), kind="stable")
    return Simulation(
        arrival_s=np.array(arrived)[order],
        admitted_s=np.array(ledger.admitted)[order],
        first_s=np.array(ledger.first)[order],
        finish_s=finish[order],
        prompt_tokens=requests.prompt_tokens[order],
        output_tokens=requests.output_tokens[order],
        hit_tokens=np.array(ledger.hit_tokens)[order],
        prefilled_tokens=np.array(ledger.prefilled)[order],
        preemptions=np.array(ledger.preempted)[order],
        replica=np.array(ledger.server_index)[order],
        totals=tuple(_totals(replica) for replica in replicas),
    )


def _totals(replica: "Replica") -> ReplicaTotals:
    growth, cost = replica.ledger.growth, replica.server.cost
    only_growth = growth.count > 0 and all(
        table.fixed is None and table.limit is None for table in cost.tables
    )
    return ReplicaTotals(
        prefill_only=replica.prefill_only,
        busy_s=replica.busy_s,
        steps=replica.engine_steps,
        area_decoding=replica.area_decoding,
        area_tokens=replica.area_tokens,
        area_blocks=replica.area_blocks,
        area_system=replica.area_system,
        peak_blocks=replica.peak_blocks,
        pool_blocks=replica.server.pool_blocks,
        block_tokens=growth.block_size / growth.count if only_growth else float("nan"),
    )
