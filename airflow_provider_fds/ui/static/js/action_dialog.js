// An action in three steps: its arguments, a preview, and the confirmation with a reason.

import { ActionForm } from "./action_form.js";
import { followInAirflow, signInUrl } from "./airflow.js";
import { newRequestId, performAction, previewAction } from "./api.js";
import { h } from "./dom.js";

const CHANGED = 409;
const SIGNED_OUT = 401;

let dialogs = 0;

export class ActionDialog {
  constructor(stream, action, refresh) {
    dialogs += 1;
    [this.stream, this.action, this.refresh] = [stream, action, refresh];
    this.form = new ActionForm(action);
    this.why = h("textarea", { id: "why", rows: 2, required: action.needs_why, "aria-describedby": "why-help", maxlength: 2000 });
    this.alert = h("div", { role: "alert" });
    this.step = h("form", { novalidate: true, onsubmit: (event) => this.submitted(event) });
    this.element = h(
      "dialog",
      { class: "dialog", "aria-labelledby": `dialog-title-${dialogs}`, oncancel: (event) => this.isBusy && event.preventDefault(), onclose: () => this.closed() },
      h("h2", { id: `dialog-title-${dialogs}` }, `${action.title}: ${stream.name}`),
      h("p", { class: "words" }, action.help),
      action.changes_the_sink && h("p", { class: "notice tone-warn" }, "This changes the sink: rows may be deleted or loaded again."),
      this.step,
    );
    this.leave = () => this.element.close();
  }

  open() {
    document.body.append(this.element);
    window.addEventListener("hashchange", this.leave);
    this.element.showModal();
    if (this.action.arguments.length) this.askArguments();
    else this.preview();
  }

  closed() {
    window.removeEventListener("hashchange", this.leave);
    this.element.remove();
    // the button may have been made again, or the action no longer applies
    const button = document.querySelector(`[data-focus="${CSS.escape(`action ${this.action.name}`)}"]`);
    (button ?? document.querySelector("[data-focus^='action ']"))?.focus();
  }

  show(content, buttons, next) {
    this.next = next;
    this.alert.replaceChildren();
    this.step.replaceChildren(content, this.alert, h("div", { class: "buttons" }, buttons));
    (this.step.querySelector("input, select, textarea") ?? this.step.querySelector(".buttons > :last-child"))?.focus();
  }

  askArguments() {
    this.show(this.form.element, [this.closeButton("Cancel"), submitButton("Preview")], () => this.preview());
  }

  async preview() {
    if (!this.step.childElementCount) this.show(h("p", { class: "muted" }, "Preparing the preview …"), [this.closeButton("Cancel")], null);
    const given = { arguments: this.form.values() };
    await this.working(async () => {
      this.showPreview(given, await this.previewOf(given));
    });
  }

  previewOf(given) {
    return previewAction(this.stream.id, this.action.name, given);
  }

  showPreview(given, { allowed, refusal, preview, expected }) {
    const back = this.action.arguments.length > 0 && h("button", { type: "button", class: "button", onclick: () => this.askArguments() }, "Back");
    const lines = preview.length > 0 && h("pre", { class: "preview", tabindex: "0", "aria-label": "Preview" }, preview.join("\n"));
    if (!allowed) {
      const words = h("p", { class: "notice tone-bad" }, h("span", { class: "words" }, h("strong", null, "Refused. "), refusal ?? "The stream does not allow this now."));
      this.show(h("div", { class: "fields" }, lines, words), [back, this.closeButton("Close")].filter(Boolean), null);
      return;
    }
    // one identifier per confirmation: sent twice, it is done once
    const request = { ...given, expected, request_id: newRequestId() };
    const reason = h(
      "div",
      { class: "field" },
      h("label", { for: "why" }, "Why", this.action.needs_why && h("span", { class: "muted" }, " – required")),
      this.why,
      h("p", { id: "why-help", class: "muted hint" }, "Recorded with your name in the stream's history."),
    );
    const confirm = submitButton(`Confirm: ${this.action.title}`, this.action.changes_the_sink ? "danger" : "primary");
    const content = h("div", { class: "fields" }, h("h3", null, "Preview"), lines || h("p", { class: "muted" }, "There is nothing to preview."), reason);
    this.show(content, [back, this.closeButton("Cancel"), confirm].filter(Boolean), () => this.perform(request));
  }

  async perform(request) {
    await this.working(async () => {
      const { message } = await performAction(this.stream.id, this.action.name, { ...request, why: this.why.value });
      this.show(h("p", { class: "notice tone-good", role: "status" }, h("span", { class: "words" }, message)), [this.closeButton("Close")], null);
      this.refresh();
    });
  }

  submitted(event) {
    event.preventDefault();
    if (this.isBusy || !this.next) return;
    // blanks are not a reason
    this.why.value = this.why.value.trim();
    if (this.step.reportValidity()) this.next();
  }

  async working(work) {
    this.isBusy = true;
    this.step.setAttribute("aria-busy", "true");
    const submit = this.step.querySelector("[type=submit]");
    if (submit) submit.disabled = true;
    this.alert.replaceChildren();
    try {
      await work();
    } catch (error) {
      this.fail(error);
    } finally {
      this.isBusy = false;
      this.step.removeAttribute("aria-busy");
      if (submit) submit.disabled = false;
    }
  }

  fail(error) {
    const again = h("button", { type: "button", class: "button", onclick: () => this.preview() }, "Preview again");
    const signIn = h("a", { class: "button", href: signInUrl(), target: "_top", onclick: followInAirflow }, "Sign in");
    const way = error.status === CHANGED ? again : error.status === SIGNED_OUT ? signIn : null;
    this.alert.replaceChildren(h("p", { class: "notice tone-bad" }, h("span", { class: "words" }, error.message), way));
    if (error.status === CHANGED) {
      this.next = null;
      this.step.querySelector("[type=submit]")?.remove();
      again.focus();
    }
  }

  closeButton(words) {
    return h("button", { type: "button", class: "button", onclick: () => this.isBusy || this.element.close() }, words);
  }
}

function submitButton(words, look = "primary") {
  return h("button", { type: "submit", class: `button ${look}` }, words);
}
