//! Conditions that need attention, for `status`, `top`, `doctor` and the web page.

use crate::{ExportFigures, LogFigures, StoreFigures};
use gatun_api::types::{Part, Peer, PeerState, RENEW_DAYS, Trouble, Urgency, days_until};
use gatun_wire::text::{counted, group};

/// Lists the troubles of a daemon with so many workers, the worst first. `others` holds troubles that are
/// already known.
pub(crate) fn of(
    workers: usize,
    (silent, packets_accounted): (usize, bool),
    figures: &LogFigures,
    others: Vec<Trouble>,
) -> Vec<Trouble> {
    let mut found = others;
    let mut add = |urgency, part, what: String| found.push(Trouble { urgency, part, what });
    if silent > 0 {
        let (of, verb) = (counted(workers as u64, "worker"), if silent == 1 { "does" } else { "do" });
        let what = format!("{silent} of {of} {verb} not answer: the figures are incomplete");
        add(Urgency::Bad, Part::Workers, what);
    } else if !packets_accounted {
        let what = "some packets are not accounted for: this is a defect, please report it";
        add(Urgency::Bad, Part::Account, what.to_owned());
    }
    figures.store.iter().for_each(|store| of_log(store, &mut add));
    figures.exports.iter().for_each(|export| of_export(export, &mut add));
    found.sort_by_key(|trouble| trouble.urgency);
    found
}

/// Lists the troubles of a pair of boxes. `now_s` is the time, seconds since 1970.
pub(crate) fn of_peer(peer: &Peer, now_s: u64) -> Vec<Trouble> {
    let mut found = Vec::new();
    let mut add = |urgency, what: String| found.push(Trouble { urgency, part: Part::Peer, what });
    let why = peer.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    match peer.state {
        PeerState::Waiting => {
            let what = "this box waits for the sessions of the other box of the pair, and assigns no ports";
            add(Urgency::Bad, format!("{what}{why}"));
        }
        PeerState::Alone if peer.peer_gone => {
            add(
                Urgency::Warning,
                "the other box of the pair is declared gone: nothing backs this one".to_owned(),
            );
        }
        PeerState::Alone => add(Urgency::Bad, format!("the other box of the pair is not connected{why}")),
        _ if peer.reason.is_some() => {
            add(Urgency::Bad, format!("the other box of the pair gets no sessions{why}"));
        }
        _ => {}
    }
    if !peer.differences.is_empty() {
        let keys = peer.differences.join(", ");
        add(Urgency::Warning, format!("the configurations of both boxes of the pair differ: {keys}"));
    }
    match peer.certificate_end_s.map(|end| days_until(end, now_s)) {
        Some(None) => {
            add(Urgency::Bad, "the certificate of the pair has ended: use `gatun peer renew`".to_owned())
        }
        Some(Some(days)) if days < RENEW_DAYS => {
            let days = counted(days, "day");
            add(
                Urgency::Warning,
                format!("the certificate of the pair ends in {days}: use `gatun peer renew`"),
            );
        }
        _ => {}
    }
    found
}

fn of_log(store: &StoreFigures, add: &mut impl FnMut(Urgency, Part, String)) {
    if let Some(error) = &store.error {
        let waiting = counted(store.waiting, "record");
        add(Urgency::Bad, Part::Log, format!("the log cannot be written: {error}; {waiting} waiting"));
    }
    if store.lost > 0 {
        let events = counted(store.lost, "event");
        add(Urgency::Warning, Part::Log, format!("the log has lost {events} since the start"));
    }
}

fn of_export(export: &ExportFigures, add: &mut impl FnMut(Urgency, Part, String)) {
    let ExportFigures { name, lost, waiting, .. } = export;
    if !export.is_connected && (*waiting > 0 || export.spooled_bytes > 0) {
        let what = format!("collector {name} does not accept events: {} waiting in memory", group(*waiting));
        add(Urgency::Warning, Part::Export, what);
    }
    if *lost > 0 {
        let events = counted(*lost, "event");
        add(Urgency::Warning, Part::Export, format!("collector {name} has missed {events} since the start"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 86_400;

    #[test]
    fn a_pair_that_does_not_work_is_a_trouble() {
        let of = |peer: &Peer| {
            let found = of_peer(peer, 20 * DAY_S);
            found.into_iter().map(|trouble| (trouble.urgency, trouble.what)).collect::<Vec<_>>()
        };
        assert_eq!(of(&Peer::default()), []);
        let mut peer =
            Peer { state: PeerState::Synced, certificate_end_s: Some(40 * DAY_S), ..Peer::default() };
        assert_eq!(of(&peer), []);
        peer.state = PeerState::Alone;
        peer.reason = Some("connection refused".into());
        let what = "the other box of the pair is not connected: connection refused";
        assert_eq!(of(&peer), [(Urgency::Bad, what.to_owned())]);
        peer.peer_gone = true;
        assert_eq!(of(&peer)[0].0, Urgency::Warning);
        peer.state = PeerState::Waiting;
        assert!(of(&peer)[0].1.contains("assigns no ports"));
        peer.state = PeerState::Syncing;
        peer.reason = Some("disk full".into());
        assert_eq!(of(&peer)[0].1, "the other box of the pair gets no sessions: disk full");
        let mut peer =
            Peer { state: PeerState::Synced, certificate_end_s: Some(21 * DAY_S), ..Peer::default() };
        peer.differences = vec!["workers".into()];
        let texts: Vec<_> = of(&peer).into_iter().map(|(_, what)| what).collect();
        let keys = "the configurations of both boxes of the pair differ: workers";
        let end = "the certificate of the pair ends in 1 day: use `gatun peer renew`";
        assert_eq!(texts, [keys, end]);
        peer.certificate_end_s = Some(19 * DAY_S);
        assert_eq!(of(&peer)[1].0, Urgency::Bad);
    }

    #[test]
    fn troubles_name_their_cause_and_the_worst_is_first() {
        let well = StoreFigures { is_writable: true, records: 9, ..StoreFigures::default() };
        let taken =
            ExportFigures { name: "siem".into(), is_connected: true, sent: 5, ..ExportFigures::default() };
        let figures = LogFigures { exports: vec![taken.clone()], store: Some(well.clone()) };
        assert_eq!(of(2, (0, true), &figures, Vec::new()), []);
        // Before the first write after a start, nothing has failed.
        let starting = LogFigures { store: Some(StoreFigures::default()), ..LogFigures::default() };
        assert_eq!(of(1, (0, true), &starting, Vec::new()), []);
        let full = StoreFigures {
            error: Some("No space left on device (os error 28)".into()),
            is_writable: false,
            waiting: 1234,
            lost: 1,
            ..well
        };
        let away = ExportFigures { is_connected: false, waiting: 7, lost: 2, ..taken };
        let figures = LogFigures { exports: vec![away], store: Some(full) };
        let found = of(3, (1, false), &figures, Vec::new());
        let texts: Vec<_> = found.iter().map(|t| (t.urgency, t.part, &t.what[..])).collect();
        assert_eq!(
            texts,
            [
                (Urgency::Bad, Part::Workers, "1 of 3 workers does not answer: the figures are incomplete"),
                (
                    Urgency::Bad,
                    Part::Log,
                    "the log cannot be written: No space left on device (os error 28); 1,234 records waiting"
                ),
                (Urgency::Warning, Part::Log, "the log has lost 1 event since the start"),
                (
                    Urgency::Warning,
                    Part::Export,
                    "collector siem does not accept events: 7 waiting in memory"
                ),
                (Urgency::Warning, Part::Export, "collector siem has missed 2 events since the start"),
            ]
        );
        let found = of(1, (0, false), &LogFigures::default(), Vec::new());
        assert_eq!((found.len(), found[0].part), (1, Part::Account));
    }
}
