"""``SparkSubmitHook`` with secrets kept out of the command line, and a log that has an end."""

from __future__ import annotations

import os
import re
import tempfile
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Names of settings and variables whose values nobody else may see; every user of a machine sees the arguments of its
#: processes.
_SECRET: Final = re.compile(
    r"(?i)secret|passw(or)?d|token|credential|signature|(access|account|api|private)[._-]?key|\bsas\b"
)

#: Lines of spark-submit in the task's log; of what comes after, only those that somebody would look for.
MOST_LINES: Final = 2000
_LAST_LINES: Final = 200
_WANTED: Final = re.compile(
    r"^FDS |application_\d+_\d+|driver-\d+|pod name:|submission ID|spark-app-selector|[eE]xit code|"
    r"\b(?:WARN|ERROR|FATAL)\b|Exception|Error:"
)


def is_secret(name: str) -> bool:
    """Whether the value of a setting or an environment variable of this name is for nobody's eyes."""
    return _SECRET.search(name) is not None


class SubmitHook(SparkSubmitHook):
    """Starts spark-submit as its base does, from the same arguments.

    Settings with secret values reach it through a file that only this user can read, and that is gone when it has
    ended. With such a file Spark reads its ``spark-defaults.conf`` only when told to, so it is; a user's own
    ``properties_file`` takes the place of the defaults here as it does anywhere.
    """

    _loads_defaults = False

    @classmethod
    def like(cls, hook: SparkSubmitHook) -> SubmitHook:
        """Return a hook with the arguments of another one."""
        made = cls.__new__(cls)
        made.__dict__.update(vars(hook))
        return made

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run spark-submit and wait for it; see the base."""
        with self._secrets_in_a_file():
            return super().submit(application, **kwargs)

    @contextmanager
    def _secrets_in_a_file(self) -> Iterator[None]:
        given, own_file = self._conf, self._properties_file
        secrets = {key: value for key, value in given.items() if is_secret(key)}
        if not secrets:
            yield
            return
        # made with the rights 0600
        descriptor, name = tempfile.mkstemp(prefix="fds-", suffix=".conf")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                if own_file:
                    file.write(Path(own_file).read_text(encoding="utf-8") + "\n")
                file.write(properties_text(secrets))
            self._conf = {key: value for key, value in given.items() if key not in secrets}
            self._properties_file, self._loads_defaults = name, not own_file
            yield
        finally:
            Path(name).unlink(missing_ok=True)
            self._conf, self._properties_file, self._loads_defaults = given, own_file, False

    def _build_spark_common_args(self) -> list[str]:
        more = ["--load-spark-defaults"] if self._loads_defaults else []
        return [*super()._build_spark_common_args(), *more]

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(bounded(itr))


def properties_text(settings: Mapping[str, Any]) -> str:
    """Return settings as a file of Java properties."""
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    lines = (
        f"{key} {''.join(escapes.get(character, character) for character in str(value))}"
        for key, value in settings.items()
    )
    return "".join(f"{line}\n" for line in lines)


def bounded(lines: Iterator[str]) -> Iterator[str]:
    """Yield the first lines, then of the others those that matter, then the last ones, and how many were left out."""
    held_back: deque[str] = deque(maxlen=_LAST_LINES)
    left_out = 0
    for number, line in enumerate(lines):
        if number < MOST_LINES or (number < 2 * MOST_LINES and _WANTED.search(line)) or line.startswith("FDS "):
            yield line
            continue
        left_out += len(held_back) == _LAST_LINES
        held_back.append(line)
    if left_out:
        yield f"… {left_out} lines of spark-submit left out …"
    yield from held_back


__all__ = ["MOST_LINES", "SubmitHook", "bounded", "is_secret", "properties_text"]
