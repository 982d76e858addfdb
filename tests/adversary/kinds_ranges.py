"""Streams of one table in one sink: ends that move, plans made at the same time, and a late batch of a retired stream.

Whatever happens, no row is duplicated, unless two batches have landed at the same moment: then the next run of one of
the streams must say so.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from typing import TYPE_CHECKING

from tests.adversary.checker import batches, count
from tests.adversary.kinds_people import ANY
from tests.adversary.kinds_runs import LIMITS, begin, kill_a_run, source_of, stall_a_run
from tests.adversary.play import kind
from tests.adversary.scene import Outcome, Scene, Stream, VerdictError
from tests.adversary.ways import follow

if TYPE_CHECKING:
    from tests.adversary.source import Source


def named_stream(scene: Scene, source: Source, name: str) -> Stream:
    """Return a stream of the table into the scenario's one sink, perhaps of another installation."""
    staging = scene.root / scene.rng.choice(("staging", "staging", f"staging-{name}"))
    return Stream(scene, source.path, name=name, checkpoint=scene.root / f"{name}.json", staging=staging)


def limits_of(stream: Stream, start: int | None, end: int | None = None, limit: str = "") -> None:
    """Give a stream another start and end, as a person does who edits its options."""
    bounds = {"starting_version": start, "ending_version": end}
    stream.options = tuple(f"{name}={version}" for name, version in bounds.items() if version is not None)
    stream.options += (limit,) if limit else ()
    stream.scene.note(f"options of {stream.name}: {' '.join(stream.options)}")


def end_of(stream: Stream) -> Outcome:
    """Run a stream until it is up to date, or refuses and names no other way than one that a person chooses."""
    done: list[str] = []
    outcome = stream.run()
    for _ in range(4):
        if not outcome.is_refused or not follow(stream, outcome, ("unlock", "replan"), done):
            break
        outcome = stream.run()
    return outcome


def judge_shared(scene: Scene, source: Source, streams: tuple[Stream, ...], there: Counter[int]) -> None:
    """Expect the rows ``there`` at least, and each row at most once, unless a run has said that rows are duplicated.

    If it has, what its message says must lead to each row once.
    """
    found = count(scene, streams[0].sink)
    doubled = sorted((found - source.emitted()).keys())
    lost = sorted((there - found).keys())
    scene.note(f"verdict: {sum(found.values())} rows in the sink, {len(lost)} lost, {len(doubled)} too many")
    told = next((one for one in reversed(scene.outcomes) if "rows are duplicated" in one.said), None)
    if doubled and told is not None:
        _load_once(scene, streams, told)
        doubled = sorted((count(scene, streams[0].sink) - source.emitted()).keys())
        lost = sorted((there - count(scene, streams[0].sink)).keys())
    if lost or doubled:
        raise VerdictError(
            "lost" if lost else "doubled",
            f"{len(lost)} lost {lost[:8]}, {len(doubled)} doubled {doubled[:8]}; said: {told is not None}",
            lost=len(lost),
            doubled=len(doubled),
        )


def _load_once(scene: Scene, streams: tuple[Stream, ...], told: Outcome) -> None:
    """Retire one stream and let the other remove both copies and load them once, as the message says."""
    text = re.sub(r"\s+", " ", told.said)
    words = r"`fds retire (\w+) --why.*?`fds rewind (\w+) --to start --sink-rows empty(?:.*?fds rewind \2 --to (\d+))?"
    way = re.search(words, text)
    if way is None:
        raise VerdictError("stuck", f"rows are duplicated, and the message names no way: {told}")
    gone, keeper = (next(one for one in streams if one.name == way[n]) for n in (1, 2))
    ended = gone.move("retire")
    if ended.is_refused:
        # as it says, a run closes the epoch in the sink first
        gone.move("replan")
        gone.run()
        ended = gone.move("retire")
    limits_of(keeper, None)
    if way[3] is not None and scene.rng.random() < 0.7:
        asked = keeper.move("rewind", "--to", way[3], "--sink-rows", "delete", "--force-sink")
    else:
        asked = keeper.move("rewind", "--to", "start", "--sink-rows", "empty", "--force-sink")
    end = end_of(keeper)
    if ended.is_refused or asked.is_refused or end.is_refused:
        said = f"{ended}, {asked}, {end}"
        raise VerdictError("stuck", f"rows are duplicated, and the named way leads nowhere: {said}")


@kind
def moved_ends(scene: Scene) -> None:
    """A bounded stream and a live one load parts of a table; the end of one and the start of the other move."""
    source = source_of(scene, commits=scene.rng.randint(3, 5))
    middle, limit = scene.rng.randrange(source.version), scene.rng.choice(LIMITS)
    past, live = named_stream(scene, source, "past"), named_stream(scene, source, "live")
    past.arguments = live.arguments = ("--sink-option", "provenance=yes")
    limits_of(past, 0, middle, limit)
    limits_of(live, middle + 1, None, limit)
    starts = [middle + 1]
    for _ in range(scene.rng.randint(3, 6)):
        step = scene.rng.choice(("past", "live", "both", "killed", "end", "end", "no end", "start", "append"))
        if step in ("past", "live"):
            (past if step == "past" else live).run(*scene.rng.choice(((), ("--max-batches", "1"))))
        elif step == "both":
            for run in [past.start(), live.start()]:
                run.wait()
        elif step == "killed":
            kill_a_run(scene, scene.rng.choice((past, live)))
        elif step == "start":
            starts.append(scene.rng.randint(0, source.version))
            limits_of(live, starts[-1], None, limit)
        elif step == "append":
            source.append()
        else:
            limits_of(past, 0, None if step == "no end" else scene.rng.randint(0, source.version + 1), limit)
    source.append()
    limits_of(past, 0, middle, limit)
    limits_of(live, middle + 1, None, limit)
    ends = [end_of(stream) for stream in scene.rng.sample((past, live), 2)]
    ends += [end_of(past), end_of(live)]
    there = Counter() if ends[2].is_refused else source.emitted(0, middle)
    if not ends[3].is_refused:
        there |= source.emitted(max(starts))
    is_apart = min(starts) > middle and all(
        int(facts["end"].partition('"reservoirVersion":')[2].strip().partition(",")[0]) <= middle + 1
        for _, facts in batches(past.sink, "past")
    )
    if is_apart and (ends[2].is_refused or ends[3].is_refused):
        raise VerdictError("stuck", f"the ranges are apart again, and a run refuses: {ends[2]}, {ends[3]}")
    judge_shared(scene, source, (past, live), there)


@kind
def both_planned_before_either_wrote(scene: Scene) -> None:
    """Two streams of one table plan for one sink before either writes; then both load, in turn, together or stalled."""
    source = source_of(scene, commits=scene.rng.randint(1, 3))
    one, two = named_stream(scene, source, "one"), named_stream(scene, source, "two")
    starts = {}
    for stream in (one, two):
        stream.arguments = ("--sink-option", "provenance=yes", "--sink-option", "merge_schema=yes")
        # without a start, a stream begins with all rows of the table
        starts[stream.name] = scene.rng.choice((None, 0, 0, scene.rng.randint(0, source.version)))
        limits_of(stream, starts[stream.name], None, scene.rng.choice(LIMITS))
    if scene.rng.random() < 0.5:
        one.sink.mkdir()
        source.sql(f"CREATE TABLE delta.`{one.sink}` LIKE {{t}}")
    for stream in (one, two):
        if scene.rng.random() < 0.7:
            stream.plan("--max-batches", scene.rng.choice(("1", "5")))
    order = scene.rng.choice(("in turn", "together", "together", "stalled", "stalled"))
    scene.note(f"order: {order}")
    if order == "in turn":
        one.run()
    elif order == "together":
        for run in [one.start(), two.start()]:
            run.wait()
    else:
        via = scene.rng.choice(("connect", "connect", "submit"))
        late = stall_a_run(scene, one, via=via, which=ANY, point="an attempt is written down")
        two.run()
        late.signal(signal.SIGCONT)
        late.wait()
    two.run()
    source.append()
    there: Counter[int] = Counter()
    for stream in scene.rng.sample((one, two), 2):
        end_of(stream)
    for stream in (one, two):
        if not end_of(stream).is_refused:
            there |= source.emitted(starts[stream.name] or 0)
    judge_shared(scene, source, (one, two), there)


@kind
def retired_in_flight(scene: Scene) -> None:
    """A stream is retired while its batch is on its way; a successor loads; then the batch goes on."""
    source, stream = begin(scene, arguments=("--sink-option", "provenance=yes"))
    if scene.rng.random() < 0.5:
        stream.run("--max-batches", "1")
    source.append()
    late = stall_a_run(scene, stream, via=scene.rng.choice(("connect", "connect", "submit")), which=ANY)
    asked = stream.move("retire")
    if asked.is_refused and scene.rng.random() < 0.7:
        # what the refusal names: a run closes the epoch in the sink
        stream.move("replan")
        stream.run("--unlock")
        asked = stream.move("retire")
    found = count(scene, stream.sink)
    first = next((version for version, one in source.emissions.items() if one.ids - found), source.version + 1)
    heir = named_stream(scene, source, "heir")
    heir.arguments = ("--sink-option", "provenance=yes")
    limits_of(heir, scene.rng.choice((first, first, first, 0)), None, scene.rng.choice(LIMITS))
    if scene.rng.random() < 0.5:
        heir.run("--max-batches", "1")
    else:
        heir.plan()
    late.signal(signal.SIGCONT)
    late.wait()
    source.append()
    there = Counter(found)
    if not asked.is_refused:
        ends = [end_of(heir), end_of(heir)]
        there = source.emitted() if not ends[-1].is_refused else there
    else:
        # two streams of one table: each may find the other
        ends = [end_of(one) for one in scene.rng.sample((stream, heir), 2)]
        there = source.emitted() if not all(one.is_refused for one in ends) else there
    judge_shared(scene, source, (stream, heir), there)
