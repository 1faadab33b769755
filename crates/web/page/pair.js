// Picture of a pair of boxes: both boxes with the public addresses that each owns, and the connection.

import { clockFault, duration, ending, many } from "./format.js";
import { get, make, mark, say } from "./dom.js";

// Most address ranges that are named.
const NAMED_MAX = 8;

const LINKS = {
  waiting: ["bad", "not connected", "This box has no sessions yet, and assigns no ports."],
  alone: ["bad", "not connected", "If one box fails now, its connections end."],
  syncing: ["warn", "sending sessions", "One box sends the other one all sessions."],
  synced: ["good", "same sessions", "Each box can go on with the connections of the other one."],
  releasing: ["warn", "handing over", "This box gives its public addresses to the other one."],
};

class Box {
  constructor() {
    this.title = make("h3", {});
    this.owns = make("ul", { class: "plain" });
    this.node = make("div", { class: "box" }, this.title, this.owns);
  }

  show(title, addresses, gone) {
    say(this.title, title);
    mark(this.node, "data-owner", String(addresses.length > 0));
    mark(this.node, "data-gone", String(gone));
    const named = addresses.slice(0, NAMED_MAX);
    if (addresses.length > NAMED_MAX) named.push(`and ${addresses.length - NAMED_MAX} more`);
    const lines = gone ? ["declared gone"] : named.length ? named : ["backs the other box"];
    if (this.owns.childElementCount !== lines.length) this.owns.replaceChildren(...lines.map(() => make("li", {})));
    lines.forEach((line, n) => say(this.owns.children[n], line));
  }
}

export class Pair {
  boxes = { a: new Box(), b: new Box() };
  link = make("p", { class: "link-text" });

  constructor(watch) {
    this.watch = watch;
    const line = make("div", { class: "link-line" }, this.link);
    get("pair-picture").replaceChildren(this.boxes.a.node, line, this.boxes.b.node);
    watch.addEventListener("sample", () => this.show());
  }

  show() {
    const { peer } = this.watch.now;
    const is_pair = Boolean(peer?.member);
    get("pair").hidden = !is_pair;
    if (!is_pair) return;
    const [level, words, meaning] = LINKS[peer.state] ?? ["warn", peer.state, ""];
    mark(get("pair-picture"), "data-level", level);
    say(this.link, words);
    for (const [member, box] of Object.entries(this.boxes)) {
      const here = member === peer.member;
      const name = here ? "this box" : peer.peer_name ?? "the other box";
      const owned = peer.shards.filter((shard) => shard.owner === member && shard.epoch > 0);
      box.show(`${member}: ${name}`, owned.flatMap((shard) => shard.addresses), !here && peer.peer_gone);
    }
    const since = peer.connected_for_ms === null ? "" : ` Connected for ${duration(peer.connected_for_ms / 1000)}.`;
    say("pair-sub", `${meaning}${since}`);
    const { counters, differences, reason } = peer;
    const refused = counters.refused.reduce((sum, one) => sum + one.value, 0);
    const told = `told ${many(counters.sessions_told, "session")}, received ${many(counters.sessions_received, "session")}, refused ${many(refused, "session")}`;
    const wrong = [
      reason,
      differences.length ? `the configurations differ: ${differences.join(", ")}` : null,
      clockFault(peer.peer_name ?? "the other box", peer.clock_difference_ms),
      ending("the certificate", peer.certificate_end_s),
    ];
    say("pair-more", [told, ...wrong.filter(Boolean)].join("; "));
  }
}
