// Values in readable form. Unknown values are an en dash.

import { airflowTimeZone } from "./airflow.js";

export const UNKNOWN = "–";

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const isKnown = (value) => value !== null && value !== undefined && !Number.isNaN(value);

/** A whole number with thousands separators. */
export function formatCount(value) {
  return isKnown(value) ? value.toLocaleString("en-US", { maximumFractionDigits: 0 }) : UNKNOWN;
}

/** "1 file", "1,200 files". */
export function formatCountOf(value, one, many = `${one}s`) {
  return isKnown(value) ? `${formatCount(value)} ${value === 1 ? one : many}` : UNKNOWN;
}

/** A number in at most four characters, for axes: 950, 1.2k, 35M. */
export function formatShort(value) {
  return value.toLocaleString("en-US", { notation: "compact", maximumFractionDigits: 1 });
}

/** Bytes in the decimal unit that leaves at most four digits. */
export function formatBytes(value) {
  if (!isKnown(value)) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value.toLocaleString("en-US", { maximumSignificantDigits: value >= 100 ? 4 : 3 })} ${units[unit]}`;
}

/** Seconds in the largest unit and the next smaller one; what remains is cut off, as `fds status` does. */
export function formatDuration(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  if (seconds < 0) return `-${formatDuration(-seconds)}`;
  if (seconds < MINUTE) return `${Math.floor(seconds * 10) / 10} s`;
  const whole = Math.floor(seconds);
  const [days, hours, minutes] = [Math.floor(whole / DAY), Math.floor((whole % DAY) / HOUR), Math.floor((whole % HOUR) / MINUTE)];
  if (days) return `${days} ${days === 1 ? "day" : "days"}${hours ? ` ${hours} h` : ""}`;
  if (hours) return `${hours} h${minutes ? ` ${minutes} min` : ""}`;
  return `${minutes} min${whole % MINUTE ? ` ${whole % MINUTE} s` : ""}`;
}

/** "12 s ago", by the largest unit alone. */
export function formatAge(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  if (seconds < 1) return "now";
  const [size, unit] =
    seconds < MINUTE ? [1, "s"] : seconds < HOUR ? [MINUTE, "min"] : seconds < DAY ? [HOUR, "h"] : [DAY, "d"];
  return `${Math.floor(seconds / size)} ${unit} ago`;
}

/** Rows per second; below 100 with two digits. */
export function formatRate(value) {
  if (!isKnown(value)) return UNKNOWN;
  return value >= 100 ? formatCount(value) : value.toLocaleString("en-US", { maximumSignificantDigits: 2 });
}

/** Seconds with one digit after the point, for columns of them. */
export function formatSeconds(value) {
  return isKnown(value) ? value.toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 }) : UNKNOWN;
}

/** An instant (ISO 8601) in the time zone that is chosen in Airflow, with the name of the zone or its offset. */
export function formatTime(iso) {
  if (!iso) return UNKNOWN;
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return iso;
  const { format, zone } = timeFormat(airflowTimeZone());
  return `${format.format(time)} ${zone.formatToParts(time).find(({ type }) => type === "timeZoneName").value}`;
}

/** An instant for the axis of a chart: the time of day, in charts of several days after the day; the last with the zone. */
export function formatTick(time, isOfDays, isLast) {
  const words = formatTime(time.toISOString());
  return words.slice(isOfDays ? 5 : 11, 16) + (isLast ? words.slice(19) : "");
}

const formats = new Map();

function timeFormat(timeZone) {
  if (!formats.has(timeZone)) {
    // Swedish writes dates as ISO 8601 does
    const format = new Intl.DateTimeFormat("sv-SE", { timeZone, dateStyle: "short", timeStyle: "medium" });
    formats.set(timeZone, { format, zone: new Intl.DateTimeFormat("en-US", { timeZone, timeZoneName: "short" }) });
  }
  return formats.get(timeZone);
}
