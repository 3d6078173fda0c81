"""What a fit could not tell, and which runs would tell it."""

import math

from capmodel.roofline import NAMES, RooflineCoefficients

# A coefficient whose standard error is a larger share of it is not told by the rows.
UNSURE = 0.3
# Beyond this condition number columns of the fit nearly move together.
TOGETHER = 300.0

# Coefficient: what it stands for, and the runs that would tell it.
_WANTS = {
    "c_step": ("fixed time per layer", "runs at batch 1 of models with few bytes per layer"),
    "c_w": ("reading weights", "runs at small batch of models of other sizes, or other dtypes"),
    "c_kv": ("reading the cache", "runs at long context, or at large batch"),
    "c_f": ("computing", "runs at batch 256 and more with a short context"),
}


def unsure_of(fit: RooflineCoefficients) -> tuple[str, ...]:
    """One sentence for each of the four coefficients the rows left open; empty where all are told.

    The sentence says what is open, why, and which runs would close it.
    """
    found = []
    for name, (meaning, runs) in _WANTS.items():
        place = NAMES.index(name)
        value, error = fit.values[place], fit.standard_errors[place]
        if not fit.identified[place]:
            why = "no row has any"
        elif value == 0.0:
            why = "the fit put it at zero"
        elif not math.isfinite(error):
            why = "too few rows"
        elif error > UNSURE * value:
            why = f"{name} is {value:.3g} give or take {error:.2g}"
        else:
            continue
        found.append(f"{meaning} is not told ({why}); {runs} would tell it")
    if fit.condition_number > TOGETHER and _both_open(fit):
        number = fit.condition_number
        condition = f"{number:,.0f}" if number <= 1e6 else "above a million"
        found.append(
            f"weights and layers move together in the rows (condition number {condition}): "
            "their sum is sure, their shares are not; runs of a model with other bytes per layer "
            "would tell them apart"
        )
    return tuple(found)


def _both_open(fit: RooflineCoefficients) -> bool:
    """Whether neither the fixed time nor the weights stand on their own."""
    for name in ("c_step", "c_w"):
        place = NAMES.index(name)
        value, error = fit.values[place], fit.standard_errors[place]
        if value > 0 and math.isfinite(error) and error <= UNSURE * value:
            return False
    return True
