// Polls the daemon's counters while the tab is visible, and keeps those of the last hour. The daemon's history
// fills the time before the page was opened or while it was hidden. All of these are counters that the workers
// copy out between two bursts. The walk over all subscribers is requested less often.

import { Problem, read } from "./api.js";

export const EVERY_MS = 2000;
const TOP_EVERY_MS = 10_000;
// Samples kept in full, for rates over some time. Points are kept for plots.
const WHOLE_MAX = 16;
export const SPAN_MS = 3_600_000;

export const notForwarded = (drop) => drop.six_to_four.packets + drop.four_to_six.packets + drop.four_to_four.packets;
const total = (list, of) => list.reduce((sum, one) => sum + of(one), 0);
const created = (instance) => instance.tcp.sessions.created + instance.udp.sessions.created + instance.icmp.sessions.created;

// Rates between two samples, per second. `null` if unknown.
export class Between {
  constructor(before, now) {
    Object.assign(this, { before, now, seconds: before ? (now.at - before.at) / 1000 : 0 });
  }

  of(read) {
    if (!(this.seconds > 0)) return null;
    const [before, now] = [read(this.before), read(this.now)];
    if (before === undefined || now === undefined || now < before) return null;
    return (now - before) / this.seconds;
  }

  // Rate of a list element that is identified by its name.
  ofNamed(list, name, key, read) {
    const find = (sample) => sample[list].find((one) => one[name] === key);
    return this.of((sample) => {
      const found = find(sample);
      return found && read(found);
    });
  }
}

export class Watch extends EventTarget {
  samples = [];
  points = [];
  state = "connecting";
  paused = false;
  top = null;
  topAt = -Infinity;

  get now() {
    return this.samples.at(-1);
  }

  // Rates over the last interval, or over about this many seconds.
  rates(seconds = 0) {
    const now = this.now;
    const before = this.samples.findLast((one) => one !== now && now.at - one.at >= seconds * 1000);
    return new Between(before ?? (this.samples.length > 1 ? this.samples[0] : undefined), now);
  }

  async run() {
    document.addEventListener("visibilitychange", () => this.wake?.());
    for (;;) {
      if (!document.hidden && !this.paused && this.state !== "denied") await this.look();
      await new Promise((resolve) => {
        this.wake = resolve;
        setTimeout(resolve, EVERY_MS);
      });
    }
  }

  pause(paused) {
    this.paused = paused;
    this.wake?.();
    this.dispatchEvent(new Event("state"));
  }

  // Retries with another token.
  retry() {
    this.state = "connecting";
    this.dispatchEvent(new Event("state"));
    this.wake?.();
  }

  async look() {
    try {
      const sample = await this.take();
      const past = this.now && sample.at - this.now.at < 4 * EVERY_MS ? null : await this.past();
      this.keep(sample, past);
      this.turn("live");
      this.dispatchEvent(new Event("sample"));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.problem = error;
      // Another request would count as another wrong token.
      this.turn([401, 429].includes(error.status) ? "denied" : "gone");
    }
  }

  turn(state) {
    if (state !== this.state) {
      this.since = Date.now();
      // Earlier facts may be those of another daemon.
      if (state === "live") this.readFacts();
    }
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }

  async take() {
    const paths = ["/v1/status", "/v1/workers", "/v1/pools", "/v1/instances", "/v1/drops"];
    // One request is enough to find out whether the daemon answers.
    if (this.state !== "live") await read("/v1/status");
    const due = performance.now() - this.topAt >= TOP_EVERY_MS;
    // An older daemon knows no pairs, no clusters, no switches, or no kernel fast path.
    const peer = read("/v1/peer").catch(() => null);
    const cluster = read("/v1/cluster").catch(() => null);
    const offload = read("/v1/offload").catch(() => null);
    const fastpath = read("/v1/fastpath").catch(() => null);
    const [status, workers, pools, instances, drops] = await Promise.all(paths.map((path) => read(path)));
    const at = performance.now();
    if (due) {
      this.top = await read("/v1/top", { count: 10 });
      this.topAt = at;
      this.topTime = Date.now();
    }
    const parts = { peer: await peer, cluster: await cluster, offload: await offload, fastpath: await fastpath };
    return { at, time: Date.now(), status, workers, pools, instances, drops, ...parts };
  }

  // Points of the daemon's history. An older daemon has none.
  async past() {
    const history = await read("/v1/history").catch(() => null);
    if (!history) return null;
    const points = [];
    let ended = -Infinity;
    for (const point of history.points) {
      const time = Date.now() - point.age_ms;
      const per = (count) => (count * 1000) / point.length_ms;
      // Missing points interrupt the line.
      if (time - point.length_ms > ended + history.every_ms) points.push({ time: time - point.length_ms, values: null });
      points.push({
        time,
        values: {
          bits: per(point.forwarded_bytes * 8),
          packets: per(point.forwarded_packets),
          lost: per(point.dropped_packets),
          created: per(point.sessions_created),
          sessions: point.sessions,
        },
      });
      ended = time;
    }
    return points;
  }

  async readFacts() {
    try {
      [this.access, this.ports] = await Promise.all([read("/v1/access"), read("/v1/ports")]);
      this.dispatchEvent(new Event("facts"));
    } catch {
      // The next poll reports the missing answer.
    }
  }

  keep(sample, past) {
    const last = this.now;
    if (last && (last.status.pid !== sample.status.pid || last.status.uptime_seconds > sample.status.uptime_seconds)) {
      this.samples = [];
      this.restarted = sample.time;
      this.points.push({ time: sample.time, values: null });
    }
    this.samples.push(sample);
    if (this.samples.length > WHOLE_MAX) this.samples.shift();
    const rates = this.rates();
    if (past?.length) {
      // Earlier points stay if the daemon, perhaps a new one, has no history of that time.
      this.points = this.points.filter((point) => point.time < past[0].time).concat(past);
    } else if (rates.seconds > (4 * EVERY_MS) / 1000) {
      // A time without polls interrupts the line.
      this.points.push({ time: sample.time, values: null });
    }
    this.points.push({
      time: sample.time,
      values: {
        // The first sample has no rate of its own, so the daemon's last one is used.
        ...(past?.length && !rates.seconds ? past.at(-1).values : {
          bits: rates.of((s) => s.status.forwarded.bytes * 8),
          packets: rates.of((s) => s.status.forwarded.packets),
          lost: rates.of((s) => total(s.drops, notForwarded)),
          created: rates.of((s) => total(s.instances, created)),
        }),
        sessions: sample.status.sessions,
      },
    });
    while (this.points[0].time < sample.time - SPAN_MS - EVERY_MS) this.points.shift();
  }
}
