//! Every metric, once.

use super::read::{
    DIRECTIONS, by_export, by_instance, by_life, by_pool, by_pool_blocks, by_pool_protocol, by_pool_way,
    by_way, by_worker, distribution, engine_counter, fates, of_log, top,
};
use super::{Kind, Metric, Samples, View};
use crate::conversion::{self, LIMITED, LIMITED_PER_SOURCE};
use crate::subscriber_totals::Measure;
use gatun_io::{RxError, TxError};
use gatun_nat::kept::NotRestored;
use gatun_wire::DropReason;

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    read: fn(&View<'_>, &mut Samples<'_>),
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help, read }
}

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    read: fn(&View<'_>, &mut Samples<'_>),
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help, read }
}

const fn histogram(name: &'static str, read: fn(&View<'_>, &mut Samples<'_>), help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels: &["le"], help, read }
}

const SUBSCRIBER: &[&str] = &["name", "subscriber"];
const WORKER: &[&str] = &["worker"];
const EXPORT: &[&str] = &["export"];
const INSTANCE: &[&str] = &["kind", "name"];
const INSTANCE_PROTOCOL: &[&str] = &["kind", "name", "protocol"];
const POOL: &[&str] = &["pool"];
const POOL_WAY: &[&str] = &["pool", "direction"];
const POOL_PROTOCOL: &[&str] = &["pool", "protocol"];

/// All there are. Transports are in the order of [`Transport`].
pub(super) const METRICS: &[Metric] = &[
    gauge(
        "build_info",
        &["version"],
        |v, s| s.add(&[v.scrape.version], 1),
        "Always 1; the version is in the label.",
    ),
    gauge(
        "uptime_seconds",
        &[],
        |v, s| s.add(&[], v.scrape.uptime_seconds),
        "Seconds since it began to translate.",
    ),
    gauge(
        "worker_up",
        WORKER,
        |v, s| {
            for (number, snapshot) in v.scrape.workers.iter().enumerate() {
                s.add(&[&number.to_string()], u64::from(snapshot.is_some()));
            }
        },
        "Whether a worker answers.",
    ),
    gauge(
        "worker_adds_up",
        WORKER,
        |v, s| by_worker(v, s, |w| u64::from(w.conserved())),
        "Whether every packet that a worker received is accounted for; 0 is a defect to be reported.",
    ),
    counter(
        "worker_packets",
        &["worker", "fate"],
        |v, s| {
            v.workers()
                .for_each(|(n, w)| fates(w).iter().for_each(|(fate, c)| s.add(&[&n, fate], c.packets)));
        },
        "Packets by worker and fate. A received packet is forwarded (handed to the device: gatun_worker_device_errors_total has those that it refused), echo_replied, passed, rejected (with an ICMP error), dropped_silently or held.",
    ),
    counter(
        "worker_bytes",
        &["worker", "fate"],
        |v, s| {
            v.workers().for_each(|(n, w)| fates(w).iter().for_each(|(fate, c)| s.add(&[&n, fate], c.bytes)));
        },
        "Their bytes.",
    ),
    gauge(
        "worker_held_packets",
        WORKER,
        |v, s| by_worker(v, s, |w| w.engine.held),
        "Packets held at this moment: fragments that wait for their first one, SYNs that wait for an inside host.",
    ),
    counter("worker_bursts", WORKER, |v, s| by_worker(v, s, |w| w.worker.bursts), "Bursts received."),
    counter(
        "worker_idle_waits",
        WORKER,
        |v, s| by_worker(v, s, |w| w.worker.idle_waits),
        "Times that a worker went to sleep for want of packets.",
    ),
    counter(
        "worker_busy_seconds",
        WORKER,
        |v, s| {
            v.workers().for_each(|(n, w)| {
                let ms = w.worker.busy_ns / 1_000_000;
                s.add(&[&n], format_args!("{}.{:03}", ms / 1000, ms % 1000));
            });
        },
        "Time of the turns of a worker's loop in which there were packets. Its rate is the share of a processor that packets take: what the system shows of a worker that looks for packets without a pause (DPDK) is not.",
    ),
    counter(
        "worker_handed_packets",
        &["worker", "when"],
        |v, s| {
            v.workers().for_each(|(n, w)| {
                s.add(&[&n, "before"], w.worker.handed.before);
                s.add(&[&n, "after"], w.worker.handed.after);
            })
        },
        "Packets given to the worker that has their session, before or after translation.",
    ),
    counter(
        "worker_handed_lost_packets",
        WORKER,
        |v, s| by_worker(v, s, |w| w.worker.handed.before_lost + w.worker.handed.after_lost),
        "Packets lost on that way, as the other worker did not keep up.",
    ),
    gauge(
        "worker_sessions",
        WORKER,
        |v, s| by_worker(v, s, |w| conversion::state_of(w)[0]),
        "Sessions of a worker.",
    ),
    counter(
        "device_packets",
        &["worker", "device", "way"],
        |v, s| {
            v.workers().for_each(|(n, w)| {
                s.add(&[&n, &w.backend_name, "received"], w.backend.rx_packets);
                s.add(&[&n, &w.backend_name, "sent"], w.backend.tx_packets);
            })
        },
        "Packets that a worker's device has received and sent.",
    ),
    counter(
        "device_bytes",
        &["worker", "device", "way"],
        |v, s| {
            v.workers().for_each(|(n, w)| {
                s.add(&[&n, &w.backend_name, "received"], w.backend.rx_bytes);
                s.add(&[&n, &w.backend_name, "sent"], w.backend.tx_bytes);
            })
        },
        "Their bytes.",
    ),
    counter(
        "device_super_packets",
        &["worker", "device", "way"],
        |v, s| {
            v.workers().for_each(|(n, w)| {
                s.add(&[&n, &w.backend_name, "received"], w.backend.rx_super_packets);
                s.add(&[&n, &w.backend_name, "sent"], w.backend.tx_super_packets);
            })
        },
        "Of the packets, those that stand for several (TSO, USO).",
    ),
    counter(
        "device_errors",
        &["worker", "device", "error"],
        |v, s| {
            v.workers().for_each(|(n, w)| {
                RxError::ALL
                    .iter()
                    .for_each(|&e| s.add(&[&n, &w.backend_name, e.name()], w.backend.rx_errors[e as usize]));
                TxError::ALL
                    .iter()
                    .for_each(|&e| s.add(&[&n, &w.backend_name, e.name()], w.backend.tx_errors[e as usize]));
            })
        },
        "Packets that a device did not receive whole or did not take.",
    ),
    counter(
        "device_events",
        &["worker", "device", "event"],
        |v, s| {
            v.workers().for_each(|(n, w)| {
                w.backend
                    .named
                    .iter()
                    .for_each(|named| s.add(&[&n, &w.backend_name, named.name], named.count));
            })
        },
        "What a kind of device counts beside.",
    ),
    counter(
        "drops",
        &["direction", "reason"],
        |v, s| {
            for (direction, word) in DIRECTIONS {
                for &reason in DropReason::ALL {
                    s.add(
                        &[word, reason.name()],
                        v.total.engine.drops[direction as usize][reason as usize].packets,
                    );
                }
            }
        },
        "Packets dropped: rejected with an ICMP error or dropped silently. `gatun show drops` explains the reasons.",
    ),
    counter(
        "translated_packets",
        &["direction"],
        |v, s| {
            DIRECTIONS
                .iter()
                .for_each(|(d, word)| s.add(&[word], v.total.engine.translated[*d as usize].packets));
        },
        "Packets forwarded, by direction.",
    ),
    counter("echo_replies", &[], engine_counter, "Echo requests to the translator itself, answered."),
    counter("icmp_errors_sent", &[], engine_counter, "ICMP errors made and sent."),
    counter("icmp_errors_limited", &[], engine_counter, LIMITED),
    counter("icmp_errors_limited_per_source", &[], engine_counter, LIMITED_PER_SOURCE),
    counter(
        "icmp_errors_suppressed",
        &[],
        engine_counter,
        "ICMP errors not made, because they are switched off or may not answer such a packet.",
    ),
    counter(
        "fragments_made",
        &[],
        engine_counter,
        "Further packets made: fragments of a packet that was cut.",
    ),
    counter(
        "probes_sent",
        &[],
        engine_counter,
        "Probes sent to established TCP connections whose time was up.",
    ),
    counter("sessions_cleared", &[], engine_counter, "Sessions ended on request, before their time."),
    counter(
        "path_mtus_learnt",
        &[],
        engine_counter,
        "Messages that told of a path to an IPv4 host that carries less than 1260 bytes.",
    ),
    counter(
        "path_mtus_evicted",
        &[],
        engine_counter,
        "Hosts behind such paths that were forgotten for others.",
    ),
    gauge(
        "memory_bytes",
        &["pages"],
        |v, s| {
            let pages = &v.scrape.facts.pages;
            s.add(&["set_aside"], pages.set_aside_bytes);
            s.add(&["transparent"], pages.transparent_bytes);
            s.add(&["small"], pages.small_bytes);
        },
        "Memory taken at the start, by the pages it lies on: huge pages set aside, transparent huge pages, small pages.",
    ),
    gauge(
        "sessions_max",
        &[],
        |v, s| s.add(&[], v.scrape.facts.sessions_max),
        "Sessions there may be (`limits.sessions_max`); 0 without stateful instances.",
    ),
    gauge(
        "subscribers_max",
        &[],
        |v, s| s.add(&[], v.scrape.facts.subscribers_max),
        "Subscribers there may be (`limits.subscribers_max`); 0 without stateful instances.",
    ),
    counter(
        "instance_packets",
        &["kind", "name", "way"],
        |v, s| by_way(v, s, |c| c.packets),
        "Packets forwarded by an instance, from inside and to it.",
    ),
    counter("instance_bytes", &["kind", "name", "way"], |v, s| by_way(v, s, |c| c.bytes), "Their bytes."),
    counter(
        "instance_chosen_packets",
        INSTANCE,
        |v, s| by_instance(v, |who, i| s.add(&who, i.counters.all().packets)),
        "Packets that an instance was chosen for by port, prefix, source or pool, in either direction: translated, passed, answered or dropped.",
    ),
    counter(
        "instance_passed_packets",
        INSTANCE,
        |v, s| by_instance(v, |who, i| s.add(&who, i.counters.passed.packets)),
        "Packets of an instance that were left as they are.",
    ),
    counter(
        "instance_hairpinned_packets",
        INSTANCE,
        |v, s| by_instance(v, |who, i| s.add(&who, i.counters.hairpinned.packets)),
        "Of the outbound ones: turned round, to an inside host.",
    ),
    counter(
        "instance_drops",
        &["kind", "name", "reason"],
        |v, s| {
            by_instance(v, |[kind, name], i| {
                let drops =
                    DropReason::ALL.iter().zip(&i.counters.drops).filter(|(_, count)| count.packets > 0);
                drops.for_each(|(reason, count)| s.add(&[kind, name, reason.name()], count.packets));
            })
        },
        "Packets not forwarded, by instance; reasons that there were.",
    ),
    gauge(
        "instance_sessions",
        INSTANCE_PROTOCOL,
        |v, s| by_life(v, s, |i, at| i.lives.sessions[at].now()),
        "Sessions there are.",
    ),
    counter(
        "instance_sessions_begun",
        INSTANCE_PROTOCOL,
        |v, s| by_life(v, s, |i, at| i.lives.sessions[at].begun),
        "Sessions there have been.",
    ),
    gauge(
        "instance_bindings",
        INSTANCE_PROTOCOL,
        |v, s| by_life(v, s, |i, at| i.lives.bindings[at].now()),
        "Bindings there are, those of the configuration too.",
    ),
    counter(
        "instance_bindings_begun",
        INSTANCE_PROTOCOL,
        |v, s| by_life(v, s, |i, at| i.lives.bindings[at].begun),
        "Bindings there have been.",
    ),
    gauge(
        "instance_subscribers",
        INSTANCE,
        |v, s| by_instance(v, |who, i| s.add(&who, u64::from(i.subscribers))),
        "Subscribers with state.",
    ),
    gauge(
        "sessions_inherited_waiting",
        &[],
        |v, s| s.add(&[], v.total.restore.left),
        "Sessions of the process before that are not back in the tables yet: they are put back at their first packet, or in turn.",
    ),
    counter(
        "sessions_inherited",
        &[],
        |v, s| s.add(&[], v.total.restore.restored),
        "Sessions of the process before that go on.",
    ),
    counter(
        "sessions_inherited_lost",
        &["reason"],
        |v, s| {
            let not = NotRestored::ALL.into_iter().zip(v.total.restore.not);
            // A session that was found twice goes on.
            not.filter(|(why, _)| *why != NotRestored::There).for_each(|(why, n)| s.add(&[why.name()], n));
        },
        "Sessions of the process before that do not go on, and why.",
    ),
    counter(
        "pool_packets",
        POOL_WAY,
        |v, s| by_pool_way(v, s, |c| c.packets),
        "Packets translated by a pool's addresses: `outbound` from inside, `inbound` to the inside. One that is turned round is outbound for its sender's pool and inbound for its receiver's. A super-packet is one.",
    ),
    counter(
        "pool_bytes",
        POOL_WAY,
        |v, s| by_pool_way(v, s, |c| c.bytes),
        "Bytes of these packets, as received, from the IP header on.",
    ),
    gauge("pool_addresses", POOL, |v, s| by_pool(v, s, |p| p.addresses.into()), "Public addresses."),
    gauge(
        "pool_ports",
        POOL_PROTOCOL,
        |v, s| by_pool_protocol(v, s, |p, at| p.ports[at].total),
        "Ports there are.",
    ),
    gauge(
        "pool_ports_used",
        POOL_PROTOCOL,
        |v, s| by_pool_protocol(v, s, |p, at| p.ports[at].used),
        "Ports in use.",
    ),
    gauge(
        "pool_ports_held",
        POOL,
        |v, s| by_pool(v, s, |p| p.ports_held),
        "Single ports that were given back and are held down.",
    ),
    counter(
        "pool_ports_given",
        POOL,
        |v, s| by_pool(v, s, |p| p.counters.ports_given),
        "Ports given to bindings.",
    ),
    counter(
        "pool_ports_returned",
        POOL,
        |v, s| by_pool(v, s, |p| p.counters.ports_returned),
        "Ports that came back.",
    ),
    counter(
        "pool_refused",
        POOL,
        |v, s| by_pool(v, s, |p| p.counters.refused),
        "Ports that could not be given, whatever the reason.",
    ),
    counter(
        "pool_pairing_broken",
        POOL,
        |v, s| by_pool(v, s, |p| p.counters.pairing_broken),
        "Ports of another address than the subscriber's own.",
    ),
    gauge(
        "pool_blocks",
        POOL,
        |v, s| by_pool_blocks(v, s, |b| b.total),
        "Port blocks there are, where a pool has any.",
    ),
    gauge(
        "pool_blocks_owned",
        POOL,
        |v, s| by_pool_blocks(v, s, |b| b.owned),
        "Port blocks that subscribers have.",
    ),
    gauge(
        "pool_blocks_lingering",
        POOL,
        |v, s| by_pool_blocks(v, s, |b| b.lingering),
        "Of those, without a port in use.",
    ),
    gauge(
        "pool_blocks_held",
        POOL,
        |v, s| by_pool_blocks(v, s, |b| b.held),
        "Port blocks given back, and not to be given to another subscriber yet.",
    ),
    counter(
        "pool_blocks_given",
        POOL,
        |v, s| by_pool(v, s, |p| p.counters.blocks_given),
        "Port blocks given to subscribers.",
    ),
    counter(
        "pool_blocks_returned",
        POOL,
        |v, s| by_pool(v, s, |p| p.counters.blocks_returned),
        "Port blocks that came back.",
    ),
    gauge(
        "pool_subscribers",
        POOL,
        |v, s| by_pool(v, s, |p| p.subscribers.into()),
        "Subscribers with state, of all instances that use a pool.",
    ),
    counter(
        "export_sent_events",
        EXPORT,
        |v, s| by_export(v, s, |e| e.sent),
        "Events given to the connection of a collector ([[export]]), or put into a datagram.",
    ),
    counter(
        "export_lost_events",
        EXPORT,
        |v, s| by_export(v, s, |e| e.lost),
        "Events that a collector does not get: its queue or spool was full, or it was away and has no spool.",
    ),
    gauge(
        "export_waiting_events",
        EXPORT,
        |v, s| by_export(v, s, |e| e.waiting),
        "Events that wait to be sent.",
    ),
    gauge(
        "export_spool_bytes",
        EXPORT,
        |v, s| by_export(v, s, |e| e.spooled_bytes),
        "Bytes in a collector's spool.",
    ),
    gauge(
        "export_connected",
        EXPORT,
        |v, s| by_export(v, s, |e| e.is_connected.into()),
        "Whether a collector has taken the last message.",
    ),
    gauge("log_records", &[], |v, s| of_log(v, s, |l| l.records), "Records of the log on disk ([log])."),
    gauge("log_bytes", &[], |v, s| of_log(v, s, |l| l.bytes), "Bytes of its files."),
    gauge("log_waiting_records", &[], |v, s| of_log(v, s, |l| l.waiting), "Records that wait to be written."),
    counter(
        "log_lost_events",
        &[],
        |v, s| of_log(v, s, |l| l.lost),
        "Events that are missing in the log, as the disk or a worker's ring was full.",
    ),
    gauge(
        "log_well",
        &[],
        |v, s| of_log(v, s, |l| l.is_well.into()),
        "Whether the log could be written at the last attempt.",
    ),
    histogram(
        "subscriber_sessions",
        |v, s| distribution(v, s, Measure::Sessions),
        "Subscribers with state by their sessions.",
    ),
    histogram(
        "subscriber_ports",
        |v, s| distribution(v, s, Measure::Ports),
        "Subscribers with state by their ports, of all protocols.",
    ),
    gauge(
        "top_subscriber_sessions",
        SUBSCRIBER,
        |v, s| top(v, s, Measure::Sessions),
        "Sessions of the ten subscribers that have most.",
    ),
    gauge(
        "top_subscriber_ports",
        SUBSCRIBER,
        |v, s| top(v, s, Measure::Ports),
        "Ports of the ten subscribers that have most.",
    ),
    counter(
        "top_subscriber_refusals",
        SUBSCRIBER,
        |v, s| top(v, s, Measure::Refusals),
        "Sessions and ports refused by a limit, of the ten subscribers with most refusals.",
    ),
    counter(
        "top_subscriber_bytes",
        SUBSCRIBER,
        |v, s| top(v, s, Measure::Bytes),
        "Bytes of the ten subscribers with most, both directions together, since each has had state without a pause.",
    ),
    counter(
        "api_turned_away",
        &["reason"],
        |v, s| v.scrape.turned.iter().for_each(|(reason, count)| s.add(&[reason], *count)),
        "Connections and requests over TCP that were not served: `pace` (a source begins too many), `full` (all are busy), `handshake` (TLS failed), `no_token`, `wrong_token`, `many_wrong_tokens`, `role` (the token may only read). Absent where the API does not listen on TCP.",
    ),
];
