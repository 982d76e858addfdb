"""Refuses two tasks of a DAG file that load one stream into different sinks, while the file is parsed.

Airflow parses each file in a separate process, so tasks in different files are not compared here: the ledger binds a
stream to its sink, and the first run with another sink is refused.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import Sink
from airflow_provider_fds.sinks.options import is_template
from airflow_provider_fds.stream import DeltaStream

if TYPE_CHECKING:
    from types import FrameType

#: The streams of a file, kept as a global of its module so that they last for one parse of the file.
_DECLARED: Final = "__fds_sinks_of_streams__"


def check_one_sink(task: str, stream: object, sink: object) -> None:
    """Refuse a second sink for a stream of the DAG file that is being parsed; outside of a parse, check nothing.

    Args:
        task: The task, as ``<DAG>.<task>``, for the message.
        stream: Its stream; one that is known only at run time is not checked.
        sink: Its sink, likewise.

    Raises:
        ConfigurationError: An earlier task of the file loads the stream into another sink.
    """
    module = _module_in_progress()
    if module is None or not isinstance(stream, DeltaStream) or not isinstance(sink, Sink):
        return
    identity = sink.identity()
    if any(map(is_template, (stream.name, stream.staging or "", *identity.values()))):
        return
    tasks, declared = module.f_globals.setdefault(_DECLARED, (set(), {}))
    if task in tasks:
        # the module is executed again in its old namespace, as importlib.reload does
        tasks.clear()
        declared.clear()
    tasks.add(task)
    other_task, other = declared.setdefault((stream.staging, stream.name), (task, identity))
    if other != identity:
        raise ConfigurationError(
            f"stream {stream.name!r} loads into {other['target']} in task {other_task!r} and into "
            f"{identity['target']} in task {task!r}: rows would be missing in one of them. Use a stream with another "
            "name for the second sink",
            subject=f"task {task!r}",
            reason=Reason.SINK_MISMATCH,
        )


def _module_in_progress() -> FrameType | None:
    """Return the frame of the innermost module that is being executed, ``None`` if it is not an imported file.

    A worker process executes its own code as a module, too: as ``__main__``, or without a file (pytest-xdist).
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is None or frame.f_globals.get("__name__") == "__main__" or "__file__" not in frame.f_globals:
        return None
    return frame
