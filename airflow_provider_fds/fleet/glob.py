"""A URI with ``*`` in its folders, and the folders that it matches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.schemes import PATH_SAFE, location
from airflow_provider_fds.stream.declaration.backfill_range import is_template

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

#: Scheme and bucket, or the slashes before the first folder of a path.
_ROOT: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*/*|/*")
#: What looks like names in a catalog.
_NAMES: Final = re.compile(r"[\w-]+(?:\.[\w*-]+)+")


class FolderGlob:
    """A URI or path in which ``*`` stands for text without a slash.

    Args:
        pattern: The URI or path.

    >>> FolderGlob("s3://lake/*/raw_*").parts_of("s3://lake/crm/raw_orders")
    {'schema': 'crm', 'table': 'raw_orders', '1': 'crm', '2': 'orders'}
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        root = _ROOT.match(pattern)
        assert root is not None  # noqa: S101  # it also matches nothing
        self._root = root[0]
        self._segments = [segment for segment in pattern[root.end() :].split("/") if segment]
        self._is_encoded = "://" in pattern

    def problems(self) -> list[str]:
        """Return what is wrong with the pattern, one sentence each."""
        if is_template(self.pattern):
            return [f"tables {self.pattern!r} is a template. Write the URI with '*' for the folders to find."]
        if _NAMES.fullmatch(self.pattern):
            return [
                (
                    f"tables {self.pattern!r} looks like names in a catalog. Set catalog_conn_id to the Airflow "
                    f"connection of that catalog, or write './{self.pattern}' for folders."
                )
            ]
        if "*" in self._root:
            return [f"tables {self.pattern!r} has a '*' in its bucket or scheme. Use one pattern for each bucket."]
        if not any("*" in segment for segment in self._segments):
            return [
                (
                    f"tables {self.pattern!r} has no '*'. Write s3://lake/raw/* for the tables in a folder, or declare "
                    "a single table as a stream."
                )
            ]
        if any("**" in segment for segment in self._segments):
            return [
                f"tables {self.pattern!r} has '**'. Write one '*' for each level of folders, such as s3://lake/*/*."
            ]
        return []

    def sample(self) -> str:
        """Return the URI of a table that the pattern matches."""
        return self._root + "/".join(segment.replace("*", "x") for segment in self._segments)

    def parts_of(self, table: str) -> dict[str, str]:
        """Return the parts of a table's URI, decoded: ``schema``, ``table``, and the text of each ``*`` from 1 on.

        Raises:
            ConfigurationError: The pattern does not match the URI.
        """
        folders = [folder for folder in table.removeprefix(self._root).split("/") if folder]
        texts: list[str] = []
        for segment, folder in zip(self._segments, folders, strict=False):
            found = _expression(segment).fullmatch(folder)
            if found is None:
                break
            texts += found.groups()
        else:
            if len(folders) == len(self._segments) and table.startswith(self._root):
                names = [self._decoded(name) for name in (folders[-2] if len(folders) > 1 else "", folders[-1])]
                numbered = {str(number): self._decoded(text) for number, text in enumerate(texts, 1)}
                return {"schema": names[0] or self._bucket, "table": names[1], **numbered}
        raise ConfigurationError(f"{table!r} is not one of the tables {self.pattern!r}.")

    def chooses(self, table: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
        """Whether a table that the pattern matches is one of ``include``, if there are any, and none of ``exclude``."""
        fixed = next(number for number, segment in enumerate(self._segments) if "*" in segment)
        folders = [folder for folder in table.removeprefix(self._root).split("/") if folder]
        return is_chosen("/".join(self._decoded(folder) for folder in folders[fixed:]), include, exclude)

    def path_of(self, table: str) -> str | None:
        """Return what :func:`is_chosen` compares of a table, or ``None`` if the pattern does not match it.

        The two may be written in different ways, such as ``/lake/orders`` and ``file:///lake/*``.
        """
        globs, folders = location(self.pattern).split("/"), location(table).split("/")
        if len(globs) != len(folders) or not all(
            _expression(glob).fullmatch(folder) for glob, folder in zip(globs, folders, strict=True)
        ):
            return None
        fixed = next(number for number, glob in enumerate(globs) if "*" in glob)
        return "/".join(folders[fixed:])

    def matches(self, list_folders: Callable[[str], Collection[str]]) -> Iterator[str]:
        """Yield the URI of each folder that the pattern matches, in order, encoded if the pattern is a URI.

        Args:
            list_folders: Returns the names of the direct sub-folders of a folder, given by its URI.
        """
        found = [self._root]
        for number, segment in enumerate(self._segments):
            found = list(self._below(found, segment, list_folders))
            if number + 1 == len(self._segments):
                yield from found

    def _below(self, folders: list[str], segment: str, list_folders: Callable[[str], Collection[str]]) -> Iterator[str]:
        for folder in folders:
            start = folder if folder == self._root else f"{folder}/"
            if "*" not in segment:
                yield f"{start}{segment}"
                continue
            for name in sorted(list_folders(folder)):
                # hidden folders, as Hadoop defines them
                if segment[0] == "*" and name[0] in "_.":
                    continue
                shown = quote(name, safe=PATH_SAFE) if self._is_encoded else name
                if _expression(segment).fullmatch(shown):
                    yield f"{start}{shown}"

    @property
    def _bucket(self) -> str:
        return self._root.rstrip("/").rpartition("/")[2]

    def _decoded(self, text: str) -> str:
        return unquote(text) if self._is_encoded else text


def is_chosen(path: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Whether a path below the part of a pattern without ``*`` is one of ``include``, and none of ``exclude``."""
    folder = path.rpartition("/")[2]

    def is_one_of(globs: Sequence[str]) -> bool:
        return any(_expression(glob).fullmatch(path if "/" in glob else folder) is not None for glob in globs)

    return (not include or is_one_of(include)) and not is_one_of(exclude)


def _expression(glob: str) -> re.Pattern[str]:
    return re.compile("([^/]*)".join(map(re.escape, glob.split("*"))), re.DOTALL)
