"""The HTTP application: operations by path, errors as problem details, OpenAPI.

Never answers an error with its text unless it is one of the mesh.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.gateway.openapi import OPERATIONS, openapi
from services.gateway.positions import Positions
from snavio.domain.stream import OutsideReplayWindow
from snavio.errors import BadRequest, NotFound, SnavioError
from snavio.http.problems import problem_of, with_status
from snavio.tracebacks import trace_of

GONE: Final = 410
UNAUTHENTICATED: Final = {"www-authenticate": "mutual"}
_log = structlog.get_logger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


def application(handlers: dict[str, Handler], *, positions: Positions) -> Starlette:
    """The application of these handlers, one for each of `OPERATIONS`."""
    document = openapi()

    async def describe(_request: Request) -> Response:
        return Response(document, media_type="application/json")

    routes = [Route("/v1/openapi.json", describe, methods=["GET"])]
    for operation in OPERATIONS:
        answered = _answered(handlers[operation.name], positions)
        routes.append(Route(operation.path, answered, methods=[operation.method]))

    async def unknown(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            return with_status(405, BadRequest("No such method here.", reason="unknown-method"))
        return problem_of(NotFound("There is nothing here; /v1/openapi.json lists what there is."))

    return Starlette(routes=routes, exception_handlers={404: unknown, 405: unknown})


def _answered(handler: Handler, positions: Positions) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except OutsideReplayWindow as gone:
            return await _gone(gone, positions, request.path_params["tenant"])
        except SnavioError as error:
            return problem_of(error, headers=UNAUTHENTICATED if error.code.http_status == 401 else None)
        except Exception as error:
            _log.error("request failed", path=request.url.path[:200], stack=trace_of(error))
            return problem_of(SnavioError("internal"))

    return answer


async def _gone(gone: OutsideReplayWindow, positions: Positions, tenant: str) -> Response:
    """410 with the signed position to go on from; 503 while there is nobody to sign it."""
    try:
        statement = await positions.statement(tenant)
    except SnavioError as error:
        return problem_of(error)
    return with_status(GONE, gone, position=statement)
