//! Configuration revisions: each node has a reload that takes a text, or refuses it.

use crate::node::{Life, Node, name};
use crate::server::Server;
use crate::{put, server};
use gatun_cluster::ClusterRules;
use gatun_cluster::coordination::{ConfigStep, NewRevision, RunningConfig, SavedRevision};
use gatun_cluster::revision::{KEPT_MAX, ROLL_S, Stage, TEXT_MAX};
use std::cell::RefCell;
use std::rc::Rc;

const NODES: usize = 3;
/// Time of a step, ms.
const STEP_MS: u64 = 5;

/// Node, and the configuration of its process.
struct Host {
    node: Node,
    running: String,
    /// Text in the file, and the time of the automatic rollback if another one runs.
    file: String,
    until: Option<u64>,
    result: Option<Result<(), String>>,
    /// A text with this word cannot be checked, and one with the other word cannot be applied.
    refuses: (&'static str, &'static str),
    ordered: Vec<(u64, Result<(), String>)>,
    events: Vec<String>,
    saved: SavedRevision,
    /// Time at which it began to run the present text.
    since_ms: u64,
}

impl Host {
    fn new(server: &Rc<RefCell<Server>>, number: usize) -> Host {
        Host {
            node: Node::new(server, (number, NODES), ClusterRules::default(), 0),
            running: "old".to_owned(),
            file: "old".to_owned(),
            until: None,
            result: None,
            refuses: ("cannot check", "cannot apply"),
            ordered: vec![],
            events: vec![],
            saved: SavedRevision::default(),
            since_ms: 0,
        }
    }

    fn run(&mut self, now_ms: u64, text: String) {
        (self.running, self.since_ms) = (text, now_ms);
    }

    fn turn(&mut self, now_ms: u64) {
        if self.node.life != Life::Runs {
            return;
        }
        if self.until.is_some_and(|until| now_ms >= until) {
            self.until = None;
            self.run(now_ms, self.file.clone());
        }
        let one = &mut self.node.coordination;
        let is_unconfirmed = self.until.is_some();
        one.set_running_config(RunningConfig { sha256: hash(&self.running), is_unconfirmed });
        if let Some(result) = self.result.take() {
            one.config_done(now_ms, result);
        }
        if let Some(step) = one.take_config_step() {
            self.result = Some(self.execute(now_ms, step));
        }
        self.node.turn(now_ms);
        let one = &mut self.node.coordination;
        self.saved = one.saved_revision();
        self.ordered.extend(one.take_ordered());
        self.events.extend(one.take_events().into_iter().map(|event| event.text));
    }

    fn execute(&mut self, now_ms: u64, step: ConfigStep) -> Result<(), String> {
        match step {
            ConfigStep::Check(text) if text.contains(self.refuses.0) => Err("needs a restart".to_owned()),
            ConfigStep::Check(_) => Ok(()),
            ConfigStep::Apply { text, .. } if text.contains(self.refuses.1) => Err("no memory".to_owned()),
            ConfigStep::Apply { text, sha256, trial_ms, .. } => {
                assert_eq!(hash(&text), sha256);
                self.until = trial_ms.map(|ms| now_ms + ms).filter(|_| text != self.running);
                if trial_ms.is_none() {
                    self.file.clone_from(&text);
                }
                self.run(now_ms, text);
                Ok(())
            }
            ConfigStep::Confirm(_) if self.until.take().is_some() => {
                self.file.clone_from(&self.running);
                Ok(())
            }
            ConfigStep::Confirm(_) => Err("nothing awaits confirmation".to_owned()),
            ConfigStep::RollBack(_) => {
                if self.until.take().is_some() {
                    self.run(now_ms, self.file.clone());
                }
                Ok(())
            }
        }
    }

    /// The process is killed, and another one starts from the file.
    fn restart(&mut self, server: &Rc<RefCell<Server>>, number: usize) {
        let now_ms = server.borrow().now_ms;
        self.node.end(now_ms, Life::Killed);
        self.node.come_back(server, number, now_ms);
        self.node.coordination.set_saved_revision(self.saved.clone());
        (self.until, self.result) = (None, None);
        self.run(now_ms, self.file.clone());
    }

    fn stage(&self, now_ms: u64) -> Option<(u64, Stage)> {
        let current = self.node.coordination.configuration(now_ms).current?;
        Some((current.number, current.stage))
    }
}

fn hash(text: &str) -> String {
    format!("hash of {text}").replace('\n', " ")
}

struct World {
    server: Rc<RefCell<Server>>,
    hosts: Vec<Host>,
}

impl World {
    fn new() -> World {
        let server = server();
        let hosts = (0..NODES).map(|number| Host::new(&server, number)).collect();
        let mut world = World { server, hosts };
        world.run(500);
        world
    }

    fn now(&self) -> u64 {
        self.server.borrow().now_ms
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms / STEP_MS {
            let now_ms = self.now() + STEP_MS;
            self.server.borrow_mut().turn(now_ms);
            self.hosts.iter_mut().for_each(|host| host.turn(now_ms));
        }
    }

    fn propose(&mut self, number: usize, text: &str, confirm_s: Option<u32>) -> Result<u64, String> {
        let (text, sha256) = (text.to_owned(), hash(text));
        let new = NewRevision { text, sha256, by: "operator".to_owned(), at_s: 7, confirm_s };
        let now_ms = self.now();
        self.hosts[number].node.coordination.propose(now_ms, new)
    }

    /// Proposes a text at a node, and waits for the answer.
    fn apply(&mut self, number: usize, text: &str, confirm_s: Option<u32>) -> Result<(), String> {
        let id = self.propose(number, text, confirm_s)?;
        self.answer(number, id)
    }

    fn answer(&mut self, number: usize, id: u64) -> Result<(), String> {
        for _ in 0..4_000 {
            if let Some((_, result)) = self.hosts[number].ordered.iter().find(|(one, _)| *one == id) {
                return result.clone();
            }
            self.run(STEP_MS);
        }
        panic!("no answer within 20 s");
    }

    fn end_trial(&mut self, number: usize, is_good: bool) -> Result<(), String> {
        let now_ms = self.now();
        let node = &mut self.hosts[number].node;
        let id = node.coordination.end_trial(now_ms, &mut node.client, (is_good, "operator"))?;
        self.answer(number, id)
    }

    fn running(&self) -> Vec<&str> {
        self.hosts.iter().map(|host| &host.running[..]).collect()
    }

    fn files(&self) -> Vec<&str> {
        self.hosts.iter().map(|host| &host.file[..]).collect()
    }

    fn stage(&self, number: usize) -> Option<(u64, Stage)> {
        self.hosts[number].stage(self.now())
    }

    fn differing(&self) -> Vec<String> {
        let nodes = self.hosts[0].node.coordination.configuration(self.now()).nodes;
        nodes.iter().filter(|one| one.differs).map(|one| one.node.to_string()).collect()
    }

    fn cut(&mut self, is_cut: bool) {
        self.hosts.iter_mut().for_each(|host| host.node.client.is_cut = is_cut);
    }
}

#[test]
fn the_nodes_apply_a_revision_one_after_the_other_and_all_have_it_in_their_files() {
    let mut world = World::new();
    assert_eq!(world.apply(1, "new", None), Ok(()));
    world.run(1_000);
    assert_eq!((world.running(), world.files()), (vec!["new"; 3], vec!["new"; 3]));
    let times: Vec<u64> = world.hosts.iter().map(|host| host.since_ms).collect();
    assert!(times[0] < times[1] && times[1] < times[2], "{times:?}");
    assert_eq!(world.stage(2), Some((1, Stage::Confirmed)));
    assert_eq!(world.differing(), [""; 0]);
    assert!(world.hosts.iter().all(|host| host.saved == SavedRevision { file: 1, seen: 1 }));
    // An earlier text is a new revision.
    assert_eq!(world.apply(0, "newer", None), Ok(()));
    world.run(1_000);
    let text = world.hosts[2].node.coordination.revisions().pop().unwrap().text;
    assert_eq!(world.apply(2, &text, None), Ok(()));
    world.run(1_000);
    assert_eq!((world.files(), world.stage(0)), (vec!["new"; 3], Some((3, Stage::Confirmed))));
}

#[test]
fn a_text_that_one_node_cannot_take_is_written_nowhere() {
    let mut world = World::new();
    world.hosts[2].refuses.0 = "other";
    let refused = world.apply(0, "other", Some(60));
    assert_eq!(refused, Err("node n2: needs a restart".to_owned()));
    world.run(1_000);
    assert_eq!(world.running(), ["old"; 3]);
    let server = world.server.borrow();
    for key in ["current", "proposed", "revision/0000000001"] {
        assert_eq!(server.value(&format!("/gatun/c/config/{key}")), None);
    }
    drop(server);
    // The next one is not hindered.
    assert_eq!(world.apply(1, "new", None), Ok(()));
}

#[test]
fn a_node_that_does_not_answer_is_named_and_nothing_is_written() {
    let mut world = World::new();
    // Its registration lives on, but its reload does nothing.
    world.hosts[1].result = None;
    let id = world.propose(0, "new", None).unwrap();
    let stuck = world.hosts.remove(1);
    let mut stuck = stuck;
    for _ in 0..4_000 {
        world.run(STEP_MS);
        let now_ms = world.now();
        stuck.node.turn(now_ms);
        if !world.hosts[0].ordered.is_empty() {
            break;
        }
    }
    let (of, result) = world.hosts[0].ordered.pop().unwrap();
    assert_eq!((of, result), (id, Err("no answer of node n1 within 15 s".to_owned())));
    assert_eq!(world.running(), ["old"; 2]);
}

#[test]
fn of_two_operators_at_once_one_gets_words() {
    let mut world = World::new();
    let ids = [world.propose(0, "one", None).unwrap(), world.propose(2, "two", None).unwrap()];
    let results = [world.answer(0, ids[0]), world.answer(2, ids[1])];
    let refused: Vec<&String> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!(refused, ["another configuration is being applied at this moment: try again"]);
    world.run(1_000);
    let winner = if results[0].is_ok() { "one" } else { "two" };
    assert_eq!(world.files(), [winner; 3]);
}

#[test]
fn a_trial_is_confirmed_by_the_word_of_an_operator_at_any_node() {
    let mut world = World::new();
    assert_eq!(world.apply(0, "new", Some(10)), Ok(()));
    world.run(1_000);
    assert_eq!((world.running(), world.files()), (vec!["new"; 3], vec!["old"; 3]));
    assert_eq!(world.stage(1), Some((1, Stage::Trial)));
    let busy = world.propose(1, "other", None);
    assert!(busy.unwrap_err().contains("awaits confirmation"));
    assert_eq!(world.end_trial(2, true), Ok(()));
    world.run(1_000);
    assert_eq!((world.files(), world.stage(0)), (vec!["new"; 3], Some((1, Stage::Confirmed))));
    world.run(20_000);
    assert_eq!(world.running(), ["new"; 3]);
    assert!(world.end_trial(0, true).is_err(), "there is no trial any more");
}

#[test]
fn a_trial_that_no_operator_confirms_ends_at_all_nodes() {
    for is_ordered in [false, true] {
        let mut world = World::new();
        assert_eq!(world.apply(0, "first", None), Ok(()));
        world.run(1_000);
        assert_eq!(world.apply(0, "new", Some(10)), Ok(()));
        world.run(9_000);
        assert_eq!(world.running(), ["new"; 3]);
        if is_ordered {
            assert_eq!(world.end_trial(1, false), Ok(()));
        }
        world.run(2_000);
        assert_eq!((world.running(), world.files()), (vec!["first"; 3], vec!["first"; 3]));
        assert_eq!(world.stage(2), Some((2, Stage::Withdrawn)));
        assert_eq!(world.differing(), [""; 0]);
    }
}

#[test]
fn a_trial_ends_by_itself_when_etcd_is_away_and_stays_ended_when_it_is_back() {
    let mut world = World::new();
    assert_eq!(world.apply(0, "new", Some(10)), Ok(()));
    world.run(1_000);
    assert_eq!(world.running(), ["new"; 3]);
    world.cut(true);
    world.run(10_000);
    assert_eq!((world.running(), world.files()), (vec!["old"; 3], vec!["old"; 3]));
    world.cut(false);
    world.run(3_000);
    assert_eq!(world.running(), ["old"; 3]);
    assert_eq!(world.stage(0), Some((1, Stage::Withdrawn)));
}

#[test]
fn a_change_that_etcd_leaves_half_done_ends_at_all_nodes() {
    let mut world = World::new();
    assert_eq!(world.apply(1, "new", None), Ok(()));
    // The first node has it, the others have not heard of it.
    while world.hosts[0].running != "new" {
        world.run(STEP_MS);
    }
    world.cut(true);
    world.run(1_000);
    assert_eq!(world.running(), ["new", "old", "old"]);
    world.run(u64::from(ROLL_S) * 1_000);
    assert_eq!(world.running(), ["old"; 3]);
    world.cut(false);
    world.run(3_000);
    assert_eq!((world.running(), world.stage(0)), (vec!["old"; 3], Some((1, Stage::Withdrawn))));
}

#[test]
fn a_node_that_was_cut_off_takes_the_confirmed_revision_afterwards() {
    let mut world = World::new();
    assert_eq!(world.apply(0, "new", Some(10)), Ok(()));
    world.run(1_000);
    world.hosts[2].node.client.is_cut = true;
    // Its registration ends.
    world.run(2_000);
    assert_eq!(world.end_trial(0, true), Ok(()));
    world.run(10_000);
    assert_eq!(world.running(), ["new", "new", "old"], "nobody has told the third one");
    world.hosts[2].node.client.is_cut = false;
    world.run(3_000);
    assert_eq!((world.running(), world.files()), (vec!["new"; 3], vec!["new"; 3]));
}

#[test]
fn a_node_that_is_down_hinders_nobody_and_takes_the_revision_at_its_return() {
    let mut world = World::new();
    let now_ms = world.now();
    world.hosts[0].node.end(now_ms, Life::Killed);
    world.run(2_000);
    assert_eq!(world.apply(1, "new", None), Ok(()));
    world.run(1_000);
    assert_eq!(world.files(), ["old", "new", "new"]);
    let server = Rc::clone(&world.server);
    world.hosts[0].restart(&server, 0);
    world.run(3_000);
    assert_eq!((world.files(), world.differing()), (vec!["new"; 3], vec![]));
}

#[test]
fn a_node_that_cannot_apply_a_revision_has_all_return_and_one_that_returns_does_not() {
    let mut world = World::new();
    world.hosts[1].refuses.1 = "big";
    assert_eq!(world.apply(0, "big", None), Ok(()));
    world.run(2_000);
    assert_eq!(world.running(), ["old"; 3]);
    assert_eq!(world.stage(2), Some((1, Stage::Withdrawn)));
    let told =
        |host: &Host| host.events.iter().any(|event| event.contains("withdrawn by node n1: no memory"));
    assert!(world.hosts.iter().all(told), "{:?}", world.hosts[2].events);
    // A node that comes back cannot take what all others have: it alone differs.
    let now_ms = world.now();
    world.hosts[1].node.end(now_ms, Life::Killed);
    world.run(2_000);
    assert_eq!(world.apply(0, "bigger", None), Ok(()));
    world.run(1_000);
    let server = Rc::clone(&world.server);
    world.hosts[1].restart(&server, 1);
    world.run(3_000);
    assert_eq!(world.running(), ["bigger", "old", "bigger"]);
    assert_eq!(world.stage(0), Some((2, Stage::Confirmed)));
    assert_eq!(world.differing(), ["n1"]);
}

#[test]
fn a_process_that_is_killed_on_trial_starts_from_its_file_and_follows_the_others() {
    let mut world = World::new();
    assert_eq!(world.apply(0, "new", Some(10)), Ok(()));
    world.run(1_000);
    let server = Rc::clone(&world.server);
    world.hosts[1].restart(&server, 1);
    assert_eq!(world.hosts[1].running, "old");
    world.run(2_000);
    assert_eq!(world.running(), ["new"; 3]);
    world.run(10_000);
    assert_eq!(world.running(), ["old"; 3]);
}

#[test]
fn a_node_keeps_a_newer_revision_than_etcd_has_and_a_change_of_its_file() {
    let mut world = World::new();
    for text in ["one", "two"] {
        assert_eq!(world.apply(0, text, None), Ok(()));
        world.run(1_000);
    }
    // An operator has changed one node: it stays, and is shown.
    let now_ms = world.now();
    world.hosts[2].file = "by hand".to_owned();
    world.hosts[2].run(now_ms, "by hand".to_owned());
    world.run(1_000);
    assert_eq!((world.running()[2], world.differing()), ("by hand", vec![name(2).to_string()]));
    // Keys from a copy of etcd.
    let old = "number=1\nbefore=0\nstage=confirmed\nseconds=120\nneeds_word=false\nby=operator\nwhy=";
    put(&world.server, "/gatun/c/config/current", old);
    world.run(1_000);
    assert_eq!(world.running(), ["two", "two", "by hand"]);
    let told =
        world.hosts[0].events.iter().any(|event| event.contains("this node has seen 2: it keeps its own"));
    assert!(told, "{:?}", world.hosts[0].events);
    // The next one is newer than all that the nodes have seen.
    assert_eq!(world.apply(0, "three", None), Ok(()));
    world.run(1_000);
    assert_eq!((world.files(), world.stage(1)), (vec!["three"; 3], Some((3, Stage::Confirmed))));
}

#[test]
fn texts_and_their_number_are_bounded() {
    let mut world = World::new();
    let refused = world.propose(0, &"x".repeat(TEXT_MAX + 1), None);
    assert!(refused.unwrap_err().contains("takes at most 524288"));
    for n in 0..KEPT_MAX.0 + 3 {
        assert_eq!(world.apply(n % NODES, &format!("text {n}"), None), Ok(()));
        world.run(300);
    }
    let numbers = |world: &World| -> Vec<u64> {
        world.hosts[1].node.coordination.revisions().iter().map(|one| one.number).collect()
    };
    assert_eq!(numbers(&world), (4..=35).rev().collect::<Vec<u64>>());
    // Long texts leave room for fewer, but the previous one stays.
    for n in 0..2 {
        assert_eq!(world.apply(0, &format!("{n}{}", "y".repeat(TEXT_MAX - 1)), None), Ok(()));
        world.run(300);
    }
    assert_eq!(numbers(&world), [37, 36]);
    assert!(world.files().iter().all(|file| file.starts_with('1')));
}
