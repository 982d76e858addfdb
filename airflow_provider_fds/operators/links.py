"""Links on a task's page: the stream, the Spark application, and the versions read and written, in a catalog.

Airflow stores each link of a task as an XCom when the task ends. A task has only the links that apply to it.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote

from airflow.providers.common.compat.sdk import BaseOperatorLink

from airflow_provider_fds.hooks.settings import base_path, catalog_url, is_page
from airflow_provider_fds.stream.monitoring.stream_id import StreamId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.run.session import StreamSession

logger = logging.getLogger(__name__)


class TaskLink(BaseOperatorLink):
    """A link whose address the operator knows once it has run."""

    label: ClassVar[str]

    @property
    def name(self) -> str:
        """The text of the link."""
        return self.label

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002  # Airflow's signature
        """Return the address, ``""`` if it is unknown. Called in the task's process after it has run."""
        known: Mapping[str, str] = operator.known_links
        return known.get(self.label, "")


class DeltaStreamLink(TaskLink):
    """The stream on the page "Delta streams" of this Airflow."""

    label: ClassVar[str] = "Delta stream"


class SparkLink(TaskLink):
    """The page of the task's last Spark application, if the backend knows it."""

    label: ClassVar[str] = "Spark"


class SourceVersionLink(TaskLink):
    """The last version of the source that the task has committed, in the catalog of ``[fds] catalog_url_template``."""

    label: ClassVar[str] = "Source version"


class SinkVersionLink(TaskLink):
    """The version of the sink that contains the task's last batch, in that catalog."""

    label: ClassVar[str] = "Sink version"


LINKS: Final = (DeltaStreamLink(), SparkLink(), SourceVersionLink(), SinkVersionLink())


class ShowsLinks:
    """An operator with links: all of them in a DAG, the known ones in a task that runs.

    Attributes:
        operator_extra_links: The links; the class's own tuple is what Airflow reads from a DAG, mapped or not.
        known_links: Addresses by text.
    """

    operator_extra_links: Collection[BaseOperatorLink] = LINKS
    known_links: Mapping[str, str] = MappingProxyType({})

    def show_links(self, known: Mapping[str, str]) -> None:
        """Give this task exactly the links in ``known``, by text."""
        self.known_links = known
        self.operator_extra_links = tuple(link for link in LINKS if link.name in known)

    @contextmanager
    def showing_links(self, session: StreamSession, sink: Sink | None) -> Iterator[None]:
        """Show the links of a run after the body, also if it fails. Reads nothing, and raises no error of its own."""
        try:
            yield
        finally:
            try:
                links = _page_links(self, session)
                self.show_links(links)
                self.show_links({**links, **_version_links(session, sink)})
            except Exception as error:  # a link is never a reason to fail
                logger.warning("Links are missing from the task's page: %s", error)
                logger.debug("The links of stream %s were not made.", session.stream.name, exc_info=True)

    @contextmanager
    def showing_spark(self) -> Iterator[None]:
        """Show the page of the last Spark application after the body: the one link of a task of many streams."""
        try:
            yield
        finally:
            self.show_links(_spark_link(self))


def _spark_link(operator: ShowsLinks) -> dict[str, str]:
    pages: Mapping[str, str] = getattr(operator, "spark_pages", {})
    first = next(filter(is_page, pages.values()), None)
    return {} if first is None else {SparkLink.label: first}


def _page_links(operator: ShowsLinks, session: StreamSession) -> dict[str, str]:
    stream = StreamId.of(session.connected.staging.uri, session.stream.name)
    page = f"{base_path()}/fds/#/streams/{quote(str(stream), safe='')}"
    return {DeltaStreamLink.label: page, **_spark_link(operator)}


def _version_links(session: StreamSession, sink: Sink | None) -> dict[str, str]:
    result = session.result()
    if result is None:
        return {}
    from airflow_provider_fds.operators.lineage.asset_event import asset_uri

    sink_uri = None if sink is None or sink.table_uri is None else session.connected.sink_target(sink.table_uri)
    tables = (
        (SourceVersionLink.label, session.connected.table.uri, result.last_version),
        (SinkVersionLink.label, sink_uri, result.sink_version),
    )
    return {
        label: url
        for label, uri, version in tables
        if uri is not None and version is not None and (url := catalog_url(asset_uri(uri), version)) is not None
    }
