// One action on several streams: one reason, and for each stream its own preview, request and outcome.

import { ActionDialog } from "./action_dialog.js";
import { ApiError, newRequestId, performAction, previewAction } from "./api.js";
import { h } from "./dom.js";
import { formatCountOf } from "./format.js";

/** Requests that are sent at the same time. */
const AT_A_TIME = 6;

const COMMON = { arguments: [], needs_why: true, changes_the_sink: false };

/** The actions that several streams can take at once, as the API describes actions. */
export const BULK_ACTIONS = [
  { ...COMMON, name: "hold", title: "Hold", help: "Nothing new is planned for these streams until they are resumed. Batches that are already planned may still be loaded." },
  { ...COMMON, name: "resume", title: "Resume", help: "These streams continue with their next run after a hold or a quarantine." },
];

export class BulkDialog extends ActionDialog {
  constructor(streams, action, refresh) {
    super({ name: formatCountOf(streams.length, "stream") }, action, refresh);
    this.streams = streams;
  }

  async previewOf(given) {
    const found = await answersOf(this.streams, (stream) => previewAction(stream.id, this.action.name, given));
    const allowed = found.filter(({ answer }) => answer?.allowed);
    this.requests = allowed.map(({ one, answer }) => ({ ...one, body: { ...given, expected: answer.expected, request_id: newRequestId() } }));
    this.refused = found.filter((one) => !allowed.includes(one)).map(({ one, answer, error }) => `stream ${one.name}: refused: ${error?.message ?? answer.refusal}`);
    const preview = [...allowed.flatMap(({ answer }) => answer.preview), ...this.refused];
    return { allowed: allowed.length > 0, refusal: "No selected stream allows this now.", preview };
  }

  async perform() {
    await this.working(async () => {
      const found = await answersOf(this.requests, ({ id, body }) => performAction(id, this.action.name, { ...body, why: this.why.value }));
      const failed = found.filter(({ error }) => error);
      const tone = found.length - failed.length < this.streams.length ? "warn" : "good";
      const done = `${this.action.title} is done for ${found.length - failed.length} of ${formatCountOf(this.streams.length, "stream")}.`;
      const outcomes = [...found.map(({ one, answer, error }) => (error ? `stream ${one.name}: not done: ${error.message}` : answer.message)), ...this.refused];
      this.streams = failed.map(({ one }) => one);
      const again = failed.length > 0 && h("button", { type: "button", class: "button", onclick: () => this.preview() }, "Preview the failed ones again");
      this.show(h("div", { class: "fields" }, h("p", { class: `notice tone-${tone}`, role: "status" }, done), h("ul", { class: "outcomes preview" }, outcomes.map((words) => h("li", null, words)))), [again, this.closeButton("Close")].filter(Boolean), null);
      this.refresh();
    });
  }
}

/** Return the answer or the error of each, in order. */
async function answersOf(all, ask) {
  const failedOf = (one, error) => (error instanceof ApiError ? { one, error } : Promise.reject(error));
  const answerOf = (one) => ask(one).then((answer) => ({ one, answer }), (error) => failedOf(one, error));
  const found = [];
  for (let n = 0; n < all.length; n += AT_A_TIME) found.push(...(await Promise.all(all.slice(n, n + AT_A_TIME).map(answerOf))));
  return found;
}
