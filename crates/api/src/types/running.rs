//! What runs: the daemon, its ports and workers.

use crate::schema::{structs, words};

words! {
    /// Extent to which the sandbox is in force.
    pub enum Bound {
        /// In force.
        Whole = "on",
        /// Some of it: `missing` says what is not.
        Partly = "partly",
        /// Nothing of it.
        Not = "off",
    }
}

words! {
    /// Urgency of a condition.
    pub enum Urgency {
        /// Something is lost, or will be.
        Bad = "bad",
        /// Something is worth a look.
        Warning = "warn",
    }

    /// The part of the daemon that is in trouble.
    pub enum Part {
        /// A worker.
        Workers = "workers",
        /// The account of packets.
        Account = "account",
        /// The log of who had which port.
        Log = "log",
        /// A collector of events.
        Export = "export",
        /// The process that restores routes.
        Network = "network",
    }
}

structs! {
    /// Something that needs attention.
    pub struct Trouble {
        /// Urgency.
        pub urgency: Urgency,
        /// Part of the daemon.
        pub part: Part,
        /// A sentence that says what is wrong.
        pub what: String,
    }

    /// Packets and their bytes.
    pub struct Count {
        /// Packets. A super-packet is one.
        pub packets: u64,
        /// Bytes, as received, from the IP header on.
        pub bytes: u64,
    }

    /// Client of a request.
    pub struct Access {
        /// Name of the client in the log.
        pub name: String,
        /// Whether they may change anything, and trace packets.
        pub may_write: bool,
        /// Whether they may ask the log who had a port at a time.
        pub may_audit: bool,
    }

    /// Sandbox of the daemon.
    pub struct Sandbox {
        /// Extent to which it is in force.
        pub state: Bound,
        /// Parts that are not in force, with the reasons.
        pub missing: Vec<String>,
    }

    /// Pages that the memory of the daemon lies on.
    #[derive(Default)]
    pub struct TablePages {
        /// Bytes on huge pages that were set aside (`vm.nr_hugepages`).
        pub set_aside_bytes: u64,
        /// Bytes on transparent huge pages.
        pub transparent_bytes: u64,
        /// Bytes on small pages: looking something up in large tables takes several times as long there.
        pub small_bytes: u64,
    }

    /// The daemon at a glance.
    pub struct Status {
        /// Version of the daemon.
        pub version: String,
        /// Its process number.
        pub pid: u32,
        /// Seconds since it began to translate.
        pub uptime_seconds: u64,
        /// The configuration file.
        pub config_file: String,
        /// Workers.
        pub workers: u32,
        /// Workers that did not answer in time: what is told lacks theirs.
        pub workers_silent: u32,
        /// Sandbox of the daemon.
        pub sandbox: Sandbox,
        /// Pages that its memory lay on when it began.
        pub pages: TablePages,
        /// Sessions there are.
        pub sessions: u64,
        /// Sessions of the process before that wait for their first packet, or their turn.
        pub sessions_waiting: u64,
        /// Sessions there may be; 0 without stateful instances.
        pub sessions_max: u64,
        /// Bindings there are, those of the configuration too.
        pub bindings: u64,
        /// Subscribers with state.
        pub subscribers: u64,
        /// Packets received.
        pub received: Count,
        /// Packets translated and handed to the device.
        pub forwarded: Count,
        /// Packets handed to a device that did not send them, forwarded ones and answers: `device_counters` of `/v1/workers` has
        /// the reasons.
        pub refused_by_device: u64,
        /// Echo requests to Gatun itself, answered.
        pub echo_replies: Count,
        /// Packets that are not for the translator.
        pub passed: Count,
        /// Packets refused: `rejected` and `dropped_silently` together. `/v1/drops` has their reasons.
        pub dropped: Count,
        /// Packets refused and answered with an ICMP error.
        pub rejected: Count,
        /// Packets refused without an answer.
        pub dropped_silently: Count,
        /// Packets held at this moment.
        pub held: u64,
        /// Whether every packet received is accounted for.
        pub adds_up: bool,
        /// Conditions that need attention, the most urgent first.
        pub troubles: Vec<Trouble>,
    }

    /// Counts between two moments.
    pub struct HistoryPoint {
        /// Milliseconds from the end of it to this answer.
        pub age_ms: u64,
        /// Milliseconds that it is long.
        pub length_ms: u64,
        /// Packets received in it.
        pub received_packets: u64,
        /// Packets translated and sent on in it.
        pub forwarded_packets: u64,
        /// Their bytes, as received.
        pub forwarded_bytes: u64,
        /// Packets refused in it, with an ICMP error or silently.
        pub dropped_packets: u64,
        /// Sessions that began in it.
        pub sessions_begun: u64,
        /// Sessions that there were at its end.
        pub sessions: u64,
        /// Subscribers with state at its end.
        pub subscribers: u64,
    }

    /// The last hour.
    pub struct History {
        /// Milliseconds from one point to the next. Where a worker did not answer, points are missing.
        pub every_ms: u64,
        /// The oldest first.
        pub points: Vec<HistoryPoint>,
    }

    /// A port of the configuration.
    pub struct Port {
        /// Name of the port.
        pub name: String,
        /// Backend: tun, xdp or dpdk.
        pub backend: String,
        /// The device's name in the system.
        pub device: String,
        /// Queues, each served by a worker.
        pub queues: u32,
        /// The largest packet in bytes; none where it is the device's own.
        pub mtu: Option<u32>,
        /// Addresses of the configuration.
        pub addresses: Vec<String>,
    }

    /// A count with a name.
    pub struct Counter {
        /// Its name.
        pub name: String,
        /// The count.
        pub value: u64,
        /// Name of the counter.
        pub help: String,
    }

    /// A worker: one thread, one share of the state.
    pub struct Worker {
        /// Its number, from 0.
        pub number: u32,
        /// Device that it receives from.
        pub device: String,
        /// Whether it answered in time; if not, all else is zero.
        pub answers: bool,
        /// Packets received from its device.
        pub received: Count,
        /// Packets translated and sent on.
        pub forwarded: Count,
        /// Packets refused, with an ICMP error or silently.
        pub dropped: Count,
        /// Bursts received.
        pub bursts: u64,
        /// Times that it went to sleep for want of packets.
        pub idle_waits: u64,
        /// Nanoseconds of the turns of its loop in which there were packets: the share of the time in which it was at work, where
        /// looking for packets is not.
        pub busy_ns: u64,
        /// Packets handed to the worker that has their session, as received.
        pub handed_before: u64,
        /// Packets handed to another worker behind translation.
        pub handed_after: u64,
        /// Packets lost on such a way, as the other worker did not keep up.
        pub handed_lost: u64,
        /// Sessions there are.
        pub sessions: u64,
        /// Subscribers with state.
        pub subscribers: u64,
        /// Errors and further counters of its device, without zeros.
        pub device_counters: Vec<Counter>,
    }

    /// Refusal of a request.
    pub struct Problem {
        /// Error.
        pub error: String,
        /// Advice.
        pub hint: String,
    }
}
