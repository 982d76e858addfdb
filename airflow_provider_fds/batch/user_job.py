"""A batch as handed to a user job: one string, in the plan's XCom. Standard library only, Python 3.9."""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP037

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_fds.batch.checked_json import SPEC_FORMAT, from_json, to_json
from airflow_provider_fds.batch.spec import BatchSpec  # noqa: TC001 - the reader evaluates the annotation

#: Prefix of the names of such jobs' reports; the rest increases with time.
REPORT_PREFIX = "user-job-"


@dataclass(frozen=True)
class UserJobBatch:
    """What a user job is told about its batch.

    Attributes:
        batch: The batch.
        reports: URI of the folder for the job's report.
    """

    batch: BatchSpec
    reports: str

    def to_json(self) -> str:
        """Return the batch as JSON on one line."""
        return to_json(self).decode()

    @classmethod
    def from_json(cls, text: "str | bytes") -> "UserJobBatch":
        """Parse a batch.

        Raises:
            ValueError: The text is not a batch, or has another format.
        """
        try:
            return from_json(cls, text, "the value")
        except ValueError as error:
            raise ValueError(
                "the batch of this job must be plan.output['batch'] of a DeltaPlanOperator in format "
                f"{SPEC_FORMAT}, got {str(text)[:100]!r} ({error}). If another version of FDS planned it, plan it again"
            ) from error


__all__: list[str] = ["REPORT_PREFIX", "UserJobBatch"]
