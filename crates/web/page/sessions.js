// Sessions that match a filter: one page, on request.

import { ends, read } from "./api.js";
import { asks } from "./ask.js";
import { count, end } from "./format.js";
import { Table, get, make, say } from "./dom.js";

const LIMIT = 100;

export function filter({ inside, outside, remote, protocol }) {
  const [insideAt, inside_port] = ends(inside);
  const [outsideAt, outside_port] = ends(outside);
  const [remoteAt, remote_port] = ends(remote);
  return { inside: insideAt, inside_port, outside: outsideAt, outside_port, remote: remoteAt, remote_port, protocol };
}

const lasts = (ms) => (ms < 60_000 ? `${Math.ceil(ms / 1000)} s` : ms < 3_600_000 ? `${Math.round(ms / 60_000)} min` : `${(ms / 3_600_000).toFixed(1)} h`);

export function sessions() {
  const [form, place] = [get("sessions-form"), get("sessions-list")];
  const table = new Table(make("div"), {
    caption: "Sessions",
    nothing: "No session matches.",
    key: (one) => `${one.instance} ${one.protocol} ${end(one.inside, one.inside_port)} ${end(one.remote, one.remote_port)}`,
    columns: [
      { title: "Protocol", text: (one) => one.protocol },
      { title: "Inside", kind: "address wide", text: (one) => end(one.inside, one.inside_port) },
      { title: "Public", kind: "address", text: (one) => end(one.outside, one.outside_port) },
      { title: "Remote", kind: "address", text: (one) => end(one.remote, one.remote_port) },
      { title: "State", text: (one) => one.state.replaceAll("_", " ") + (one.configured ? ", configured" : "") + (one.shared ? ", shared" : "") },
      { title: "Instance", text: (one) => one.instance },
      { title: "Ends in", kind: "num", text: (one) => lasts(one.expires_ms) },
    ],
  });
  const tell = ({ items, next }) => {
    table.show(items);
    say("found-sub", next ? `first ${count(items.length)}; more exist` : `${count(items.length)} found`);
    return [table.place];
  };
  asks(form, place, (fields) => read("/v1/sessions", { ...filter(fields), limit: LIMIT }), tell);
  // Shows the sessions of a filter, as if it had been typed.
  return (fields) => {
    for (const input of form.elements) if (input.name) input.value = fields[input.name] ?? "";
    form.requestSubmit();
    get("sessions").scrollIntoView();
    get("sessions").focus({ preventScroll: true });
  };
}
