// The columns of the list: what a cell shows and by which value the column is sorted.

import { taskUrl } from "./airflow.js";
import { conditionWords, noDagWords, urgency } from "./conditions.js";
import {
  UNKNOWN,
  formatAge,
  formatBytes,
  formatCount,
  formatCountOf,
  formatDuration,
  formatRate,
  formatTime,
} from "./format.js";

/** Less than this left before the position can be lost is shown as a warning. */
export const SHORT_RETENTION_SECONDS = 24 * 3600;

/**
 * A column has:
 *
 * - `parts(row, now)`: what its cell shows, one line each: `{text, title, href, leaves, badge, tone, muted}`;
 * - `isNumber`: it is aligned to the right;
 * - `sorts`: by what the table can be sorted there: `key`, `title`, `label` (the title without its column), `help`,
 *   `isDescending` at first, and `value(row)`: a number or a string, `null` if unknown, which comes last.
 */
export const COLUMNS = [
  {
    parts: (row) => [{ text: row.name, href: `#/streams/${encodeURIComponent(row.id)}`, focus: `stream ${row.id}` }],
    sorts: [{ key: "name", title: "Stream", value: (row) => row.name }],
  },
  {
    parts: (row, now) => [
      { badge: { condition: row.condition, will_retry: row.will_retry, noDag: noDagWords(row) } },
      row.stale && staleMark(row, now),
      row.since && { text: `${formatCountOf(row.failed_runs, "failed run")}, first ${formatAge(secondsSince(row.since, now))}`, title: `The first failed ${formatTime(row.since)}`, tone: "warn" },
      (row.problem || row.waits_for) && { text: (row.problem ?? row.waits_for).split("\n", 1)[0], title: row.problem ?? row.waits_for, muted: true },
    ],
    sorts: [{ key: "state", title: "State", help: "Streams that need attention come first, then those with the largest lag in time", value: urgency }],
  },
  {
    isNumber: true,
    parts: (row) => [
      { text: formatCountOf(row.lag_versions, "version"), muted: row.lag_versions === 0 },
      row.lag_seconds ? { text: formatDuration(row.lag_seconds), muted: true } : null,
    ],
    sorts: [
      { key: "lag_versions", title: "Lag", label: "Lag in versions", help: "Versions of the table that are not committed", isDescending: true, value: (row) => row.lag_versions },
      { key: "lag_seconds", title: "time", label: "Lag in time", help: "Age of the oldest version that is not committed", isDescending: true, value: (row) => row.lag_seconds },
    ],
  },
  {
    isNumber: true,
    parts: (row) => [
      { text: formatBytes(row.pending_bytes), muted: row.pending_bytes === 0 },
      row.pending_files ? { text: formatCountOf(row.pending_files, "file"), muted: true } : null,
    ],
    sorts: [
      { key: "pending_bytes", title: "Unread", label: "Unread bytes", help: "Bytes of the table that are not committed, as far as the log says", isDescending: true, value: (row) => row.pending_bytes },
      { key: "pending_files", title: "files", label: "Unread files", help: "Files of the table that are not committed", isDescending: true, value: (row) => row.pending_files },
    ],
  },
  {
    isNumber: true,
    parts: (row) => [retentionPart(row)],
    sorts: [{ key: "retention_left_seconds", title: "Retention", label: "Retention left", help: "How long the table's retention still keeps the oldest uncommitted version", value: (row) => row.retention_left_seconds }],
  },
  {
    isNumber: true,
    parts: (row, now) => lastBatchParts(row, now),
    sorts: [
      { key: "last_batch", title: "Last batch", help: "Rows of the newest batch, and when it was committed", isDescending: true, value: (row) => (row.last_batch ? Date.parse(row.last_batch.committed_at) || null : null) },
      { key: "rows_per_second", title: "rows/s", label: "Rows/s", help: "Rows per second of the newest batch", isDescending: true, value: (row) => row.rows_per_second },
    ],
  },
  {
    parts: (row) => dagParts(row),
    sorts: [
      { key: "dag_id", title: "DAG", value: (row) => row.dag_id },
      { key: "task_id", title: "task", label: "Task", value: (row) => row.task_id },
    ],
  },
  {
    parts: (row) => [{ text: row.table }, sinkPart(row.sink)],
    sorts: [
      { key: "table", title: "Table", value: (row) => row.table },
      { key: "sink", title: "sink", label: "Sink", value: (row) => row.sink?.target ?? null },
    ],
  },
  {
    isNumber: true,
    parts: (row, now) => [{ text: formatAge(secondsSince(row.observed_at, now)), title: `Written ${formatTime(row.observed_at)}`, muted: !row.stale, tone: row.stale && "warn" }],
    sorts: [{ key: "age_seconds", title: "Status", help: "When the status of the stream was last written", isDescending: true, value: (row) => row.age_seconds }],
  },
];

/** What the table can be sorted by, by key. */
export const SORTS = new Map(COLUMNS.flatMap((column) => column.sorts).map((sort) => [sort.key, sort]));

/** Return the seconds since an instant, never less than 0. */
export function secondsSince(iso, now) {
  const time = Date.parse(iso);
  return Number.isNaN(time) ? null : Math.max(0, (now - time) / 1000);
}

/** Return the text that the filter searches. */
export function searchText(row) {
  const parts = [row.name, row.table, row.sink?.target, row.sink?.kind, row.dag_id, row.task_id, row.owner, ...row.dag_owners, conditionWords(row.condition)];
  return parts.filter(Boolean).join("\n").toLowerCase();
}

function retentionPart({ retention_left_seconds: left }) {
  const isShort = left !== null && left !== undefined && left < SHORT_RETENTION_SECONDS;
  if (!isShort) return { text: formatDuration(left) };
  return { text: left > 0 ? `⚠ ${formatDuration(left)}` : "⚠ none", tone: "warn", title: "The position can be lost soon" };
}

function lastBatchParts({ last_batch: batch, rows_per_second: rate }, now) {
  if (!batch) return [{ text: UNKNOWN }];
  const rows = batch.rows_written ?? batch.rows_read;
  return [
    { text: rows === null || rows === undefined ? `batch ${formatCount(batch.batch_id)}` : formatCountOf(rows, "row") },
    {
      text: [rate !== null && `${formatRate(rate)}/s`, formatAge(secondsSince(batch.committed_at, now))].filter(Boolean).join(", "),
      title: `Batch ${batch.batch_id} of epoch ${batch.epoch}, committed ${formatTime(batch.committed_at)}`,
      muted: true,
    },
  ];
}

function sinkPart(sink) {
  if (!sink) return { text: "no sink", muted: true };
  const repeats = sink.delivery === "at_least_once" ? "; a repeated batch may land again" : "";
  return { text: `→ ${sink.target ?? sink.kind}`, title: `${sink.target ?? ""} (${sink.kind.replaceAll("_", " ")}${repeats})`, muted: true };
}

function dagParts(row) {
  if (!row.dag_id) return [{ text: UNKNOWN }];
  const dag = { dag_id: row.dag_id };
  return [
    { text: row.dag_id, href: row.dag_is_gone ? null : taskUrl(dag), leaves: true, focus: `dag ${row.id}` },
    row.task_id && { text: row.task_id, href: row.dag_is_gone ? null : taskUrl(row), leaves: true, muted: true, focus: `task ${row.id}` },
  ];
}

function staleMark(row, now) {
  const age = formatAge(secondsSince(row.observed_at, now));
  return { text: `Stale: from ${age}`, tone: "warn", title: "The status has not been updated since. The stream may be in another state by now" };
}
