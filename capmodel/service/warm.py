"""Importing this module loads what the pages and the short answers need, in every process."""

from capmodel.gpus import gpu_names
from capmodel.memory import explain_fit
from capmodel.memory.summary import summarise_cache
from capmodel.prediction import predict, shipped_calibrations
from capmodel.shapes.catalogue import shape_names

LOADED = sum(len(calibration.pairs) for calibration in shipped_calibrations())
CALLED = (explain_fit, predict, summarise_cache)
NAMES = (len(gpu_names()), len(shape_names()))

predict("llama-3-8b", "h100-sxm", batch_size=1, context_len=512)
