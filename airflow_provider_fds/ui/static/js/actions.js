// The actions that a user may take on a stream.

import { ActionDialog } from "./action_dialog.js";
import { h } from "./dom.js";

/** Return the card with a button for each action. */
export function actionsSection(stream, page) {
  const actions = stream.actions ?? [];
  const open = (action) => new ActionDialog(stream, action, page.refresh).open();
  const buttons = actions.map((action) =>
    h("button", { type: "button", class: "button", title: action.help, disabled: !stream.may_act, "data-focus": `action ${action.name}`, onclick: () => open(action) }, action.title),
  );
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Actions"),
    h("div", { class: "actions" }, buttons),
    h("p", { class: "muted hint" }, hintOf(stream, actions)),
  );
}

function hintOf(stream, actions) {
  if (!stream.may_act) return "You can view this stream but not act on it: that needs the right to edit its DAG.";
  if (!actions.length) return "No action is possible here: the stream has ended, or belongs to another Airflow installation.";
  return "These are the actions that apply now. Each shows a preview before you confirm it, and is recorded with your name and reason.";
}
