// Actions of a token with write access: ending sessions, and draining addresses.

import { act } from "./api.js";
import { failed } from "./ask.js";
import { count, many } from "./format.js";
import { get, make, say } from "./dom.js";
import { filter } from "./sessions.js";

// Fields of a filter that are filled in.
function said(fields) {
  return Object.fromEntries(Object.entries(filter(fields)).filter(([, value]) => value !== ""));
}

// Asks for confirmation, with the effect. Closing the dialog with Escape means no.
export function sure(text, note) {
  const dialog = get("sure");
  say("sure-text", text);
  say("sure-note", note);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

async function clear(form) {
  const which = said(Object.fromEntries(new FormData(form)));
  const told = get("cleared");
  if (!Object.keys(which).length) return say(told, "Enter a filter first: an empty filter would end all sessions.");
  const words = Object.entries(which).map(([name, value]) => `${name.replace("_", " ")} ${value}`);
  const note = "Active hosts open new sessions with their next packet. Connections may break.";
  if (!(await sure(`End all sessions with ${words.join(", ")}?`, note))) return say(told, "No session was ended.");
  try {
    const ended = await act("DELETE", "/v1/sessions", which);
    say(told, `Ended ${many(ended.sessions, "session")} and ${many(ended.bindings, "binding")}.`);
    form.requestSubmit();
  } catch (error) {
    told.replaceChildren(failed(error));
  }
}

async function drain(event) {
  event.preventDefault();
  const [form, told] = [event.target, get("drained")];
  const draining = event.submitter?.value !== "undrain";
  const which = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value));
  const { address, pool } = which;
  if (!address && !pool) return say(told, "Enter an address, a prefix, or a pool first.");
  const note = "They get no new bindings. Existing bindings, and new sessions on them, keep working.";
  if (!address && draining && !(await sure(`Drain all addresses of pool ${pool}?`, note))) return say(told, "No address was drained.");
  const of = pool ? ` of pool ${pool}` : "";
  try {
    const path = draining ? "/v1/addresses/drain" : "/v1/addresses/undrain";
    const { addresses } = await act("POST", path, which);
    say(told, `${draining ? "Drained" : "Undrained"}: ${count(addresses)} ${addresses === 1 ? "address" : "addresses"}${of}.`);
  } catch (error) {
    told.replaceChildren(failed(error));
  }
}

// Offers the present pools. The selection stays while its pool exists.
function pools(watch) {
  const choice = get("drain-form").elements.pool;
  const names = ["", ...watch.now.pools.map((pool) => pool.name)];
  if (names.join("\n") === [...choice.options].map((one) => one.value).join("\n")) return;
  const chosen = choice.value;
  choice.replaceChildren(...names.map((name) => make("option", { value: name }, name || "any")));
  choice.value = names.includes(chosen) ? chosen : "";
}

export function acts(watch) {
  const form = get("sessions-form");
  get("clear").addEventListener("click", () => clear(form));
  get("drain-form").addEventListener("submit", drain);
  get("other-key").addEventListener("click", () => {
    get("key").hidden = false;
    get("key-text").focus();
  });
  watch.addEventListener("sample", () => pools(watch));
  watch.addEventListener("facts", () => {
    const { name, may_write, may_audit } = watch.access;
    get("who-at").hidden = !may_audit;
    for (const id of ["clear", "drain-form"]) get(id).hidden = !may_write;
    say("access", `Signed in as ${name} (${may_write ? "read and write" : "read-only"}${may_audit ? ", log access" : ""}).`);
  });
}
