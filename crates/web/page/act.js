// What a token that may write allows beside reading: to end sessions, and to drain addresses.

import { act } from "./api.js";
import { failed } from "./ask.js";
import { count } from "./format.js";
import { get, make, say } from "./dom.js";
import { filter } from "./sessions.js";

// What of a filter is filled in.
function said(fields) {
  return Object.fromEntries(Object.entries(filter(fields)).filter(([, value]) => value !== ""));
}

// Whether somebody is sure; a dialog that is left by Escape says no.
function sure(text) {
  const dialog = get("sure");
  say("sure-text", text);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

async function clear(form) {
  const which = said(Object.fromEntries(new FormData(form)));
  const told = get("cleared");
  if (!Object.keys(which).length) return say(told, "Say which first: without any address or protocol all would end.");
  const words = Object.entries(which).map(([name, value]) => `${name.replace("_", " ")} ${value}`);
  if (!(await sure(`End every session of ${words.join(", ")}?`))) return say(told, "Nothing was ended.");
  try {
    const ended = await act("DELETE", "/v1/sessions", which);
    say(told, `Ended: ${count(ended.sessions)} sessions, ${count(ended.bindings)} bindings.`);
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
  if (!address && !pool) return say(told, "Say which first: an address, a prefix, or a pool.");
  if (!address && draining && !(await sure(`Drain every address of pool ${pool}?`))) return say(told, "Nothing was drained.");
  const of = pool ? ` of pool ${pool}` : "";
  try {
    const path = draining ? "/v1/addresses/drain" : "/v1/addresses/undrain";
    const { addresses } = await act("POST", path, which);
    say(told, `${draining ? "Drained" : "Drained no longer"}: ${count(addresses)} ${addresses === 1 ? "address" : "addresses"}${of}.`);
  } catch (error) {
    told.replaceChildren(failed(error));
  }
}

// The pools there are, to choose from; the choice stays while its pool does.
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
    say("access", `You are ${name}, and may ${may_write ? "read, end sessions, and drain addresses" : "read, and change nothing"}${may_audit ? ", and ask the log" : ""}.`);
  });
}
