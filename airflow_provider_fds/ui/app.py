"""The API of the page "Delta streams": a FastAPI application that Airflow mounts at ``/fds``."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID  # noqa: TC003  # pydantic reads the annotation

import msgspec
from airflow.api_fastapi.core_api.security import GetUserDep  # noqa: TC002  # FastAPI reads the annotation
from fastapi import FastAPI, HTTPException, Request, Response, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr, field_validator

from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.errors import AccessDeniedError, ConfigurationError, FdsError, StorageError
from airflow_provider_fds.hooks.settings import deployment
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.stream.monitoring.status_file import update_status_file
from airflow_provider_fds.ui.actions import PAGE_ACTIONS
from airflow_provider_fds.ui.audit import record_action
from airflow_provider_fds.ui.dags import KnownDags, dag_here
from airflow_provider_fds.ui.owners import owner_runs
from airflow_provider_fds.ui.rights import Rights
from airflow_provider_fds.ui.rows import row_of
from airflow_provider_fds.ui.streams import Streams

if TYPE_CHECKING:
    from airflow_provider_fds.stream.actions.operator_actions import OperatorAction
    from airflow_provider_fds.ui.streams import FoundStream

logger = logging.getLogger(__name__)

#: The host that the history shows for actions on the page: ``anna@airflow-ui``.
_HOST: Final = "airflow-ui"

_STATIC: Final = Path(__file__).parent / "static"
_ENCODER: Final = msgspec.json.Encoder()


class PreviewBody(BaseModel):
    """The body of a preview."""

    arguments: dict[str, StrictStr | StrictInt | StrictBool | None] = {}


class ActionBody(PreviewBody):
    """The body of an action."""

    why: str = Field(min_length=1, max_length=2_000)
    request_id: UUID
    expected: str

    @field_validator("why")
    @classmethod
    def _is_said(cls, why: str) -> str:
        if not why.strip():
            raise ValueError("must not be empty")
        return why.strip()


def create_app() -> FastAPI:
    """Return the application. Every path below ``/api`` needs a user; the page's own files hold no data."""
    app = FastAPI(title="Delta streams", docs_url=None, redoc_url=None, openapi_url=None)
    streams, dags = Streams(), KnownDags()

    @app.get("/api/streams")
    def list_streams(request: Request, user: GetUserDep) -> Response:
        """All streams that the user may see."""
        rights = Rights(request, user, deployment())
        now = datetime.now(UTC)
        listed = streams.all(rights.may_see)
        seen = [(uri, one) for uri, found in listed.rows.items() for one in rights.readable(found.values())]
        facts = dags.describe([one for _, one in seen], deployment())
        rows = [row_of(one, uri, now) | more for (uri, one), more in zip(seen, facts, strict=True)]
        return _answer(
            {
                "generated_at": now.isoformat(timespec="milliseconds"),
                "staging": listed.staging,
                "problems": listed.problems,
                "streams": sorted(rows, key=lambda row: (row["name"], row["staging"])),
            }
        )

    @app.get("/api/streams/{stream_id}")
    def show_stream(stream_id: str, request: Request, user: GetUserDep) -> Response:
        """One stream, with its history from the ledger."""
        rights = Rights(request, user, deployment())
        found = _find(streams, rights, stream_id)
        row, details = found.details()
        row_now = row_of(row, found.staging.uri, datetime.now(UTC)) | dags.describe([row], deployment())[0]
        return _answer({**row_now, **details, "may_act": rights.may("PUT", found.row)})

    @app.post("/api/streams/{stream_id}/actions/{action}/preview")
    def preview(stream_id: str, action: str, body: PreviewBody, request: Request, user: GetUserDep) -> Response:
        """What an action would do."""
        found, chosen = _may_act(streams, request, user, stream_id, action)
        return _answer(found.actions(owner_runs).preview(chosen, body.arguments).to_dict())

    @app.post("/api/streams/{stream_id}/actions/{action}")
    def act(stream_id: str, action: str, body: ActionBody, request: Request, user: GetUserDep) -> Response:
        """Perform an action."""
        found, chosen = _may_act(streams, request, user, stream_id, action)
        actions = found.actions(owner_runs)
        asked = {"stream": found.row.name, "staging": found.staging.uri, **body.model_dump(mode="json")}
        name, here = user.get_name(), deployment()
        dag_id = dag_here(found.row, here)
        task_id = None if dag_id is None else found.row.task_id
        record_action(action, name, dag_id=dag_id, task_id=task_id, facts=asked)
        message = actions.perform(
            chosen,
            body.arguments,
            why=body.why,
            actor=Actor(deployment=here, user=name, host=_HOST),
            request_id=str(body.request_id),
            expected=body.expected,
        )
        logger.info("%s by %s: %s", chosen.name, name, message)
        try:
            update_status_file(found.staging, actions.ledger)
        except StorageError as error:
            logger.warning("The status file of stream %s was not updated: %s", found.row.name, error)
        streams.forget(stream_id)
        return _answer({"done": True, "message": message})

    _handle_errors(app)
    if _STATIC.is_dir():
        app.mount("/", StaticFiles(directory=_STATIC, html=True), name="page")
    return app


def _find(streams: Streams, rights: Rights, stream_id: str) -> FoundStream:
    """Return a stream that the user may see. Another one answers as one that does not exist: its name is a secret."""
    found = streams.find(stream_id)
    if found is None or not rights.may("GET", found.row):
        detail = f"There is no stream with the id {stream_id!r}: it was removed, or its staging folder is not shown."
        raise HTTPException(status.HTTP_404_NOT_FOUND, detail)
    return found


def _may_act(
    streams: Streams, request: Request, user: Any, stream_id: str, action: str
) -> tuple[FoundStream, OperatorAction]:
    """Return a stream and an action of it, if the user may perform it."""
    _refuse_other_sites(request)
    rights = Rights(request, user, deployment())
    found = _find(streams, rights, stream_id)
    rights.require("PUT", found.row)
    chosen = PAGE_ACTIONS.get(action)
    if chosen is None:
        detail = f"There is no action {action!r} on this page. The actions are {', '.join(PAGE_ACTIONS)}."
        raise HTTPException(status.HTTP_404_NOT_FOUND, detail)
    return found, chosen


def _refuse_other_sites(request: Request) -> None:
    """Refuse a change that another site asks for with the session of this one.

    Airflow's cookie is not sent with a POST of another site (SameSite=Lax), and no form can send JSON. A browser also
    says where a request comes from, which covers other hosts of the same site.
    """
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        detail = "This request comes from another site, so nothing was done. Use the page Delta streams."
        raise HTTPException(status.HTTP_403_FORBIDDEN, detail)
    if not request.headers.get("content-type", "").startswith("application/json"):
        detail = "The body must be JSON, with the header Content-Type: application/json."
        raise HTTPException(status.HTTP_415_UNSUPPORTED_MEDIA_TYPE, detail)


def _answer(values: Any) -> Response:
    # FastAPI's own encoder takes a second for 1,000 rows
    return Response(_ENCODER.encode(values), media_type="application/json", headers={"Cache-Control": "no-store"})


def _handle_errors(app: FastAPI) -> None:
    """Respond to errors with a readable ``detail``."""

    @app.exception_handler(FdsError)
    def refused(_request: Request, error: FdsError) -> JSONResponse:
        return JSONResponse({"detail": redacted(f"[{error.reason_code}] {error}")}, _code_of(error))

    @app.exception_handler(RequestValidationError)
    def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        problems = (f"{'.'.join(str(part) for part in one['loc'][1:])}: {one['msg']}" for one in error.errors())
        return JSONResponse({"detail": f"The request is invalid: {'; '.join(problems)}."}, 422)


def _code_of(error: FdsError) -> int:
    if isinstance(error, AccessDeniedError):
        return status.HTTP_502_BAD_GATEWAY
    if isinstance(error, StorageError):
        return status.HTTP_503_SERVICE_UNAVAILABLE
    return 422 if isinstance(error, ConfigurationError) else status.HTTP_409_CONFLICT
