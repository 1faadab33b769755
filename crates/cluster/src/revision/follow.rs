//! Next step of a node towards the revision that the cluster should run.

use super::{ActiveRevision, Stage};

/// Knowledge of a node about its own configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Number of the revision in its file; 0 if it is unknown.
    pub file: u64,
    /// Number of the revision that it has on trial.
    pub trial: Option<u64>,
    /// Number of the latest revision that it could not apply, or whose trial has ended here, and the reason.
    pub given_up: Option<(u64, String)>,
    /// Largest number that it has seen.
    pub seen: u64,
}

/// Step of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowStep {
    /// Nothing to do.
    Nothing,
    /// The coordinator has lost revisions: the node keeps what it has.
    KeepNewer,
    /// Apply a revision, with the time for its trial, ms; `None` if it is confirmed.
    Apply(u64, Option<u64>),
    /// Confirm the trial of a revision.
    Confirm(u64),
    /// Return from the trial of a revision.
    RollBack(u64),
    /// Have all nodes return, for a reason.
    Withdraw(String),
}

/// Returns the next step. `is_turn` is true if all nodes before this one have the revision on trial;
/// `known_ms` is the time for which this node has known of the stage.
pub fn follow(current: &ActiveRevision, standing: &Standing, is_turn: bool, known_ms: u64) -> FollowStep {
    let (number, target) = (current.number, current.target());
    if number < standing.seen {
        return FollowStep::KeepNewer;
    }
    if let Some(trial) = standing.trial
        && trial != target
    {
        return FollowStep::RollBack(trial);
    }
    match current.stage {
        Stage::Trial => {
            let trial_ms = u64::from(current.seconds) * 1_000;
            let given_up = standing.given_up.as_ref().filter(|(of, _)| *of == number);
            let has_it = standing.trial == Some(number) || standing.file == number;
            match given_up {
                Some((_, why)) => FollowStep::Withdraw(why.clone()),
                None if known_ms >= trial_ms => {
                    let whom = if current.needs_word { "not confirmed" } else { "not applied by all nodes" };
                    FollowStep::Withdraw(format!("{whom} within {} s", current.seconds))
                }
                None if is_turn && !has_it => FollowStep::Apply(number, Some(trial_ms - known_ms)),
                None => FollowStep::Nothing,
            }
        }
        _ if standing.trial == Some(target) => FollowStep::Confirm(target),
        _ if standing.file == target || target == 0 => FollowStep::Nothing,
        _ => FollowStep::Apply(target, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(stage: Stage) -> ActiveRevision {
        ActiveRevision {
            number: 13,
            before: 12,
            stage,
            seconds: 60,
            needs_word: true,
            by: String::new(),
            why: String::new(),
        }
    }

    fn at(file: u64, trial: Option<u64>) -> Standing {
        Standing { file, trial, ..Standing::default() }
    }

    #[test]
    fn a_node_applies_a_trial_in_its_turn_for_the_time_that_is_left() {
        let trial = current(Stage::Trial);
        assert_eq!(follow(&trial, &at(12, None), false, 0), FollowStep::Nothing);
        assert_eq!(follow(&trial, &at(12, None), true, 1_500), FollowStep::Apply(13, Some(58_500)));
        assert_eq!(follow(&trial, &at(12, Some(13)), true, 1_500), FollowStep::Nothing);
        assert_eq!(follow(&current(Stage::Confirmed), &at(12, Some(13)), false, 0), FollowStep::Confirm(13));
        assert_eq!(follow(&current(Stage::Confirmed), &at(13, None), false, 0), FollowStep::Nothing);
    }

    #[test]
    fn a_trial_that_nobody_confirms_or_that_a_node_cannot_apply_is_withdrawn() {
        let trial = current(Stage::Trial);
        let late = FollowStep::Withdraw("not confirmed within 60 s".into());
        for standing in [at(12, Some(13)), at(12, None), at(13, None)] {
            assert_eq!(follow(&trial, &standing, false, 60_000), late);
        }
        let cannot = Standing { given_up: Some((13, "no".into())), ..at(12, None) };
        assert_eq!(follow(&trial, &cannot, false, 0), FollowStep::Withdraw("no".into()));
        // That was about another revision.
        let before = Standing { given_up: Some((12, "no".into())), ..at(12, None) };
        assert_eq!(follow(&trial, &before, false, 0), FollowStep::Nothing);
    }

    #[test]
    fn a_node_returns_to_the_previous_revision_from_wherever_it_is() {
        let withdrawn = current(Stage::Withdrawn);
        assert_eq!(follow(&withdrawn, &at(12, Some(13)), false, 0), FollowStep::RollBack(13));
        assert_eq!(follow(&withdrawn, &at(12, None), false, 0), FollowStep::Nothing);
        assert_eq!(follow(&withdrawn, &at(13, None), false, 0), FollowStep::Apply(12, None));
        let first = ActiveRevision { before: 0, ..withdrawn };
        assert_eq!(follow(&first, &at(0, Some(13)), false, 0), FollowStep::RollBack(13));
        assert_eq!(follow(&first, &at(0, None), false, 0), FollowStep::Nothing);
    }

    #[test]
    fn a_node_that_was_away_takes_the_confirmed_revision_without_a_trial() {
        assert_eq!(follow(&current(Stage::Confirmed), &at(7, None), false, 0), FollowStep::Apply(13, None));
        // Its own trial has ended while it was cut off.
        let gave_up = Standing { given_up: Some((13, "late".into())), ..at(12, None) };
        assert_eq!(follow(&current(Stage::Confirmed), &gave_up, false, 0), FollowStep::Apply(13, None));
        // A trial of another revision ends first.
        assert_eq!(follow(&current(Stage::Confirmed), &at(7, Some(11)), false, 0), FollowStep::RollBack(11));
    }

    #[test]
    fn a_coordinator_with_older_revisions_changes_nothing() {
        for stage in Stage::ALL {
            let newer = Standing { seen: 14, ..at(14, None) };
            assert_eq!(follow(&current(stage), &newer, true, 99_000), FollowStep::KeepNewer);
        }
    }
}
