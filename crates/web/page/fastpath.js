// Kernel fast path: fill of its table, sessions given and refused, and the reasons for which packets reach Gatun.

import { count, many, percent, rate } from "./format.js";
import { get, Meter, say, Table } from "./dom.js";

// Share of the room from which on Gatun keeps sessions itself soon.
const FULL_SOON = 0.9;
// Reasons that are shown.
const REASONS_MAX = 3;

export class FastPath {
  fill = new Meter("Sessions");
  before = null;

  constructor(watch) {
    this.watch = watch;
    get("fastpath-fill").replaceChildren(this.fill.node);
    this.reasons = new Table(get("fastpath-reasons"), {
      caption: "Packets that the kernel passed to the device, most frequent reasons",
      key: (reason) => reason.name,
      nothing: "The kernel has translated all packets.",
      columns: [
        { title: "Reason", text: (reason) => reason.name },
        { title: "Meaning", text: (reason) => reason.help },
        { title: "Passed to the device", kind: "number", text: (reason) => count(reason.device) },
        { title: "per second", kind: "number", text: (reason) => (reason.per_s === null ? "–" : rate(reason.per_s)) },
        { title: "Passed by XDP", kind: "number", text: (reason) => count(reason.xdp) },
      ],
    });
    watch.addEventListener("sample", () => this.show());
  }

  show() {
    const { fastpath, at } = this.watch.now;
    const is_wanted = Boolean(fastpath) && fastpath.state !== "off";
    get("fastpath").hidden = !is_wanted;
    if (!is_wanted) return;
    const { sessions, sessions_max, instances } = fastpath;
    const share = sessions_max ? sessions / sessions_max : 0;
    const level = share >= 1 ? "bad" : share >= FULL_SOON ? "warn" : "good";
    this.fill.show(share, `${count(sessions)} of ${count(sessions_max)}, ${percent(sessions, sessions_max)}`, level);
    const given = `${many(fastpath.installed, "session")} given to the kernel, ${rate(fastpath.installed_per_second)}`;
    const refusals = [
      [fastpath.refused_full, "the table is full"],
      [fastpath.refused_other, "other"],
    ].filter(([n]) => n > 0);
    const refused = refusals.length ? refusals.map(([n, what]) => `${count(n)} (${what})`).join(", ") : "none";
    say("fastpath-sub", `${given}; refused: ${refused}`);
    const sum = (field) => instances.reduce((sum, one) => sum + one[field], 0);
    const [translated, xdp, dropped] = ["translated", "xdp_translated", "dropped"].map(sum);
    const words = [
      `${many(translated, "packet")} translated${xdp ? `, ${count(xdp)} of them by XDP` : ""}`,
      dropped ? `${many(dropped, "packet")} dropped` : null,
      fastpath.state === "on" ? null : `not in use: ${fastpath.why ?? fastpath.state}`,
      fastpath.error,
    ];
    say("fastpath-more", words.filter(Boolean).join("; "));
    this.showReasons(instances, at);
  }

  showReasons(instances, at) {
    const reasons = new Map();
    const add = (counters, field) => {
      for (const { name, value, help } of counters) {
        const reason = reasons.get(name) ?? { name, help, device: 0, xdp: 0, per_s: null };
        reason[field] += value;
        reasons.set(name, reason);
      }
    };
    for (const one of instances) {
      add(one.passed, "device");
      add(one.xdp_passed, "xdp");
    }
    const { before } = this;
    if (before && at > before.at) {
      for (const reason of reasons.values()) {
        // Tables that are created again count from zero.
        const more = Math.max(0, reason.device - (before.reasons.get(reason.name)?.device ?? 0));
        reason.per_s = (more * 1000) / (at - before.at);
      }
    }
    this.before = { at, reasons };
    const some = [...reasons.values()].filter((reason) => reason.device + reason.xdp > 0);
    some.sort((a, b) => (b.per_s ?? 0) - (a.per_s ?? 0) || b.device + b.xdp - (a.device + a.xdp));
    this.reasons.show(some.slice(0, REASONS_MAX));
  }
}
