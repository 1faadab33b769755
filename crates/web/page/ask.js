// Questions: what would become of a flow, whose a public port is, where a host is seen.

import { ends, read } from "./api.js";
import { count, end } from "./format.js";
import { get, make } from "./dom.js";

export const failed = (error) => make("p", { class: "wrong", role: "alert" }, error.hint ? `${error.message}: ${error.hint}` : error.message);

// Sends a form's fields as a question, and shows the answer; of several in a row the last one's.
export function asks(form, place, ask, tell) {
  let turn = 0;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const mine = ++turn;
    place.setAttribute("aria-busy", "true");
    let told;
    try {
      told = tell(await ask(Object.fromEntries(new FormData(form))));
    } catch (error) {
      told = [failed(error)];
    }
    if (mine !== turn) return;
    place.removeAttribute("aria-busy");
    place.replaceChildren(...told);
  });
}

const packet = (p) => `${p.protocol} ${end(p.source, p.source_port)} → ${end(p.destination, p.destination_port)}, ${p.bytes} bytes`;

const FATES = {
  forwarded: ["good", "Forwarded"],
  dropped: ["bad", "Dropped"],
  passed: ["note", "Left as it is: not for the translator"],
  echo: ["good", "Answered: a ping to Gatun itself"],
  held: ["warn", "Held: it waits six seconds for the inside host to open the connection"],
  unknown: ["note", "It cannot be told before"],
};

function tellFate(told) {
  const [level, words] = FATES[told.fate] ?? ["note", told.fate];
  const nodes = [
    make("p", { class: "packet address" }, packet(told.packet)),
    make("p", { class: "fate", "data-level": level, "data-fate": told.fate }, told.reason ? `${words}: ${told.reason}` : words),
  ];
  if (told.becomes) nodes.push(make("p", { class: "packet address" }, packet(told.becomes)));
  nodes.push(make("ol", { class: "why" }, ...told.why.map((sentence) => make("li", {}, sentence))));
  return nodes;
}

function askFate({ source, destination, ...rest }) {
  const [from, fromPort] = ends(source);
  const [to, toPort] = ends(destination);
  if (rest.protocol !== "tcp") delete rest.flags;
  return read("/v1/explain", { source: from, source_port: fromPort, destination: to, destination_port: toPort, ...rest });
}

const list = (title, items) => (items.length ? [make("h3", {}, title), make("ul", { class: "plain address" }, ...items.map((item) => make("li", {}, item)))] : []);
const block = (b) => `${b.address} ports ${b.first_port}–${b.last_port} (${b.protocols.join(", ")}): ${b.subscriber} of ${b.instance}`;
const binding = (b) => `${b.protocol} ${end(b.outside, b.outside_port)} is ${end(b.inside, b.inside_port)} of ${b.instance}${b.configured ? ", configured" : ""}${b.shared ? ", shared" : ""}`;
const session = (s) => `${s.protocol} ${end(s.inside, s.inside_port)} to ${end(s.remote, s.remote_port)}, ${s.state}`;
const more = (is) => (is ? ["and more"] : []);

function tellWho(who) {
  const at = end(who.address, who.port);
  const known = who.blocks.length + who.bindings.length + who.sessions.length;
  const where = who.pool ? `of pool ${who.pool}` : "in no pool";
  const first = make("p", { class: "fate", "data-level": known ? "good" : "note" }, known ? `${at} ${where}` : `Nobody has ${at}, ${where}`);
  return [first, ...list("Bindings", who.bindings.map(binding)), ...list("Port blocks", who.blocks.map(block)), ...list("Sessions", [...who.sessions.map(session), ...more(who.more_sessions)])];
}

const OUTCOMES = {
  who: ["good", "The log knows"],
  nobody: ["note", "Nobody had it"],
  unknown: ["warn", "UNKNOWN"],
};
const holder = (h) => {
  const whom = h.subscriber ?? (h.inside ? (h.by === "mapping" ? h.inside : end(h.inside, h.inside_port)) : "somebody");
  const of = h.instance ? ` of ${h.instance}` : "";
  const to = h.to ? `to ${h.to}` : h.end ? `on; the end: ${h.end}` : "on";
  return `${whom}${of}${h.certain ? "" : " (not for certain at that time)"}: ports ${h.first_port}–${h.last_port} (${h.protocols.join(", ")}), by ${h.by}, from ${h.from ?? "a time before the log"} ${to}`;
};

function tellPast(who) {
  const [level, words] = OUTCOMES[who.outcome] ?? ["note", who.outcome];
  const first = make("p", { class: "fate", "data-level": level }, `${words}: ${end(who.address, who.port)} at ${who.at}${who.pool ? `, of pool ${who.pool}` : ""}`);
  return [first, ...list("Why it is not known", who.unknown), ...list("Holders", who.holders.map(holder)), ...list("Within a minute of that time", who.near.map(holder)), ...list("Notes", who.caveats)];
}

function tellWhere(seen) {
  if (!seen.subscribers.length) return [make("p", { class: "fate", "data-level": "note" }, `${seen.address} has no state`)];
  const nodes = seen.subscribers.map((s) =>
    make("p", { class: "fate", "data-level": "good" }, `${s.subscriber} of ${s.instance}: seen as ${s.address ?? "no address yet"}, ${count(s.sessions)} sessions`),
  );
  return [...nodes, ...list("Port blocks", seen.blocks.map(block)), ...list("Bindings", [...seen.bindings.map(binding), ...more(seen.more_bindings)])];
}

export function questions() {
  asks(get("explain-form"), get("explain-answer"), askFate, tellFate);
  const place = get("look-up-answer");
  const who = ({ outside, at }) => {
    const [address, port] = ends(outside);
    if (!port) throw Object.assign(new Error("which port?"), { hint: "write ADDRESS:PORT" });
    return at ? read("/v1/log/who", { address, port, at }) : read("/v1/who", { address, port });
  };
  asks(get("who-form"), place, who, (told) => (told.outcome ? tellPast(told) : tellWho(told)));
  asks(get("where-form"), place, ({ address }) => read("/v1/where", { address: ends(address)[0] }), tellWhere);
}
