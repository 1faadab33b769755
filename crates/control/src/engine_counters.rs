//! Counters of the engine other than packets, for the API and the metrics.

use gatun_nat::counters::Counters;

/// A counter of the engine.
#[derive(Clone, Copy)]
pub(crate) struct EngineCounter {
    pub(crate) name: &'static str,
    pub(crate) value: fn(&Counters) -> u64,
    pub(crate) help: &'static str,
}

macro_rules! counters {
    ($($constant:ident: $name:ident, $help:literal;)*) => {
        $(
            pub(crate) const $constant: EngineCounter =
                EngineCounter { name: stringify!($name), value: |c| c.$name, help: $help };
        )*

        /// The counters, in the order of the output.
        pub(crate) const ALL: &[EngineCounter] = &[$($constant),*];
    };
}

counters! {
    ECHO_REPLIES: echo_replies, "Echo replies sent for the translator's own addresses.";
    ICMP_ERRORS_SENT: icmp_errors_sent, "ICMP errors sent.";
    ICMP_ERRORS_LIMITED: icmp_errors_limited, "ICMP errors suppressed by `icmp.rate`.";
    ICMP_ERRORS_LIMITED_PER_SOURCE: icmp_errors_limited_per_source, "ICMP errors suppressed by `icmp.rate_per_source`.";
    ICMP_ERRORS_SUPPRESSED: icmp_errors_suppressed, "ICMP errors not sent: switched off, or not allowed for such a packet.";
    FRAGMENTS_MADE: fragments_made, "Additional packets made by fragmentation.";
    PROBES_SENT: probes_sent, "Probes sent on established TCP sessions that timed out.";
    SESSIONS_CLEARED: sessions_cleared, "Sessions ended on request.";
    PATH_MTUS_LEARNT: path_mtus_learnt, "Learnt MTUs below 1,260 bytes of paths to IPv4 hosts.";
    PATH_MTUS_EVICTED: path_mtus_evicted, "Learnt path MTUs evicted for others.";
}
