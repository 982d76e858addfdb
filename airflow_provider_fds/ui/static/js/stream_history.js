// The history and the plan of a stream: batches, planned work, decisions, skipped versions.

import { followInAirflow, taskUrl } from "./airflow.js";
import { h } from "./dom.js";
import { formatBytes, formatCount, formatCountOf, formatSeconds, formatTime } from "./format.js";

const BATCHES_AT_FIRST = 20;
const PHASES = ["check", "load", "write", "verify"];

export function batchesSection(batches) {
  const [some, rest] = [batches.slice(0, BATCHES_AT_FIRST), batches.slice(BATCHES_AT_FIRST)];
  const columns = [
    { title: "Batch", cell: (one) => [one.batch_id, muted(`epoch ${formatCount(one.epoch)}`)] },
    { title: "Versions", isText: true, cell: (one) => [one.versions, muted(one.interval)] },
    { title: "Rows read", isNumber: true, cell: (one) => [formatCount(one.rows_read), muted(formatCountOf(one.files, "file"))] },
    { title: "Rows written", isNumber: true, cell: (one) => [formatCount(one.rows_written), muted(formatBytes(one.bytes_written)), one.rows_rejected > 0 && muted(`${formatCount(one.rows_rejected)} rejected`)] },
    { title: "Seconds", help: "Duration on the Spark driver, and that of each phase", isNumber: true, cell: (one) => [formatSeconds(one.seconds), muted(phasesOf(one))] },
    { title: "Committed", isText: true, cell: (one) => formatTime(one.committed_at) },
    { title: "Run", isText: true, cell: runLink },
  ];
  const body = h("tbody", null, some.map((one) => lineOf(columns, one)));
  const more = h("button", { type: "button", class: "button more" }, `Show ${formatCount(rest.length)} older batches`);
  more.addEventListener("click", () => {
    body.append(...rest.map((one) => lineOf(columns, one)));
    more.remove();
  });
  return section("Batches", "No batch is committed yet.", batches, () => [tableOf("Batches", columns, body), rest.length > 0 && more]);
}

/** The data intervals of a stream that reads them: the last, what is not loaded, and the next one. */
export function intervalsSection({ last, unfinished, gaps, next }) {
  const rows = [
    last && { ...last, state: "Last loaded" },
    ...unfinished.map((one) => ({ ...one, state: one.is_blocked ? "Blocked" : "Unfinished" })),
    ...gaps.map((one) => ({ ...one, state: "Gap: no run has begun it" })),
    next && { ...next, state: "Next" },
  ].filter(Boolean);
  const columns = [
    { title: "Interval", cell: (one) => one.state },
    { title: "From (inclusive)", cell: (one) => formatTime(one.start) },
    { title: "To (exclusive)", cell: (one) => formatTime(one.end) },
    { title: "Versions", cell: (one) => one.versions },
    { title: "Generation", isNumber: true, cell: (one) => formatCount(one.generation) },
    { title: "Rows", isNumber: true, cell: (one) => formatCount(one.rows) },
  ];
  return section("Data intervals", "No interval is begun yet.", rows, () => simpleTable("Data intervals", columns, rows));
}

export function plannedSection(planned) {
  const columns = [
    { title: "Batch", cell: (one) => one.batch_id },
    { title: "Versions", isText: true, cell: (one) => one.versions },
    { title: "Files", isNumber: true, cell: (one) => formatCount(one.files) },
    { title: "Bytes", isNumber: true, cell: (one) => formatBytes(one.bytes) },
    { title: "Rows", isNumber: true, cell: (one) => formatCount(one.rows) },
  ];
  return section("Planned work", "Nothing is planned.", planned, () => simpleTable("Planned work", columns, planned));
}

export function decisionsSection(decisions) {
  const columns = [
    { title: "When", cell: (one) => formatTime(one.at) },
    { title: "Who", cell: (one) => one.by },
    { title: "Decision", cell: (one) => one.action },
    { title: "Why", isText: true, cell: (one) => one.why },
    { title: "Details", isText: true, cell: (one) => one.details },
  ];
  return section("Decisions", "There are no decisions yet.", decisions, () => simpleTable("Decisions", columns, decisions));
}

export function skippedSection(skipped) {
  const columns = [
    { title: "Versions", cell: ({ first_version: first, last_version: last }) => (first === last ? formatCount(first) : `${formatCount(first)} to ${formatCount(last)}`) },
    { title: "Why", isText: true, cell: (one) => one.why },
    { title: "By", cell: (one) => one.by },
    { title: "When", cell: (one) => formatTime(one.at) },
  ];
  return section("Skipped versions", "No version is skipped.", skipped, () => simpleTable("Skipped versions", columns, skipped));
}

function section(title, nothing, entries, render) {
  return h("section", { class: "card" }, h("h2", null, title, entries.length > 0 && h("span", { class: "count-of" }, formatCount(entries.length))), entries.length ? render() : h("p", { class: "nothing" }, nothing));
}

function simpleTable(title, columns, entries) {
  return tableOf(title, columns, h("tbody", null, entries.map((one) => lineOf(columns, one))));
}

function tableOf(title, columns, body) {
  const head = columns.map((column) => h("th", { scope: "col", title: column.help, class: column.isNumber ? "number" : null }, column.title));
  return h("div", { class: "scroller", role: "region", "aria-label": title, tabindex: "0" }, h("table", null, h("caption", { class: "only-read" }, title), h("thead", null, h("tr", null, head)), body));
}

function lineOf(columns, one) {
  return h("tr", null, columns.map((column) => h("td", { class: column.isNumber ? "number" : column.isText ? "words" : null }, column.cell(one) ?? "–")));
}

function muted(text) {
  return text && h("div", { class: "muted" }, text);
}

function phasesOf({ phases }) {
  return PHASES.filter((phase) => phases?.[phase]).map((phase) => `${phase} ${formatSeconds(phases[phase])}`).join(", ");
}

function runLink(batch) {
  if (!batch.dag_id || !batch.run_id) return null;
  return h("a", { href: taskUrl(batch), target: "_top", onclick: followInAirflow, "data-focus": `batch ${batch.epoch}-${batch.batch_id}` }, batch.run_id);
}
