// Requests to the server of this page, and to no other.

const KEY = "gatun-key";
const PATIENCE_MS = 8000;

// Reason for a missing answer. `status` is 0 if the server did not answer at all.
export class Problem extends Error {
  constructor(status, error, hint = "") {
    super(error);
    this.status = status;
    this.hint = hint;
  }
}

// The key stays in the address only until it is read. Browsers never send the part after #.
const given = new URLSearchParams(location.hash.slice(1)).get("key");
if (given) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname);
}

export function useKey(text) {
  sessionStorage.setItem(KEY, text);
}

async function open(method, path, query, signal) {
  const target = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query)) {
    if (value !== "" && value !== undefined) target.searchParams.set(name, value);
  }
  const key = sessionStorage.getItem(KEY);
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  let response;
  try {
    response = await fetch(target, { method, headers, signal, cache: "no-store", redirect: "error" });
  } catch (error) {
    const late = error.name === "TimeoutError";
    throw new Problem(0, late ? "the server did not answer in time" : "the server does not answer");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  throw new Problem(response.status, said.error ?? `HTTP status ${response.status}`, said.hint);
}

async function whole(method, path, query) {
  const response = await open(method, path, query, AbortSignal.timeout(PATIENCE_MS));
  try {
    return await response.json();
  } catch {
    throw new Problem(0, "incomplete answer");
  }
}

// Result of an action.
export const act = (method, path, query = {}) => whole(method, path, query);

// Whole answer.
export const read = (path, query = {}) => whole("GET", path, query);

// Lines as they arrive, several at a time.
export async function* lines(path, signal) {
  const response = await open("GET", path, {}, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const some = (rest + value).split("\n");
    rest = some.pop();
    yield some;
  }
}

// Address and port of "[2001:db8::5]:5000", "192.0.2.7:53", or an address alone.
export function ends(text) {
  const found = text.trim().match(/^\[([^\]]+)\](?::(\d+))?$/) ?? text.trim().match(/^([^:]+):(\d+)$/);
  return found ? [found[1], found[2] ?? ""] : [text.trim(), ""];
}
