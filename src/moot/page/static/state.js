// The address is the state: whatever is on the screen can be sent to somebody as a link.

export const FILTERS = ["set", "q", "alarm", "failed", "correct", "winner", "same", "disagree", "signal", "error", "from", "to", "sort"];

export function here() {
  return new URLSearchParams(location.search);
}

export function link(values) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const each of [value].flat()) if (each !== null && each !== undefined && each !== "") query.append(name, each);
  }
  const text = query.toString().replaceAll("%2F", "/");
  return text ? `/?${text}` : "/";
}

// Everything in the address, as an object for link().
export function now() {
  const values = {};
  for (const name of new Set(here().keys())) {
    const all = here().getAll(name);
    values[name] = all.length > 1 ? all : all[0];
  }
  return values;
}

export function filters(query = here()) {
  return Object.fromEntries(FILTERS.filter((name) => query.get(name)).map((name) => [name, query.get(name)]));
}

export function go(values, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", link(values));
  dispatchEvent(new Event("moved"));
}

// Changes the address without drawing anew, for what the view has already shown.
export function note(values) {
  history.replaceState(null, "", link({ ...now(), ...values }));
}

export async function ask(path, values = {}, signal = undefined) {
  const answer = await fetch(`/api/${path}${link(values).slice(1)}`, { signal });
  if (answer.status === 403 && !answer.headers.get("content-type")?.includes("json"))
    throw new Error("moot view was started anew: open the address that it printed");
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error ?? `the server answered ${answer.status}`);
  return body;
}
