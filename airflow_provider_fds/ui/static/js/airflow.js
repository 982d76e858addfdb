// What the page shares with Airflow's UI around it: theme, time zone, addresses, navigation.

/** Return the address of a page of Airflow's UI, below which the page of streams is mounted. */
export function airflowUrl(path) {
  return new URL(`../${path}`, document.baseURI.split("#")[0]).href;
}

/** Return the address of a task: that of a run if one is known, else that of the DAG. */
export function taskUrl({ dag_id: dagId, task_id: taskId, run_id: runId }) {
  const parts = ["dags", dagId, ...(runId ? ["runs", runId] : []), ...(taskId ? ["tasks", taskId] : [])];
  return airflowUrl(parts.map(encodeURIComponent).join("/"));
}

/** Return the address of Airflow's sign-in, which leads back to where the person is. */
export function signInUrl() {
  return airflowUrl(`api/v2/auth/login?next=${encodeURIComponent((airflowWindow() ?? window).location.href)}`);
}

/**
 * Let a link leave the page. Airflow shows the page in a sandboxed iframe that may not navigate the window around it,
 * so the link is followed by a link of that window's own document. A click with a modifier is the browser's.
 */
export function followInAirflow(event) {
  const around = airflowWindow();
  if (!around || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button !== 0) return;
  event.preventDefault();
  const link = around.document.createElement("a");
  link.href = event.currentTarget.href;
  around.document.body.append(link);
  link.click();
  link.remove();
}

/** Show the page's location in the address bar, where Airflow restores it from. */
export function showLocationInAirflow() {
  const around = airflowWindow();
  // Airflow 3.3 appends the path of the iframe to its own; older ones do not restore it
  if (!around || !around.location.pathname.endsWith(window.location.pathname)) return;
  around.history.replaceState(around.history.state, "", around.location.pathname + around.location.search + window.location.hash);
}

function airflowWindow() {
  if (window.parent === window) return null;
  try {
    return window.parent.document ? window.parent : null;
  } catch {
    return null; // another origin
  }
}

function stored(key) {
  try {
    return window.localStorage.getItem(key);
  } catch {
    return null; // storage is off
  }
}

/** Return the time zone that is chosen in Airflow, else the browser's. */
export function airflowTimeZone() {
  const value = stored("timezone");
  if (!value) return undefined;
  try {
    const zone = JSON.parse(value);
    new Intl.DateTimeFormat("en", { timeZone: zone });
    return zone;
  } catch {
    return undefined;
  }
}

/** Follow the theme that is chosen in Airflow; without a choice, the one of the system. */
export function followTheme() {
  const apply = () => {
    const theme = stored("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  apply();
  window.addEventListener("storage", apply);
}
