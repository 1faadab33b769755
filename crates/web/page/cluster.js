// Picture of a cluster: each node with the shards that it owns, as cells by the state of their backups.

import { duration, many } from "./format.js";
import { get, make, mark, say } from "./dom.js";

const STATES = {
  registered: ["good", ""],
  "without-etcd": ["warn", "This node goes on without etcd: nothing moves. "],
  waiting: ["bad", "This node translates nothing. "],
  double: ["bad", "Another box has the name of this node: this one translates nothing. "],
  stopped: ["bad", "This node does nothing for the cluster. "],
};

// Level and words of a shard, by its backup and by whether a holder is here.
function shardState(shard, here) {
  const names = [shard.owner, shard.backup].filter(Boolean);
  if (!names.some((name) => here.has(name))) return ["bad", "no holder is here"];
  if (shard.phase === "ready") return ["good", `backup ${shard.backup} has all sessions`];
  return ["warn", shard.backup ? `backup ${shard.backup} is ${shard.phase}` : "no backup"];
}

class Node {
  cells = new Map();

  constructor() {
    this.title = make("h3", {});
    this.facts = make("p", { class: "sub" });
    this.list = make("ul", { class: "cells" });
    this.node = make("div", { class: "box" }, this.title, this.facts, this.list);
  }

  show(title, level, words, shards, here) {
    say(this.title, title);
    say(this.facts, words);
    mark(this.node, "data-level", level);
    const kept = new Set(shards.map((shard) => shard.number));
    for (const [number, cell] of this.cells) {
      if (kept.has(number)) continue;
      cell.remove();
      this.cells.delete(number);
    }
    for (const shard of shards) {
      let cell = this.cells.get(shard.number);
      if (!cell) {
        cell = make("li", {});
        this.cells.set(shard.number, cell);
        this.list.append(cell);
      }
      const [state, backup] = shardState(shard, here);
      mark(cell, "data-level", state);
      mark(cell, "title", `shard ${shard.number}: ${backup}; ${shard.addresses.join(", ")}`);
      say(cell, String(shard.number));
    }
  }
}

// Level and words of a node.
function nodeState(node) {
  if (node.is_gone) return ["bad", "declared gone"];
  if (!node.is_registered) return ["bad", node.absent_ms === null ? "away" : `away for ${duration(node.absent_ms / 1000)}`];
  if (node.connection && node.connection.connected_for_ms === null) return ["warn", `not connected: ${node.connection.reason ?? "no answer"}`];
  return node.is_drained ? ["warn", "drained"] : ["good", "here"];
}

// Words about the configuration: a trial, and nodes that do not run it.
function revision({ configuration, nodes }) {
  if (!configuration) return [];
  const { number, stage, seconds_left: left, needs_confirmation: waits } = configuration;
  if (stage === "trial") return [waits ? `configuration revision ${number} is on trial for another ${left} s` : `the nodes apply configuration revision ${number}`];
  const other = nodes.filter((node) => node.is_registered && node.is_configured && node.revision?.differs);
  return other.map((node) => `${node.name} does not run the configuration of the cluster${node.revision.reason ? `: ${node.revision.reason}` : ""}`);
}

export class Cluster {
  nodes = new Map();
  nobody = new Node();

  constructor(watch) {
    this.watch = watch;
    watch.addEventListener("sample", () => this.show());
  }

  show() {
    const { cluster } = this.watch.now;
    const is_on = Boolean(cluster?.name);
    get("cluster").hidden = !is_on;
    if (!is_on) return;
    const [level, words] = STATES[cluster.state] ?? ["warn", cluster.state];
    mark(get("cluster-picture"), "data-level", level);
    const here = new Set(cluster.nodes.filter((node) => node.is_registered).map((node) => node.name));
    const shown = cluster.nodes.map((one) => this.showNode(one, cluster, here));
    const unowned = cluster.shards.filter((shard) => !shard.owner);
    this.nobody.show("no owner yet", "bad", many(unowned.length, "shard"), unowned, here);
    const all = unowned.length ? [...shown, this.nobody.node] : shown;
    const picture = get("cluster-picture");
    if (all.length !== picture.children.length || all.some((node, n) => picture.children[n] !== node)) picture.replaceChildren(...all);
    const ready = cluster.shards.filter((shard) => shard.phase === "ready").length;
    say("cluster-sub", `${words}${ready} of ${many(cluster.shards.length, "shard")} have a backup with all sessions.`);
    const differ = cluster.nodes.filter((node) => node.connection?.differences.length);
    const wrong = [
      cluster.reason,
      cluster.etcd_error ? `etcd: ${cluster.etcd_error}` : null,
      ...revision(cluster),
      ...differ.map((node) => `the configuration differs from that of ${node.name}: ${node.connection.differences.join(", ")}`),
    ];
    say("cluster-more", wrong.filter(Boolean).join("; "));
  }

  showNode(one, cluster, here) {
    let node = this.nodes.get(one.name);
    if (!node) this.nodes.set(one.name, (node = new Node()));
    const [level, words] = nodeState(one);
    const owned = cluster.shards.filter((shard) => shard.owner === one.name);
    const title = one.is_this ? `${one.name}: this node` : one.name;
    node.show(title, level, `${words}; owns ${many(owned.length, "shard")}, backs up ${one.backed}`, owned, here);
    return node.node;
  }
}
