"""Batches that leave out too many rows, as a model: runs stop at them, and people decide, late or on old questions.

Whatever is interleaved, killed or repeated, a batch is committed without more rows than a person has accepted for this
batch, as it was planned, and a stream that is left in peace with a person who accepts reaches its end.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from airflow_provider_fds.ledger.entries.commit_entries import Accepted
from airflow_provider_fds.ledger.entries.operator_entries import Quarantined, Resumed
from airflow_provider_fds.ledger.facts import StoppedBatch
from airflow_provider_fds.ledger.staging.access import PutIfAbsent
from tests.unit.ledger.models import explore
from tests.unit.ledger.test_writers import Writer, Writers

#: Rows of each batch, and how many of an odd batch its expectations keep out at first.
ROWS, LEFT_OUT = 20, 3


class StoppedBatches(Writers):
    """Runs whose driver refuses a batch that leaves out more rows than were accepted."""

    def __init__(self, make):
        super().__init__(make)
        self.left_out = LEFT_OUT
        self.asked = []
        #: Epoch, batch and digest -> the most rows that a person lets it leave out.
        self.granted = {}

    # -- programs

    def load(self, name, ledger, execute):
        state = ledger.state
        for batch in state.planned:
            if ledger.state.quarantined is not None:
                return
            # the driver has the specification of the moment at which it was submitted
            left_out = self.left_out if batch.batch_id % 2 else 0
            if left_out > (batch.may_reject or 0):
                stop = StoppedBatch(
                    epoch=state.epoch,
                    batch_id=batch.batch_id,
                    digest=batch.digest,
                    owner=self.make.owner(name),
                    rows=ROWS,
                    rejected=left_out,
                    failed={"amount >= 0": left_out},
                    max_rejected=0.1,
                )
                self.asked.append(stop)
                yield from execute(Quarantined(why="too many", version=batch.first_version, batch=stop))
                return
            yield from execute(
                self.make.commit(
                    batch.batch_id,
                    epoch=state.epoch,
                    run=name,
                    digest=batch.digest,
                    sink_version=(ledger.state.sink_version or 0) + 1,
                    rows=ROWS - left_out,
                )
            )
            self.checkpoints.append(ledger.checkpoint())

    @staticmethod
    def accepted(stop):
        return Accepted(
            epoch=stop.epoch, batch_id=stop.batch_id, digest=stop.digest, rejected=stop.rejected, why="test data"
        )

    def let_go_on(self, ledger):
        super().let_go_on(ledger)
        stop = ledger.state.quarantined
        if stop is not None:
            ledger.execute(self.accepted(stop.batch), self.make.person)

    # -- rules

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), is_late=st.booleans())
    def a_person_accepts(self, data, is_late):
        """One of all questions that were ever asked, at once or while others go on."""
        self.asks(self.accepted(data.draw(st.sampled_from(self.asked))), is_late=is_late)

    @precondition(lambda self: self.state.phase == "open")
    @rule(left_out=st.sampled_from([0, LEFT_OUT, 2 * LEFT_OUT]), data=st.data())
    def a_person_resumes_the_stream_with_other_expectations(self, left_out, data):
        self.left_out = left_out
        self.asks(Resumed(why="try again"))
        self.ended |= {writer.name for writer in self.writers}
        self.to_the_end(self.start_run(data.draw(st.sampled_from(self.checkpoints))))

    @precondition(lambda self: any(self.is_about_to_stop(writer) for writer in self.writers))
    @rule(data=st.data(), is_accepted=st.booleans())
    def the_word_of_a_driver_comes_late(self, data, is_accepted):
        """Another run takes over, stops too, and may be let go on, before it is written."""
        late = data.draw(st.sampled_from([writer for writer in self.writers if self.is_about_to_stop(writer)]))
        self.ended.add(late.name)
        self.to_the_end(self.start_run(None))
        if is_accepted:
            self.asks(self.accepted(self.asked[-1]))
        self.to_the_end(late)

    @staticmethod
    def is_about_to_stop(writer):
        return not writer.is_done and isinstance(writer.access, PutIfAbsent) and b'"quarantined"' in writer.access.data

    def asks(self, command, *, is_late=False):
        """Let a person give a command, to its end unless it is late."""
        self.started += 1
        name = f"q{self.started}"
        self.writers.append(Writer(name, self.person(name, command)))
        if not is_late:
            self.to_the_end(self.writers[-1])

    # -- what must always hold

    def check_chain(self, entry):
        super().check_chain(entry)
        state, action = self.state, entry.action
        match action.kind:
            case "quarantined":
                batch = state.planned[0]
                assert (action.batch.epoch, action.batch.digest) == (state.epoch, batch.digest)
                assert action.batch.owner == state.owner
            case "accepted":
                asked = state.quarantined.batch
                assert (asked.digest, asked.rejected) == (action.digest, action.rejected), "an old answer"
                self.granted[action.epoch, action.batch_id, action.digest] = action.rejected
            case "committed":
                key = (action.epoch, action.batch_id, state.planned[0].digest)
                assert ROWS - action.rows <= self.granted.get(key, 0), "rows are left out that nobody has accepted"
            case "planned":
                assert state.quarantined is None, "a stream that waits for a person has planned more"


def test_no_batch_leaves_out_more_rows_than_a_person_has_accepted_for_it(make):
    explore(lambda: StoppedBatches(make), examples=40, steps=30)
