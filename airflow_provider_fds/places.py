"""Where a table is: the seam between what a declaration or a ledger calls a table, and the folder with its log.

Every table is opened through it, source and sink, because a catalog can have an answer of its own to where it is, and
with which credentials. Staging, checkpoints and the folders of a pattern are always URIs and have no place.

The URI of the place identifies a table: ledgers record it, in its canonical form, and streams are compared by it, never
by what a declaration calls the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True)
class Place:
    """Where a table is now: one answer, which is used at once and never stored.

    Attributes:
        uri: URI or path of its folder.
        options: The options with which the folder is opened (``delta/storage/open.py``), including credentials.
        name: Its name in a catalog; empty: it is known by its URI only.
        table_id: What its catalog tells it by from another table of that name; empty: nothing does.
        view: Takes the opened folder (``delta/storage/storage.py``), and returns it as its catalog shows it; ``None``:
            as it is. The newest commits of a table can be known to its catalog only.
        register: Makes the table of a sink known to its catalog, which does not have the name yet, once the table
            exists; takes what its log says of it (``delta/actions.py``, ``Metadata``). ``None``: it is known.
    """

    uri: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    name: str = ""
    table_id: str = ""
    view: Callable[[Any], Any] | None = field(default=None, repr=False)
    register: Callable[[Any], None] | None = field(default=None, repr=False)


class Places(Protocol):
    """Finds tables. Used by many threads at once."""

    def resolve(self, table: str) -> Place:
        """Return where a table is.

        Args:
            table: What a declaration calls the table, or the URI that a ledger has of it.

        Raises:
            FdsError: There is no such table, or this caller cannot read it.
        """


@dataclass(frozen=True)
class Paths:
    """Tables that are called by their URI or path, all with the same options. Sends no request."""

    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def resolve(self, table: str) -> Place:
        """Return the place at the URI ``table``."""
        return Place(table, self.options)
