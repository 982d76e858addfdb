"""The Airflow plugin: the page "Delta streams", and what is loaded before tasks are forked.

Every process of Airflow imports this module. FastAPI and the rest of this package are imported by the first
request, so only in an API server.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.exceptions import AirflowConfigException
from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Application = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


class DeltaStreamsApp:
    """The ASGI application of the page, made by its first request."""

    def __init__(self) -> None:
        self._app: Application | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
        if self._app is None:
            from airflow_provider_fds.ui.app import create_app

            self._app = create_app()
        await self._app(scope, receive, send)


def _below_base_url(path: str) -> str:
    return urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/") + path


_VIEW: Final = {
    "name": "Delta streams",
    "href": _below_base_url("/fds/"),
    "icon": _below_base_url("/fds/icon.svg"),
    "destination": "nav",
    "url_route": "delta-streams",
    "nav_top_level": True,
}


def _forks_tasks() -> bool:
    """Whether this process is a scheduler, whose LocalExecutor forks tasks, and ``[fds] preload`` is on."""
    try:
        return "scheduler" in sys.argv[1:2] and conf.getboolean("fds", "preload", fallback=False)
    except AirflowConfigException as error:
        logging.getLogger(__name__).warning("[fds] preload has no effect: %s", error)
        return False


class FdsPlugin(AirflowPlugin):
    """Adds the page "Delta streams" to the navigation, and its API below ``/fds``."""

    name = "fds"
    fastapi_apps = [{"app": DeltaStreamsApp(), "url_prefix": "/fds", "name": "Delta streams"}]  # noqa: RUF012
    external_views = [_VIEW]  # noqa: RUF012  # Airflow reads attributes of the class

    @classmethod
    def on_load(cls, *_args: Any, **_kwargs: Any) -> None:
        """Import what tasks need, if this process forks them and the installation wants it."""
        if _forks_tasks():
            from airflow_provider_fds.operators.preload import preload

            preload()
