"""Importing this module loads what jobs need beyond `warm`: the fits, and every model's shape."""

import scipy.linalg
import scipy.optimize

from capmodel.service import fitting, warm
from capmodel.service.models import models_json

LOADED = warm.LOADED
CALLED = (scipy.linalg.cho_factor, scipy.optimize.nnls, fitting.answer_fit)
MODELS = models_json({})
