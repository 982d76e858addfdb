"""``SubmitHook``: spark-submit with a bounded log, and with Spark's defaults besides FDS's properties file."""

from __future__ import annotations

import re
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_fds.spark.clusters.kubernetes import WAITS
from airflow_provider_fds.spark.installation.install import child_environment
from airflow_provider_fds.spark.submission.launch import end_group, end_group_with
from airflow_provider_fds.spark.submission.submit import LOAD_DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: Lines of spark-submit in the task's log; after that, only lines that someone may look for.
MOST_LINES: Final = 2000
_LAST_LINES: Final = 200
#: Between SIGTERM and SIGKILL. Airflow kills a task 5 seconds after its SIGTERM.
_KILL_SECONDS: Final = 2.0
_WANTED: Final = re.compile(
    r"^FDS |application_\d+_\d+|driver-\d+|pod name:|submission ID|spark-app-selector|[eE]xit code|"
    r"\b(?:WARN|ERROR|FATAL)\b|Exception|Error:"
)

#: What the driver prints if its application goes to Spark's history, see ``tell_ui_address``.
_APPLICATION: Final = re.compile(r"FDS Spark application: (\S+)")


class SubmitHook(SparkSubmitHook):
    """Starts spark-submit as its base class does, from the same arguments.

    Spark reads a properties file instead of its ``spark-defaults.conf``. If the properties file holds only FDS's own
    settings, this hook tells Spark to read both.

    spark-submit leads a process group, which is ended with it: its Python driver would go on alone.
    """

    #: Id of the application, if its driver has named it.
    spark_application_id: str | None = None
    _loads_defaults = False
    _child_env: dict[str, str] | None = None
    _was_killed: Callable[[], bool]

    @classmethod
    def like(
        cls, hook: SparkSubmitHook, *, loads_defaults: bool = False, was_killed: Callable[[], bool] = lambda: False
    ) -> SubmitHook:
        """Return a hook with the arguments of another one.

        Args:
            hook: The other hook.
            loads_defaults: Whether Spark reads its defaults in addition to the properties file.
            was_killed: Whether the task was told to end, maybe before there was anything to kill.
        """
        made = cls.__new__(cls)
        made.__dict__.update(vars(hook))
        made._loads_defaults = loads_defaults  # noqa: SLF001 - of its own class
        made._was_killed = was_killed  # noqa: SLF001 - likewise
        if leaves_its_driver(made._conf):  # noqa: SLF001 - likewise
            # the base class expects the driver's exit code in the log, and an unknown one is a failure
            made._spark_exit_code = 0  # noqa: SLF001 - likewise
        return made

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Start spark-submit as the base class does, without Airflow's own variables in the environment.

        Whatever ends the wait for it also ends its process group.
        """
        self._child_env = child_environment()
        if self._was_killed():
            raise AirflowException("Airflow killed the task before spark-submit started")
        # users print anything
        kwargs |= {"encoding": "utf-8", "errors": "replace", "start_new_session": True}
        try:
            return super().submit(application, env=self._child_env, **kwargs)
        finally:
            self._end_group()

    def on_kill(self) -> None:
        """End spark-submit as the base class does, and its Python driver."""
        try:
            super().on_kill()
        except FileNotFoundError as error:
            # the base class wants to run `yarn application -kill`, which pip's pyspark does not have
            self.log.warning("There is no command to stop the application with: %s", error)
        finally:
            self._end_group()

    def _end_group(self) -> None:
        if self._submit_sp is not None:
            end_group(self._submit_sp, _KILL_SECONDS)

    @property
    def _env(self) -> dict[str, Any] | None:
        """Nothing: the base class would add it to this process's whole environment."""
        return None

    @_env.setter
    def _env(self, given: dict[str, Any] | None) -> None:
        # the base class sets it while it builds the command, before it starts it
        if given and self._child_env is not None:
            self._child_env.update({name: str(value) for name, value in given.items()})

    def _build_spark_submit_command(self, application: str) -> list[str]:
        # Airflow's log view folds what is between these lines: the command, which the base class logs, is long
        self.log.info("::group::Command of spark-submit")
        # the only method that builds the command in versions 5 and 6 of the provider
        command = super()._build_spark_submit_command(application)
        self.log.info("::endgroup::")
        if not self._loads_defaults:
            return command
        before = len(command) - 1 - len(self._application_args or [])
        return [*command[:before], LOAD_DEFAULTS, *command[before:]]

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        if self._submit_sp is not None:
            end_group_with(self._submit_sp, _KILL_SECONDS)
        if self._was_killed():
            # while it started, when on_kill had nothing to kill
            self.on_kill()
        super()._process_spark_submit_log(bounded(self._noted(itr)))

    def _noted(self, lines: Iterator[Any]) -> Iterator[Any]:
        """Yield the lines, and remember the application that the driver names."""
        for line in lines:
            if isinstance(line, str) and (found := _APPLICATION.match(line)):
                self.spark_application_id = found[1]
            yield line


def leaves_its_driver(conf: Mapping[str, Any] | None) -> bool:
    """Whether spark-submit with these settings ends as soon as Kubernetes has the driver."""
    return str((conf or {}).get(WAITS, "")).lower() == "false"


@contextmanager
def needing_no_client() -> Iterator[None]:
    """Let hooks be made that leave their driver in Kubernetes, also where its client for Python is not installed.

    The base class refuses that, because it uses the client to ask about a pod and to delete it.
    """
    module: Any = spark_submit
    before = getattr(module, "kube_client", None)
    module.kube_client = before or object()
    try:
        yield
    finally:
        module.kube_client = before


def bounded(lines: Iterator[str]) -> Iterator[str]:
    """Yield the first lines, then only the lines that matter, then the last ones with the number of omitted lines."""
    held_back: deque[str] = deque(maxlen=_LAST_LINES)
    left_out = 0
    for number, line in enumerate(lines):
        if number < MOST_LINES or (number < 2 * MOST_LINES and _WANTED.search(line)) or line.startswith("FDS "):
            yield line
            continue
        left_out += len(held_back) == _LAST_LINES
        held_back.append(line)
    if left_out:
        yield f"… {left_out} lines of spark-submit omitted …"
    yield from held_back
