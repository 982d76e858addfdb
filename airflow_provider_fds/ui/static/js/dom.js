// Builds elements. Data becomes text nodes and attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return an HTML element. Properties that are undefined, null or false are left out; on… are listeners. */
export function h(tag, properties, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** Return an SVG element. */
export function svg(tag, properties, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Characters at the end of a long text that always stay. */
const END = 8;

/** Return a text that is shortened in the middle where it does not fit. It is copied as a whole. */
export function middleText(text) {
  const cut = text.length > 2 * END ? text.length - END : text.length;
  const beginning = h("span", { class: "beginning" }, text.slice(0, cut));
  if (cut === text.length) return beginning;
  beginning.style.maxWidth = `calc(100% - ${END + 1}ch)`;
  return [beginning, h("span", { class: "end" }, text.slice(cut))];
}

/** Replace the children of an element, unless they were made from equal data. Keeps the focus by data-focus. */
export function renderIfChanged(element, data, render) {
  const key = JSON.stringify(data);
  if (element.renderedFrom === key) return;
  element.renderedFrom = key;
  keepingFocus(() => element.replaceChildren(...[render(data)].flat(Infinity).filter(Boolean)));
}

/** Change the document, and give the focus back to the element that had it, or to the one that replaced it. */
export function keepingFocus(change) {
  const focused = document.activeElement;
  const name = focused?.dataset?.focus;
  change();
  if (!focused || focused === document.activeElement || focused === document.body) return;
  const heir = focused.isConnected ? focused : name && document.querySelector(`[data-focus="${CSS.escape(name)}"]`);
  if (heir) heir.focus({ preventScroll: true });
}
