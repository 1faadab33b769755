//! List of all metrics.

use super::Metric;
use super::kinds::{counter, engine, gauge, histogram};
use super::read::{
    DIRECTIONS, announced, by_export, by_instance, by_node, by_pool, by_pool_blocks, by_pool_protocol,
    by_pool_way, by_protocol, by_way, by_worker, distribution, fates, of_log, top,
};
use crate::conversion;
use crate::engine_counters;
use crate::subscriber_totals::Measure;
use gatun_io::{RxError, TxError};
use gatun_nat::session_file::RestoreError;
use gatun_wire::DropReason;

const SUBSCRIBER: &[&str] = &["name", "subscriber"];
const WORKER: &[&str] = &["worker"];
const EXPORT: &[&str] = &["export"];
const INSTANCE: &[&str] = &["kind", "name"];
const INSTANCE_PROTOCOL: &[&str] = &["kind", "name", "protocol"];
const POOL: &[&str] = &["pool"];
const POOL_WAY: &[&str] = &["pool", "direction"];
const POOL_PROTOCOL: &[&str] = &["pool", "protocol"];

/// Metrics except those of fast paths. Transports are in the order of [`Transport`].
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
        "Seconds since translation began.",
    ),
    gauge(
        "healthy",
        &[],
        |v, s| s.add(&[], u64::from(v.scrape.health.healthy)),
        "1 if the daemon is healthy; otherwise `gatun health` has the reasons.",
    ),
    gauge(
        "announced_routes",
        &["table", "role"],
        announced,
        "Routes in a table for a routing daemon, if `[announce]` is configured. `role` is `own`, or `backup` for networks of the other box of a pair.",
    ),
    gauge(
        "worker_up",
        WORKER,
        |v, s| {
            for (number, snapshot) in v.scrape.workers.iter().enumerate() {
                s.add(&[&number.to_string()], u64::from(snapshot.is_some()));
            }
        },
        "1 if the worker answers.",
    ),
    gauge(
        "worker_packets_accounted",
        WORKER,
        |v, s| by_worker(v, s, |w| u64::from(w.conserved())),
        "1 if every packet that the worker received is accounted for; 0 is a defect: please report it.",
    ),
    counter(
        "worker_packets",
        &["worker", "fate"],
        |v, s| {
            v.workers()
                .for_each(|(n, w)| fates(w).iter().for_each(|(fate, c)| s.add(&[&n, fate], c.packets)));
        },
        "Packets by worker and fate. A received packet is forwarded (handed to the device: gatun_device_errors_total has those that it refused), echo_replied, passed, rejected (with an ICMP error), dropped_silently, redirected (to another node of a cluster) or held.",
    ),
    counter(
        "worker_bytes",
        &["worker", "fate"],
        |v, s| {
            v.workers().for_each(|(n, w)| fates(w).iter().for_each(|(fate, c)| s.add(&[&n, fate], c.bytes)));
        },
        "Bytes by worker and fate.",
    ),
    counter(
        "worker_redirected_packets",
        &["worker", "node"],
        |v, s| by_node(v, s, |count| count.packets),
        "Packets sent to each other node of a cluster, which translates them.",
    ),
    counter(
        "worker_redirected_bytes",
        &["worker", "node"],
        |v, s| by_node(v, s, |count| count.bytes),
        "Bytes sent to each other node of a cluster, without the headers of the tunnel.",
    ),
    counter(
        "worker_redirected_outside_packets",
        WORKER,
        |v, s| by_worker(v, s, |w| w.worker.redirect_outside),
        "Part of gatun_worker_redirected_packets_total: packets from outside, which routes have led past the owner of their shard.",
    ),
    gauge(
        "worker_held_packets",
        WORKER,
        |v, s| by_worker(v, s, |w| w.engine.held),
        "Packets held at this moment: fragments that wait for the first fragment, SYNs that wait for an inside host.",
    ),
    counter("worker_bursts", WORKER, |v, s| by_worker(v, s, |w| w.worker.bursts), "Bursts received."),
    counter(
        "worker_idle_waits",
        WORKER,
        |v, s| by_worker(v, s, |w| w.worker.idle_waits),
        "Times that a worker went to sleep because there were no packets.",
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
        "Time of the loop iterations in which a worker had packets. Its rate is the share of a processor that packets take; the system's CPU usage is not, for a worker that polls (DPDK).",
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
        "Packets handed to the worker that has their session, before or after translation.",
    ),
    counter(
        "worker_handed_lost_packets",
        WORKER,
        |v, s| by_worker(v, s, |w| w.worker.handed.before_lost + w.worker.handed.after_lost),
        "Packets lost because another worker did not keep up.",
    ),
    gauge(
        "worker_sessions",
        WORKER,
        |v, s| by_worker(v, s, |w| conversion::state_of(w)[0]),
        "Sessions by worker.",
    ),
    counter(
        "device_packets",
        &["worker", "device", "direction"],
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
        &["worker", "device", "direction"],
        |v, s| {
            v.workers().for_each(|(n, w)| {
                s.add(&[&n, &w.backend_name, "received"], w.backend.rx_bytes);
                s.add(&[&n, &w.backend_name, "sent"], w.backend.tx_bytes);
            })
        },
        "Bytes that a worker's device has received and sent.",
    ),
    counter(
        "device_super_packets",
        &["worker", "device", "direction"],
        |v, s| {
            v.workers().for_each(|(n, w)| {
                s.add(&[&n, &w.backend_name, "received"], w.backend.rx_super_packets);
                s.add(&[&n, &w.backend_name, "sent"], w.backend.tx_super_packets);
            })
        },
        "Super-packets that a worker's device has received and sent (TSO, USO).",
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
        "Packets that a device did not receive whole or did not accept.",
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
        "Further counters of a device's backend.",
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
    engine(engine_counters::ECHO_REPLIES),
    engine(engine_counters::ICMP_ERRORS_SENT),
    engine(engine_counters::ICMP_ERRORS_LIMITED),
    engine(engine_counters::ICMP_ERRORS_LIMITED_PER_SOURCE),
    engine(engine_counters::ICMP_ERRORS_SUPPRESSED),
    engine(engine_counters::FRAGMENTS_MADE),
    engine(engine_counters::PROBES_SENT),
    engine(engine_counters::SESSIONS_CLEARED),
    engine(engine_counters::PATH_MTUS_LEARNT),
    engine(engine_counters::PATH_MTUS_EVICTED),
    gauge(
        "memory_bytes",
        &["pages"],
        |v, s| {
            let pages = &v.scrape.facts.pages;
            s.add(&["set_aside"], pages.set_aside_bytes);
            s.add(&["transparent"], pages.transparent_bytes);
            s.add(&["small"], pages.small_bytes);
        },
        "Memory allocated at start, by page type: reserved huge pages, transparent huge pages, small pages.",
    ),
    gauge(
        "sessions_max",
        &[],
        |v, s| s.add(&[], v.scrape.facts.sessions_max),
        "Session limit (`limits.sessions_max`); 0 without stateful instances.",
    ),
    gauge(
        "subscribers_max",
        &[],
        |v, s| s.add(&[], v.scrape.facts.subscribers_max),
        "Subscriber limit (`limits.subscribers_max`); 0 without stateful instances.",
    ),
    counter(
        "instance_packets",
        &["kind", "name", "direction"],
        |v, s| by_way(v, s, |c| c.packets),
        "Packets forwarded by an instance, by direction.",
    ),
    counter(
        "instance_bytes",
        &["kind", "name", "direction"],
        |v, s| by_way(v, s, |c| c.bytes),
        "Bytes forwarded by an instance, by direction.",
    ),
    counter(
        "instance_matched_packets",
        INSTANCE,
        |v, s| by_instance(v, |who, i| s.add(&who, i.counters.all().packets)),
        "Packets matched to an instance by port, prefix, source or pool, in either direction: translated, passed, answered or dropped.",
    ),
    counter(
        "instance_passed_packets",
        INSTANCE,
        |v, s| by_instance(v, |who, i| s.add(&who, i.counters.passed.packets)),
        "Packets of an instance passed on without translation.",
    ),
    counter(
        "instance_hairpinned_packets",
        INSTANCE,
        |v, s| by_instance(v, |who, i| s.add(&who, i.counters.hairpinned.packets)),
        "Hairpinned packets, part of the outbound ones.",
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
        "Packets not forwarded, by instance and reason; reasons without packets are left out.",
    ),
    gauge(
        "instance_sessions",
        INSTANCE_PROTOCOL,
        |v, s| by_protocol(v, s, |i, at| i.entries.sessions[at].now()),
        "Current sessions.",
    ),
    counter(
        "instance_sessions_created",
        INSTANCE_PROTOCOL,
        |v, s| by_protocol(v, s, |i, at| i.entries.sessions[at].created),
        "Sessions opened.",
    ),
    gauge(
        "instance_bindings",
        INSTANCE_PROTOCOL,
        |v, s| by_protocol(v, s, |i, at| i.entries.bindings[at].now()),
        "Current bindings, including static ones.",
    ),
    counter(
        "instance_bindings_created",
        INSTANCE_PROTOCOL,
        |v, s| by_protocol(v, s, |i, at| i.entries.bindings[at].created),
        "Bindings created.",
    ),
    gauge(
        "instance_subscribers",
        INSTANCE,
        |v, s| by_instance(v, |who, i| s.add(&who, u64::from(i.subscribers))),
        "Subscribers with state.",
    ),
    gauge(
        "sessions_waiting_restore",
        &[],
        |v, s| s.add(&[], v.total.restore.left),
        "Sessions of the previous process that wait to be restored: at their first packet, or in turn.",
    ),
    counter(
        "sessions_restored",
        &[],
        |v, s| s.add(&[], v.total.restore.restored),
        "Sessions restored from the previous process.",
    ),
    counter(
        "sessions_not_restored",
        &["reason"],
        |v, s| {
            let not = RestoreError::ALL.into_iter().zip(v.total.restore.not);
            // A session that was found twice has been restored.
            not.filter(|(why, _)| *why != RestoreError::Exists).for_each(|(why, n)| s.add(&[why.name()], n));
        },
        "Sessions of the previous process that were not restored, by reason.",
    ),
    counter(
        "pool_packets",
        POOL_WAY,
        |v, s| by_pool_way(v, s, |c| c.packets),
        "Packets translated by a pool's addresses: `outbound` from inside, `inbound` to the inside. A hairpinned packet is outbound for its sender's pool and inbound for its receiver's. A super-packet counts as one.",
    ),
    counter(
        "pool_bytes",
        POOL_WAY,
        |v, s| by_pool_way(v, s, |c| c.bytes),
        "Bytes translated by a pool's addresses, as received, from the IP header on.",
    ),
    gauge("pool_addresses", POOL, |v, s| by_pool(v, s, |p| p.addresses.into()), "Public addresses."),
    gauge(
        "pool_ports",
        POOL_PROTOCOL,
        |v, s| by_pool_protocol(v, s, |p, at| p.ports[at].total),
        "Number of ports.",
    ),
    gauge(
        "pool_ports_used",
        POOL_PROTOCOL,
        |v, s| by_pool_protocol(v, s, |p, at| p.ports[at].used),
        "Ports in use.",
    ),
    gauge("pool_ports_held", POOL, |v, s| by_pool(v, s, |p| p.ports_held), "Single ports in hold-down."),
    counter(
        "pool_ports_allocated",
        POOL,
        |v, s| by_pool(v, s, |p| p.counters.ports_allocated),
        "Ports allocated to bindings.",
    ),
    counter("pool_ports_released", POOL, |v, s| by_pool(v, s, |p| p.counters.ports_released), "Ports freed."),
    counter(
        "pool_refused",
        POOL,
        |v, s| by_pool(v, s, |p| p.counters.refused),
        "Failed port allocations, for any reason.",
    ),
    counter(
        "pool_pairing_broken",
        POOL,
        |v, s| by_pool(v, s, |p| p.counters.pairing_broken),
        "Ports allocated from another address than the subscriber's paired one.",
    ),
    gauge(
        "pool_blocks",
        POOL,
        |v, s| by_pool_blocks(v, s, |b| b.total),
        "Number of port blocks, for pools with port blocks.",
    ),
    gauge(
        "pool_blocks_owned",
        POOL,
        |v, s| by_pool_blocks(v, s, |b| b.owned),
        "Port blocks allocated to subscribers.",
    ),
    gauge(
        "pool_blocks_lingering",
        POOL,
        |v, s| by_pool_blocks(v, s, |b| b.lingering),
        "Allocated port blocks without a port in use.",
    ),
    gauge(
        "pool_blocks_held",
        POOL,
        |v, s| by_pool_blocks(v, s, |b| b.held),
        "Freed port blocks in hold-down.",
    ),
    counter(
        "pool_blocks_allocated",
        POOL,
        |v, s| by_pool(v, s, |p| p.counters.blocks_allocated),
        "Port blocks allocated.",
    ),
    counter(
        "pool_blocks_released",
        POOL,
        |v, s| by_pool(v, s, |p| p.counters.blocks_released),
        "Port blocks freed.",
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
        "Events written to a collector's connection ([[export]]) or sent in a datagram.",
    ),
    counter(
        "export_lost_events",
        EXPORT,
        |v, s| by_export(v, s, |e| e.lost),
        "Events lost for a collector: its queue or spool was full, or it was unreachable and has no spool.",
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
        "1 if the collector took the last message.",
    ),
    gauge("log_records", &[], |v, s| of_log(v, s, |l| l.records), "Records of the log on disk ([log])."),
    gauge("log_bytes", &[], |v, s| of_log(v, s, |l| l.bytes), "Bytes of the log's files."),
    gauge(
        "log_waiting_records",
        &[],
        |v, s| of_log(v, s, |l| l.waiting),
        "Records of the log that wait to be written.",
    ),
    counter(
        "log_lost_events",
        &[],
        |v, s| of_log(v, s, |l| l.lost),
        "Events missing in the log because the disk or a worker's ring was full.",
    ),
    gauge(
        "log_writable",
        &[],
        |v, s| of_log(v, s, |l| l.is_writable.into()),
        "1 if the last attempt to write the log succeeded.",
    ),
    histogram(
        "subscriber_sessions",
        |v, s| distribution(v, s, Measure::Sessions),
        "Distribution of sessions over subscribers with state.",
    ),
    histogram(
        "subscriber_ports",
        |v, s| distribution(v, s, Measure::Ports),
        "Distribution of ports of all protocols over subscribers with state.",
    ),
    gauge(
        "top_subscriber_sessions",
        SUBSCRIBER,
        |v, s| top(v, s, Measure::Sessions),
        "Sessions of the ten subscribers with most sessions.",
    ),
    gauge(
        "top_subscriber_ports",
        SUBSCRIBER,
        |v, s| top(v, s, Measure::Ports),
        "Ports of the ten subscribers with most ports.",
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
        "Bytes of the ten subscribers with most bytes, both directions together, since each last began to have state.",
    ),
    counter(
        "api_clients_refused",
        &["reason"],
        |v, s| v.scrape.clients_refused.iter().for_each(|(reason, count)| s.add(&[reason], *count)),
        "Connections and requests over TCP that were not served: `rate` (too many connections from a source), `full` (all connections are busy), `handshake` (TLS failed), `no_token`, `wrong_token`, `many_wrong_tokens`, `role` (the token's role does not allow the request). Absent if the API does not listen on TCP.",
    ),
];
