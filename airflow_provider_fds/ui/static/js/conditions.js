// The conditions of a stream: their labels, colours and order of urgency.

import { h } from "./dom.js";

/** In the order of urgency. A condition of a newer server is shown by its name. */
const CONDITIONS = {
  stopped: { words: "Stopped", tone: "bad", meaning: "A batch in the sink differs from the plan. Someone must decide how to continue." },
  quarantined: { words: "Quarantined", tone: "bad", meaning: "The stream stopped before a version. Someone must decide how to continue." },
  lost_position: { words: "Lost position", tone: "bad", meaning: "The stream cannot continue from its position." },
  unreadable: { words: "Unreadable", tone: "bad", meaning: "The table or the ledger cannot be read." },
  held: { words: "On hold", tone: "warn", meaning: "Someone paused the stream." },
  loading: { words: "Loading", tone: "busy", meaning: "Batches are planned and not yet committed." },
  waiting: { words: "Waiting", tone: "idle", meaning: "The stream is waiting for the run that loads the new data." },
  not_begun: { words: "Not begun", tone: "idle", meaning: "The stream has no position yet." },
  up_to_date: { words: "Up to date", tone: "good", meaning: "The stream has committed everything." },
  finished: { words: "Finished", tone: "done", meaning: "The stream has reached its end." },
  retired: { words: "Retired", tone: "done", meaning: "The stream was ended permanently." },
};

const ORDER = Object.keys(CONDITIONS);

/** The conditions that last until someone acts. */
export const STUCK = new Set(["stopped", "quarantined", "lost_position", "unreadable"]);

export function urgency(condition) {
  const index = ORDER.indexOf(condition);
  return index < 0 ? ORDER.length : index;
}

export function conditionWords(condition) {
  return CONDITIONS[condition]?.words ?? condition.replaceAll("_", " ");
}

export function conditionTone(condition) {
  return CONDITIONS[condition]?.tone ?? "idle";
}

/** Return the badge of a condition: a word, with a colour. */
export function conditionBadge(condition) {
  return h(
    "span",
    { class: `badge tone-${conditionTone(condition)}`, title: CONDITIONS[condition]?.meaning },
    h("span", { class: "badge-dot", "aria-hidden": "true" }),
    conditionWords(condition),
  );
}
