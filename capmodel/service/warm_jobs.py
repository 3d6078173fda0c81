"""Importing this module loads what jobs need beyond `warm`: plans, the lab, fits, all shapes."""

import scipy.linalg
import scipy.optimize

from capmodel.service import fitting, laboratory, plans, warm
from capmodel.service.models import models_json

LOADED = warm.LOADED
CALLED = (
    scipy.linalg.cho_factor, scipy.optimize.nnls, fitting.answer_fit, laboratory.answer_lab,
    plans.answer_plan,
)  # fmt: skip
MODELS = models_json({})
