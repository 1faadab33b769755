// Findings that need attention, from the daemon's counters: the first thing an operator reads. Rates cover half
// a minute, so that a single packet raises no alarm. A finding stays for a while after it has ended, and a
// level is left at a lower value than it is entered, so that the verdict does not flap.

import { count, percent, rate } from "./format.js";
import { notForwarded } from "./watch.js";

const SECONDS = 30;
const FULL = { warn: 0.8, bad: 0.95 };
// Hysteresis: a level is left this far below its threshold.
const BACK = 0.03;
const LOST_SHARE = 0.05;
const LOST_MIN = 10; // a second
// Milliseconds for which an ended finding stays.
const LINGER_MS = 30_000;
const ORDER = ["bad", "warn", "note"];
const PARTS = { workers: "a worker", account: "the packet counters", log: "the log", export: "a collector" };

// Level of a share. `was` is the previous level.
export function levelOf(share, was = "") {
  const reached = (level) => share >= FULL[level] - (was === level || (level === "warn" && was === "bad") ? BACK : 0);
  return reached("bad") ? "bad" : reached("warn") ? "warn" : "";
}

// Most used resource of a pool: its share and name.
export function fullest(pool) {
  const of = [
    [pool.tcp.used, pool.tcp.total, "TCP ports"],
    [pool.udp.used, pool.udp.total, "UDP ports"],
    [pool.icmp.used, pool.icmp.total, "ICMP identifiers"],
  ];
  if (pool.blocks) of.push([pool.blocks.owned + pool.blocks.held, pool.blocks.total, "port blocks"]);
  const shares = of.map(([used, total, what]) => ({ share: total ? used / total : 0, used, total, what }));
  return shares.reduce((most, one) => (one.share > most.share ? one : most));
}

// Findings of one sample: each has a stable key, a level, a culprit, a sentence, and a link to details.
class Sample {
  found = new Map();

  constructor(watch, before) {
    Object.assign(this, { now: watch.now, rates: watch.rates(SECONDS), before });
    this.ofDaemon();
    this.ofPools();
    this.ofPackets();
  }

  add(key, level, culprit, text, where) {
    this.found.set(key, { key, level, culprit, text, where });
  }

  level(key, share) {
    return levelOf(share, this.before.get(key)?.level);
  }

  ofDaemon() {
    const { status } = this.now;
    for (const { urgency, part, what } of status.troubles ?? []) {
      const sentence = `${what[0].toUpperCase()}${what.slice(1)}.`;
      // Figures in the text change while the trouble stays the same.
      this.add(`${part} ${what.replace(/[0-9][0-9,]*/g, "")}`, urgency, PARTS[part] ?? part, sentence, "#machine");
    }
    const share = status.sessions_max ? status.sessions / status.sessions_max : 0;
    const level = this.level("sessions", share);
    if (level) {
      const text = `${percent(status.sessions, status.sessions_max)} of the session table is in use.`;
      this.add("sessions", level, "the session table", text, "#sessions");
    }
  }

  ofPools() {
    for (const pool of this.now.pools) {
      const { share, used, total, what } = fullest(pool);
      const [culprit, full, refuses] = [`pool ${pool.name}`, `pool ${pool.name} full`, `pool ${pool.name} refuses`];
      const level = this.level(full, share);
      if (level) this.add(full, level, culprit, `Pool ${pool.name}: ${percent(used, total)} of its ${what} are in use.`, "#pools");
      const refused = this.rates.ofNamed("pools", "name", pool.name, (one) => one.refused);
      if (refused) this.add(refuses, "bad", culprit, `Pool ${pool.name} refused ports: ${rate(refused)}.`, "#pools");
    }
  }

  ofPackets() {
    const { rates } = this;
    const { status, drops } = this.now;
    const lost = rates.of((s) => s.drops.reduce((sum, drop) => sum + notForwarded(drop), 0));
    const received = rates.of((s) => s.status.received.packets);
    if (lost > LOST_MIN && lost > received * LOST_SHARE) {
      const by = drops.map((drop) => [rates.ofNamed("drops", "reason", drop.reason, notForwarded) ?? 0, drop]);
      const [most, drop] = by.reduce((best, one) => (one[0] > best[0] ? one : best));
      const text = `${percent(lost, received)} of the packets are dropped. Most frequent drop reason (${rate(most)}): ${drop.reason}: ${drop.help}`;
      this.add("lost", "warn", `drop reason ${drop.reason}`, text, "#drops");
    }
    for (const worker of this.now.workers) {
      const handed = rates.ofNamed("workers", "number", worker.number, (one) => one.handed_lost);
      if (!handed) continue;
      const text = `Worker ${worker.number} is overloaded and loses packets from other workers: ${rate(handed)}.`;
      this.add(`handed ${worker.number}`, "warn", `worker ${worker.number}`, text, "#machine");
    }
    if (received === 0 && rates.seconds >= 10) {
      const text = `No packets received for ${Math.round(rates.seconds)} seconds (${count(status.received.packets)} since the start).`;
      this.add("silence", "note", "", text, "#machine");
    }
  }
}

// Judges sample by sample and remembers findings.
export class Judge {
  kept = new Map();

  // Worst level, a summary that names the culprits, and the findings, worst first.
  see(watch) {
    const { at } = watch.now;
    const { found } = new Sample(watch, this.kept);
    for (const [key, one] of this.kept) {
      if (!found.has(key) && one.level !== "note" && at - one.at < LINGER_MS) found.set(key, one);
    }
    // New findings get the sample's time. Older ones keep theirs.
    for (const one of found.values()) one.at ??= at;
    this.kept = found;
    const all = [...found.values()].sort((a, b) => ORDER.indexOf(a.level) - ORDER.indexOf(b.level));
    const serious = all.filter((one) => one.level !== "note");
    const level = all[0]?.level ?? "good";
    const culprits = [...new Set(serious.map((one) => one.culprit))].join(", ");
    return { level, text: culprits ? `Needs attention: ${culprits}.` : "Nothing needs attention.", found: all };
  }
}
