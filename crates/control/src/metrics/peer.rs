//! Metrics of a pair of boxes. All except `peer_wanted` have values only with `[peer]`.

use super::kinds::{counter, gauge};
use super::read::{seconds, signed_seconds};
use super::{Metric, Samples, View};
use gatun_api::types::{Peer, PeerCounters, PeerState};

/// Metrics of the own member.
pub(super) const PEER: &[Metric] = &[
    gauge(
        "peer_wanted",
        &[],
        |v, s| s.add(&[], u64::from(v.scrape.peer.state != PeerState::Off)),
        "1 if the configuration has `[peer]`.",
    ),
    gauge(
        "peer_connected",
        &[],
        |v, s| flag(v, s, Peer::is_connected),
        "1 if both boxes of the pair are connected; otherwise `gatun peer status` has the reason.",
    ),
    gauge(
        "peer_connected_seconds",
        &[],
        |v, s| v.scrape.peer.connected_for_ms.into_iter().for_each(|ms| s.add(&[], seconds(ms))),
        "Seconds since the connection was opened.",
    ),
    gauge(
        "peer_settled",
        &[],
        |v, s| flag(v, s, |peer| peer.state != PeerState::Waiting),
        "1 if this box has its sessions; 0 if it waits for the other one, and assigns no ports.",
    ),
    gauge(
        "peer_synced",
        &[],
        |v, s| flag(v, s, |peer| matches!(peer.state, PeerState::Synced | PeerState::Releasing)),
        "1 if both boxes have the same sessions.",
    ),
    gauge(
        "peer_gone",
        &[],
        |v, s| flag(v, s, |peer| peer.peer_gone),
        "1 if an operator has declared the other box gone, and it has not connected since.",
    ),
    gauge(
        "peer_shard_owned",
        &["shard"],
        |v, s| {
            for (number, shard) in v.scrape.peer.shards.iter().enumerate() {
                s.add(&[&number.to_string()], u64::from(Some(shard.owner) == v.scrape.peer.member));
            }
        },
        "1 if this box owns the shard's public addresses.",
    ),
    gauge(
        "peer_shard_epoch",
        &["shard"],
        |v, s| {
            for (number, shard) in v.scrape.peer.shards.iter().enumerate() {
                s.add(&[&number.to_string()], shard.epoch);
            }
        },
        "Number of changes of the shard's owner.",
    ),
    gauge(
        "peer_config_differences",
        &[],
        |v, s| value(v, s, |peer| peer.differences.len() as u64),
        "Keys of the configuration that differ between both boxes.",
    ),
    gauge(
        "peer_clock_difference_seconds",
        &[],
        |v, s| v.scrape.peer.clock_difference_ms.into_iter().for_each(|ms| s.add(&[], signed_seconds(ms))),
        "Seconds by which the other box's clock is ahead of this one's, negative if it is behind.",
    ),
    gauge(
        "peer_certificate_end_seconds",
        &[],
        |v, s| v.scrape.peer.certificate_end_s.into_iter().for_each(|end| s.add(&[], end)),
        "Time at which the own certificate of the pair or the authority's ends, seconds since 1970.",
    ),
    counter(
        "peer_sent_sessions",
        &[],
        |v, s| of(v, s, |counters| counters.sessions_told),
        "Sessions that the other box was told of.",
    ),
    counter(
        "peer_sent_ends",
        &[],
        |v, s| of(v, s, |counters| counters.ends_told),
        "Ends of sessions that the other box was told of.",
    ),
    counter(
        "peer_received_sessions",
        &[],
        |v, s| of(v, s, |counters| counters.sessions_received),
        "Sessions of the other box that were accepted or confirmed.",
    ),
    counter(
        "peer_received_ends",
        &[],
        |v, s| of(v, s, |counters| counters.ends_received),
        "Ends of the other box's sessions.",
    ),
    counter(
        "peer_refused_sessions",
        &["reason"],
        |v, s| {
            v.scrape.peer.counters.refused.iter().for_each(|reason| s.add(&[&reason.name], reason.value));
        },
        "Sessions of the other box that were refused by reason.",
    ),
    counter(
        "peer_sent_walks",
        &[],
        |v, s| of(v, s, |counters| counters.walks_sent),
        "Times that all sessions were sent to the other box.",
    ),
    counter(
        "peer_received_walks",
        &[],
        |v, s| of(v, s, |counters| counters.walks_received),
        "Times that all sessions of the other box were received.",
    ),
    counter(
        "peer_lost_records",
        &[],
        |v, s| of(v, s, |counters| counters.records_lost),
        "Records of the engines about sessions that were lost because too many waited; all were sent again.",
    ),
    counter(
        "peer_connections",
        &[],
        |v, s| of(v, s, |counters| counters.connections),
        "Connections between both boxes.",
    ),
    gauge(
        "peer_waiting_ends",
        &[],
        |v, s| of(v, s, |counters| counters.ends_waiting),
        "Ended sessions whose ports wait until the other box has acknowledged the end.",
    ),
    gauge(
        "peer_waiting_records",
        &[],
        |v, s| of(v, s, |counters| counters.records_waiting),
        "Records of the other box that wait for the engines.",
    ),
    gauge(
        "peer_conflicting_sessions",
        &[],
        |v, s| of(v, s, |counters| counters.contradictions),
        "Sessions of the other box that contradict own ones. They are tried again.",
    ),
];

/// Value of the state, if there is a pair.
fn value(v: &View<'_>, s: &mut Samples<'_>, read: impl Fn(&Peer) -> u64) {
    let peer = &v.scrape.peer;
    if peer.state != PeerState::Off {
        s.add(&[], read(peer));
    }
}

fn flag(v: &View<'_>, s: &mut Samples<'_>, read: fn(&Peer) -> bool) {
    value(v, s, |peer| u64::from(read(peer)));
}

fn of(v: &View<'_>, s: &mut Samples<'_>, read: fn(&PeerCounters) -> u64) {
    value(v, s, |peer| read(&peer.counters));
}
