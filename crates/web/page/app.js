// The page: overall state of the daemon, and set-up of the other modules.

import { acts } from "./act.js";
import { useKey } from "./api.js";
import { Events } from "./events.js";
import { Cluster } from "./cluster.js";
import { FastPath } from "./fastpath.js";
import { clock, duration } from "./format.js";
import { get, mark, say } from "./dom.js";
import { lists } from "./lists.js";
import { Now } from "./now.js";
import { Pair } from "./pair.js";
import { questions } from "./ask.js";
import { sessions } from "./sessions.js";
import { Switches } from "./switches.js";
import { EVERY_MS, Watch } from "./watch.js";

const watch = new Watch();

let was = null;

function showFacts() {
  const { status } = watch.now;
  say("host", location.host);
  say("version", `version ${status.version}`);
  say("uptime", `up ${duration(status.uptime_seconds)}`);
}

function showState() {
  const { state, paused, problem, now } = watch;
  mark(document.body, "data-state", paused ? "paused" : state);
  const words = { connecting: "Connecting", live: "Live", gone: "No answer", denied: "Token needed" };
  say("state-text", paused ? "Paused" : words[state]);
  document.title = state === "live" ? "Gatun" : `${words[state]} – Gatun`;
  get("gone").hidden = state !== "gone" || paused;
  if (state !== was) get("key").hidden = state !== "denied";
  was = state;
  if (state === "gone") {
    say("gone-what", `No answer since ${clock(watch.since)}: ${problem.message}.`);
    const seen = now ? `The data shown is from ${clock(now.time)}. ` : "";
    say("gone-more", `${problem.hint ? problem.hint + " " : ""}${seen}Retrying every ${EVERY_MS / 1000} seconds.`);
  }
  if (state === "denied") say("key-why", `Access denied: ${problem.message}. Enter a token, or open the address that gatun web printed.`);
}

get("pause").addEventListener("click", () => {
  watch.pause(!watch.paused);
  say("pause", watch.paused ? "Resume" : "Pause");
  mark(get("pause"), "aria-pressed", String(watch.paused));
});

get("key").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(get("key-text").value.trim());
  get("key-text").value = "";
  watch.retry();
});

watch.addEventListener("sample", showFacts);
watch.addEventListener("state", showState);
new Now(watch);
new Pair(watch);
new Cluster(watch);
new FastPath(watch);
new Switches(watch);
new Events();
questions();
lists(watch, sessions());
acts(watch);
watch.run();
