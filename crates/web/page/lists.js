// Lists updated with every sample: drops, pools, subscribers, instances, workers, ports.

import { clock, count, many, percent, quantity, rate } from "./format.js";
import { Meter, Table, empty, get, make, mark, say } from "./dom.js";
import { levelOf } from "./verdict.js";
import { notForwarded } from "./watch.js";

const SECONDS = 10;
const perSecond = (n) => (n === null ? "–" : n === 0 ? "0/s" : rate(n));

// Cell with two lines: a value and its explanation.
function twoLines(cell, first, second) {
  if (!cell.firstElementChild) cell.append(make("b"), make("small"));
  say(cell.firstElementChild, first);
  say(cell.lastElementChild, second);
}

function drops(watch) {
  const table = new Table(get("drops-list"), {
    caption: "Packets not forwarded, by drop reason",
    nothing: "No packet was dropped.",
    key: (one) => one.reason,
    columns: [
      { title: "Drop reason", kind: "wide", fill: (cell, one) => twoLines(cell, one.reason, one.help) },
      { title: "Now", kind: "num", fill: (cell, one) => {
        say(cell, perSecond(one.rate));
        mark(cell.parentElement, "data-now", String(one.rate > 0));
      } },
      { title: "Total", kind: "num", text: (one) => count(one.all) },
    ],
  });
  return () => {
    const rates = watch.rates(SECONDS);
    const told = watch.now.drops
      .map((drop) => ({ ...drop, all: notForwarded(drop), rate: rates.ofNamed("drops", "reason", drop.reason, notForwarded) }))
      .filter((drop) => drop.all > 0)
      .sort((a, b) => (b.rate > 0) - (a.rate > 0) || b.all - a.all);
    table.show(told);
    const occurring = told.filter((drop) => drop.rate > 0).length;
    say("drops-sub", told.length ? `${many(told.length, "reason")} since the start, ${occurring || "none"} now` : "");
  };
}

class PoolCard {
  constructor(pool) {
    this.name = make("h3", {}, pool.name);
    this.facts = make("p", { class: "sub" });
    this.meters = { tcp: new Meter("TCP"), udp: new Meter("UDP"), icmp: new Meter("ICMP") };
    if (pool.blocks) this.meters.blocks = new Meter("Blocks");
    this.refused = make("p", { class: "refused" });
    this.node = make("article", { class: "pool" }, make("header", {}, this.name, this.facts), ...Object.values(this.meters).map((meter) => meter.node), this.refused);
  }

  show(pool, rates) {
    say(this.facts, `${many(pool.addresses, "address")}, ${many(pool.subscribers, "subscriber")}`);
    const usage = (meter, used, total) => {
      const share = total ? used / total : 0;
      meter.show(share, `${count(used)} of ${count(total)}, ${percent(used, total)}`, levelOf(share) || "good");
    };
    for (const protocol of ["tcp", "udp", "icmp"]) usage(this.meters[protocol], pool[protocol].used, pool[protocol].total);
    if (pool.blocks && this.meters.blocks) usage(this.meters.blocks, pool.blocks.owned + pool.blocks.held, pool.blocks.total);
    const refused = rates.ofNamed("pools", "name", pool.name, (one) => one.refused);
    this.refused.hidden = pool.refused === 0;
    mark(this.refused, "data-now", String(refused > 0));
    say(this.refused, `${many(pool.refused, "refused request")} for a port${refused > 0 ? `, ${rate(refused)} now` : ", none now"}`);
  }
}

function pools(watch) {
  const [place, cards] = [get("pools-list"), new Map()];
  const none = empty("No pools. Stateless translation needs none.");
  return () => {
    const { pools } = watch.now;
    const rates = watch.rates(SECONDS);
    const names = new Set(pools.map((pool) => pool.name));
    for (const [name, card] of cards) {
      if (!names.has(name)) (card.node.remove(), cards.delete(name));
    }
    for (const pool of pools) {
      const known = cards.get(pool.name);
      const card = known && !!known.meters.blocks === !!pool.blocks ? known : new PoolCard(pool);
      if (card !== known) {
        known?.node.remove();
        cards.set(pool.name, card);
        place.append(card.node);
      }
      card.show(pool, rates);
    }
    if (!pools.length) place.replaceChildren(none);
    else none.remove();
  };
}

function subscribers(watch, showSessions) {
  const table = new Table(get("subscribers-list"), {
    caption: "Top subscribers by sessions",
    nothing: "No subscriber has sessions or ports.",
    key: (one) => `${one.instance} ${one.subscriber}`,
    columns: [
      { title: "Subscriber", kind: "wide", fill: (cell, one) => {
        if (!cell.firstElementChild) cell.append(make("button", { type: "button", class: "link address", title: "Show sessions", onclick: () => showSessions({ inside: cell.textContent }) }));
        say(cell.firstElementChild, one.subscriber);
      } },
      { title: "Instance", text: (one) => one.instance },
      { title: "Public address", kind: "address", text: (one) => one.address ?? "–" },
      { title: "Sessions", kind: "num", text: (one) => count(one.sessions) },
      { title: "Ports", kind: "num", text: (one) => count(one.tcp_ports + one.udp_ports + one.icmp_ids) },
      { title: "Blocks", kind: "num", text: (one) => count(one.blocks) },
      { title: "Refused", kind: "num", text: (one) => count(one.refused_sessions + one.refused_rate + one.refused_ports + one.refused_blocks) },
    ],
  });
  return () => {
    table.show(watch.top ?? []);
    say("top-sub", watch.topTime ? `at ${clock(watch.topTime)}, updated every ten seconds` : "");
  };
}

function instances(watch) {
  const way = (rates, one, way) => {
    const of = (read) => rates.ofNamed("instances", "name", one.name, read);
    const [packets, bytes] = [of((i) => i[way].packets), of((i) => i[way].bytes)];
    return [packets, bytes].includes(null) ? ["–", ""] : [quantity(bytes * 8, "bit/s"), rate(packets)];
  };
  const SHOWN = 3;
  const some = (what, all) => {
    const more = all.length > SHOWN ? ` and ${all.length - SHOWN} more` : "";
    return all.length ? [`${what} ${all.slice(0, SHOWN).join(" ")}${more}`] : [];
  };
  const selectors = ({ ports, sources, pool6, pool }) =>
    [...some("port", ports), ...some("from", sources), ...some("to", pool6), ...some("pool", pool ? [pool] : [])].join(", ");
  const lives = (one) => ["tcp", "udp", "icmp"].map((name) => one[name].sessions.now);
  let rates;
  const table = new Table(get("instances-list"), {
    caption: "Instances",
    nothing: "No instances configured.",
    key: (one) => `${one.kind} ${one.name}`,
    columns: [
      { title: "Instance", kind: "wide", fill: (cell, one) => twoLines(cell, one.name, `${one.kind}: ${selectors(one.selectors)}`) },
      { title: "Matched packets", kind: "num", fill: (cell, one) => {
        twoLines(cell, perSecond(rates.ofNamed("instances", "name", one.name, (i) => i.matched.packets)), `${count(one.matched.packets)} in total`);
      } },
      { title: "Outbound", kind: "num", fill: (cell, one) => twoLines(cell, ...way(rates, one, "outbound")) },
      { title: "Inbound", kind: "num", fill: (cell, one) => twoLines(cell, ...way(rates, one, "inbound")) },
      { title: "Sessions", kind: "num", fill: (cell, one) => {
        const [tcp, udp, icmp] = lives(one);
        const by = one.kind === "siit" ? "stateless" : `TCP ${count(tcp)}, UDP ${count(udp)}, ICMP ${count(icmp)}`;
        twoLines(cell, one.kind === "siit" ? "–" : count(tcp + udp + icmp), by);
      } },
      { title: "Subscribers", kind: "num", text: (one) => (one.kind === "siit" ? "–" : count(one.subscribers)) },
      { title: "Not forwarded", kind: "num", fill: (cell, one) => {
        twoLines(cell, perSecond(rates.ofNamed("instances", "name", one.name, (i) => i.dropped.packets)), `${count(one.dropped.packets)} in total`);
      } },
      { title: "Passed", kind: "num", text: (one) => count(one.passed.packets) },
      { title: "Echo replies", kind: "num", text: (one) => count(one.echoes.packets) },
    ],
  });
  return () => {
    rates = watch.rates(SECONDS);
    table.show(watch.now.instances);
  };
}

function workers(watch) {
  let rates;
  const of = (read) => (one) => perSecond(rates.ofNamed("workers", "number", one.number, read));
  const table = new Table(get("workers-list"), {
    caption: "Workers",
    nothing: "No workers.",
    key: (one) => one.number,
    columns: [
      { title: "Worker", kind: "wide", fill: (cell, one) => {
        twoLines(cell, `${one.number} on ${one.device || "–"}`, one.answers ? one.device_counters.map((c) => `${c.name} ${count(c.value)}`).join(", ") : "does not answer");
        mark(cell.parentElement, "data-silent", String(!one.answers));
      } },
      { title: "Received", kind: "num", text: of((w) => w.received.packets) },
      { title: "Forwarded", kind: "num", text: of((w) => w.forwarded.packets) },
      { title: "Dropped", kind: "num", text: of((w) => w.dropped.packets) },
      { title: "To other workers", kind: "num", text: of((w) => w.handed_before + w.handed_after) },
      { title: "Lost between workers", kind: "num", text: (one) => count(one.handed_lost) },
      { title: "Sessions", kind: "num", text: (one) => count(one.sessions) },
    ],
  });
  return () => {
    rates = watch.rates(SECONDS);
    table.show(watch.now.workers);
  };
}

function ports(watch) {
  const table = new Table(get("ports-list"), {
    caption: "Ports",
    nothing: "No ports.",
    key: (one) => one.name,
    columns: [
      { title: "Port", kind: "wide", fill: (cell, one) => twoLines(cell, one.name, one.addresses.join(" ")) },
      { title: "Backend", text: (one) => one.backend },
      { title: "Device", text: (one) => one.device },
      { title: "Queues", kind: "num", text: (one) => count(one.queues) },
      { title: "MTU", kind: "num", text: (one) => (one.mtu === null ? "device default" : count(one.mtu)) },
    ],
  });
  return () => table.show(watch.ports);
}

export function lists(watch, showSessions) {
  const all = [drops(watch), pools(watch), subscribers(watch, showSessions), instances(watch), workers(watch)];
  watch.addEventListener("sample", () => all.forEach((show) => show()));
  watch.addEventListener("facts", ports(watch));
}
