"""What jobs are asked for. Each loads what it needs where it is called, in the job's process.

So the process that answers the short requests is up sooner, and holds less.
"""

from capmodel.service.answers import Fields


def plan_json(fields: Fields) -> bytes:
    """A plan as JSON."""
    from capmodel.service import plans

    return plans.plan_json(fields)


def load_planner() -> None:
    """What `plan_json` needs, in this process."""
    from capmodel.service import plans  # noqa: F401


def plan_file(fields: Fields) -> bytes:
    """A plan as the file that `format` names."""
    from capmodel.service import plans

    return plans.plan_file(fields)


def lab_json(fields: Fields) -> bytes:
    """What the lab page shows, as JSON."""
    from capmodel.service import laboratory

    return laboratory.lab_json(fields)


def fit_json(fields: Fields) -> bytes:
    """A calibration of the runs that were sent, as JSON."""
    from capmodel.service import fitting, plain

    return plain.json_bytes(fitting.answer_fit(fields))


def grade_json(fields: Fields) -> bytes:
    """The grade card of the runs that were sent, as JSON."""
    from capmodel.service import fitting, plain

    return plain.json_bytes(fitting.answer_grade(fields))


def models_json(fields: Fields) -> bytes:
    """The catalogue's models, as JSON."""
    from capmodel.service import models

    return models.models_json(fields)
