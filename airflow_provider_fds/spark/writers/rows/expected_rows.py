"""Tests the rows of a batch by the stream's expectations, before or while a writer writes them.

Rows are tested as the sink gets them: after ``where``, ``transform``, ``columns`` and ``constant_columns``. NULL
passes, as in a CHECK constraint. Of a change data feed, ``delete`` and ``update_preimage`` rows are not tested: they
say which rows are gone. Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Set, Tuple

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks.constants import PROVENANCE, sql_literal
from airflow_provider_fds.spark.runtime.attempt_identity import is_connect
from airflow_provider_fds.spark.runtime.failures import RefusalError, explain, shortened
from airflow_provider_fds.spark.runtime.sql import quoted_name
from airflow_provider_fds.spark.writers.rows.prepared_rows import CHANGE_TYPE, COMMIT_VERSION

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import Expectations

_GONE = "('delete', 'update_preimage')"
_FLAG = "__fds_failed_{}"
#: How many rows an error names.
_EXAMPLES = 3
#: How long Spark may take to hand over what it counted during a write; then the rows are counted again.
_COUNTS_SECONDS = 30.0

#: Schemas, with the expectations that fit them; the batches of a job mostly have one schema.
_fitting: Set[Tuple[str, Tuple[str, ...]]] = set()


@dataclass(frozen=True)
class RowCounts:
    """How many rows of a batch were tested, were kept out of the sink, and failed each expectation.

    Of those that were kept out, ``into_table`` are for the table of rejected rows.
    """

    rows: int
    rejected: int
    failed: Dict[str, int]
    into_table: int = 0


class ExpectedRows:
    """The rows of a batch, with the expectations that they should satisfy.

    Args:
        rows: The rows, as the sink gets them.
        expectations: The expectations, at least one.
        what: The batch, for messages.

    Raises:
        RefusalError: An expectation does not fit the rows.

    Attributes:
        rows: The rows.
    """

    def __init__(self, rows: Any, expectations: Expectations, what: str) -> None:
        self.rows = rows
        self._expectations = expectations
        self._what = what
        has_changes = CHANGE_TYPE in rows.columns
        tested = f"coalesce({CHANGE_TYPE}, '') NOT IN {_GONE} AND " if has_changes else ""
        #: By expression, whether a row fails it, in SQL; never NULL.
        self._failing = {text: f"{tested}NOT coalesce(({text}), true)" for text in expectations.expect}
        self._observation: Any = None
        self._check()

    def _check(self) -> None:
        key = (json.dumps(self.rows.schema.jsonValue(), sort_keys=True), tuple(self._failing))
        if key in _fitting:
            return
        for text, failing in self._failing.items():
            try:
                # Spark refuses what is no condition on one row here, before anything is read
                filtered = self.rows.where(text)
                filtered.schema  # noqa: B018
                self.rows.where(failing).schema  # noqa: B018
            except Exception as error:
                raise self._unusable(text, shortened(explain(error).message)) from error
            if not _is_deterministic(filtered) and _is_deterministic(self.rows):
                raise self._unusable(text, "two evaluations of it may differ")
        _fitting.add(key)

    def _unusable(self, text: str, why: str) -> RefusalError:
        return RefusalError(
            Reason.EXPECTATION_UNUSABLE,
            f"{self._what}: the expectation {text!r} cannot be tested on its rows, whose columns are "
            f"{', '.join(self.rows.columns)}: {why}. Nothing was written; correct `expect` of the stream",
        )

    def count(self) -> RowCounts:
        """Count the rows by a Spark job that reads only the columns that the expectations name."""
        flagged = self.rows.selectExpr(*self._flags())
        return self._counts(flagged.selectExpr(*self._aggregates()).collect()[0].asDict())

    def refuse(self, counts: RowCounts, keys: Sequence[str], may_reject: Optional[int] = None) -> None:
        """Refuse the batch if rows fail an expectation that fails the batch, or if too many are kept out.

        Args:
            counts: What :meth:`count` returned.
            keys: Columns that identify a row, for the examples.
            may_reject: How many rows a person lets be kept out.
        """
        broken = [text for text in self._expectations.of_action("fail") if counts.failed[text]]
        if broken:
            each = "; ".join(f"{counts.failed[text]:,} of {counts.rows:,} rows fail {text!r}" for text in broken)
            raise RefusalError(
                Reason.EXPECTATION_FAILED,
                f"{self._what} was not written: {each}{self._examples(broken, keys)}. Correct the rows in the source "
                "and skip the versions that brought them, or give the expectation another action (warn, drop)",
            )
        most = self._expectations.max_rejected
        if self._expectations.are_exceeded(counts.rejected, counts.rows) and counts.rejected > (may_reject or 0):
            left_out = [text for text in self._expectations.of_action("drop", "reject") if counts.failed[text]]
            each = "; ".join(f"{counts.failed[text]:,} fail {text!r}" for text in left_out)
            raise RefusalError(
                Reason.TOO_MANY_REJECTED,
                f"{self._what} was not written: expectations would keep {counts.rejected:,} of {counts.rows:,} rows "
                f"out of the sink, more than max_rejected={most:g} allows: {each}{self._examples(left_out, keys)}. "
                "Look at the source; then correct the expectations, or raise max_rejected",
            )

    def _examples(self, texts: List[str], keys: Sequence[str]) -> str:
        there = {name.lower(): name for name in self.rows.columns}
        names = [there[name.lower()] for name in (*keys, COMMIT_VERSION) if name.lower() in there]
        if not names:
            return ""
        failing = " OR ".join(f"({self._failing[text]})" for text in texts)
        found = self.rows.where(failing).selectExpr(*map(quoted_name, names)).limit(_EXAMPLES).collect()
        rows = ("(" + ", ".join(f"{name}={shortened(str(row[name]))}" for name in names) + ")" for row in found)
        return f", such as {', '.join(rows)}"

    def kept(self) -> Any:
        """Return the rows that the sink gets."""
        return self.rows if self._rejected is None else self.rows.where(f"NOT ({self._rejected})")

    def rejected(self, column: str) -> Any:
        """Return the rows for the table of rejected rows.

        Args:
            column: A column to add, in SQL, in which ``{failed}`` stands for the expectations that a row failed.
        """
        each = (f"CASE WHEN {failing} THEN {sql_literal(text)} END" for text, failing in self._failing.items())
        failed = f"filter(array({', '.join(each)}), x -> x IS NOT NULL)"
        failing = " OR ".join(f"({self._failing[text]})" for text in self._expectations.of_action("reject"))
        return self.rows.where(failing).selectExpr("*", column.replace("{failed}", failed)).drop(*PROVENANCE)

    def observed(self) -> Any:
        """Return the rows that the sink gets, which are counted when they are read; see :meth:`observed_counts`.

        They must be read exactly once, and all of them. Not for Spark Connect.
        """
        from pyspark.sql import Observation
        from pyspark.sql.functions import expr

        self._observation = Observation()
        flagged = self.rows.selectExpr("*", *self._flags())
        counted = flagged.observe(self._observation, *map(expr, self._aggregates()))
        rejected = self._flags_of("drop", "reject")
        kept = counted if not rejected else counted.where(f"NOT ({rejected})")
        return kept.drop(*(_FLAG.format(n) for n in range(len(self._failing))))

    def observed_counts(self) -> Optional[RowCounts]:
        """Return what was counted while :meth:`observed` rows were read; ``None`` if Spark does not say."""
        found: List[Dict[str, Any]] = []

        def ask() -> None:
            found.append(self._observation.get)

        # it waits for ever for rows that were not read
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(_COUNTS_SECONDS)
        return self._counts(found[0]) if found else None

    @property
    def _rejected(self) -> Optional[str]:
        failing = [f"({self._failing[text]})" for text in self._expectations.of_action("drop", "reject")]
        return " OR ".join(failing) or None

    def _flags(self) -> List[str]:
        return [f"{failing} AS {_FLAG.format(n)}" for n, failing in enumerate(self._failing.values())]

    def _flags_of(self, *actions: str) -> str:
        chosen = self._expectations.of_action(*actions)
        return " OR ".join(_FLAG.format(n) for n, text in enumerate(self._failing) if text in chosen)

    def _aggregates(self) -> List[str]:
        each = [f"count_if({_FLAG.format(n)}) AS failed_{n}" for n in range(len(self._failing))]
        rejected, into_table = self._flags_of("drop", "reject"), self._flags_of("reject")
        return [
            "count(1) AS num_rows",
            f"count_if({rejected or 'false'}) AS num_rejected",
            f"count_if({into_table or 'false'}) AS num_into_table",
            *each,
        ]

    def _counts(self, found: Dict[str, Any]) -> RowCounts:
        failed = {text: int(found[f"failed_{n}"]) for n, text in enumerate(self._failing)}
        return RowCounts(int(found["num_rows"]), int(found["num_rejected"]), failed, int(found["num_into_table"]))


def _is_deterministic(frame: Any) -> bool:
    """Whether Spark knows of nothing in a plan that may differ the next time; on Connect it does not say."""
    if is_connect(frame.sparkSession):
        return True
    return bool(frame._jdf.queryExecution().analyzed().deterministic())
