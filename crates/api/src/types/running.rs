//! The running daemon, its ports and workers.

use crate::schema::{structs, words};

words! {
    /// Place outside Gatun where established sessions can be translated.
    pub enum FastPathPlace {
        /// None.
        None = "none",
        /// In the kernel.
        Kernel = "kernel",
        /// In P4 switches.
        Switches = "switches",
    }
}

words! {
    /// Extent to which the sandbox is in force.
    pub enum SandboxExtent {
        /// Wholly in force.
        Whole = "on",
        /// Partly in force: `missing` lists the rest.
        Partly = "partly",
        /// Not in force.
        Not = "off",
    }
}

words! {
    /// Urgency of a condition.
    pub enum Urgency {
        /// Something is lost, or will be.
        Bad = "bad",
        /// The operator should look at it.
        Warning = "warn",
    }

    /// Part of the daemon with a problem.
    pub enum Part {
        /// A worker thread.
        Workers = "workers",
        /// The account of packets.
        Account = "account",
        /// The log of public port holders.
        Log = "log",
        /// A collector of events.
        Export = "export",
        /// The process that restores routes.
        Network = "network",
        /// The kernel fast path.
        FastPath = "fastpath",
        /// P4 switches.
        Offload = "offload",
        /// A port, or its link.
        Ports = "ports",
        /// A pool of public ports.
        Pools = "pools",
        /// The other box of a pair.
        Peer = "peer",
        /// Nodes of a cluster.
        Cluster = "cluster",
        /// Announced routes.
        Announce = "announce",
    }
}

structs! {
    /// A condition that needs attention.
    pub struct Trouble {
        /// Urgency of the condition.
        pub urgency: Urgency,
        /// Part of the daemon.
        pub part: Part,
        /// Description in a sentence.
        pub what: String,
    }

    /// Packets and their bytes.
    pub struct Count {
        /// Packets. A super-packet counts as one.
        pub packets: u64,
        /// Bytes, as received, from the IP header on.
        pub bytes: u64,
    }

    /// Client of a request.
    pub struct Access {
        /// Name of the client in the log.
        pub name: String,
        /// True if the client may change anything and trace packets.
        pub may_write: bool,
        /// True if the client may ask the log who had a port at a time.
        pub may_audit: bool,
    }

    /// Sandbox of the daemon.
    pub struct Sandbox {
        /// Extent to which it is in force.
        pub state: SandboxExtent,
        /// Parts that are not in force, with the reasons.
        pub missing: Vec<String>,
    }

    /// Page types of the daemon's memory.
    #[derive(Default)]
    pub struct TablePages {
        /// Bytes on reserved huge pages (`vm.nr_hugepages`).
        pub set_aside_bytes: u64,
        /// Bytes on transparent huge pages.
        pub transparent_bytes: u64,
        /// Bytes on small pages: look-ups in large tables take several times as long there.
        pub small_bytes: u64,
    }

    /// Summary of the daemon.
    pub struct Status {
        /// Version of the daemon.
        pub version: String,
        /// Process ID of the daemon.
        pub pid: u32,
        /// Seconds since translation began.
        pub uptime_seconds: u64,
        /// The configuration file.
        pub config_file: String,
        /// Number of workers.
        pub workers: u32,
        /// Workers that did not answer in time: the figures lack theirs.
        pub workers_silent: u32,
        /// Sandbox of the daemon.
        pub sandbox: Sandbox,
        /// Page types of its memory at start.
        pub pages: TablePages,
        /// Current sessions of all workers.
        pub sessions: u64,
        /// Sessions of the previous process that wait to be restored.
        pub sessions_waiting: u64,
        /// Session limit; 0 without stateful instances.
        pub sessions_max: u64,
        /// Current bindings, including static ones.
        pub bindings: u64,
        /// Subscribers with state.
        pub subscribers: u64,
        /// Packets received from all devices.
        pub received: Count,
        /// Packets translated and handed to the device.
        pub forwarded: Count,
        /// Place of a fast path, if one is configured.
        pub fast_path: FastPathPlace,
        /// Part of `forwarded`: packets translated there.
        pub offloaded: Count,
        /// Forwarded packets and answers that a device did not send; `device_counters` of `/v1/workers` has
        /// the reasons.
        pub refused_by_device: u64,
        /// Echo replies sent for Gatun's own addresses.
        pub echo_replies: Count,
        /// Packets that are not for the translator.
        pub passed: Count,
        /// Packets dropped: `rejected` and `dropped_silently` together. `/v1/drops` has the reasons.
        pub dropped: Count,
        /// Packets dropped and answered with an ICMP error.
        pub rejected: Count,
        /// Packets dropped without an answer.
        pub dropped_silently: Count,
        /// Packets held at this moment.
        pub held: u64,
        /// Packets sent to the nodes of the cluster that translate them.
        pub redirected: Count,
        /// Part of `redirected`: packets from outside, which routes have led past the owner of their shard.
        pub redirected_outside: u64,
        /// True if every received packet is accounted for.
        pub packets_accounted: bool,
        /// Conditions that need attention, the most urgent first.
        pub troubles: Vec<Trouble>,
    }

    /// Counts of an interval.
    pub struct HistoryPoint {
        /// Milliseconds from the end of the interval to this answer.
        pub age_ms: u64,
        /// Length of the interval in milliseconds.
        pub length_ms: u64,
        /// Packets received in the interval.
        pub received_packets: u64,
        /// Packets translated and sent on in the interval.
        pub forwarded_packets: u64,
        /// Bytes of the forwarded packets, as received.
        pub forwarded_bytes: u64,
        /// Packets dropped in the interval, with an ICMP error or silently.
        pub dropped_packets: u64,
        /// Packets dropped in the interval and answered with an ICMP error.
        pub rejected_packets: u64,
        /// Packets dropped in the interval without an answer.
        pub dropped_silently_packets: u64,
        /// Sessions opened in the interval.
        pub sessions_created: u64,
        /// Sessions at the end of the interval.
        pub sessions: u64,
        /// Subscribers with state at the end of the interval.
        pub subscribers: u64,
    }

    /// The last hour.
    pub struct History {
        /// Milliseconds between points. Points are missing for times when a worker did not answer.
        pub every_ms: u64,
        /// Points, the oldest first.
        pub points: Vec<HistoryPoint>,
    }

    /// A port of the configuration.
    pub struct Port {
        /// Name of the port.
        pub name: String,
        /// Backend: tun, xdp or dpdk.
        pub backend: String,
        /// Device name in the system.
        pub device: String,
        /// Queues, each served by a worker.
        pub queues: u32,
        /// Largest packet in bytes; none if it is the device's own.
        pub mtu: Option<u32>,
        /// Addresses of the configuration.
        pub addresses: Vec<String>,
    }

    /// A named count.
    pub struct Counter {
        /// Name of the counter.
        pub name: String,
        /// Count since the start.
        pub value: u64,
        /// Meaning of the counter.
        pub help: String,
    }

    /// A worker: one thread, one share of the state.
    pub struct Worker {
        /// Number of the worker, from 0.
        pub number: u32,
        /// Device that it receives from.
        pub device: String,
        /// True if it answered in time; if not, all other values are zero.
        pub answers: bool,
        /// Packets received from its device.
        pub received: Count,
        /// Packets translated and sent on.
        pub forwarded: Count,
        /// Packets dropped, with an ICMP error or silently.
        pub dropped: Count,
        /// Bursts of packets received from its device.
        pub bursts: u64,
        /// Times that it went to sleep because there were no packets.
        pub idle_waits: u64,
        /// Nanoseconds of the loop iterations with packets; iterations that only poll are not counted.
        pub busy_ns: u64,
        /// Packets handed to the worker that has their session, as received.
        pub handed_before: u64,
        /// Packets handed to another worker after translation.
        pub handed_after: u64,
        /// Packets lost because another worker did not keep up.
        pub handed_lost: u64,
        /// Current sessions of the worker.
        pub sessions: u64,
        /// Subscribers with state at the worker.
        pub subscribers: u64,
        /// Errors and further counters of its device, without zeros.
        pub device_counters: Vec<Counter>,
    }

    /// Refusal of a request.
    pub struct Problem {
        /// The error in a sentence.
        pub error: String,
        /// Advice: the correction, or another request.
        pub hint: String,
    }
}
