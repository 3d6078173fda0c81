"""The four-coefficient roofline, and the named terms that parallelism and prefill add.

    t = c_step * layers + c_w * weight_s + c_kv * kv_s + c_f * flop_s
        [+ communication, stage hops, prefill, per-sequence work]

`c_step` is seconds of fixed work per layer; `c_w` and `c_kv` are the inverse of the achieved
share of datasheet bandwidth for weights and cache; `c_f` the inverse of the achieved share of
peak. The sum is linear with non-negative coefficients, so the relative-error fit is convex and
has one answer where the columns are independent (PHYSICS section 6).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Term:
    """One term: its coefficient's name, the feature it multiplies, the family it reports to.

    prior, spread: what the coefficient is before any data, and by how much engines differ; they
    decide only what the rows leave open.
    """

    coefficient: str
    column: str
    family: str
    unit: str
    prior: float
    spread: float


# The four coefficients, then the named extra terms: what reading an expert costs beyond a dense
# matrix (0.15 in kernels measured alone, 0.5 to 0.6 in served steps of vLLM and TensorRT-LLM, which
# also sort tokens); fixed work of a quantised layer; all-reduces
# under tp, by number, rounds and bytes, on links of their own, or on a bus shared by all and
# several buses whose bridge every pair crosses (`Gpu.shares_bus`; two GPUs alone on a bus have it
# as a link of their own); crossing to the next stage (pp); prompt work inside a step; work per
# sequence (sampling, scheduling); attention kernels that work by query head; what starting a
# request costs. Where all models share cache heads among query heads, rows cannot tell c_kv from
# c_attention: reading the cache is held near bandwidth then, and the rest is attention's.
TERMS: tuple[Term, ...] = (
    Term("c_step", "layers", "fixed", "s/layer", 2e-5, 2e-4),
    Term("c_w", "weight_s", "weights", "1/share of bandwidth", 1.25, 0.7),
    Term("c_kv", "kv_s", "kv", "1/share of bandwidth", 1.1, 0.3),
    Term("c_f", "flop_s", "compute", "1/share of peak", 1.5, 2.0),
    Term("c_expert", "expert_s", "weights", "1/share of bandwidth", 0.5, 0.3),
    Term("c_quantised", "quantised_layers", "fixed", "s/layer", 1e-5, 3e-5),
    Term("c_reduce", "all_reduces", "communication", "s/all-reduce", 1e-5, 3e-5),
    Term("c_link", "all_reduce_s", "communication", "1/share of link", 1.5, 2.0),
    Term("c_round", "all_reduce_rounds", "communication", "s/round", 1e-6, 1e-5),
    Term("c_bus", "all_reduce_bus_s", "communication", "1/share of link", 1.5, 1.0),
    Term("c_cross", "all_reduce_cross_s", "communication", "1/share of link", 0.3, 0.3),
    Term("c_hop", "hops", "communication", "s/hop", 1e-4, 3e-2),
    Term("c_prefill", "prefill_s", "prefill", "1/share of peak", 1.8, 5.0),
    Term("c_sequence", "sequences", "fixed", "s/sequence", 2e-5, 1e-4),
    Term("c_attention", "attention_s", "kv", "1/share of peak", 20.0, 60.0),
    Term("c_request", "requests", "prefill", "s/request", 0.0, 1.0),
)
NAMES = tuple(term.coefficient for term in TERMS)
COLUMNS = tuple(term.column for term in TERMS)
FAMILIES = ("weights", "kv", "compute", "fixed", "communication", "prefill")
PRIOR = np.array([term.prior for term in TERMS])
SPREAD = np.array([term.spread for term in TERMS])


class FitError(ValueError):
    """Rows from which the coefficients cannot be fitted; the message says what to add."""


@dataclass(frozen=True, slots=True)
class RooflineCoefficients:
    """Coefficients of one fit, in the order of TERMS, with what is known about them.

    values, standard_errors: (terms,); a standard error is NaN where the coefficient was not
    identified by the rows. identified: the rows vary in that term. at_bound: names at zero.
    """

    values: tuple[float, ...]
    standard_errors: tuple[float, ...]
    identified: tuple[bool, ...]
    n_rows: int
    mape: float
    condition_number: float
    memory_bound_rows: int
    compute_bound_rows: int

    @property
    def at_bound(self) -> tuple[str, ...]:
        """Coefficients that the rows could have moved and that ended at zero."""
        pairs = zip(NAMES, self.values, self.identified, strict=True)
        return tuple(name for name, value, free in pairs if free and value == 0.0)

    def __getitem__(self, name: str) -> float:
        return self.values[NAMES.index(name)]


def design(features: pd.DataFrame) -> Array:
    """The terms' columns, (rows, terms), zeros where a table lacks an extra term.

    Raises ValueError when one of the four base terms is missing.
    """
    base = [term.column for term in TERMS[:4]]
    missing = [name for name in base if name not in features]
    if missing:
        raise ValueError(
            f"roofline needs the columns {', '.join(missing)}; run capmodel.add_features first"
        )
    columns = [
        features[name].to_numpy(float) if name in features else np.zeros(len(features))
        for name in COLUMNS
    ]
    return np.column_stack(columns)


def fit_coefficients(
    terms: Array,
    step_time_s: Array,
    *,
    prior: Array | None = None,
    spread: Array | None = None,
    prior_weight: float = 0.5,
    robust: bool = True,
    scatter: float | None = None,
) -> RooflineCoefficients:
    """Non-negative coefficients that minimise the relative error.

    terms: (rows, len(TERMS)). step_time_s: (rows,) [s]. prior, spread: (len(TERMS),), by default
    those of TERMS. The prior weighs as one row per coefficient whose error is the fit's own
    scatter times `prior_weight`, so it decides what the rows cannot tell apart and nothing else;
    rows without scatter give the least-squares answer. scatter: the relative error to reckon with
    where the rows are too few to show it, at least. robust: Huber weights on the relative
    error, so that a few wrong rows do not carry the fit.
    A term that is zero in all rows stays at its prior and is not identified.
    Raises FitError for empty, non-finite or non-positive input.
    """
    scaled, target = _relative(terms, step_time_s)
    centre = PRIOR if prior is None else np.asarray(prior, float)
    width = SPREAD if spread is None else np.asarray(spread, float)
    free = scaled.any(axis=0)
    scaled = scaled[:, free]
    weights, seen, least = np.ones(len(target)), 0.1, scatter or 0.0
    for _ in range(30):
        pull = prior_weight * max(min(seen, 0.1), least) / width[free]
        found = _solve(scaled, weights, pull, centre[free])
        residual = scaled @ found - 1.0
        typical = 1.4826 * float(np.median(np.abs(residual)))
        limit = max(1.345 * typical, 1e-9)
        updated = np.minimum(1.0, limit / np.maximum(np.abs(residual), 1e-12))
        settled = abs(typical - seen) <= 1e-4 * seen
        seen = max(typical, 1e-12)
        if settled and (not robust or np.allclose(updated, weights, atol=1e-3)):
            break
        weights = updated if robust else weights
    values = centre.copy()
    values[free] = found
    errors = np.full(len(values), np.nan)
    errors[free] = _standard_errors(scaled, residual, weights, found, pull, seen)
    memory = terms[:, 1:3] @ values[1:3] >= terms[:, 3] * values[3]
    unit = scaled / np.sqrt((scaled**2).mean(axis=0)) if free.any() else np.ones((1, 1))
    return RooflineCoefficients(
        values=tuple(float(v) for v in values),
        standard_errors=tuple(float(v) for v in errors),
        identified=tuple(bool(varies) for varies in np.atleast_1d(free)),
        n_rows=len(target),
        mape=float(np.abs(residual).mean()),
        condition_number=float(np.linalg.cond(unit)),
        memory_bound_rows=int(memory.sum()),
        compute_bound_rows=int((~memory).sum()),
    )


def _relative(terms: Array, step_time_s: Array) -> tuple[Array, Array]:
    if not len(step_time_s):
        raise FitError("Got no rows to fit; add runs, or look at why they were set aside")
    if not (np.isfinite(terms).all() and np.isfinite(step_time_s).all()):
        raise FitError("Got rows with missing features or times; set them aside before the fit")
    if (step_time_s <= 0).any():
        raise FitError("Got step times of zero or less; a step takes time")
    return terms / step_time_s[:, None], np.ones(len(step_time_s))


def _solve(scaled: Array, weights: Array, pull: Array, centre: Array) -> Array:
    """Non-negative least squares through the normal equations, columns brought to one scale."""
    from scipy.optimize import nnls  # slow to import, and only fits need it

    weighted = scaled * weights[:, None]
    gram = weighted.T @ scaled + np.diag(pull**2)
    right = weighted.sum(axis=0) + pull**2 * centre
    norm = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    factor = np.linalg.cholesky(gram / np.outer(norm, norm) + 1e-13 * np.eye(len(gram)))
    found, _ = nnls(factor.T, np.linalg.solve(factor, right / norm))
    return np.asarray(found / norm)


def _standard_errors(
    scaled: Array, residual: Array, weights: Array, values: Array, pull: Array, scatter: float
) -> Array:
    """Standard errors of the coefficients that are off the bound, NaN for the others.

    The larger of two: the heteroscedasticity-robust one, and what prior and rows together leave
    open, which is the prior's whole width where columns move together.
    """
    errors = np.full(len(values), np.nan)
    inside = values > 0
    if not inside.any() or len(residual) <= int(inside.sum()):
        return errors
    active = scaled[:, inside]
    bread = _inverse((active * weights[:, None]).T @ active + np.diag(pull[inside] ** 2))
    score = active * (weights * residual)[:, None]
    small = len(residual) / (len(residual) - int(inside.sum()))
    robust = np.diag(bread @ (score.T @ score) @ bread) * small
    errors[inside] = np.sqrt(np.maximum(robust, scatter**2 * np.diag(bread)).clip(min=0.0))
    return errors


def _inverse(matrix: Array) -> Array:
    """Inverse of a positive semi-definite matrix whose rows and columns differ in scale."""
    norm = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    return np.asarray(np.linalg.pinv(matrix / np.outer(norm, norm)) / np.outer(norm, norm))


@dataclass
class RooflineRegressor:
    """Roofline coefficients per engine and GPU; an unknown pair gets those of its engine, or all.

    min_rows: an (engine, GPU) pair with fewer rows uses the wider level's coefficients.
    prior_weight: how firmly the prior of TERMS holds what the rows leave open.
    pooled: one set of coefficients for everything.

    A wider level is fitted to all its rows, each pair counting alike. `level(engine, gpu)` says
    which level answers. Fitted state: `coefficients_`, a dict from level key to coefficients.
    """

    min_rows: int = 12
    prior_weight: float = 0.5
    robust: bool = True
    pooled: bool = False
    coefficients_: dict[tuple[str, ...], RooflineCoefficients] = field(
        default_factory=dict, repr=False
    )

    def fit(self, features: pd.DataFrame, step_time_s: Array | pd.Series) -> "RooflineRegressor":
        """Fit all levels. features: rows of `add_features`; step_time_s: (rows,) [s]."""
        terms = design(features)
        target = np.asarray(step_time_s, float)
        fitted: dict[tuple[str, ...], RooflineCoefficients] = {(): self._fit_rows(terms, target)}
        for keys in () if self.pooled else (["engine"], ["engine", "gpu"]):
            if set(keys) <= set(features.columns):
                for key, rows in features.groupby(keys, sort=True).indices.items():
                    if len(rows) >= self.min_rows:
                        name = tuple(map(str, key if isinstance(key, tuple) else (key,)))
                        fitted[name] = self._fit_rows(terms[rows], target[rows])
        self.coefficients_ = fitted
        return self

    def _fit_rows(self, terms: Array, target: Array) -> RooflineCoefficients:
        return fit_coefficients(terms, target, prior_weight=self.prior_weight, robust=self.robust)

    def predict(self, features: pd.DataFrame) -> Array:
        """Step time of each row [s], (rows,)."""
        return np.einsum("ij,ij->i", design(features), self._values(features))

    def predict_terms(self, features: pd.DataFrame) -> pd.DataFrame:
        """Seconds of each family of terms, (rows, len(FAMILIES)); they sum to `predict`."""
        parts = design(features) * self._values(features)
        by_family = {
            family: parts[:, [term.family == family for term in TERMS]].sum(axis=1)
            for family in FAMILIES
        }
        return pd.DataFrame(by_family, index=features.index)

    def level(self, engine: str | None, gpu: str | None) -> tuple[str, ...]:
        """Key of the coefficients that answer for this engine and GPU; () is the pooled fit."""
        for key in ((engine, gpu), (engine,)):
            if key in self.coefficients_:
                return tuple(map(str, key))
        return ()

    @property
    def summary(self) -> pd.DataFrame:
        """One row per level and coefficient: value, standard error, bounds, identifiability."""
        rows = []
        for key, fit in self.coefficients_.items():
            for place, term in enumerate(TERMS):
                value, error = fit.values[place], fit.standard_errors[place]
                rows.append({
                    "engine": key[0] if key else "(all)",
                    "gpu": key[1] if len(key) > 1 else "(all)",
                    "coefficient": term.coefficient,
                    "value": value,
                    "standard_error": error,
                    "unit": term.unit,
                    "at_bound": term.coefficient in fit.at_bound,
                    "identified": fit.identified[place],
                    "rows": fit.n_rows,
                    "mape": fit.mape,
                    "condition_number": fit.condition_number,
                    "memory_bound_rows": fit.memory_bound_rows,
                    "compute_bound_rows": fit.compute_bound_rows,
                })  # fmt: skip
        return pd.DataFrame(rows)

    def _values(self, features: pd.DataFrame) -> Array:
        if not self.coefficients_:
            raise FitError("this roofline is not fitted; call fit(features, step_time_s) first")
        if len(self.coefficients_) == 1 or not {"engine", "gpu"} <= set(features.columns):
            return np.tile(np.array(self.coefficients_[()].values), (len(features), 1))
        (engine_of, engines), (gpu_of, gpus) = (
            pd.factorize(features[name], use_na_sentinel=False) for name in ("engine", "gpu")
        )
        keys = [self.level(str(engine), str(gpu)) for engine in engines for gpu in gpus]
        table = np.array([self.coefficients_[key].values for key in keys])
        return np.asarray(table[engine_of * len(gpus) + gpu_of])

    def __repr__(self) -> str:
        if not self.coefficients_:
            return "RooflineRegressor(not fitted)"
        pooled = self.coefficients_[()]
        pairs = sum(len(key) == 2 for key in self.coefficients_)
        return f"RooflineRegressor({pooled.n_rows} rows, {pairs} engine-GPU pairs)"


def coefficients_from(values: Mapping[str, float], n_rows: int = 0) -> RooflineCoefficients:
    """Coefficients given by name, missing ones zero; for what-ifs and round trips."""
    unknown = sorted(set(values) - set(NAMES))
    if unknown:
        raise ValueError(f"Got coefficients {', '.join(unknown)}, but expected {', '.join(NAMES)}")
    given = tuple(float(values.get(name, 0.0)) for name in NAMES)
    return RooflineCoefficients(
        values=given, standard_errors=(float("nan"),) * len(NAMES),
        identified=tuple(name in values for name in NAMES), n_rows=n_rows, mape=float("nan"),
        condition_number=float("nan"), memory_bound_rows=0, compute_bound_rows=0,
    )  # fmt: skip
