// The page: which view is shown, and when it is refreshed.

import { followInAirflow, followTheme, showLocationInAirflow, signInUrl } from "./airflow.js";
import { ApiError, fetchStream, fetchStreams } from "./api.js";
import { h } from "./dom.js";
import { formatTime } from "./format.js";
import { StreamList } from "./stream_list.js";
import { StreamPage } from "./stream_page.js";

const REFRESH_MS = 10_000;

const page = document.getElementById("page");
const errors = document.getElementById("errors");

let view = null;
let list = null;
let timer = null;
let refreshedAt = null;

const heading = h("h1", { tabindex: "-1" });
const back = h("a", { href: "#/", class: "back" }, "Delta streams");
const updated = h("span", { class: "muted updated" });
const auto = h("input", { type: "checkbox", checked: true, onchange: () => (auto.checked ? refresh() : schedule()) });
const header = h(
  "header",
  { class: "bar" },
  h("div", { class: "where" }, back, heading),
  h("div", { class: "refresh" }, updated, h("label", null, auto, " Refresh every 10 s"), h("button", { type: "button", class: "button", onclick: () => refresh() }, "Refresh")),
);
const content = h("div", { class: "content" });

/** Show what the location names. */
function route() {
  const [path, query = ""] = window.location.hash.replace(/^#\/?/, "").split("?", 2);
  const [kind, id] = path.split("/");
  const isFirst = view === null;
  const left = view;
  if (left === list && list) list.scroll = list.scroller.scrollTop;
  refreshedAt = null;
  showError(null);
  view = kind === "streams" && id ? openStream(decodeURIComponent(id)) : openList(query);
  back.hidden = view === list;
  back.href = list?.location ?? "#/";
  showTitle();
  if (view.isFilled) show();
  else content.replaceChildren(h("p", { class: "loading" }, "Loading …"));
  if (!isFirst) (view.linkTo?.(left.id) ?? heading).focus({ preventScroll: true });
  showLocationInAirflow();
  refresh();
}

/** Return the list: the one that was left, if the location names it. */
function openList(query) {
  if (list?.location === (query ? `#/?${query}` : "#/")) return list;
  list = new StreamList(new URLSearchParams(query));
  list.load = fetchStreams;
  list.refresh = refresh;
  const opened = list;
  list.onlocation = () => {
    window.history.replaceState(window.history.state, "", opened.location);
    showLocationInAirflow();
  };
  return list;
}

function openStream(id) {
  const stream = new StreamPage(id, { refresh });
  stream.load = () => fetchStream(id);
  return stream;
}

function show() {
  content.replaceChildren(view.element);
  if (view === list) list.scroller.scrollTop = list.scroll ?? 0;
}

/** Load the data of the view, and show it. If that fails, the last good data stay. */
async function refresh() {
  clearTimeout(timer);
  const asked = view;
  asked.asked = (asked.asked ?? 0) + 1;
  const turn = asked.asked;
  try {
    const answer = await asked.load();
    if (asked !== view || turn !== asked.asked) return;
    asked.answer = answer;
    asked.update(answer);
    refreshedAt = new Date();
    showError(null);
    asked.isFilled = true;
    if (!asked.element.isConnected) show();
    showTitle();
  } catch (error) {
    if (asked !== view || turn !== asked.asked) return;
    if (!(error instanceof ApiError)) console.error(error);
    else if (asked.answer) asked.update(asked.answer); // what it shows grows older
    showError(error);
  }
  schedule();
}

function schedule() {
  clearTimeout(timer);
  if (auto.checked && document.visibilityState === "visible") timer = setTimeout(refresh, REFRESH_MS);
}

function showTitle() {
  if (heading.textContent !== view.title) heading.textContent = view.title;
  document.title = view.title === "Delta streams" ? view.title : `${view.title} – Delta streams`;
  updated.textContent = refreshedAt ? `Updated ${formatTime(refreshedAt.toISOString()).slice(11)}` : "";
}

function showError(error) {
  const shown = error && [error.message, refreshedAt?.getTime()].join("\n");
  if ((errors.shown ?? null) === shown) return;
  errors.shown = shown;
  if (!error) {
    errors.replaceChildren();
    return;
  }
  const message = error instanceof ApiError ? error.message : `The page could not display the response: ${error.message}. Reload the page.`;
  const kept = refreshedAt ? ` What you see is from ${formatTime(refreshedAt.toISOString()).slice(11)}.` : "";
  if (!view.isFilled) content.replaceChildren();
  errors.replaceChildren(
    h(
      "p",
      { class: "notice tone-bad" },
      h("span", null, message + kept),
      error.status === 401
        ? h("a", { class: "button", href: signInUrl(), target: "_top", onclick: followInAirflow }, "Sign in")
        : h("button", { type: "button", class: "button", onclick: refresh }, "Try again"),
    ),
  );
}

followTheme();
page.replaceChildren(header, content);
window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", () => (document.visibilityState === "visible" && auto.checked ? refresh() : schedule()));
route();
