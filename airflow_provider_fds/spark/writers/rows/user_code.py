"""A user's function on the driver: found by its name, called, and its errors reported with file and line.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import importlib
import inspect
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, Sequence

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.failures import RefusalError, explain, is_bug, shortened, users_frame

#: Functions of this process that cannot be imported from a module, by the name that a sink gives them.
_HERE: Dict[str, Callable[..., Any]] = {}


@contextmanager
def function_here(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Let :func:`load_function` find ``function`` under ``name``, for a job that runs in this process."""
    _HERE[name] = function
    try:
        yield
    finally:
        del _HERE[name]


def load_function(name: str, what: str, parameters: Sequence[str]) -> Callable[..., Any]:
    """Import ``pkg.module:function``, or return the function of this process with that name.

    Args:
        name: The function.
        what: Its purpose, in words.
        parameters: The names of its positional arguments, for messages.

    Raises:
        RefusalError: The driver has no such module or function, the module fails at import, or the function cannot be
            called that way.
    """
    if name in _HERE:
        return _HERE[name]
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise RefusalError(
            Reason.USER_FUNCTION_FAILED,
            f"{what} {name} cannot be imported on the driver ({error}): ship its module with the task's "
            "py_files='…', or install it where the driver runs. With Spark Connect, the driver is the worker: use "
            "its PYTHONPATH, or a package",
        ) from error
    except (Exception, SystemExit) as error:
        raise _failed(f"{what} {name}: its module fails at import", error) from error
    for part in path.split("."):
        if not hasattr(found, part):
            where = getattr(found, "__file__", None) or type(found).__name__
            raise RefusalError(Reason.USER_FUNCTION_FAILED, f"{what} {name}: there is no {part!r} in {where}")
        found = getattr(found, part)
    if not callable(found):
        raise RefusalError(
            Reason.USER_FUNCTION_FAILED, f"{what} {name} is a {type(found).__name__}, expected a function"
        )
    function: Callable[..., Any] = found
    _check_parameters(function, f"{what} {name}", parameters)
    return function


def _check_parameters(function: Callable[..., Any], what: str, parameters: Sequence[str]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # a function that is not written in Python may have no signature
        return
    try:
        signature.bind(*parameters)
    except TypeError as error:
        code = getattr(inspect.unwrap(function), "__code__", None)
        where = "" if code is None else f" at line {code.co_firstlineno} of {code.co_filename}"
        raise RefusalError(
            Reason.USER_FUNCTION_FAILED,
            f"{what}{where} has the parameters {signature}, but is called with ({', '.join(parameters)}): {error}",
        ) from error


def call(function: Callable[..., Any], name: str, what: str, *arguments: Any) -> Any:
    """Call the user's function.

    Raises:
        RefusalError: It raised, or called ``sys.exit``, whatever the code; the message names its file and line.
    """
    try:
        return function(*arguments)
    except RefusalError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(f"{what} {name} failed", error) from error


#: Failures that meet whatever the session runs at that moment, so no function is to blame.
_OF_THE_SERVER = (Reason.SPARK_SESSION_ENDED, Reason.SPARK_CONNECT_LOST)


def _failed(what: str, error: BaseException) -> RefusalError:
    failure = explain(error)
    if failure.reason in _OF_THE_SERVER:
        return RefusalError(failure.reason, failure.message, retryable=True)
    is_retryable = failure.retryable and not is_bug(error)
    # Spark's errors have their own message; for a Python exception, the location is already in this one
    is_of_python = type(error).__module__ == "builtins"
    words = f"{type(error).__name__}: {error}" if is_of_python else f"{failure.error_class}: {failure.message}"
    reason = Reason.USER_FUNCTION_INTERRUPTED if is_retryable else Reason.USER_FUNCTION_FAILED
    return RefusalError(reason, shortened(f"{what}{_place(error)}: {words}"), retryable=is_retryable)


def _place(error: BaseException) -> str:
    """Return where in the user's code it happened, in words."""
    if isinstance(error, SyntaxError):
        return f" at line {error.lineno} of {error.filename}"
    frame = users_frame(error)
    return "" if frame is None else f" at line {frame.lineno} of {frame.filename}, in {frame.name}"
