// The page of one stream.

import { followInAirflow, taskUrl } from "./airflow.js";
import { actionsSection } from "./actions.js";
import { SHORT_RETENTION_SECONDS, secondsSince } from "./columns.js";
import { conditionBadge, noDagWords } from "./conditions.js";
import { h, renderIfChanged } from "./dom.js";
import { UNKNOWN, formatAge, formatBytes, formatCount, formatCountOf, formatDuration, formatRate, formatTime } from "./format.js";
import { batchesSection, decisionsSection, intervalsSection, plannedSection, skippedSection } from "./stream_history.js";
import { lagCharts, rowsChart } from "./stream_charts.js";

export class StreamPage {
  constructor(id, { refresh }) {
    this.id = id;
    this.title = "Stream";
    this.refresh = refresh;
    this.sections = Object.fromEntries(SECTIONS.map(([name]) => [name, h("div", { class: `part part-${name}` })]));
    this.element = h("div", { class: "stream" }, Object.values(this.sections));
  }

  /** Show an answer of the API. */
  update(stream) {
    this.title = stream.name;
    const now = Date.now();
    for (const [name, dataOf, render] of SECTIONS) {
      renderIfChanged(this.sections[name], dataOf(stream, now), (data) => render(data, this));
    }
  }
}

/** What happens to a batch that is written again. */
const DELIVERIES = {
  transaction: "a repeated batch lands once (transaction)",
  token: "a repeated batch lands once (token)",
  at_least_once: "a repeated batch may land again (at least once)",
};

/** Name, the data that a part of the page shows, and how. A part is made again when its data change. */
const SECTIONS = [
  ["state", (stream, now) => ({ ...pick(stream, "condition", "needs_attention", "will_retry", "problem", "what_to_do", "waits_for", "stale", "observed_at"), age: formatAge(secondsSince(stream.observed_at, now)), noDag: noDagWords(stream) }), state],
  ["figures", (stream, now) => ({ ...pick(stream, "lag_versions", "lag_seconds", "pending_files", "pending_bytes", "pending_rows", "retention_left_seconds", "rows_per_second", "last_batch"), age: formatAge(secondsSince(stream.last_batch?.committed_at, now)) }), figures],
  ["actions", (stream) => pick(stream, "id", "name", "actions", "may_act"), actionsSection],
  ["charts", (stream) => pick(stream, "samples", "batches"), (data) => [...lagCharts(data.samples), rowsChart(data.batches)]],
  ["facts", (stream) => pick(stream, "table", "sink", "position", "newest_version", "watermark", "offset", "epoch", "owner", "driver", "dag_id", "task_id", "run_id", "staging"), facts],
  ["intervals", (stream) => pick(stream, "intervals"), (data) => data.intervals && intervalsSection(data.intervals)],
  ["batches", (stream) => pick(stream, "batches"), (data) => batchesSection(data.batches)],
  ["planned", (stream) => pick(stream, "planned"), (data) => plannedSection(data.planned)],
  ["skipped", (stream) => pick(stream, "skipped"), (data) => skippedSection(data.skipped)],
  ["decisions", (stream) => pick(stream, "decisions"), (data) => decisionsSection(data.decisions)],
];

function pick(stream, ...names) {
  return Object.fromEntries(names.map((name) => [name, stream[name] ?? null]));
}

function state(data) {
  const { problem, what_to_do: whatToDo, waits_for: waitsFor, stale, observed_at: observedAt, age, noDag } = data;
  return [
    h(
      "p",
      { class: "state-line" },
      conditionBadge(data),
      h("span", { class: stale ? "text-warn" : "muted", title: `Written ${formatTime(observedAt)}` }, stale ? `The status is stale: it was written ${age}, and the stream may have changed since` : `Status written ${age}`),
    ),
    (problem || whatToDo) &&
      h("div", { class: `notice tone-${data.needs_attention ? "bad" : "warn"} problem` }, h("div", null, problem && h("p", { class: "words" }, problem), whatToDo && h("p", { class: "words" }, h("strong", null, "What to do: "), whatToDo))),
    noDag && h("div", { class: "notice tone-warn" }, h("p", { class: "words" }, noDag)),
    waitsFor && !problem && h("div", { class: "notice tone-idle waits" }, h("p", { class: "words" }, waitsFor)),
  ];
}

function figures(stream) {
  const { last_batch: last, retention_left_seconds: left } = stream;
  const isShort = left !== null && left < SHORT_RETENTION_SECONDS;
  const unread = [stream.pending_files === null ? null : formatCountOf(stream.pending_files, "file"), stream.pending_rows === null ? null : formatCountOf(stream.pending_rows, "row")];
  const written = last && (last.rows_written ?? last.rows_read);
  return h(
    "dl",
    { class: "figures" },
    figure("Lag in versions", formatCountOf(stream.lag_versions, "version"), stream.lag_versions ? "not committed" : null),
    figure("Lag in time", formatDuration(stream.lag_seconds), stream.lag_seconds ? "oldest version not committed" : null),
    figure("Unread", formatBytes(stream.pending_bytes), unread.filter(Boolean).join(", ")),
    figure("Retention left", left === null ? UNKNOWN : `${isShort ? "⚠ " : ""}${formatDuration(left)}`, left === null ? null : "until the position can be lost", isShort ? "warn" : null),
    figure("Last batch", last ? formatCountOf(written ?? null, "row") : UNKNOWN, last && [`batch ${last.batch_id}`, last.seconds !== null && last.seconds !== undefined && `in ${formatDuration(last.seconds)}`, stream.age].filter(Boolean).join(", ")),
    figure("Rate", stream.rows_per_second === null ? UNKNOWN : `${formatRate(stream.rows_per_second)} rows/s`, null),
  );
}

function figure(name, value, more, tone) {
  return h("div", { class: "card figure" }, h("dt", null, name), h("dd", { class: tone ? `text-${tone}` : null }, value, more && h("span", { class: "muted" }, more)));
}

function facts(stream) {
  const task = { dag_id: stream.dag_id, task_id: stream.task_id };
  const { sink } = stream;
  const entries = [
    ["Table", h("code", null, stream.table)],
    ["Sink", sink ? [h("code", null, sink.target ?? UNKNOWN), h("div", { class: "muted" }, [sink.kind.replaceAll("_", " "), DELIVERIES[sink.delivery]].filter(Boolean).join(": "))] : UNKNOWN],
    ["Position", stream.position ?? UNKNOWN],
    ["Newest version", formatCount(stream.newest_version)],
    stream.watermark && ["Watermark", formatTime(stream.watermark)],
    ["Epoch", formatCount(stream.epoch)],
    stream.dag_id && ["DAG", link(stream.dag_id, taskUrl({ dag_id: stream.dag_id }), "fact dag")],
    stream.dag_id && stream.task_id && ["Task", link(stream.task_id, taskUrl(task), "fact task")],
    stream.dag_id && stream.run_id && ["Last run", link(stream.run_id, taskUrl({ ...task, run_id: stream.run_id }), "fact run")],
    stream.owner && ["Owner of the plan", stream.owner],
    stream.driver && ["Driver", driverWords(stream.driver)],
    ["Staging", h("code", null, stream.staging)],
  ];
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Stream"),
    h("dl", { class: "facts" }, entries.filter(Boolean).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
    stream.offset && h("details", null, h("summary", null, "Checkpoint (Delta offset)"), h("pre", null, h("code", null, pretty(stream.offset)))),
  );
}

/** Return what a driver in a cluster has done. */
function driverWords(driver) {
  const { batches, batches_done: done, batch_id: batch, rows, stage, log_url: log } = driver;
  const said = driver.since ? [
    `since ${formatTime(driver.since)}`,
    batches != null && done != null && `${formatCount(done)} of ${formatCountOf(batches, "batch", "batches")} done`,
    rows ? `${formatCountOf(rows, "row")} out` : null,
    batch != null && `at batch ${formatCount(batch)}${stage ? `: ${stage}` : ""} (as of ${formatTime(driver.noted_at)})`,
  ] : ["has begun no batch"];
  const name = h("code", null, driver.driver);
  return [
    log ? h("a", { href: log, target: "_blank", rel: "noreferrer", "data-focus": "fact driver" }, name) : name,
    h("div", { class: "muted" }, `${driver.cluster}: ${said.filter(Boolean).join(", ")}`),
  ];
}

/** Return a link into Airflow's UI. */
export function link(text, href, focus) {
  return h("a", { href, target: "_top", onclick: followInAirflow, "data-focus": focus }, text);
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
