// The conditions of a stream: their labels, colours and order of urgency.

import { h } from "./dom.js";
import { formatTime } from "./format.js";

/** In the order of urgency. A condition of a newer server is shown by its name. */
const CONDITIONS = {
  lost_position: { words: "Lost position", tone: "bad", meaning: "The stream cannot continue from its position." },
  unreadable: { words: "Unreadable", tone: "bad", meaning: "The table or the ledger cannot be read." },
  blocked: { words: "Blocked", tone: "bad", meaning: "A batch in the sink differs from the plan. Someone must decide how to continue." },
  quarantined: { words: "Quarantined", tone: "bad", meaning: "The stream stopped before a version. Someone must decide how to continue." },
  failing: { words: "Failing", tone: "bad", meaning: "The last run of the stream failed." },
  held: { words: "On hold", tone: "warn", meaning: "Someone put the stream on hold." },
  loading: { words: "Loading", tone: "busy", meaning: "Batches are planned and not yet committed." },
  waiting: { words: "Waiting", tone: "idle", meaning: "The stream waits for more data, another stream, or its next interval." },
  behind: { words: "Behind", tone: "idle", meaning: "The table has new data, and no run has begun since." },
  live: { words: "Live", tone: "good", meaning: "A run stays and loads at once what comes." },
  not_begun: { words: "Not begun", tone: "idle", meaning: "The stream has no position yet." },
  up_to_date: { words: "Up to date", tone: "good", meaning: "The stream has committed everything." },
  finished: { words: "Finished", tone: "done", meaning: "The stream has reached its end." },
  retired: { words: "Retired", tone: "done", meaning: "The stream was ended permanently." },
};

const ORDER = Object.keys(CONDITIONS);

/** Return the place of a condition in the order of urgency. */
export function conditionPlace(condition) {
  const index = ORDER.indexOf(condition);
  return index < 0 ? ORDER.length : index;
}

/** Return the place of a row in the default order: first the rows that need attention, then all others alike. */
export function urgency({ condition, needs_attention: needsAttention }) {
  return needsAttention ? conditionPlace(condition) : ORDER.length + 1;
}

export function conditionWords(condition) {
  return CONDITIONS[condition]?.words ?? condition.replaceAll("_", " ");
}

export function conditionTone(condition) {
  return CONDITIONS[condition]?.tone ?? "idle";
}

/** Return the badge of a row's condition: a word, with a colour; and a mark if its DAG is gone. */
export function conditionBadge({ condition, will_retry: isRetried, noDag }) {
  const tone = isRetried ? "warn" : conditionTone(condition);
  const mark = noDag && [" ", h("span", { class: "badge tone-warn no-dag", title: noDag }, "no DAG")];
  const badge = h(
    "span",
    { class: `badge tone-${tone}`, title: CONDITIONS[condition]?.meaning },
    h("span", { class: "badge-dot", "aria-hidden": "true" }),
    isRetried ? `${conditionWords(condition)}, retrying` : conditionWords(condition),
  );
  return [badge, mark];
}

/** Return what to do about a stream whose DAG is gone, in words; null if the DAG is there. */
export function noDagWords({ dag_is_gone: isGone, dag_id: dagId, last_run_at: run, last_batch: batch }) {
  if (!isGone) return null;
  const since = run ? ` No run since ${formatTime(run)}.` : batch?.committed_at ? ` No batch since ${formatTime(batch.committed_at)}.` : "";
  return `Airflow no longer has the DAG ${dagId}.${since} Was it renamed? Continue under the new name with \`fds fork\`. Has it ended? Use \`fds retire\`.`;
}
