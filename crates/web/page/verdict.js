// What needs attention, from what the daemon tells: the first thing that is read at three in the morning. Rates are over
// half a minute, so that one packet does not make an alarm.

import { count, percent, rate } from "./format.js";
import { notForwarded } from "./watch.js";

const SECONDS = 30;
const FULL = { warn: 0.8, bad: 0.95 };
const LOST_SHARE = 0.05;
const LOST_MIN = 10; // a second

const level = (share) => (share >= FULL.bad ? "bad" : share >= FULL.warn ? "warn" : "");

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

export const levelOf = level;

function ofDaemon({ status }, found) {
  if (status.workers_silent) {
    found.push(["bad", `${status.workers_silent} of ${status.workers} workers do not answer: what is shown lacks theirs.`, "#machine"]);
  }
  if (!status.adds_up) found.push(["bad", "Packets are missing from the account. This is a defect: please report it.", "#machine"]);
  const share = status.sessions_max ? status.sessions / status.sessions_max : 0;
  if (level(share)) {
    found.push([level(share), `${percent(status.sessions, status.sessions_max)} of the sessions that there may be are open.`, "#sessions"]);
  }
}

function ofPools({ pools }, rates, found) {
  for (const pool of pools) {
    const { share, used, total, what } = fullest(pool);
    if (level(share)) found.push([level(share), `Pool ${pool.name}: ${percent(used, total)} of its ${what} are in use.`, "#pools"]);
    const refused = rates.ofNamed("pools", "name", pool.name, (one) => one.refused);
    if (refused) found.push(["bad", `Pool ${pool.name} could not give ports: ${rate(refused)}.`, "#pools"]);
  }
}

function ofPackets({ status, drops }, rates, found) {
  const lost = rates.of((s) => s.drops.reduce((sum, drop) => sum + notForwarded(drop), 0));
  const received = rates.of((s) => s.status.received.packets);
  if (lost > LOST_MIN && lost > received * LOST_SHARE) {
    const by = drops.map((drop) => [rates.ofNamed("drops", "reason", drop.reason, notForwarded) ?? 0, drop]);
    const [most, drop] = by.reduce((best, one) => (one[0] > best[0] ? one : best));
    found.push(["warn", `${percent(lost, received)} of the packets are not forwarded, most of them (${rate(most)}) for ${drop.reason}: ${drop.help}`, "#drops"]);
  }
  const handed = rates.of((s) => s.workers.reduce((sum, worker) => sum + worker.handed_lost, 0));
  if (handed) found.push(["warn", `Packets are lost between workers, as one does not keep up: ${rate(handed)}.`, "#machine"]);
  if (received === 0 && rates.seconds >= 10) {
    found.push(["note", `No packets have come for ${Math.round(rates.seconds)} seconds; ${count(status.received.packets)} before that.`, "#machine"]);
  }
}

// Level, sentence and where more is to be seen, the worst first; and a sentence about all.
export function judge(watch) {
  const [now, rates, found] = [watch.now, watch.rates(SECONDS), []];
  ofDaemon(now, found);
  ofPools(now, rates, found);
  ofPackets(now, rates, found);
  const order = ["bad", "warn", "note"];
  found.sort((a, b) => order.indexOf(a[0]) - order.indexOf(b[0]));
  const serious = found.filter(([of]) => of !== "note").length;
  const worst = found[0]?.[0] ?? "good";
  if (!serious) return { level: worst === "note" ? "note" : "good", text: "Nothing needs attention.", found };
  return { level: worst, text: serious === 1 ? "One thing needs attention." : `${serious} things need attention.`, found };
}
