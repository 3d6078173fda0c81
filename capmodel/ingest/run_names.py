"""Names of runs are unique over files that are read chunk by chunk, as they are over small ones."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.ingest.documents import refuse

Hashes = npt.NDArray[np.uint64]


class RunNames:
    """Names seen so far, as hashes of 8 bytes; ten million are equal by chance once in 10^5."""

    def __init__(self) -> None:
        self._others, self._written, self._here = _Seen(), _Seen(), _Seen()

    def next_file(self, keep: bool) -> None:
        """The file is read, and its rows count (`keep`) or were refused."""
        if keep:
            for run in self._written.runs:
                self._others.add(run)
        self._written, self._here = _Seen(), _Seen()

    def unique(self, runs: pd.DataFrame, path: Path) -> pd.DataFrame:
        """A chunk of `path`; before a name that another file took stands this file's own.

        Raises RunsError where the file has a name more than once.
        """
        names = runs["run_id"]
        hashes = _hashes(names)
        again = self._here.holds(hashes)
        if again.any():
            reason = "the name occurs more than once; leave run_id out, and rows are numbered"
            raise refuse(path, "run_id", reason, names[again].iloc[0])
        self._here.add(hashes)
        taken, number = self._taken(hashes), 1
        while taken.any():
            mark = f"#{number}" if number > 1 else ""
            names = names.where(~taken, f"{path.stem}:" + runs["run_id"] + mark)
            hashes = _hashes(names)
            taken, number = taken & self._taken(hashes), number + 1
        self._written.add(hashes)
        return runs.assign(run_id=names)

    def _taken(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        return self._others.holds(hashes) | self._written.holds(hashes)


class _Seen:
    """Hashes in few sorted runs, each at least twice as long as the next."""

    def __init__(self) -> None:
        self.runs: list[Hashes] = []

    def add(self, hashes: Hashes) -> None:
        run = np.sort(hashes)
        while self.runs and len(self.runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self.runs.pop(), run]), kind="stable")
        self.runs.append(run)

    def holds(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(hashes), dtype=bool)
        for run in self.runs:
            place = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            found |= run[place] == hashes
        return found


def _hashes(names: pd.Series) -> Hashes:
    return pd.util.hash_array(names.to_numpy(object), categorize=False)
