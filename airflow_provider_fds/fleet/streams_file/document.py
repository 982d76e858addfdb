"""A YAML file as plain values, with the place of each key and value, and with environment variables filled in.

Scalars are those of YAML 1.2, as editors read them: ``yes``, ``on`` and dates are texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.credentials import is_secret, redacted
from airflow_provider_fds.fleet.streams_file.environment import interpolated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Keys and indexes from the top of the file to a value.
Path = tuple[str | int, ...]

#: More values than a file of 10,000 streams has; aliases of aliases could make more than memory holds.
_MOST_VALUES: Final = 1_000_000
_DEEPEST: Final = 20

_WORDS: Final[dict[str, Any]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,100}", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", re.ASCII)
#: Texts that compare columns, whatever their names.
_PREDICATES: Final = frozenset({"where", "exclude_regex"})
#: Mappings whose keys are names of settings.
_FREE: Final = frozenset({"conf", "properties"})
_PLAIN_TAG: Final = "tag:yaml.org,2002:"


@dataclass(frozen=True, order=True)
class Problem:
    """Something wrong in a file.

    Attributes:
        line: Line, from 1.
        column: Column, from 1.
        text: What happened, why, and what to do.
        between: Where the file has the streams that cannot be together, if nothing else is wrong with them.
    """

    line: int
    column: int
    text: str
    between: tuple[Path, ...] = ()


@dataclass
class Document:
    """The content of a file.

    Attributes:
        name: The file, for messages.
        value: Its value: dicts, lists, texts, numbers, booleans and ``None``.
        problems: What is wrong with it so far.
        places: Line and column of each value, both from 1; of a value in a mapping, those of its key.
        unread: Values that could not be read; no further problem is added to them.
    """

    name: str
    value: Any = None
    problems: list[Problem] = field(default_factory=list)
    places: dict[Path, tuple[int, int]] = field(default_factory=dict)
    unread: set[Path] = field(default_factory=set)

    def add(self, path: Path, text: str, between: tuple[Path, ...] = ()) -> None:
        """Add a problem at the value of ``path``, or at the innermost value around it that the file has."""
        while path and path not in self.places:
            path = path[:-1]
        if path in self.unread:
            return
        self.problems.append(Problem(*self.places.get(path, (1, 1)), text, between))

    def place(self, path: Path) -> str:
        """Return the place of a value as ``line 3``."""
        return f"line {self.places.get(path, (1, 1))[0]}"

    def messages(self) -> list[str]:
        """Return each problem once as ``file:line:column: text``, in the order of the file."""
        return self._texts(self.problems)

    def messages_between(self, path: Path) -> list[str]:
        """Return likewise the problems that the stream at ``path`` has with others."""
        return self._texts(one for one in self.problems if path in one.between)

    def _texts(self, problems: Iterable[Problem]) -> list[str]:
        return list(dict.fromkeys(f"{self.name}:{one.line}:{one.column}: {one.text}" for one in sorted(problems)))


def read_document(text: str, name: str, environment: Mapping[str, str]) -> Document:
    """Read a YAML file; what is wrong with it is in the result's ``problems``.

    Args:
        text: The file's text.
        name: The file, for messages.
        environment: The variables for ``${NAME}``.
    """
    # Airflow requires PyYAML
    import yaml

    document = Document(name)
    try:
        node = yaml.compose(text, Loader=_loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        what = f"{error.context}: {error.problem}" if error.context else str(error.problem)
        document.problems.append(
            Problem(line, column, f"this is not valid YAML: {what}. Check indentation and quotes.")
        )
        return document
    except yaml.YAMLError as error:
        found = str(error).split("\n", 1)[0]
        document.problems.append(Problem(1, 1, f"this is not valid YAML: {found}. Save the file as UTF-8 text."))
        return document
    if node is not None:
        document.value = _Reader(document, environment).read(node, ())
    return document


class _Reader:
    """Turns the nodes of a file into values."""

    def __init__(self, document: Document, environment: Mapping[str, str]) -> None:
        self._document = document
        self._environment = environment
        self._num_values = 0

    def read(self, node: Any, path: Path) -> Any:
        self._num_values += 1
        self._document.places.setdefault(path, _place(node))
        if self._num_values > _MOST_VALUES or len(path) > _DEEPEST:
            if self._num_values <= _MOST_VALUES + 1:
                self._num_values = _MOST_VALUES + 1
                self._add(node, "the file has too many values, or aliases (*name) of aliases. Write them out.")
            return None
        kind = type(node).__name__
        if kind == "MappingNode":
            return self._mapping(node, path)
        if kind == "SequenceNode":
            return [self.read(item, (*path, number)) for number, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if type(key_node).__name__ != "ScalarNode":
                self._add(key_node, "a key must be a word, got a list or a mapping. Write it as key: value.")
                continue
            if key == "<<":
                self._add(key_node, "merge keys (<<) are not read. Put shared values into 'defaults'.")
                continue
            if key in found:
                first = self._document.place((*path, key))
                self._add(
                    key_node, f"the key {key!r} is here a second time, first in {first}. Keep one of the two values."
                )
                continue
            self._document.places[(*path, key)] = _place(key_node)
            found[key] = self.read(value_node, (*path, key))
        return found

    def _scalar(self, node: Any, path: Path) -> Any:
        text = node.value
        is_plain = not node.style
        if not node.tag.startswith(_PLAIN_TAG):
            self._add(node, f"the tag {node.tag!r} is not read. Write the value without it.", unread=path)
            return text
        if "$" in text:
            try:
                text = interpolated(text, self._environment)
            except ValueError as error:
                self._add(node, str(error), unread=path)
                return text
        key = path[-1] if path else "the file"
        names_secret = len(path) > 1 and path[-2] in _FREE and is_secret(str(key))
        if names_secret or (key not in _PREDICATES and redacted(text) != text):
            self._add(
                node,
                f"the value of {key!r} contains what looks like a credential, visible to everyone who can read the "
                "file. Put it into an Airflow connection and name that in storage_conn_id or conn_id.",
                unread=path,
            )
            return ""
        return _plain(text) if is_plain else text

    def _add(self, node: Any, text: str, unread: Path | None = None) -> None:
        if unread is not None:
            self._document.unread.add(unread)
        self._document.problems.append(Problem(*_place(node), text))


def _place(node: Any) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _plain(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _loader() -> Any:
    """Return a loader that leaves all scalars to :func:`_plain`: the one in C if PyYAML has it, for its speed."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # a class known at run time
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # as in the base class

    return Loader
