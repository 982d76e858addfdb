// The charts of a stream: its lag over time, and the rows of its batches.

import { barChart, timeChart } from "./charts.js";
import { formatCount, formatCountOf, formatDuration, formatShort, formatTime } from "./format.js";

/** Bars that stay readable next to each other. */
const MOST_BARS = 60;

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const DURATIONS = [1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 5 * DAY, 10 * DAY, 30 * DAY];

/** Return two charts of the lag: in versions, and as a duration. */
export function lagCharts(samples) {
  return [
    lagChart("Lag in versions", "versions not committed", pointsOf(samples, "lag_versions"), { format: formatShort, words: (value) => formatCountOf(value, "version") }),
    lagChart("Lag in time", "age of the oldest version not committed", pointsOf(samples, "lag_seconds"), { format: (value) => (value ? shortDuration(value) : "0"), steps: DURATIONS, words: formatDuration }),
  ];
}

function lagChart(title, unit, points, { format, steps, words }) {
  const describe = ({ time, value }) => `${words(value)} at ${formatTime(time.toISOString())}`;
  return timeChart({ title, unit, points, format, steps, describe, summary: summaryOf(points, describe, words) });
}

function pointsOf(samples, name) {
  return samples.filter((one) => one[name] !== null && one[name] !== undefined).map((one) => ({ time: new Date(one.at), value: one[name] }));
}

function summaryOf(points, describe, words) {
  if (!points.length) return "The lag has not been recorded yet.";
  const most = points.reduce((one, other) => (other.value > one.value ? other : one));
  return `From ${formatTime(points[0].time.toISOString())}: now ${words(points.at(-1).value)}, at most ${describe(most)}.`;
}

/** A duration of an axis: the largest unit, as all steps are whole ones. */
function shortDuration(seconds) {
  const [size, unit] = seconds < MINUTE ? [1, "s"] : seconds < HOUR ? [MINUTE, "min"] : seconds < DAY ? [HOUR, "h"] : [DAY, "d"];
  return `${formatShort(seconds / size)} ${unit}`;
}

/** Return a chart of the rows of the newest batches. */
export function rowsChart(batches) {
  const known = batches.map((one) => ({ ...one, rows: one.rows_written ?? one.rows_read })).filter(({ rows }) => rows !== null && rows !== undefined);
  const bars = known
    .slice(0, MOST_BARS)
    .reverse()
    .map((one) => ({ label: String(one.batch_id), value: one.rows, text: `batch ${one.batch_id}: ${formatCountOf(one.rows, "row")}, ${one.versions}` }));
  const total = bars.reduce((sum, { value }) => sum + value, 0);
  const summary = bars.length ? `The newest ${bars.length} batches have ${formatCount(total)} rows.` : "No batch is committed yet.";
  return barChart({ title: "Rows per batch", unit: bars.length === MOST_BARS ? `rows, newest ${MOST_BARS} batches` : "rows, by batch", bars, format: formatShort, summary });
}
