"""The kernels of many steps, listed so that equal ones are looked at once.

Numbers stand for what a kernel is given: which operator, context and batch.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capmodel.operators import KINDS, Operator, evaluate

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

SPARSE = 16  # codes per entry beyond which numbering them by a table does not pay


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of n steps, all of one kind together.

    One entry per kernel of a step: step: (k,) position of the step; count: (k,) equal ones;
    point: (k,) which point it stands at. One per point: points: (p, d); seconds: (p,) by the
    textbook; group: (p,) which points differ in their first coordinate alone, in order.
    """

    step: Places
    count: Array
    point: Places
    points: Array
    seconds: Array
    group: Places

    def spent(self, log_factor: Array) -> Array:
        """Seconds of each entry, (k,). log_factor: (p,) on the textbook at each point."""
        return np.asarray(self.count * (self.seconds * np.exp(log_factor))[self.point])


Steps = dict[str, Kernels]


def kernels_of(
    deployments: Sequence[tuple[Operator, ...]], which: Places, batch: Array, context_len: Array
) -> Steps:
    """Kernels of steps. which: (n,) deployment of each step; batch, context_len: (n,).

    A kernel that several deployments have, or several steps at one batch, is one point.
    """
    return kernels_at(by_kind(deployments), which, batch, context_len)


@dataclass(frozen=True, slots=True)
class Owned:
    """Operators of one kind of all deployments, those of a deployment side by side.

    first, n: (deployments,) where its own begin, and how many; number, count: (operators,) which
    of `traits` it has, and how many equal ones; traits: (distinct, traits of the kind).
    """

    first: Places
    n: Places
    number: Places
    count: Array
    traits: Array

    def at(self, which: Places) -> tuple[Places, Places]:
        """Of steps of deployments `which`, each operator's step and its place here, (k,) each."""
        n = self.n[which]
        step = np.repeat(np.arange(len(which)), n)
        skipped = self.first[which] - np.cumsum(n) + n
        return step, np.arange(len(step)) + skipped[step]


def by_kind(deployments: Sequence[tuple[Operator, ...]]) -> dict[str, Owned]:
    """The operators of deployments, equal ones numbered alike."""
    listed: defaultdict[str, list[Operator]] = defaultdict(list)
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, deployed in enumerate(deployments):
        for one in deployed:
            listed[one.kind].append(one)
            places[one.kind].append(place)
    found = {}
    for kind, own in listed.items():
        known: dict[tuple[float, ...], int] = {}
        number = np.array([known.setdefault(one.traits, len(known)) for one in own])
        count = np.array([float(one.count) for one in own])
        n = np.bincount(places[kind], minlength=len(deployments))
        found[kind] = Owned(np.cumsum(n) - n, n, number, count, np.array(list(known)))
    return found


def kernels_at(
    owned: Mapping[str, Owned], which: Places, batch: Array, context_len: Array
) -> Steps:
    """`kernels_of` deployments whose operators are listed."""
    batches, at_batch = np.unique(batch, return_inverse=True)
    contexts, at_context = np.unique(context_len, return_inverse=True)
    found: Steps = {}
    for kind, own in owned.items():
        step, entry = own.at(which)
        if not len(step):
            continue
        # Numbers stand for coordinates: of the operator, then the context, then the batch.
        n, seen = (len(contexts), at_context[step]) if KINDS[kind].grows else (1, 0)
        shared, group = numbered(own.number[entry] * n + seen)
        both, point = numbered(group * len(batches) + at_batch[step])
        of_group, of_batch = np.divmod(both, len(batches))
        operator, context = np.divmod(shared[of_group], n)
        given = own.traits[operator], batches[of_batch], contexts[context]
        seconds, points = evaluate(kind, *given)
        found[kind] = Kernels(step, own.count[entry], point, points, seconds, of_group)
    return found


def numbered(codes: Places) -> tuple[Places, Places]:
    """The different codes from 0 on, ascending, and which of them each is."""
    size = int(codes.max(initial=-1)) + 1
    if size > SPARSE * len(codes):
        distinct, which = np.unique(codes, return_inverse=True)
        return distinct, which
    there = np.zeros(size, dtype=bool)  # a table of all codes: nothing is sorted
    there[codes] = True
    distinct = np.flatnonzero(there)
    place = np.empty(size, dtype=np.intp)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[codes]
