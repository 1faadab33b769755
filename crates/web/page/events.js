// Event stream. If too many events arrive to be read, they are counted but not shown.

import { Problem, lines } from "./api.js";
import { failed } from "./ask.js";
import { clock, count, end } from "./format.js";
import { empty, get, make, mark, say } from "./dom.js";

const SHOWN_MAX = 200;
const DRAWN_EVERY_MS = 400;

// Subject of an event, then its other fields.
function words({ protocols, inside, inside_port, outside, outside_port, outside_ports, remote, remote_port, worker, ...rest }) {
  const at = (address, port) => (port === undefined ? address : end(address, port));
  const about = [(protocols ?? []).join(", "), inside && at(inside, inside_port)];
  if (outside) about.push(`as ${outside_ports ? `${outside} ports ${outside_ports.join("–")}` : at(outside, outside_port)}`);
  if (remote) about.push(`to ${at(remote, remote_port)}`);
  about.push(...Object.entries(rest).map(([name, value]) => `${name} ${value}`));
  return about.filter(Boolean).join(" ");
}

function row(line) {
  let event;
  try {
    event = JSON.parse(line);
  } catch {
    return make("li", {}, line);
  }
  const { time, event: name, ...fields } = event;
  const at = time ? new Date(time).getTime() : Date.now();
  return make("li", {}, make("time", { datetime: time }, clock(at)), make("b", {}, String(name)), make("span", { class: "address" }, words(fields)));
}

export class Events {
  waiting = [];
  seen = 0;

  constructor() {
    this.place = get("events-list");
    this.list = make("ol", { class: "events" });
    this.button = get("events-follow");
    this.button.addEventListener("click", () => (this.stopping ? this.stop() : this.follow()));
    setInterval(() => this.draw(), DRAWN_EVERY_MS);
  }

  async follow() {
    const stopping = new AbortController();
    this.stopping = stopping;
    this.turn("Stop", true);
    this.place.replaceChildren(this.list.childElementCount ? this.list : empty("No events yet."));
    try {
      for await (const some of lines("/v1/events", stopping.signal)) this.take(some.filter((line) => line !== ""));
      throw new Problem(0, "the daemon ended the stream");
    } catch (error) {
      if (stopping.signal.aborted) return;
      this.draw();
      this.place.prepend(failed(error instanceof Problem ? error : new Problem(0, "connection lost")));
      this.stop();
    }
  }

  stop() {
    this.stopping?.abort();
    this.stopping = null;
    this.turn("Follow", false);
  }

  turn(word, pressed) {
    say(this.button, word);
    mark(this.button, "aria-pressed", String(pressed));
    this.said();
  }

  said() {
    const words = this.seen ? `${count(this.seen)} received` : "";
    say("events-sub", this.stopping ? `following; ${words || "none yet"}` : words);
  }

  take(some) {
    this.seen += some.length;
    this.waiting = this.waiting.concat(some.slice(-SHOWN_MAX)).slice(-SHOWN_MAX);
  }

  // Newest events first.
  draw() {
    if (!this.waiting.length) return;
    const rows = this.waiting.map(row).reverse();
    this.waiting = [];
    this.list.prepend(...rows);
    while (this.list.childElementCount > SHOWN_MAX) this.list.lastElementChild.remove();
    if (this.list.parentElement !== this.place) this.place.replaceChildren(this.list);
    this.said();
  }
}
