// Charts as inline SVG: a step line over time, and bars. Both have axes, units, a title per point and a text for readers.

import { h, svg } from "./dom.js";
import { formatTick } from "./format.js";

const HEIGHT = 180;
const ONE_AND_A_HALF_DAYS_MS = 36 * 3600 * 1000;
const MARGIN = { top: 12, right: 12, bottom: 26, left: 52 };

/**
 * Return a chart of a value over time.
 *
 * @param {object} chart `title`; `points`: `{time: Date, value}`, oldest first; `format` of values, as on the axis;
 *   `steps`: sizes that ticks may have; `describe(point)`: the text of a point.
 */
export function timeChart(chart) {
  return figure(chart, (width) => {
    const { points } = chart;
    const [first, last] = [points[0].time.getTime(), points.at(-1).time.getTime()];
    const x = scale(first, last, MARGIN.left, width - MARGIN.right);
    const { y, axis } = valueAxis(chart, width);
    const corners = points.flatMap(({ time, value }, index) => {
      const at = x(time.getTime()).toFixed(1);
      return index ? [`H${at}`, `V${y(value).toFixed(1)}`] : [`M${at},${y(value).toFixed(1)}`];
    });
    const line = corners.join("");
    return [
      axis,
      timeAxis(first, last, x, width),
      svg("path", { class: "chart-area", d: `${line}V${y(0)}H${x(first).toFixed(1)}Z` }),
      svg("path", { class: "chart-line", d: line }),
      svg("circle", { class: "chart-end", cx: x(last), cy: y(points.at(-1).value), r: 3 }),
      points.map((point, index) => {
        const [from, to] = [index ? middle(points, index - 1, x) : MARGIN.left, index < points.length - 1 ? middle(points, index, x) : width - MARGIN.right];
        return hit(from, to, chart.describe(point), svg("circle", { class: "chart-mark", cx: x(point.time.getTime()), cy: y(point.value), r: 4 }));
      }),
    ];
  });
}

/** Return a chart of bars: `bars`: `{label, value, text}` from left to right, else as {@link timeChart}. */
export function barChart(chart) {
  const { bars } = chart;
  return figure({ ...chart, points: bars }, (width) => {
    const { y, axis } = valueAxis({ ...chart, points: bars }, width);
    const slot = Math.min((width - MARGIN.left - MARGIN.right) / bars.length, 48);
    const every = Math.ceil(bars.length / Math.max(1, Math.floor((width - MARGIN.left) / 60)));
    return [
      axis,
      bars.map((bar, index) => {
        const left = MARGIN.left + index * slot;
        const height = Math.max(y(0) - y(bar.value), bar.value > 0 ? 1 : 0);
        const rect = svg("rect", { class: "chart-bar", x: left + slot * 0.12, width: Math.max(slot * 0.76, 1), y: y(0) - height, height });
        // labels count from the newest
        const isLabelled = (bars.length - 1 - index) % every === 0;
        return [
          isLabelled && svg("text", { class: "chart-tick", x: left + slot / 2, y: HEIGHT - 8, "text-anchor": "middle" }, bar.label),
          hit(left, left + slot, bar.text, rect),
        ];
      }),
    ];
  });
}

/** A chart that is drawn in the width it has, with its title, and the point under the mouse in words. */
function figure({ title, points, summary, unit }, draw) {
  const readout = h("span", { class: "readout muted" }, unit ?? "");
  const id = `chart-${title.toLowerCase().replaceAll(/\W+/g, "-")}`;
  const drawing = svg("svg", { class: "chart", role: "img", "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-summary`, height: HEIGHT });
  const text = h("p", { id: `${id}-summary`, class: "only-read" }, summary);
  const element = h("figure", { class: "card" }, h("figcaption", null, h("span", { id: `${id}-title`, class: "chart-title" }, title), readout), points.length ? drawing : h("p", { class: "nothing" }, summary), text);
  if (!points.length) return element;
  drawing.addEventListener("pointerover", ({ target }) => {
    readout.textContent = target.closest(".chart-hit")?.querySelector("title")?.textContent ?? unit ?? "";
  });
  drawing.addEventListener("pointerleave", () => (readout.textContent = unit ?? ""));
  let drawn = 0;
  new ResizeObserver(() => {
    const width = Math.round(drawing.clientWidth);
    if (!width || width === drawn) return;
    drawn = width;
    drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    drawing.replaceChildren(...draw(width).flat(Infinity).filter(Boolean));
  }).observe(drawing);
  return element;
}

/** An area that shows a mark, and its text as a tooltip, while the mouse is over it. */
function hit(from, to, text, mark) {
  return svg(
    "g",
    { class: "chart-hit" },
    svg("title", null, text),
    svg("rect", { class: "chart-space", x: from, width: Math.max(to - from, 0.5), y: MARGIN.top, height: HEIGHT - MARGIN.top - MARGIN.bottom }),
    mark,
  );
}

function valueAxis({ points, format, steps }, width) {
  const largest = points.reduce((most, { value }) => Math.max(most, value), 0);
  const step = tickStep(largest, steps);
  const top = Math.max(step, Math.ceil(largest / step) * step);
  const y = scale(0, top, HEIGHT - MARGIN.bottom, MARGIN.top);
  const axis = [];
  for (let value = 0; value <= top + step / 2; value += step) {
    axis.push(
      svg("line", { class: value ? "chart-grid" : "chart-base", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }),
      svg("text", { class: "chart-tick", x: MARGIN.left - 8, y: y(value) + 4, "text-anchor": "end" }, format(value)),
    );
  }
  return { y, axis };
}

function timeAxis(first, last, x, width) {
  const wanted = first === last ? 1 : Math.max(2, Math.min(6, Math.floor((width - MARGIN.left) / 130)));
  const isOfDays = last - first > ONE_AND_A_HALF_DAYS_MS;
  return Array.from({ length: wanted }, (_, index) => {
    const time = first + ((last - first) * index) / Math.max(1, wanted - 1);
    const anchor = wanted === 1 ? "middle" : index === 0 ? "start" : index === wanted - 1 ? "end" : "middle";
    return svg("text", { class: "chart-tick", x: x(time), y: HEIGHT - 8, "text-anchor": anchor }, formatTick(new Date(time), isOfDays, index === wanted - 1));
  });
}

/** Return a step that makes three to five ticks: of the given sizes, else 1, 2 or 5 times a power of ten. */
export function tickStep(largest, steps = []) {
  const least = largest / 4;
  const given = steps.find((step) => step >= least);
  if (given) return given;
  if (least <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
}

function scale(from, to, low, high) {
  return (value) => (from === to ? (low + high) / 2 : low + ((value - from) / (to - from)) * (high - low));
}

function middle(points, index, x) {
  return (x(points[index].time.getTime()) + x(points[index + 1].time.getTime())) / 2;
}
