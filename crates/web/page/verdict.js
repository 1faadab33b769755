// What needs attention, from what the daemon tells: the first thing that is read at three in the morning. Rates are over
// half a minute, so that one packet does not make an alarm. What was found stays for a while after it is gone, and a level
// that was reached is left at a lower value than it is entered at: the verdict does not flap.

import { count, percent, rate } from "./format.js";
import { notForwarded } from "./watch.js";

const SECONDS = 30;
const FULL = { warn: 0.8, bad: 0.95 };
// How far below a threshold a level that was reached is left.
const BACK = 0.03;
const LOST_SHARE = 0.05;
const LOST_MIN = 10; // a second
// How long a finding stays that is no more, milliseconds.
const LINGER_MS = 30_000;
const ORDER = ["bad", "warn", "note"];
const PARTS = { workers: "a worker", account: "the account of packets", log: "the log", export: "a collector" };

// A share's level; `was` is the one before.
export function levelOf(share, was = "") {
  const reached = (level) => share >= FULL[level] - (was === level || (level === "warn" && was === "bad") ? BACK : 0);
  return reached("bad") ? "bad" : reached("warn") ? "warn" : "";
}

// What of a pool is used most: a share, and of what.
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

// The findings of one look: each with a key that stays, a level, a culprit, a sentence, and where more is to be seen.
class Look {
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
      // Figures in it change while the trouble is the same.
      this.add(`${part} ${what.replace(/[0-9][0-9,]*/g, "")}`, urgency, PARTS[part] ?? part, sentence, "#machine");
    }
    const share = status.sessions_max ? status.sessions / status.sessions_max : 0;
    const level = this.level("sessions", share);
    if (level) {
      const text = `${percent(status.sessions, status.sessions_max)} of the sessions that there may be are open.`;
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
      if (refused) this.add(refuses, "bad", culprit, `Pool ${pool.name} could not give ports: ${rate(refused)}.`, "#pools");
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
      const text = `${percent(lost, received)} of the packets are not forwarded, most of them (${rate(most)}) for ${drop.reason}: ${drop.help}`;
      this.add("lost", "warn", `drop reason ${drop.reason}`, text, "#drops");
    }
    for (const worker of this.now.workers) {
      const handed = rates.ofNamed("workers", "number", worker.number, (one) => one.handed_lost);
      if (!handed) continue;
      const text = `Worker ${worker.number} does not keep up and loses packets that others hand it: ${rate(handed)}.`;
      this.add(`handed ${worker.number}`, "warn", `worker ${worker.number}`, text, "#machine");
    }
    if (received === 0 && rates.seconds >= 10) {
      const text = `No packets have come for ${Math.round(rates.seconds)} seconds; ${count(status.received.packets)} before that.`;
      this.add("silence", "note", "", text, "#machine");
    }
  }
}

// Judges look by look, and remembers what was found.
export class Judge {
  kept = new Map();

  // The worst level, a sentence about all that names the culprits, and the findings, the worst first.
  see(watch) {
    const { at } = watch.now;
    const { found } = new Look(watch, this.kept);
    for (const [key, one] of this.kept) {
      if (!found.has(key) && one.level !== "note" && at - one.at < LINGER_MS) found.set(key, one);
    }
    // What this look has found is as old as the look; the rest keeps its time.
    for (const one of found.values()) one.at ??= at;
    this.kept = found;
    const all = [...found.values()].sort((a, b) => ORDER.indexOf(a.level) - ORDER.indexOf(b.level));
    const serious = all.filter((one) => one.level !== "note");
    const level = all[0]?.level ?? "good";
    const culprits = [...new Set(serious.map((one) => one.culprit))].join(", ");
    return { level, text: culprits ? `Needs attention: ${culprits}.` : "Nothing needs attention.", found: all };
  }
}
