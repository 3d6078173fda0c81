"""Importing this module loads everything that answers need, so that no request pays for it."""

from capmodel.evaluation import cross_validate
from capmodel.gpus import gpu_names
from capmodel.ingest import read_files
from capmodel.lab.steps import lab_steps
from capmodel.memory import explain_fit
from capmodel.memory.summary import summarise_cache
from capmodel.planner import plan
from capmodel.prediction import predict, shipped_calibrations
from capmodel.shapes.catalogue import shape_names

LOADED = sum(len(calibration.pairs) for calibration in shipped_calibrations())
CALLED = (cross_validate, explain_fit, lab_steps, plan, predict, read_files, summarise_cache)
NAMES = (len(gpu_names()), len(shape_names()))

predict("llama-3-8b", "h100-sxm", batch_size=1, context_len=512)
