// Overview: verdict, figures, and plots of the last hour.

import { count, level, percent, quantity, rate, scaled } from "./format.js";
import { get, make, mark, say } from "./dom.js";
import { Plot, Pointer } from "./plot.js";
import { Judge } from "./verdict.js";

function tile(id, value, unit) {
  const [digits, prefix] = value === null ? ["–", ""] : scaled(value);
  say(id, digits);
  say(`${id}-unit`, prefix + unit);
}

export class Now {
  constructor(watch) {
    this.watch = watch;
    this.judges = new Judge();
    const pointer = new Pointer();
    const bits = (n) => quantity(n, "bit/s");
    this.plots = [
      new Plot(get("plot-bits"), { title: "Traffic", pointer, level: (n) => level(n, "bit/s"), least: 1000, series: [{ name: "forwarded", key: "bits", kind: "one", text: bits }] }),
      new Plot(get("plot-packets"), {
        title: "Packets",
        pointer,
        level: (n) => level(n, "/s"),
        least: 3,
        series: [
          { name: "forwarded", key: "packets", kind: "one", text: rate },
          { name: "dropped", key: "lost", kind: "two", text: rate },
        ],
      }),
      new Plot(get("plot-sessions"), { title: "Sessions", pointer, level: (n) => level(n, ""), least: 3, series: [{ name: "open", key: "sessions", kind: "one", text: count }] }),
    ];
    watch.addEventListener("sample", () => this.show());
  }

  show() {
    const { now, points } = this.watch;
    const last = points.at(-1).values;
    const { status } = now;
    tile("bits", last.bits, "bit/s");
    tile("packets", last.packets, "/s");
    tile("lost", last.lost, "/s");
    const { received } = status;
    const rates = this.watch.rates();
    const arriving = rates.of((s) => s.status.received.packets);
    const { forwarded, offloaded, fast_path: place } = status;
    const where = place === "switches" ? "in the switches" : "in the kernel";
    const elsewhere = offloaded?.bytes ? `, ${percent(offloaded.bytes, forwarded.bytes)} ${where}` : "";
    say("bits-sub", `${quantity(forwarded.bytes, "B")} since the start${elsewhere}`);
    say("packets-sub", `of ${arriving === null ? "–" : rate(arriving)} received`);
    const { dropped, rejected, dropped_silently: silently } = status;
    say("lost-sub", `${count(dropped.packets)} since the start (${percent(dropped.packets, received.packets)})`);
    say("lost-how", `${count(rejected.packets)} with an ICMP error, ${count(silently.packets)} silently`);
    say("sessions-now", count(status.sessions));
    const created = last.created === null ? "–" : rate(last.created);
    const full = status.sessions_max ? `, ${percent(status.sessions, status.sessions_max)} of the limit` : "";
    say("sessions-sub", `${created} new${full}`);
    say("subscribers-now", count(status.subscribers));
    say("subscribers-sub", `${count(status.bindings)} bindings`);
    this.plots.forEach((plot) => plot.show(points, now.time));
    this.judge();
  }

  judge() {
    const { level, text, found } = this.judges.see(this.watch);
    mark(get("verdict"), "data-level", level);
    say("verdict-text", text);
    const list = get("verdict-list");
    const same = list.childElementCount === found.length;
    if (!same) list.replaceChildren(...found.map(() => make("li", {}, make("a", {}))));
    found.forEach((one, n) => {
      const item = list.children[n];
      mark(item, "data-level", one.level);
      mark(item.firstElementChild, "href", one.where);
      say(item.firstElementChild, one.text);
    });
  }
}
