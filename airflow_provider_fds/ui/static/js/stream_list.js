// The list of all streams: sorted, filtered, and updated in place.

import { followInAirflow } from "./airflow.js";
import { BULK_ACTIONS, BulkDialog } from "./bulk_dialog.js";
import { COLUMNS, SORTS, searchText } from "./columns.js";
import { conditionBadge, conditionPlace, conditionTone, conditionWords } from "./conditions.js";
import { h, keepingFocus, middleText, renderIfChanged } from "./dom.js";
import { emptyInstallation } from "./empty.js";
import { formatCount, formatCountOf } from "./format.js";

const NEEDS_PERSON = "needs_person";

/** What the rows can be filtered by, besides text and state. */
const FILTERS = [
  { key: "fleet", all: "All fleets", label: "Filter by fleet", valuesOf: (row) => [row.fleet].filter(Boolean) },
  { key: "dag", all: "All DAGs", label: "Filter by DAG", valuesOf: (row) => [row.dag_id].filter(Boolean) },
  { key: "owner", all: "All owners", label: "Filter by owner", valuesOf: (row) => row.dag_owners },
];

export class StreamList {
  constructor(parameters) {
    this.title = "Delta streams";
    this.streams = [];
    this.rows = new Map();
    this.sort = SORTS.has(parameters.get("sort")) ? parameters.get("sort") : "state";
    this.isDescending = parameters.get("order") === "desc";
    this.states = new Set((parameters.get("state") ?? "").split(",").filter(Boolean));
    this.chosen = Object.fromEntries(FILTERS.map(({ key }) => [key, parameters.get(key) ?? ""]));
    this.build(parameters.get("q") ?? "");
  }

  build(text) {
    this.search = h("input", { type: "search", class: "search", placeholder: "Filter by name, table, sink, DAG …", "aria-label": "Filter streams", value: text, oninput: () => this.changed() });
    this.selects = FILTERS.map(({ key, label }) => h("select", { "aria-label": label, onchange: ({ target }) => this.choose(key, target.value) }));
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "Filter by state" });
    this.count = h("p", { class: "count", "aria-live": "polite" });
    this.problems = h("div", { class: "notices" });
    this.body = h("tbody");
    this.pickAll = h("input", { type: "checkbox", "aria-label": "Select all shown streams", onchange: () => this.pickShown() });
    this.bulk = h("div", { class: "bulk actions" });
    this.headers = COLUMNS.map((column) => this.header(column));
    this.table = h("table", { class: "streams" }, h("caption", { class: "only-read" }, "Delta streams"), h("thead", null, h("tr", null, h("th", { class: "pick" }, this.pickAll), this.headers)), this.body);
    this.body.addEventListener("change", () => this.showPicked());
    this.scroller = h("div", { class: "scroller", role: "region", "aria-label": "Table of streams", tabindex: "0" }, this.table);
    this.nothing = h("p", { class: "nothing", hidden: true }, "No stream matches. ", h("button", { class: "link", type: "button", onclick: () => this.clear() }, "Clear the filters"));
    this.full = h("div", null, h("div", { class: "tools" }, this.search, this.selects, this.chips, this.bulk, this.count), this.problems, this.scroller, this.nothing);
    this.empty = h("div", { hidden: true });
    this.element = h("div", { class: "list" }, this.full, this.empty);
  }

  header(column) {
    const buttons = column.sorts.map((sort, index) => [
      index > 0 && h("span", { "aria-hidden": "true" }, "/"),
      h("button", { type: "button", class: "sort", title: sort.help, "aria-label": sort.label, "data-sort": sort.key, onclick: () => this.sortBy(sort) }, sort.title),
    ]);
    return h("th", { scope: "col", class: column.isNumber ? "number" : null }, h("div", { class: "sorts" }, buttons));
  }

  /** Show an answer of the API. */
  update(answer) {
    const fleets = fleetsOf(answer.streams);
    this.streams = answer.streams.map((row) => ({ ...row, text: searchText(row), fleet: fleets.get(taskOf(row)) }));
    this.staging = answer.staging;
    const isEmpty = this.streams.length === 0;
    this.full.hidden = isEmpty && answer.problems.length === 0;
    this.empty.hidden = !isEmpty;
    if (isEmpty) renderIfChanged(this.empty, answer.staging, emptyInstallation);
    renderIfChanged(this.problems, answer.problems, (problems) =>
      problems.map((one) => h("p", { class: "notice tone-warn" }, h("strong", null, one.staging), ` ${one.message}`)),
    );
    this.show();
  }

  /** Show what the tools and headers ask for. */
  show() {
    this.showChips();
    this.showFilters();
    const terms = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = this.streams.filter((row) => this.isChosen(row) && terms.every((term) => row.text.includes(term)));
    shown.sort(comparator(SORTS.get(this.sort), this.isDescending));
    keepingFocus(() => this.showRows(shown));
    const [all, some] = [this.streams.length, shown.length];
    const words = some === all ? formatCountOf(all, "stream") : `${formatCount(some)} of ${formatCountOf(all, "stream")}`;
    if (this.count.textContent !== words) this.count.textContent = words;
    this.scroller.hidden = some === 0;
    this.nothing.hidden = some > 0 || all === 0;
    this.showOrder();
    this.showPicked();
  }

  /** Show the values of each filter that divide the streams. */
  showFilters() {
    FILTERS.forEach(({ key, all, valuesOf }, index) => {
      const values = [...new Set([...this.streams.flatMap(valuesOf), this.chosen[key]].filter(Boolean))].sort(collator.compare);
      renderIfChanged(this.selects[index], values, () => [h("option", { value: "" }, all), values.map((value) => h("option", { value }, value))]);
      this.selects[index].value = this.chosen[key];
      const divides = values.length > 1 || (values.length === 1 && this.streams.some((row) => valuesOf(row).length === 0));
      this.selects[index].hidden = !divides && !this.chosen[key];
    });
  }

  choose(key, value) {
    this.chosen[key] = value;
    this.changed();
  }

  pickShown() {
    for (const { pick } of this.rows.values()) pick.checked = this.pickAll.checked;
    this.showPicked();
  }

  /** Offer the actions on the selected streams. Only shown streams are selected. */
  showPicked() {
    const picked = [...this.rows.values()].filter(({ pick }) => pick.checked).map(({ row }) => ({ id: row.id, name: row.name }));
    this.pickAll.checked = picked.length > 0 && picked.length === this.rows.size;
    this.pickAll.indeterminate = picked.length > 0 && !this.pickAll.checked;
    const open = (action) => new BulkDialog(picked, action, () => this.refresh()).open();
    renderIfChanged(this.bulk, picked, () => picked.length > 0 && [`${formatCount(picked.length)} selected`, BULK_ACTIONS.map((action) => h("button", { type: "button", class: "button", "data-focus": `action ${action.name}`, onclick: () => open(action) }, `${action.title} …`))]);
  }

  showOrder() {
    const order = this.isDescending ? "descending" : "ascending";
    for (const header of this.headers) {
      header.removeAttribute("aria-sort");
      for (const button of header.querySelectorAll(".sort")) {
        const isSorted = button.dataset.sort === this.sort;
        button.classList.toggle("descending", isSorted && this.isDescending);
        button.classList.toggle("ascending", isSorted && !this.isDescending);
        if (isSorted) header.setAttribute("aria-sort", order);
      }
    }
  }

  showRows(shown) {
    const now = Date.now();
    const wanted = new Set(shown.map((row) => row.id));
    for (const [id, line] of this.rows) {
      if (!wanted.has(id)) {
        line.element.remove();
        this.rows.delete(id);
      }
    }
    let place = this.body.firstElementChild;
    for (const row of shown) {
      let line = this.rows.get(row.id);
      if (!line) {
        line = new Line();
        this.rows.set(row.id, line);
      }
      line.update(row, now);
      if (line.element === place) place = place.nextElementSibling;
      else this.body.insertBefore(line.element, place);
    }
  }

  showChips() {
    const counts = new Map();
    for (const { condition } of this.streams) counts.set(condition, (counts.get(condition) ?? 0) + 1);
    for (const state of this.states) if (state !== NEEDS_PERSON && !counts.has(state)) counts.set(state, 0);
    const stuck = this.streams.filter((row) => row.needs_attention).length;
    const states = [...counts].sort(([one], [other]) => conditionPlace(one) - conditionPlace(other));
    renderIfChanged(this.chips, [states, stuck, [...this.states]], () => [
      (stuck > 0 || this.states.has(NEEDS_PERSON)) && this.chip(NEEDS_PERSON, "Needs attention", "bad", stuck),
      ...states.map(([state, n]) => this.chip(state, conditionWords(state), conditionTone(state), n)),
    ]);
  }

  chip(state, words, tone, n) {
    const toggle = () => {
      if (!this.states.delete(state)) this.states.add(state);
      this.changed();
    };
    return h(
      "button",
      { type: "button", class: `chip tone-${tone}`, "aria-pressed": String(this.states.has(state)), "data-focus": `chip ${state}`, onclick: toggle },
      h("span", { class: "badge-dot", "aria-hidden": "true" }),
      words,
      h("span", { class: "chip-count" }, formatCount(n)),
    );
  }

  isChosen(row) {
    if (!FILTERS.every(({ key, valuesOf }) => !this.chosen[key] || valuesOf(row).includes(this.chosen[key]))) return false;
    return this.states.size === 0 || this.states.has(row.condition) || (this.states.has(NEEDS_PERSON) && row.needs_attention);
  }

  sortBy({ key, isDescending }) {
    if (this.sort === key) this.isDescending = !this.isDescending;
    else [this.sort, this.isDescending] = [key, Boolean(isDescending)];
    this.changed();
  }

  clear() {
    this.search.value = "";
    this.states.clear();
    for (const { key } of FILTERS) this.chosen[key] = "";
    this.changed();
    this.search.focus();
  }

  /** Return the link to a stream, if it is shown. */
  linkTo(id) {
    return this.rows.get(id)?.element.querySelector("a");
  }

  changed() {
    this.show();
    this.onlocation?.();
  }

  /** The location that shows this list with its filters and order. */
  get location() {
    const parameters = new URLSearchParams();
    if (this.search.value) parameters.set("q", this.search.value);
    if (this.states.size) parameters.set("state", [...this.states].join(","));
    for (const { key } of FILTERS) if (this.chosen[key]) parameters.set(key, this.chosen[key]);
    if (this.sort !== "state" || this.isDescending) {
      parameters.set("sort", this.sort);
      parameters.set("order", this.isDescending ? "desc" : "asc");
    }
    return parameters.size ? `#/?${parameters}` : "#/";
  }
}

/** One row of the table. A cell is made again only if it shows something else. */
class Line {
  constructor() {
    this.cells = COLUMNS.map((column, index) =>
      h(index === 0 ? "th" : "td", { scope: index === 0 ? "row" : null, class: `col-${column.sorts[0].key}${column.isNumber ? " number" : ""}` }),
    );
    this.pick = h("input", { type: "checkbox" });
    this.element = h("tr", null, h("td", { class: "pick" }, this.pick), this.cells);
  }

  update(row, now) {
    this.row = row;
    this.pick.ariaLabel = `Select ${row.name}`;
    this.element.classList.toggle("stuck", row.needs_attention);
    COLUMNS.forEach((column, index) => renderIfChanged(this.cells[index], column.parts(row, now).filter(Boolean), (parts) => parts.map((part) => line(part, column))));
  }
}

function line(part, { isNumber }) {
  if (part.badge) return h("div", null, conditionBadge(part.badge));
  const classes = [part.muted && "muted", part.tone && `text-${part.tone}`].filter(Boolean).join(" ") || null;
  const words = isNumber ? part.text : middleText(part.text);
  const text = part.href
    ? h("a", { href: part.href, "aria-label": isNumber ? null : part.text, "data-focus": part.focus, ...(part.leaves ? { target: "_top", onclick: followInAirflow } : {}) }, words)
    : words;
  return h("div", { class: classes, title: part.title ?? (isNumber ? null : part.text) }, text);
}

/** Return the task that loaded a stream last. */
function taskOf(row) {
  return row.dag_id && row.task_id ? `${row.dag_id}.${row.task_id}` : null;
}

/** Return the tasks that load several streams. */
function fleetsOf(rows) {
  const [once, fleets] = [new Set(), new Map()];
  for (const task of rows.map(taskOf).filter(Boolean)) {
    if (once.has(task)) fleets.set(task, task);
    once.add(task);
  }
  return fleets;
}

function comparator({ value }, isDescending) {
  const direction = isDescending ? -1 : 1;
  return (one, other) => {
    const [a, b] = [value(one) ?? null, value(other) ?? null];
    if (a === null || b === null) return (a === null) - (b === null) || tie(one, other);
    const order = typeof a === "string" ? collator.compare(a, b) : a - b;
    return order * direction || tie(one, other);
  };
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function tie(one, other) {
  return (other.lag_seconds ?? -1) - (one.lag_seconds ?? -1) || collator.compare(one.name, other.name);
}
