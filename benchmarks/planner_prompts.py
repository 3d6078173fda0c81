"""What a TTFT is made of, fitted on measured runs: the prompts' own steps and the front end.

In a closed loop of C clients, ten requests each, a request waits for the prompts of others: those
that arrive with it at the start, C / 2 of them in the mean for one request in ten, or always,
where all requests are of one length and march in lockstep. So TTFT is about `fixed + steps * step
+ per client * C + (1 + share * C) * prompt`, linear in what a prompt is made of. That tells the
prompts' costs; the queueing itself is then simulated, and what the simulation lacks of the measured
TTFT gives the front end.
"""

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from capmodel.planner.prompts import PromptCost, PromptParts
from capmodel.simulation import FrontEnd

# Of the other clients, those whose prompts a request waits for in the mean.
MIXED_SHARE, LOCKSTEP_SHARE = 0.05, 0.5


def prompt_cost(
    rows: pd.DataFrame, parts: list[PromptParts], experts_s: np.ndarray, lockstep: bool
) -> PromptCost:
    """The prompts' costs that the TTFT of `rows` tells; no matrix is faster than at the peak.

    rows: ttft_s, direct_s (a step), concurrency, input_len. parts: of each row's deployment.
    experts_s: what a prompt of each row has read of experts beyond its step, (rows,) [s].
    """
    clients, tokens = rows["concurrency"].to_numpy(), rows["input_len"].to_numpy()
    times = 1 + (LOCKSTEP_SHARE if lockstep else MIXED_SHARE) * clients
    matmul, attention, layers, link = (
        np.array([getattr(one, name) for one in parts], dtype=float)
        for name in ("matmul_s", "attention_s", "layers", "link_s")
    )
    at_peak = matmul * tokens
    of_prompt = [at_peak, attention * tokens**2 / 2, layers * tokens, link * tokens]
    front = [np.ones(len(rows)), rows["direct_s"].to_numpy(), clients]
    terms = np.column_stack([*front, *(times * one for one in of_prompt)])
    found = least_relative(terms, rows["ttft_s"].to_numpy(), times * (experts_s + at_peak))
    slower, *rest = found[len(front) :]
    return PromptCost(1.0 + slower, *rest)


def front_end(rows: pd.DataFrame) -> FrontEnd:
    """What simulated TTFT lacks of measured TTFT.

    rows: ttft_s, ttft_sim_s, direct_s, concurrency.
    """
    terms = np.column_stack([np.ones(len(rows)), rows["direct_s"], rows["concurrency"]])
    found = least_relative(terms, rows["ttft_s"].to_numpy(), rows["ttft_sim_s"].to_numpy())
    return FrontEnd(*found)


def with_front_end(rows: pd.DataFrame, ends: FrontEnd) -> np.ndarray:
    """TTFT of rows of one engine [s], (rows,)."""
    known = zip(rows["direct_s"], rows["concurrency"], strict=True)
    return rows["ttft_sim_s"].to_numpy() + [ends.delay_s(*one) for one in known]


def calibrated(rows: pd.DataFrame) -> tuple[FrontEnd, bool]:
    """The front end of one engine, and whether its runs of one length marched in lockstep."""
    found = []
    for alike in (False, True):
        own = marching(rows, alike)
        ends = front_end(own)
        error = np.abs(with_front_end(own, ends) / own["ttft_s"] - 1)
        found.append((float(error.median()), alike, ends))
    _, alike, ends = min(found, key=lambda one: one[0])
    return ends, alike


def marching(rows: pd.DataFrame, alike: bool) -> pd.DataFrame:
    """`rows` with the simulated TTFT of lengths all alike, where that is said of them."""
    return rows.assign(ttft_sim_s=rows["ttft_alike_s"]) if alike else rows


def least_relative(terms: np.ndarray, target: np.ndarray, known: np.ndarray) -> list[float]:
    """Coefficients, none negative, of least absolute relative error of `known + terms @ them`."""
    scaled, lacking = terms / target[:, None], 1 - known / target
    weight = np.ones(len(target))
    for _ in range(15):
        weighted = scaled * weight[:, None]
        norm = np.sqrt((weighted**2).mean(axis=0)) + 1e-30
        found = nnls(weighted / norm, weight * lacking)[0] / norm
        weight = 1 / np.sqrt(np.maximum(np.abs(scaled @ found - lacking), 0.03))
    return [float(value) for value in found]
