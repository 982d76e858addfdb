// A form for the arguments of an action, made from their description.

import { h } from "./dom.js";

const INPUTS = { integer: "number", datetime: "datetime-local", boolean: "checkbox" };

/** The fields of an action's arguments. `values()` has those that are given. */
export class ActionForm {
  constructor(action) {
    this.fields = action.arguments.map((argument) => ({ argument, input: inputOf(argument) }));
    this.element = h("div", { class: "fields" }, this.groups().map(([group, fields]) => (group && fields.length > 1 ? groupOf(fields) : fields.map(fieldOf))));
    this.element.addEventListener("input", () => this.check());
    this.check();
  }

  /** Return the fields by their group, of which exactly one is given, in their order. */
  groups() {
    const found = new Map();
    for (const field of this.fields) {
      const key = field.argument.one_of ?? field.argument.name;
      found.set(key, [...(found.get(key) ?? []), field]);
    }
    return [...found].map(([key, fields]) => [fields[0].argument.one_of && key, fields]);
  }

  /** Let the browser refuse a group of which none or several are given. */
  check() {
    for (const [group, fields] of this.groups()) {
      if (!group) continue;
      const given = fields.filter(({ argument, input }) => valueOf(argument, input) !== null);
      const names = fields.map(({ argument }) => wordsOf(argument)).join(", ");
      const message = given.length === 1 ? "" : fields.length === 1 ? "Fill in this field." : `Fill in exactly one of: ${names}.`;
      fields.forEach(({ input }) => input.setCustomValidity(""));
      (given[1] ?? given[0] ?? fields[0]).input.setCustomValidity(message);
    }
  }

  values() {
    const given = {};
    for (const { argument, input } of this.fields) {
      const value = valueOf(argument, input);
      if (value !== null) given[argument.name] = value;
    }
    return given;
  }
}

function inputOf(argument) {
  const id = `argument-${argument.name}`;
  const common = { id, name: argument.name, required: argument.required && argument.type !== "boolean", "aria-describedby": `${id}-help`, value: argument.value };
  if (argument.type !== "choice") {
    const isText = !(argument.type in INPUTS);
    return h("input", { ...common, type: INPUTS[argument.type] ?? "text", step: { integer: 1, datetime: 1 }[argument.type], autocomplete: "off", spellcheck: isText ? "false" : null });
  }
  const none = argument.required ? "Choose …" : "Not set";
  return h("select", common, h("option", { value: "" }, none), (argument.choices ?? []).map((choice) => h("option", { value: choice }, choice)));
}

function groupOf(fields) {
  return h("fieldset", null, h("legend", null, "Exactly one of"), fields.map(fieldOf));
}

function wordsOf({ name }) {
  const words = name.replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}

function fieldOf({ argument, input }) {
  const label = h("label", { for: input.id }, wordsOf(argument), argument.type === "datetime" && " (UTC)", argument.required && h("span", { class: "muted" }, " – required"));
  const help = h("p", { id: `${input.id}-help`, class: "muted hint" }, argument.help);
  if (argument.type === "boolean") return h("div", { class: "field choice" }, input, h("div", null, label, help));
  return h("div", { class: "field" }, label, input, help);
}

function valueOf(argument, input) {
  if (argument.type === "boolean") return input.checked ? true : null;
  const text = input.value.trim();
  if (text === "") return null;
  if (argument.type === "integer") return Number(text);
  return argument.type === "datetime" ? `${text}Z` : text;
}
