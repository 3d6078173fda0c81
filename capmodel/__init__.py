"""capmodel: what your GPUs will do for a language model, with a measured error bar.

Names are loaded where they are first used, so that `import capmodel` stays light.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "ModelShape": "capmodel.shapes",
    "load_shape": "capmodel.shapes",
    "Gpu": "capmodel.gpus",
    "load_gpu": "capmodel.gpus",
    "kv_bytes_per_token": "capmodel.kvcache",
    "kv_bytes": "capmodel.kvcache",
    "weight_bytes": "capmodel.weights",
    "max_concurrency": "capmodel.memory",
    "read_runs": "capmodel.ingest",
    "add_features": "capmodel.features",
    "load_silicon_runs": "capmodel.datasets",
    "make_runs": "capmodel.datasets",
    "grade": "capmodel.evaluation",
    "Calibration": "capmodel.calibration",
    "StepTime": "capmodel.steptime",
    "fit": "capmodel.calibration",
    "load_calibration": "capmodel.loading",
    "Prediction": "capmodel.prediction",
    "predict": "capmodel.prediction",
    "predict_step_time": "capmodel.prediction",
    "plan": "capmodel.planner",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'capmodel' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
