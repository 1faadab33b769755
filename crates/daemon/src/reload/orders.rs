//! Requests of the API: preview, apply, confirm or roll back another configuration or other mappings.
//!
//! Steps that can fail come first: the text is read, new state is created, and the text is written next to
//! the file. Then the file is replaced, and the workers change, which cannot fail any more. An unconfirmed
//! text stays next to the file until it is confirmed.

use super::forecast::EndingSessions;
use super::statics;
use super::swap::PreparedEngines;
use super::{ActiveText, Reload, ReloadRefusal, in_lines, notes};
use crate::config_file::{ConfigFile, HistoryEntry, KnownText, ReplaceError, Staged};
use crate::{Read, Settings, Source};
use gatun_api::types::{self, ConfigApplied, ConfigPast, ConfigPlan, ConfigProblem, Figure, Severity};
use gatun_control::configure::{ApplyOptions, Order, OrderResult, RefusalKind, Refused};
use gatun_logstore::time::rfc3339;
use gatun_nat::reconfigure::Settled;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Delay before a failed rollback is retried.
const AGAIN: Duration = Duration::from_secs(1);
/// Largest number of problem lines in a refusal.
const TOLD_MAX: usize = 20;

/// Unconfirmed configuration, which is rolled back automatically.
pub(crate) struct Unconfirmed {
    /// Time of the rollback.
    pub(super) until: Instant,
    /// Settings to return to.
    before: Settings,
    /// File that will be replaced, and its next text.
    pub(super) file: ConfigFile,
    /// Path of the file of mappings, if it is one.
    mappings: Option<PathBuf>,
    staged: Staged,
    who: String,
}

/// Text of a request.
#[derive(Clone, Copy)]
pub(super) enum NewText<'t> {
    /// The configuration.
    Config(&'t str),
    /// The active configuration with other mappings in a list.
    List(&'t str),
    /// A file of mappings of the active configuration.
    Mappings(&'t Path, &'t str),
}

impl<'t> NewText<'t> {
    fn text(self) -> &'t str {
        match self {
            NewText::Config(text) | NewText::List(text) | NewText::Mappings(_, text) => text,
        }
    }

    /// Path of the file, if the request changes a file of mappings.
    fn mappings(self) -> Option<&'t Path> {
        match self {
            NewText::Config(_) | NewText::List(_) => None,
            NewText::Mappings(path, _) => Some(path),
        }
    }
}

impl Unconfirmed {
    /// Revision to return to.
    pub(super) fn before_revision(&self) -> String {
        self.before.control.facts.config.revision.clone()
    }
}

fn conflict(error: impl Into<String>, hint: &str) -> Refused {
    Refused::new(RefusalKind::Conflict, error, hint)
}

fn changed_meanwhile(file: &Path) -> Refused {
    conflict(
        format!("{} has changed since the daemon read it", file.display()),
        "compare it (`gatun config diff`), then reload or correct it; nothing was changed",
    )
}

fn failed(error: impl Into<String>) -> Refused {
    Refused::new(RefusalKind::Failed, error, "nothing has changed")
}

impl Reload {
    pub(super) fn carry_out(&mut self, order: Order) -> Result<OrderResult, Refused> {
        match order {
            Order::Plan(text) => Ok(OrderResult::Planned(self.plan(NewText::Config(&text)))),
            Order::Check(text) => self.check(&text).map(|()| OrderResult::Kept),
            Order::Apply(instead, text) => {
                self.apply_text(&instead, NewText::Config(&text)).map(OrderResult::Applied)
            }
            Order::Confirm { revision, who } => self.confirm(&revision, &who).map(OrderResult::Applied),
            Order::RollBack(instead, to) => self.roll_back(&instead, to.as_deref()).map(OrderResult::Applied),
            Order::PlanMaps(body) => self.plan_maps(body).map(OrderResult::Planned),
            Order::ChangeMaps(instead, body) => self.change_maps(instead, body).map(OrderResult::Applied),
            Order::Maps { instance, from, limit } => self.maps(instance.as_deref(), from, limit),
            Order::KeepDrained => self.keep_drained().map(|()| OrderResult::Kept),
            Order::History => Ok(OrderResult::History(self.file.history().iter().map(past).collect())),
            Order::Past(revision) => self.past_text(&revision).map(OrderResult::Past),
        }
    }

    /// Saves the drained addresses for the next process.
    fn keep_drained(&mut self) -> Result<(), Refused> {
        let hint = "the change is in effect, but will be lost at the next restart";
        self.write_drained().map_err(|why| Refused::new(RefusalKind::Failed, why, hint))
    }

    pub(super) fn running(&self) -> &types::Config {
        &self.settings.control.facts.config
    }

    fn read_new(&self, new: NewText<'_>) -> Read {
        (self.read)(match new {
            NewText::Config(text) | NewText::List(text) => Source::Text(text),
            NewText::Mappings(path, text) => Source::WithMappings(&self.running().text, path, text),
        })
    }

    /// Preview of the change.
    pub(super) fn plan(&self, new: NewText<'_>) -> ConfigPlan {
        let Read { settings, mut problems } = self.read_new(new);
        let running = self.running().revision.clone();
        let now = self.settings.costs;
        let costs = settings.as_ref().map_or(now, |new| new.costs);
        let figure = |before, after| Figure { before, after };
        let mut plan = ConfigPlan {
            revision: String::new(),
            running,
            applicable: false,
            problems: Vec::new(),
            changes: Vec::new(),
            ends: Vec::new(),
            sessions: None,
            subscribers: None,
            restarts: Vec::new(),
            memory_bytes: figure(now.memory_bytes, costs.memory_bytes),
            log_bytes_a_day: figure(now.log_bytes_a_day, costs.log_bytes_a_day),
            events_bytes_a_day: figure(now.events_bytes_a_day, costs.events_bytes_a_day),
        };
        if let Some(new) = &settings {
            let review = self.review(new);
            plan.revision.clone_from(&new.control.facts.config.revision);
            plan.changes = review.changes(new);
            plan.ends.clone_from(&review.difference.ends);
            let check_sinks = || self.sink_updater.check(&self.settings, new).map_err(ReloadRefusal::from);
            let rest = || check_sinks().and_then(|()| self.next_ports(new).map(drop));
            let engines = || self.prepare_engines(new, &review);
            match self.check_nodes(new).and_then(|()| engines()).and_then(|ready| rest().map(|()| ready)) {
                Ok(ready) => {
                    plan.applicable = true;
                    plan.ends.extend(ready.as_ref().and_then(PreparedEngines::moved_in_words));
                    // Without a change for the engines, no session ends.
                    let expected =
                        ready.map_or(Some(EndingSessions::default()), |r| r.expected(&self.workers));
                    (plan.sessions, plan.subscribers) =
                        (expected.map(|e| e.sessions), expected.map(|e| e.subscribers));
                }
                Err(ReloadRefusal { restarts, why }) if restarts.is_empty() => {
                    problems.push(of_whole(&self.running().file, why));
                }
                Err(ReloadRefusal { restarts, .. }) => plan.restarts = restarts,
            }
        }
        plan.problems = problems;
        plan
    }

    /// Refuses static bindings that would contradict those of nodes which change later. A node that is late
    /// itself is not asked for a preview.
    fn check_nodes(&self, new: &Settings) -> Result<(), ReloadRefusal> {
        let moves = self.boxes.cluster.as_ref().map(|_| statics::check_moves(&self.settings.plan, &new.plan));
        moves.unwrap_or(Ok(())).map_err(ReloadRefusal::why)
    }

    /// Checks whether a configuration could be applied and written to the file now.
    fn check(&self, text: &str) -> Result<(), Refused> {
        self.expect_confirmed()?;
        let plan = self.plan(NewText::Config(text));
        if !plan.restarts.is_empty() {
            return Err(not_possible(ReloadRefusal::restart(plan.restarts)));
        }
        if !plan.applicable {
            return Err(wrong(&plan.problems));
        }
        let running = self.running();
        match self.file.is_changed(KnownText::of_config(&running.text), text) {
            true => Err(changed_meanwhile(Path::new(&running.file))),
            false => Ok(()),
        }
    }

    pub(super) fn apply_text(
        &mut self,
        instead: &ApplyOptions,
        text: NewText<'_>,
    ) -> Result<ConfigApplied, Refused> {
        self.expect(&instead.revision)?;
        self.expect_confirmed()?;
        let begin = Instant::now();
        let Read { settings, problems } = self.read_new(text);
        let read = begin.elapsed();
        let new = settings.ok_or_else(|| wrong(&problems))?;
        let review = self.review(&new);
        let before = self.running().revision.clone();
        let name =
            text.mappings().map_or_else(|| self.running().file.clone(), |path| path.display().to_string());
        if new.control.facts.config.revision == before {
            let notes = vec!["this configuration is already running".to_owned()];
            return Ok(applied(&name, (&before, &before), &Settled::default(), notes));
        }
        let ready = self.prepare_engines(&new, &review).and_then(|ready| self.prepare_reload(ready, &new));
        let ready = ready.map_err(not_possible)?;
        let made = begin.elapsed();
        self.expect_other_mappings(&new, text)?;
        let file = text.mappings().map_or_else(|| self.file.clone(), ConfigFile::new);
        let staged = file.stage(text.text()).map_err(failed)?;
        self.output.log(&format!("config: {} changes {name}", instead.who));
        self.log("", &review.changes(&new));
        self.log("ends: ", &review.difference.ends);
        let replaced = match instead.confirm {
            Some(_) => None,
            None => Some(self.replace((&file, text.mappings()), &staged, &instead.who)?),
        };
        let (old, ended) = self.apply_reload(new, &review, ready).map_err(|why| {
            replaced.iter().for_each(|replaced| file.take_back(replaced));
            file.discard();
            failed(why)
        })?;
        self.output.debug(|| {
            let [read, made, all] = [read, made, begin.elapsed()].map(|time| time.as_secs_f64() * 1e3);
            format!("config: read after {read:.1} ms, new state made after {made:.1} ms, settled after {all:.1} ms")
        });
        let after = self.running().revision.clone();
        let mut done = applied(&name, (&before, &after), &ended, notes(&ended));
        if instead.confirm.is_none() {
            self.sink_updater.keep(&self.settings);
        }
        if let Some(within) = instead.confirm {
            done.confirm_within_seconds = Some(within.as_secs());
            let until = Instant::now() + within;
            let (who, mappings) = (instead.who.clone(), text.mappings().map(Path::to_owned));
            self.unconfirmed = Some(Unconfirmed { until, before: old, file, mappings, staged, who });
            let seconds = within.as_secs();
            self.output.log(&format!("config: automatic rollback in {seconds} s unless confirmed"));
        }
        self.publish();
        self.log_ended(&ended);
        Ok(done)
    }

    /// Replaces the configuration or a file of mappings, if nobody else has changed it.
    fn replace(
        &self,
        (file, mappings): (&ConfigFile, Option<&Path>),
        staged: &Staged,
        who: &str,
    ) -> Result<crate::config_file::Replaced, Refused> {
        let before = self.unconfirmed.as_ref().map_or(&self.settings, |waits| &waits.before);
        let config = &before.control.facts.config;
        let text = match mappings {
            None => KnownText::of_config(&config.text),
            Some(path) => {
                let read = before.mapping_files.iter().find(|file| file.path == path);
                read.map_or(KnownText::Nothing, KnownText::Hash)
            }
        };
        let ran = ActiveText { text, revision: &config.revision, who };
        file.replace(staged, &ran).map_err(|not| match not {
            ReplaceError::Changed => changed_meanwhile(mappings.unwrap_or(Path::new(&config.file))),
            ReplaceError::Failed(why) => failed(why),
        })
    }

    fn confirm(&mut self, revision: &str, who: &str) -> Result<ConfigApplied, Refused> {
        self.expect(revision)?;
        let Some(waits) = &self.unconfirmed else {
            return Err(conflict("no configuration awaits confirmation", "gatun config show"));
        };
        let (file, staged) = (&waits.file, &waits.staged);
        if let Err(refused) = self.replace((file, waits.mappings.as_deref()), staged, &waits.who) {
            // Stages the text again for the next attempt.
            let _ = file.stage(staged.text());
            let hint = "the configuration still awaits confirmation";
            return Err(Refused { hint: hint.to_owned(), ..refused });
        }
        let before = waits.before_revision();
        let name = waits
            .mappings
            .as_ref()
            .map_or_else(|| self.running().file.clone(), |path| path.display().to_string());
        self.unconfirmed = None;
        self.sink_updater.keep(&self.settings);
        self.publish();
        self.output.log(&format!("config: confirmed by {who}"));
        Ok(applied(&name, (&before, &self.running().revision), &Settled::default(), Vec::new()))
    }

    fn roll_back(&mut self, instead: &ApplyOptions, to: Option<&str>) -> Result<ConfigApplied, Refused> {
        self.expect(&instead.revision)?;
        if self.unconfirmed.is_some() {
            if let Some(to) = to.filter(|to| {
                Some(true) != self.unconfirmed.as_ref().map(|w| w.before_revision().starts_with(to))
            }) {
                return Err(conflict(
                    format!(
                        "the running configuration awaits confirmation and cannot be rolled back to {to}"
                    ),
                    "confirm it, or roll back without naming a revision",
                ));
            }
            self.output.log(&format!("config: rolled back by {}", instead.who));
            return self.undo().map_err(failed);
        }
        let past = match to {
            Some(to) => self.find_past(to)?,
            None => self.file.history().into_iter().next().ok_or_else(|| {
                Refused::new(RefusalKind::Unknown, "no previous configuration is known", "")
            })?,
        };
        let text = past.text().map_err(failed)?;
        self.apply_text(instead, NewText::Config(&text))
    }

    /// Rolls back a change that was not confirmed in time.
    pub(super) fn undo_unconfirmed(&mut self) {
        if self.unconfirmed.as_ref().is_none_or(|waits| waits.until > Instant::now()) {
            return;
        }
        self.output.log("config: not confirmed in time; rolling back to the previous configuration");
        if let Err(why) = self.undo() {
            self.output.error(&format!("config: automatic rollback failed; Gatun will retry: {why}"));
            if let Some(waits) = &mut self.unconfirmed {
                waits.until = Instant::now() + AGAIN;
            }
        }
    }

    /// Rolls back an unconfirmed change.
    fn undo(&mut self) -> Result<ConfigApplied, String> {
        let waits = self.unconfirmed.take().ok_or("no configuration awaits confirmation")?;
        let after = self.running().revision.clone();
        let before = waits.before.clone();
        let review = self.review(&before);
        let done = self
            .prepare_engines(&before, &review)
            .and_then(|ready| self.prepare_reload(ready, &before))
            .map_err(|not| not.why)
            .and_then(|ready| self.apply_reload(before, &review, ready));
        match done {
            Ok((_, ended)) => {
                waits.file.discard();
                self.publish();
                self.log_ended(&ended);
                let running = self.running();
                Ok(applied(&running.file, (&after, &running.revision), &ended, notes(&ended)))
            }
            Err(why) => {
                self.unconfirmed = Some(waits);
                Err(why)
            }
        }
    }

    /// Checks that the active configuration is the one that the caller expects.
    ///
    /// # Errors
    /// Returns an error if another configuration is active.
    pub(super) fn expect(&self, revision: &str) -> Result<(), Refused> {
        let running = &self.running().revision;
        match running == revision {
            true => Ok(()),
            false => Err(conflict(
                format!("revision {} is active", short(running)),
                "the configuration changed meanwhile; check it, then repeat the request with its revision",
            )),
        }
    }

    /// Checks that files of mappings are unchanged since they were read, except the one that the request
    /// changes. Another configuration may read files as they are now.
    ///
    /// # Errors
    /// Returns an error if a file has changed.
    fn expect_other_mappings(&self, new: &Settings, text: NewText<'_>) -> Result<(), Refused> {
        if matches!(text, NewText::Config(_)) {
            return Ok(());
        }
        let others = new.mapping_files.iter().filter(|file| Some(&*file.path) != text.mappings());
        match others.into_iter().find(|file| !self.settings.mapping_files.contains(file)) {
            None => Ok(()),
            Some(file) => Err(changed_meanwhile(&file.path)),
        }
    }

    pub(super) fn expect_confirmed(&self) -> Result<(), Refused> {
        match &self.unconfirmed {
            None => Ok(()),
            Some(waits) => {
                let left = waits.until.saturating_duration_since(Instant::now()).as_secs();
                Err(conflict(
                    format!("the running configuration awaits confirmation for another {left} s"),
                    "run `gatun config confirm` or `gatun config rollback`",
                ))
            }
        }
    }

    fn find_past(&self, revision: &str) -> Result<HistoryEntry, Refused> {
        let mut found = self.file.history();
        found.retain(|past| past.revision.starts_with(revision));
        match found.first() {
            Some(first)
                if found.iter().all(|past| past.revision == first.revision) && !revision.is_empty() =>
            {
                Ok(found.swap_remove(0))
            }
            Some(_) => Err(conflict(
                format!("several revisions begin with '{revision}'"),
                "give more characters of the revision",
            )),
            None => Err(Refused::new(
                RefusalKind::Unknown,
                format!("no earlier revision begins with '{}'", short(revision)),
                "`gatun config history` lists them",
            )),
        }
    }

    fn past_text(&self, revision: &str) -> Result<types::Config, Refused> {
        let past = self.find_past(revision)?;
        let file = self.running().file.clone();
        Ok(types::Config {
            file,
            text: past.text().map_err(failed)?,
            revision: past.revision,
            unconfirmed: None,
        })
    }
}

fn applied(file: &str, (before, after): (&str, &str), ended: &Settled, notes: Vec<String>) -> ConfigApplied {
    ConfigApplied {
        file: file.to_owned(),
        revision: after.to_owned(),
        before: before.to_owned(),
        sessions: ended.sessions,
        bindings: ended.bindings,
        blocks: ended.blocks,
        confirm_within_seconds: None,
        notes,
    }
}

fn past(past: &HistoryEntry) -> ConfigPast {
    ConfigPast {
        revision: past.revision.clone(),
        replaced_at: rfc3339(past.at_s.saturating_mul(1000)),
        replaced_by: past.who.clone(),
        bytes: past.bytes,
    }
}

/// Problem of the whole configuration, without a line.
fn of_whole(file: &str, message: String) -> ConfigProblem {
    ConfigProblem {
        severity: Severity::Error,
        file: file.to_owned(),
        line: 1,
        column: 1,
        message,
        help: None,
    }
}

fn wrong(problems: &[ConfigProblem]) -> Refused {
    let errors: Vec<&ConfigProblem> = problems.iter().filter(|p| p.severity == Severity::Error).collect();
    let (n, s) = (errors.len(), if errors.len() == 1 { "" } else { "s" });
    let lines: Vec<String> = errors.into_iter().take(TOLD_MAX).flat_map(in_lines).collect();
    Refused::new(RefusalKind::Unusable, format!("the configuration has {n} error{s}"), lines.join("\n"))
}

fn not_possible(ReloadRefusal { restarts, why }: ReloadRefusal) -> Refused {
    Refused::new(RefusalKind::Unusable, why, restarts.join("\n"))
}

/// First characters of a revision, for people.
fn short(revision: &str) -> &str {
    revision.get(..12).unwrap_or(revision)
}
