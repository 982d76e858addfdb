"""Airflow's templates in the values of FDS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_fds.sinks import Sink
from airflow_provider_fds.stream import DeltaStream

if TYPE_CHECKING:
    import jinja2


class ValueTemplates:
    """Makes an operator render the templates inside streams and sinks. List it before the operator's base class.

    The values are immutable, and tasks may share them, so rendering gives the operator a new value; Airflow's own way,
    setting attributes on the value, would show one task the strings of another. This class overrides
    ``Templater.render_template``, which is called for mapped operators too (``render_template_fields`` is not). A dict,
    such as a value from an XCom, is data and is not rendered.
    """

    def render_template(
        self,
        content: Any,
        context: Any,
        jinja_env: jinja2.Environment | None = None,
        seen_oids: set[int] | None = None,
    ) -> Any:
        """Render a template field; a stream or sink becomes a rendered copy of itself."""

        def render(text: Any) -> Any:
            return super(ValueTemplates, self).render_template(text, context, jinja_env, seen_oids)  # type: ignore[misc]

        if not isinstance(content, (DeltaStream, Sink)):
            return render(content)
        if seen_oids is not None and id(content) in seen_oids:
            return content
        return content.rendered(lambda text: str(render(text)))
