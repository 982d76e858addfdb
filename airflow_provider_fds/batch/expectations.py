"""Expectations: SQL expressions that each row should satisfy, and what becomes of rows that do not.

Standard library only, Python 3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP045

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

#: What becomes of a row that does not satisfy an expectation:
#:   warn   - it is written, and counted
#:   drop   - it is not written, and counted
#:   reject - it is written into the table of rejected rows instead, and counted
#:   fail   - the batch fails before anything is written
ACTIONS = ("warn", "drop", "reject", "fail")


@dataclass(frozen=True)
class Expectations:
    """The expectations of a stream.

    Attributes:
        expect: By expression, one of :data:`ACTIONS`.
        max_rejected: Greatest share of a batch's rows that may be kept out of the sink, 0 to 1; ``None``: any.
        rejects: URI of the Delta table of rejected rows; with the action ``reject`` only.
    """

    expect: Dict[str, str] = field(default_factory=dict, hash=False)
    max_rejected: Optional[float] = None
    rejects: Optional[str] = None

    def of_action(self, *actions: str) -> List[str]:
        """Return the expressions with one of the actions, in their order."""
        return [text for text, one in self.expect.items() if one in actions]

    @property
    def decides(self) -> bool:
        """Whether the number of rows that fail decides what is written, and if."""
        return bool(self.of_action("fail", "reject")) or self.max_rejected is not None

    def to_dict(self) -> Dict[str, Any]:
        """Return the arguments of a stream that declare them, without those that are not set."""
        found: Dict[str, Any] = {"expect": dict(self.expect)} if self.expect else {}
        more = {"max_rejected": self.max_rejected, "rejects": self.rejects}
        return {**found, **{name: value for name, value in more.items() if value is not None}}


__all__ = ["ACTIONS", "Expectations"]
