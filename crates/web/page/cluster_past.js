// Configuration revisions of a cluster, and its latest events. They are longer than the state, and read less often.

import { Problem, read } from "./api.js";
import { moment } from "./format.js";
import { Table, empty, get, make, say } from "./dom.js";

const EVERY_MS = 10_000;

const STAGES = {
  trial: ({ needs_confirmation: waits, seconds_left: left, changed_by: by }) =>
    waits ? `on trial by ${by}; all nodes return in ${left} s unless it is confirmed: gatun cluster confirm` : `the nodes apply it one after the other, by ${by}`,
  confirmed: ({ changed_by: by }) => `confirmed by ${by}`,
  withdrawn: ({ changed_by: by, before, reason }) => `withdrawn by ${by}, the nodes run ${before ?? "their own"}${reason ? `: ${reason}` : ""}`,
};

// Sentence about the revision that the nodes should run.
function current(configuration) {
  if (!configuration) return "No configuration was applied by gatun cluster apply yet.";
  const stage = STAGES[configuration.stage]?.(configuration) ?? configuration.stage;
  return `Revision ${configuration.number}: ${stage}.`;
}

export class ClusterPast {
  readAt = -Infinity;
  was = "";
  shown = null;

  constructor() {
    this.revisions = new Table(get("cluster-revisions"), {
      caption: "Configuration revisions of the cluster, the latest first",
      nothing: "No revision is kept.",
      key: (one) => String(one.number),
      columns: [
        { title: "Revision", kind: "num", text: (one) => String(one.number) },
        { title: "Applied at", text: (one) => moment(Date.parse(one.applied_at)) },
        { title: "By", text: (one) => `${one.applied_by} at ${one.asked_node}` },
        { title: "Outcome", kind: "wide", text: (one) => one.outcome },
        { title: "Runs at", text: (one) => one.nodes.join(", ") || "–" },
      ],
    });
  }

  // Shows the present revision, and reads the rest if it is old or the revision has changed.
  async show({ configuration }) {
    say("cluster-revision", current(configuration));
    const now = `${configuration?.number} ${configuration?.stage}`;
    if (now === this.was && performance.now() - this.readAt < EVERY_MS) return;
    Object.assign(this, { was: now, readAt: performance.now() });
    await this.read();
  }

  async read() {
    const or = (path) => read(path).catch((error) => (error instanceof Problem ? error : Promise.reject(error)));
    const [revisions, told] = await Promise.all([or("/v1/cluster/revisions"), or("/v1/cluster/events")]);
    // What was read before stays.
    const why = (answer) => (answer instanceof Problem ? `Not up to date: ${answer.message}.` : "");
    say("cluster-revisions-error", why(revisions));
    say("cluster-events-error", why(told));
    if (!why(revisions)) this.revisions.show(revisions);
    if (!why(told)) this.showEvents(told.events);
  }

  // The newest first.
  showEvents(events) {
    const last = events.at(-1);
    const seen = `${events.length} ${last?.at_ms} ${last?.what}`;
    if (seen === this.shown) return;
    this.shown = seen;
    const row = ({ at_ms: at, what }) => make("li", {}, make("time", { datetime: new Date(at).toISOString() }, moment(at)), make("span", {}, what));
    const list = events.length ? make("ol", { class: "events" }, ...events.map(row).reverse()) : empty("No events since this node has started.");
    get("cluster-events").replaceChildren(list);
  }
}
