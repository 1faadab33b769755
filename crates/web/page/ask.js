// Queries: explain a flow, find the subscriber of a public port, find the public address of a host.

import { ends, read } from "./api.js";
import { end, many } from "./format.js";
import { get, make } from "./dom.js";

export const failed = (error) => make("p", { class: "wrong", role: "alert" }, error.hint ? `${error.message}: ${error.hint}` : error.message);

// Sends a form's fields as a query and shows the answer. Of several queries in a row, only the last answer is shown.
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
  passed: ["note", "Passed unchanged: not for the translator"],
  echo: ["good", "Echo reply: a ping to Gatun itself"],
  held: ["warn", "Held for six seconds, until the inside host opens the connection"],
  unknown: ["note", "Cannot be predicted"],
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

// Other boxes of a pair or a cluster may know what this one does not.
const ELSEWHERE = "The other boxes were not asked: `gatun who` asks all of them.";
const elsewhere = (who) => list("Not asked", who.elsewhere ? [ELSEWHERE] : []);

async function withOthers(who) {
  if (who.outcome === "who") return who;
  const [cluster, peer] = await Promise.all([read("/v1/cluster"), read("/v1/peer")]);
  return { ...who, elsewhere: Boolean(peer.member) || cluster.nodes.some((node) => !node.is_this) };
}

function tellWho(who) {
  const at = end(who.address, who.port);
  const where = who.pool ? `of pool ${who.pool}` : "in no pool";
  const [level, words] = { who: ["good", ""], nobody: ["note", who.elsewhere ? ": no subscriber here" : ": no subscriber"] }[who.outcome] ?? ["warn", ": UNKNOWN"];
  const first = make("p", { class: "fate", "data-level": level }, `${at} ${where}${words}`);
  return [first, ...elsewhere(who), ...list("Reasons", who.unknown), ...list("By configuration", who.planned.map(planned)), ...list("Bindings", who.bindings.map(binding)), ...list("Port blocks", who.blocks.map(block)), ...list("Sessions", [...who.sessions.map(session), ...more(who.more_sessions)])];
}

const OUTCOMES = {
  who: ["good", "Found in the log"],
  nobody: ["note", "No subscriber"],
  unknown: ["warn", "UNKNOWN"],
};
const holder = (h) => {
  const whom = h.subscriber ?? (h.inside ? (h.by === "mapping" ? h.inside : end(h.inside, h.inside_port)) : "unknown subscriber");
  const of = h.instance ? ` of ${h.instance}` : "";
  const to = h.to ? `to ${h.to}` : h.end ? `(end: ${h.end})` : "(no end)";
  return `${whom}${of}${h.certain ? "" : " (uncertain at that time)"}: ports ${h.first_port}–${h.last_port} (${h.protocols.join(", ")}), by ${h.by}, from ${h.from ?? "before the log"} ${to}`;
};

const planned = (h) => (h.by === "mapping" ? `mapped one to one to ${h.inside ?? h.subscriber} (siit ${h.instance})` : `ports ${h.first_port}–${h.last_port}: ${h.subscriber} of ${h.instance}, by formula; no binding at this moment`);

function tellPast(who) {
  const [level, words] = OUTCOMES[who.outcome] ?? ["note", who.outcome];
  const here = who.elsewhere && who.outcome === "nobody" ? " here" : "";
  const first = make("p", { class: "fate", "data-level": level }, `${words}${here}: ${end(who.address, who.port)} at ${who.at}${who.pool ? `, of pool ${who.pool}` : ""}`);
  return [first, ...elsewhere(who), ...list("Reasons", who.unknown), ...list("Holders", who.holders.map(holder)), ...list("Within a minute of that time", who.near.map(holder)), ...list("Notes", who.caveats)];
}

function tellWhere(seen) {
  if (!seen.subscribers.length) return [make("p", { class: "fate", "data-level": "note" }, `${seen.address} has no sessions or bindings`)];
  const nodes = seen.subscribers.map((s) =>
    make("p", { class: "fate", "data-level": "good" }, `${s.subscriber} of ${s.instance}: public address ${s.address ?? "none yet"}, ${many(s.sessions, "session")}`),
  );
  return [...nodes, ...list("Port blocks", seen.blocks.map(block)), ...list("Bindings", [...seen.bindings.map(binding), ...more(seen.more_bindings)])];
}

export function questions() {
  asks(get("explain-form"), get("explain-answer"), askFate, tellFate);
  const place = get("look-up-answer");
  const who = async ({ outside, at }) => {
    const [address, port] = ends(outside);
    if (!port) throw Object.assign(new Error("missing port"), { hint: "write ADDRESS:PORT, as 192.0.2.7:41822" });
    return withOthers(await (at ? read("/v1/log/who", { address, port, at }) : read("/v1/who", { address, port })));
  };
  asks(get("who-form"), place, who, (told) => ("at" in told ? tellPast(told) : tellWho(told)));
  asks(get("where-form"), place, ({ address }) => read("/v1/where", { address: ends(address)[0] }), tellWhere);
}
