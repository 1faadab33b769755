// P4 switches: each with its state and sessions, their fill, and the packets that they gave to Gatun or dropped.

import { count, duration, many, percent, rate } from "./format.js";
import { get, make, mark, Meter, say, Table } from "./dom.js";

const PHASES = {
  ready: ["good", "in use"],
  reading: ["warn", "being read"],
  standby: ["warn", "another controller is the primary one"],
  down: ["bad", "not connected"],
  gone: ["bad", "declared gone"],
};

// Share of the room from which on Gatun keeps sessions itself soon.
const FULL_SOON = 0.9;

class Switch {
  constructor() {
    this.title = make("h3", {});
    this.facts = make("ul", { class: "plain" });
    this.node = make("div", { class: "box" }, this.title, this.facts);
  }

  show(one) {
    const [level, words] = PHASES[one.phase] ?? ["warn", one.phase];
    say(this.title, `${one.name}: ${words} for ${duration(one.phase_s)}`);
    mark(this.node, "data-level", level);
    mark(this.node, "data-owner", String(one.phase === "ready"));
    mark(this.node, "data-gone", String(one.phase === "gone"));
    const numbers = [
      [one.changing, "being changed"],
      [one.moving, "moving"],
      [one.unknown, "unknown"],
      [one.refused, "refused"],
    ];
    const lines = [many(one.sessions, "session"), ...numbers.filter(([n]) => n > 0).map(([n, what]) => `${count(n)} ${what}`)];
    if (one.why && one.phase !== "ready") lines.push(one.why);
    if (this.facts.childElementCount !== lines.length) this.facts.replaceChildren(...lines.map(() => make("li", {})));
    lines.forEach((line, n) => say(this.facts.children[n], line));
  }
}

export class Switches {
  boxes = new Map();
  fill = new Meter("Sessions");
  before = null;

  constructor(watch) {
    this.watch = watch;
    get("switches-fill").replaceChildren(this.fill.node);
    this.reasons = new Table(get("switches-reasons"), {
      caption: "Packets that the switches did not translate, by reason",
      key: (reason) => reason.name,
      nothing: "The switches have translated all packets.",
      columns: [
        { title: "Reason", text: (reason) => reason.name },
        { title: "To Gatun", kind: "number", text: (reason) => count(reason.given) },
        { title: "per second", kind: "number", text: (reason) => (reason.per_s === null ? "–" : rate(reason.per_s)) },
        { title: "Over the limit", kind: "number", text: (reason) => count(reason.over) },
        { title: "Dropped", kind: "number", text: (reason) => count(reason.dropped) },
      ],
    });
    watch.addEventListener("sample", () => this.show());
  }

  show() {
    const { offload, at } = this.watch.now;
    const has_any = Boolean(offload?.switches?.length);
    get("switches").hidden = !has_any;
    if (!has_any) return;
    const known = this.boxes;
    this.boxes = new Map(offload.switches.map((one) => [one.name, known.get(one.name) ?? new Switch()]));
    const nodes = [...this.boxes.values()].map((box) => box.node);
    const picture = get("switches-picture");
    if (picture.childElementCount !== nodes.length || nodes.some((node, n) => picture.children[n] !== node)) picture.replaceChildren(...nodes);
    offload.switches.forEach((one) => this.boxes.get(one.name).show(one));

    const { sessions, sessions_max } = offload;
    const share = sessions_max ? sessions / sessions_max : 0;
    const level = share >= 1 ? "bad" : share >= FULL_SOON ? "warn" : "good";
    this.fill.show(share, `${count(sessions)} of ${count(sessions_max)}, ${percent(sessions, sessions_max)}`, level);
    const why = [offload.state === "on" ? null : `not in use: ${offload.why ?? offload.state}`, offload.error].filter(Boolean);
    const given = `${many(offload.installed, "session")} given to the switches, ${rate(offload.installed_per_second)}`;
    const refusals = [
      [offload.refused_full, "table full"],
      [offload.refused_unready, "no switch in use"],
      [offload.refused_other, "other"],
    ].filter(([n]) => n > 0);
    const refused = refusals.length ? refusals.map(([n, what]) => `${count(n)} (${what})`).join(", ") : "none";
    say("switches-sub", [given, `refused: ${refused}`].join("; "));
    say("switches-more", [`${many(offload.packets, "packet")} translated by the switches`, ...why].join("; "));
    this.showReasons(offload.switches, at);
  }

  showReasons(switches, at) {
    const reasons = new Map();
    const add = (counters, field) => {
      for (const { name, value } of counters) {
        const reason = reasons.get(name) ?? { name, given: 0, over: 0, dropped: 0, per_s: null };
        reason[field] += value;
        reasons.set(name, reason);
      }
    };
    for (const one of switches) {
      add(one.to_controller, "given");
      add(one.over_limit, "over");
      add(one.dropped, "dropped");
    }
    const { before } = this;
    if (before && at > before.at) {
      for (const reason of reasons.values()) {
        // A switch that has started again counts from zero.
        const more = Math.max(0, reason.given - (before.reasons.get(reason.name)?.given ?? 0));
        reason.per_s = (more * 1000) / (at - before.at);
      }
    }
    this.before = { at, reasons };
    this.reasons.show([...reasons.values()].sort((a, b) => b.given + b.over + b.dropped - (a.given + a.over + a.dropped)));
  }
}
