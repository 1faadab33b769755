// Picture of a cluster: each node with the shards that it owns, as cells by the state of their backups. A token
// with write access drains nodes.

import { sure } from "./act.js";
import { act } from "./api.js";
import { failed } from "./ask.js";
import { ClusterPast } from "./cluster_past.js";
import { clockFault, duration, ending, many } from "./format.js";
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

  constructor(drain) {
    this.title = make("h3", {});
    this.facts = make("p", { class: "sub" });
    this.list = make("ul", { class: "cells" });
    this.button = make("button", { type: "button", class: "quiet", hidden: true, onclick: () => drain(this.button.value === "drain") });
    this.node = make("div", { class: "box" }, this.title, this.facts, this.list, this.button);
  }

  // Offers what can be done: `null`, "drain" or "undrain".
  offer(what, name) {
    this.button.hidden = !what;
    if (!what) return;
    mark(this.button, "value", what);
    mark(this.button, "aria-label", `${what === "drain" ? "Drain" : "Undrain"} node ${name}`);
    say(this.button, what === "drain" ? "Drain" : "Undrain");
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

// Level and words of a node that has a part in some shards.
function nodeState(node, shards) {
  if (node.is_gone) return ["bad", "declared gone"];
  const absent = node.absent_ms === null ? "away" : `away for ${duration(node.absent_ms / 1000)}`;
  if (node.is_drained && shards) return ["warn", `${node.is_registered ? "drained" : `drained, ${absent}`}: ${many(shards, "shard")} left`];
  if (!node.is_registered) return node.is_drained ? ["warn", `drained, ${absent}`] : ["bad", absent];
  if (node.connection && node.connection.connected_for_ms === null) return ["warn", `not connected: ${node.connection.reason ?? "no answer"}`];
  return node.is_drained ? ["warn", "drained"] : ["good", "here"];
}

// Words about the configuration that a node runs.
function runs({ revision }) {
  if (!revision) return [];
  const number = revision.number ?? "unknown";
  return [`revision ${number}${revision.is_trial ? ", on trial" : revision.differs ? ", differs" : ""}`];
}

// Nodes that do not run the configuration. On trial, each node has its turn.
function differing({ configuration, nodes }) {
  if (!configuration || configuration.stage === "trial") return [];
  const other = nodes.filter((node) => node.is_registered && node.is_configured && node.revision?.differs);
  return other.map((node) => `${node.name} does not run the configuration of the cluster${node.revision.reason ? `: ${node.revision.reason}` : ""}`);
}

export class Cluster {
  nodes = new Map();
  nobody = new Node();
  past = new ClusterPast();

  constructor(watch) {
    this.watch = watch;
    for (const event of ["sample", "facts"]) watch.addEventListener(event, () => this.show());
  }

  async drain(name, draining) {
    const told = get("cluster-done");
    const note = "Other nodes get its shards; no connection ends. The node stays drained, also after a restart, until it is undrained.";
    if (draining && !(await sure(`Drain node ${name}?`, note))) return say(told, "No node was drained.");
    try {
      await act("POST", draining ? "/v1/cluster/drain" : "/v1/cluster/undrain", { node: name });
      this.past.readAt = -Infinity;
      say(told, draining ? `Node ${name} gives its shards away.` : `Node ${name} gets shards again.`);
    } catch (error) {
      told.replaceChildren(failed(error));
    }
  }

  show() {
    const cluster = this.watch.now?.cluster;
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
      ...differing(cluster),
      ...differ.map((node) => `the configuration differs from that of ${node.name}: ${node.connection.differences.join(", ")}`),
      ...cluster.nodes.map((node) => clockFault(node.name, node.connection?.clock_difference_ms)),
      ending("the certificate of this node", cluster.certificate_end_s),
    ];
    say("cluster-more", wrong.filter(Boolean).join("; "));
    this.past.show(cluster);
  }

  showNode(one, cluster, here) {
    let node = this.nodes.get(one.name);
    if (!node) this.nodes.set(one.name, (node = new Node((draining) => this.drain(one.name, draining))));
    const owned = cluster.shards.filter((shard) => shard.owner === one.name);
    const held = cluster.shards.filter((shard) => [shard.owner, shard.backup].includes(one.name)).length;
    const [level, words] = nodeState(one, held);
    const title = one.is_this ? `${one.name}: this node` : one.name;
    const facts = [words, `owns ${many(owned.length, "shard")}, backs up ${one.backed}`, ...runs(one)];
    node.show(title, level, facts.join("; "), owned, here);
    const may = this.watch.access?.may_write && (one.is_registered || one.is_drained);
    node.offer(may ? (one.is_drained ? "undrain" : "drain") : null, one.name);
    return node.node;
  }
}
