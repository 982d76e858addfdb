// The page's requests. Airflow's session cookie goes with them, because they have the same origin.

const TIMEOUT_MS = 30_000;

/** A request that failed: what happened and what to do, in words. `status` is 0 if there was no answer. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const fetchStreams = () => request("api/streams");

export const fetchStream = (id) => request(`api/streams/${encodeURIComponent(id)}`);

export const previewAction = (id, action, body) => request(`${actionPath(id, action)}/preview`, body);

export const performAction = (id, action, body) => request(actionPath(id, action), body);

const actionPath = (id, action) => `api/streams/${encodeURIComponent(id)}/actions/${encodeURIComponent(action)}`;

async function request(path, body) {
  const options = { credentials: "same-origin", headers: { Accept: "application/json", "X-FDS-Request": "page" } };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, { ...options, signal: AbortSignal.timeout(TIMEOUT_MS) });
  } catch (error) {
    const why = error.name === "TimeoutError" ? `did not answer within ${TIMEOUT_MS / 1000} s` : "cannot be reached";
    throw new ApiError(0, `Airflow's API server ${why}. Check that it is running, and your network.`);
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new ApiError(response.status, describe(response.status, answer?.detail));
  if (answer === null) throw new ApiError(response.status, "The response is not JSON. Is there a proxy in front of Airflow's API server?");
  return answer;
}

function describe(status, detail) {
  if (status === 401) return "Your session has ended. Sign in to Airflow again.";
  if (Array.isArray(detail)) detail = detail.map((one) => `${(one.loc ?? []).slice(1).join(".")}: ${one.msg}`).join("; ");
  if (typeof detail === "string" && detail && detail !== "Forbidden") return detail;
  if (status === 403) return "You do not have the right to do this. Ask an Airflow administrator for it.";
  if (status === 404) return "There is no such stream. The stream or its status file may have been removed.";
  if (status === 409) return "The stream has changed since the preview. Preview the action again.";
  return `Airflow's API server responded with status ${status}. See its log.`;
}

/** Return an identifier of one request, so that a repetition does nothing. */
export function newRequestId() {
  if (window.crypto.randomUUID) return window.crypto.randomUUID();
  // randomUUID needs a secure context; Airflow may be served by plain HTTP
  const bytes = window.crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
