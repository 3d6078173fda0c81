"""Answers: results as JSON, and problems, with the handlers of what a route raises."""

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from capmodel.service.errors import Problem, Refused, problem, validation_problems
from capmodel.service.plain import json_bytes


def json_response(value: Any) -> Response:
    """A JSON answer."""
    return Response(json_bytes(value), media_type="application/json")


def problem_response(
    status: int, problems: Sequence[Problem], retry_s: int | None = None
) -> JSONResponse:
    """The answer that carries `problems`."""
    headers = {"Retry-After": str(retry_s)} if retry_s is not None else None
    content = {"detail": [one.model_dump() for one in problems]}
    return JSONResponse(content, status_code=status, headers=headers)


async def on_refused(_request: Request, error: Exception) -> Response:
    """Handler of `Refused`."""
    if not isinstance(error, Refused):
        raise error
    return problem_response(error.status, error.problems, error.retry_s)


async def on_invalid(_request: Request, error: Exception) -> Response:
    """Handler of a body that is not of its form; the body itself is not sent back."""
    if not isinstance(error, RequestValidationError):
        raise error
    return problem_response(422, validation_problems(error.errors()))


async def on_http(_request: Request, error: Exception) -> Response:
    """Handler of 404, 405 and what the framework refuses by itself."""
    if not isinstance(error, HTTPException):
        raise error
    status = 422 if error.status_code == 400 else error.status_code
    expected, message = _OF_STATUS.get(status, (str(error.detail), str(error.detail)))
    answer = problem_response(status, [problem("", expected, message)])
    if error.headers:
        answer.headers.update(error.headers)
    return answer


_OF_STATUS = {
    422: ("JSON in UTF-8", "the body: expected JSON in UTF-8"),
    404: (
        "a path that /openapi.json names",
        "there is nothing here; /openapi.json names the paths",
    ),
    405: ("a method that this path has", "this path has other methods; /openapi.json names them"),
}
