"""What all kinds of ledger entry have in common: a kind, a rule and an effect (docs/design/ledger.md, "Entries")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

import msgspec
from msgspec.structs import replace

from airflow_provider_fds.ledger.facts import BatchFacts

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.owner import Actor
    from airflow_provider_fds.ledger.state import StreamState


class BaseAction(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all kinds of entry. A kind is a subclass with a ``tag`` that is decorated with :func:`register`.

    An instance of a subclass is both the proposal to the ledger and the value written to it. Its fields are the JSON of
    the entry; fields derived from the state have a default and are filled in by :meth:`decide`. An action that relies
    on what its sender has seen names it (``epoch``, ``previous``, a start offset), so that it is refused once the
    ledger has moved on.

    Offsets are Delta's streaming offset JSON (format 1): a start is exclusive, an end inclusive. Versions are
    inclusive. A field that is added later has a default, so that older entries can still be read, and is written only
    if it is set. If an older reader would misread an entry with it, ``needs_format`` is higher for such an entry.

    Attributes:
        subject: What :meth:`describe` returns; ``{0}`` is the action.
    """

    subject: ClassVar[str]

    @property
    def kind(self) -> str:
        """The tag of the action in JSON."""
        return str(self.__struct_config__.tag)

    @property
    def needs_format(self) -> int:
        """The oldest format of entries whose readers understand this one."""
        return 1

    @property
    def new_deployment(self) -> str | None:
        """The Airflow installation to which it transfers the stream, ``None`` for the same."""
        return None

    def describe(self) -> str:
        """Return the action in words, as a refusal names it after "cannot": ``commit batch 3``."""
        return self.subject.format(self)

    def decide(self, state: StreamState) -> Self | None:
        """Return the action as it will be written, or ``None`` if the ledger already says so.

        Pure. The stream exists and is not retired, unless this kind of entry creates or retires it.

        Raises:
            LedgerError: The state does not allow it; see :func:`~airflow_provider_fds.ledger.entries.protocol.decide`.
        """
        raise NotImplementedError

    def check_complete(self) -> None:
        """Raise ``ValueError`` if the action can be proposed, but no entry can hold it as it is."""

    def apply(self, state: StreamState) -> StreamState:
        """Return the state after the action. Pure, and never refuses: an entry that was written is a fact."""
        raise NotImplementedError

    def apply_as(self, state: StreamState, actor: Actor) -> StreamState:
        """Return the state after the action of ``actor``.

        A kind whose effect depends on the actor overrides this instead of :meth:`apply`.
        """
        del actor
        return self.apply(state)


_ActionT = TypeVar("_ActionT", bound=BaseAction)

#: All kinds of entry by their tags. ``entries.py`` imports every module of ``ledger/`` whose name ends in ``_entries``.
KINDS: Final[dict[str, type[BaseAction]]] = {}


def register(cls: type[_ActionT]) -> type[_ActionT]:
    """Make a class a kind of entry: from here on the ledger reads and writes it.

    Raises:
        TypeError: Another class has this tag.
    """
    kind = str(cls.__struct_config__.tag)
    if KINDS.setdefault(kind, cls) is not cls:
        raise TypeError(f"{cls.__name__} and {KINDS[kind].__name__} have the same kind {kind!r}")
    return cls


class BatchAction(BatchFacts, BaseAction, frozen=True, kw_only=True):
    """Base of the kinds of entry about planned batches: those of the open epoch, or of one data interval."""

    def describe(self) -> str:
        """Return the action in words, with its data interval."""
        what = super().describe()
        return what if self.interval is None else f"{what} of interval {self.interval}"

    def change(self, state: StreamState, **changes: Any) -> StreamState:
        """Return the state with fields changed: those of the stream, or of the record of the action's interval."""
        if self.interval is None:
            return replace(state, **changes)
        record = state.interval(self.interval)
        return state if record is None else state.with_interval(replace(record, **changes))
