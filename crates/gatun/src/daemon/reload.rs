//! Another configuration while packets go on: on SIGHUP the file is read again, and what it asks for is put in
//! place, or nothing of it.
//!
//! All of it happens in a thread of its own, one request after the other: reading, comparing, and making what is
//! new, a million mappings perhaps. A worker is asked twice, between two bursts: what it has, and to change.

use super::control::TlsFiles;
use super::event_log::Shared;
use super::log_store::LogSender;
use super::notify::Notifier;
use super::outlet::Output;
use super::takeover::Estate;
use super::{ANSWER_MAX, PortSettings, Reread, Settings, memory};
use anyhow::Context as _;
use gatun_config::Log;
use gatun_control::SharedFacts;
use gatun_io_tun::{Orders, Prefix, TunConfig};
use gatun_nat::Plan;
use gatun_nat::reconfigure::{Change, Difference, NotNow, Refused, Settled};
use gatun_nat::workers::{Shares, Steering};
use gatun_worker::Handle;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How often workers are asked whether a change is at its end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Lines of one kind that are logged; more are counted.
const LINES_MAX: usize = 40;

/// Workers that share a translator: what each of them runs by.
pub(super) struct Crew {
    /// Without mappings, which may be many.
    plans: Vec<Plan>,
    pub(super) steering: Arc<Steering>,
}

impl Crew {
    pub(super) fn new(shares: Shares) -> Crew {
        let Shares { mut plans, steering, .. } = shares;
        for siit in plans.iter_mut().flat_map(|plan| &mut plan.siit) {
            siit.eamt = Vec::new();
        }
        Crew { plans, steering: Arc::new(steering) }
    }
}

/// A change, ready for every worker.
struct Ready {
    changes: Vec<Box<Change>>,
    /// Where workers share: what they run by then.
    crew: Option<Crew>,
    /// Subscribers that move to other workers.
    moved: usize,
}

/// What a change of the configuration has to do with.
pub(super) struct Reload {
    /// What runs.
    pub(super) settings: Settings,
    /// Where several workers share what has state: what each runs by.
    pub(super) crew: Option<Crew>,
    pub(super) reread: Reread,
    pub(super) workers: Vec<Handle>,
    /// What the API tells of the configuration.
    pub(super) facts: SharedFacts,
    /// Certificate, key and tokens of the API on TCP, where it is.
    pub(super) tls: Option<TlsFiles>,
    /// Names of the devices as the kernel has them.
    pub(super) devices: Vec<String>,
    /// To let TUN devices have other routes; none for ports of another kind.
    pub(super) orders: Option<Orders>,
    pub(super) names: Option<Shared>,
    /// Where sessions are kept for the next process.
    pub(super) estate: Option<Estate>,
    /// Who is told that a change has begun, and is over.
    pub(super) notifier: Notifier,
    pub(super) log: Option<LogSender>,
    pub(super) output: Output,
}

impl Reload {
    /// Starts the thread: it reads the configuration again each time that something is sent.
    ///
    /// # Errors
    /// Where there can be no thread.
    pub(super) fn start(self) -> anyhow::Result<Sender<()>> {
        let (sender, requests) = channel();
        let body = move || self.serve(&requests);
        std::thread::Builder::new().name("reload".into()).spawn(body).context("no thread to reload")?;
        Ok(sender)
    }

    fn serve(mut self, requests: &Receiver<()>) {
        while requests.recv().is_ok() {
            // Several requests for the same file are one.
            while requests.try_recv().is_ok() {}
            self.notifier.reloading();
            if let Some(tls) = &self.tls {
                tls.reread(&self.output);
            }
            let changed = self.reload();
            self.notifier.ready(&super::translating(self.workers.len()));
            match changed {
                Ok(()) => {}
                Err(why) => self.output.log(&format!("reload: {why}; nothing has changed")),
            }
        }
    }

    fn log(&self, what: &str, lines: &[String]) {
        for line in lines.iter().take(LINES_MAX) {
            self.output.log(&format!("reload: {what}{line}"));
        }
        if lines.len() > LINES_MAX {
            self.output.log(&format!("reload: {what}... and {} more", lines.len() - LINES_MAX));
        }
    }

    /// # Errors
    /// Why nothing has changed.
    fn reload(&mut self) -> Result<(), String> {
        let new = (self.reread)().map_err(|problems| {
            let lines: Vec<String> = problems.lines().map(str::to_owned).collect();
            self.log("", &lines);
            "the configuration has errors".to_owned()
        })?;
        let mut difference = Difference::between(&self.settings.plan, &new.plan);
        difference.restarts.extend(outside_engine(&self.settings, &new));
        let rerouted = self.rerouted(&new);
        if difference.is_empty() && rerouted.is_empty() {
            self.facts.set(new.control.facts);
            self.output.log("reload: the configuration is as it was");
            return Ok(());
        }
        self.refuse_restarts(&difference.restarts)?;
        let ready = if difference.is_empty() { None } else { Some(self.prepare(&new)?) };
        self.log("", &difference.changes);
        self.log("these end: ", &difference.ends);
        if let Some(estate) = &mut self.estate {
            // Where nothing of the engines changes, they run by what they run by.
            let crew = ready.as_ref().map_or(&self.crew, |ready| &ready.crew);
            let steering = crew.as_ref().map(|crew| &*crew.steering);
            estate.add(&new.plan, steering).map_err(|e| e.to_string())?;
        }
        if let Some(ready) = ready {
            self.apply(ready)?;
        }
        if let Some(names) = &self.names {
            names.set(&new);
        }
        if let Some(log) = &self.log {
            log.configured(&new.control.facts.config.text, &new.plan);
        }
        for device in rerouted {
            if let (Some(name), Some(config)) = (self.devices.get(device), new.ports.devices().get(device))
                && let Some(orders) = &self.orders
            {
                orders.set(name.clone(), config.addresses.clone(), config.routes.clone());
            }
        }
        self.facts.set(new.control.facts.clone());
        self.settings = new;
        let ended = self.wait_until_settled();
        self.output.log(&format!(
            "reload: done; {} sessions, {} bindings and {} port blocks have ended by it",
            ended.sessions, ended.bindings, ended.blocks
        ));
        if ended.static_bindings_refused > 0 {
            let n = ended.static_bindings_refused;
            self.output.log(&format!("reload: {n} static bindings could not be made: the table is full"));
        }
        Ok(())
    }

    fn refuse_restarts(&self, restarts: &[String]) -> Result<(), String> {
        if restarts.is_empty() {
            return Ok(());
        }
        self.log("needs a restart: ", restarts);
        Err("what the configuration asks for needs a restart".to_owned())
    }

    /// What each worker's engine needs and has not: all of them, or none is changed.
    fn prepare(&self, new: &Settings) -> Result<Ready, String> {
        let Some(crew) = &self.crew else {
            let workers = self.workers.len();
            let (old, new) = (vec![&self.settings.plan; workers], vec![&new.plan; workers]);
            return Ok(Ready { changes: self.prepare_each(&old, &new)?, crew: None, moved: 0 });
        };
        let mut shares = match Shares::after(&crew.steering, &new.plan) {
            Ok(shares) => shares,
            Err(refused) => return Err(self.refuse(refused)),
        };
        let old: Vec<&Plan> = crew.plans.iter().collect();
        let mut changes = self.prepare_each(&old, &shares.plans.iter().collect::<Vec<_>>())?;
        let moved = shares.moved.iter().map(Vec::len).sum();
        for (change, moved) in changes.iter_mut().zip(std::mem::take(&mut shares.moved)) {
            change.end_moved(moved);
        }
        Ok(Ready { changes, crew: Some(Crew::new(shares)), moved })
    }

    fn prepare_each(&self, old: &[&Plan], new: &[&Plan]) -> Result<Vec<Box<Change>>, String> {
        memory::check_more(old, new)?;
        let mut changes: Vec<Box<Change>> = Vec::new();
        for (worker, (old, new)) in self.workers.iter().zip(old.iter().zip(new)) {
            let outline = worker.outline(ANSWER_MAX).ok_or("a worker does not answer")?;
            let made = match changes.first() {
                None => Change::prepare(&outline, old, new),
                Some(first) => first.sibling(&outline, old, new),
            };
            changes.push(Box::new(made.map_err(|refused| self.refuse(refused))?));
        }
        Ok(changes)
    }

    fn refuse(&self, refused: Refused) -> String {
        match refused {
            Refused::Restart(restarts) => self.refuse_restarts(&restarts).err().unwrap_or_default(),
            Refused::Build(error) => error.to_string(),
        }
    }

    /// Puts the changes in place. Nobody else changes an engine, and each has settled since the last time: a worker
    /// can refuse its change only before any other has its own.
    fn apply(&mut self, ready: Ready) -> Result<(), String> {
        let Ready { changes, crew, moved } = ready;
        if moved > 0 {
            self.output.log(&format!(
                "reload: these end: sessions of {moved} subscribers, whose static bindings are at another worker now"
            ));
        }
        for (number, (worker, mut change)) in self.workers.iter().zip(changes).enumerate() {
            loop {
                let steering = crew.as_ref().map(|crew| Arc::clone(&crew.steering));
                match worker.apply(change, steering, ANSWER_MAX) {
                    Some(applied) => match applied.result {
                        Ok(()) => break,
                        Err(NotNow::Settling) => {
                            change = applied.change;
                            std::thread::sleep(LOOK_EVERY);
                        }
                        Err(NotNow::Outdated) => return Err("the engine has changed meanwhile".to_owned()),
                    },
                    None => {
                        self.output
                            .log(&format!("reload: worker {number} does not answer; it changes when it can"));
                        break;
                    }
                }
            }
        }
        self.crew = crew;
        Ok(())
    }

    fn wait_until_settled(&self) -> Settled {
        let mut all = Settled::default();
        for worker in &self.workers {
            while let Some(settling) = worker.settling(ANSWER_MAX) {
                if settling.goes_on {
                    std::thread::sleep(LOOK_EVERY);
                    continue;
                }
                all.sessions += settling.ended.sessions;
                all.bindings += settling.ended.bindings;
                all.blocks += settling.ended.blocks;
                all.static_bindings_refused += settling.ended.static_bindings_refused;
                break;
            }
        }
        all
    }

    /// Devices that are to have other addresses or routes, by number.
    fn rerouted(&self, new: &Settings) -> Vec<usize> {
        let pairs = self.settings.ports.devices().iter().zip(new.ports.devices()).enumerate();
        let differs = |(_, (a, b)): &(usize, (&TunConfig, &TunConfig))| {
            sorted(&a.routes) != sorted(&b.routes) || sorted(&a.addresses) != sorted(&b.addresses)
        };
        pairs.filter(differs).map(|(number, _)| number).collect()
    }
}

fn sorted(prefixes: &[Prefix]) -> Vec<Prefix> {
    let mut sorted = prefixes.to_vec();
    sorted.sort_unstable();
    sorted
}

/// What differs beside the plan, and needs a restart.
fn outside_engine(old: &Settings, new: &Settings) -> Vec<String> {
    let mut restarts = Vec::new();
    if old.events != new.events {
        restarts.push("[events]: where they are written to".to_owned());
    }
    if old.state != new.state {
        restarts.push("[state]: where sessions are kept".to_owned());
    }
    if old.exports != new.exports {
        restarts.push("[[export]]: collectors, and what they get".to_owned());
    }
    if !Log::is_same_place(old.log.as_ref(), new.log.as_ref()) {
        restarts.push("[log]: whether there is one, where it is, and how much of it is kept".to_owned());
    }
    restarts.extend(super::control::differ(&old.control, &new.control));
    restarts.extend(PortSettings::differ(&old.ports, &new.ports));
    let (old, new) = (old.ports.devices(), new.ports.devices());
    for (a, b) in old.iter().zip(new) {
        let TunConfig { name, mode, queues, offload, up: _, mtu, addresses, routes } = b;
        if (&a.name, a.mode, a.queues, a.offload, a.mtu) != (name, *mode, *queues, *offload, *mtu) {
            restarts.push(format!("port of device {}: its device, mode, queues, offload or MTU", a.name));
        }
        let none = |config: &TunConfig| config.routes.is_empty() && config.addresses.is_empty();
        if old.iter().all(none) && !(addresses.is_empty() && routes.is_empty()) {
            restarts.push(format!(
                "device {name}: routes or addresses where there were none: the right to set them was given up at the start"
            ));
        }
    }
    restarts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::ControlSettings;
    use gatun_config::Api;
    use gatun_control::Facts;
    use gatun_nat::EventKinds;

    fn settings(devices: Vec<TunConfig>) -> Settings {
        let config = gatun_api::types::Config { file: String::new(), text: String::new() };
        let facts = Facts { config, ports: Vec::new(), sessions_max: 0, subscribers_max: 0 };
        let control = ControlSettings { api: Api::default(), metrics: None, facts };
        let (plan, ports, json_kinds) = (Plan::default(), PortSettings::Tun(devices), EventKinds::NONE);
        let state = gatun_config::StateDir::Off;
        let (json_destinations, exports) = (false, Vec::new());
        Settings {
            plan,
            events: None,
            json_kinds,
            json_destinations,
            exports,
            log: None,
            ports,
            control,
            state,
            beside: Vec::new(),
        }
    }

    #[test]
    fn what_concerns_a_device_itself_needs_a_restart_and_its_routes_do_not() {
        let route = Prefix { addr: "192.0.2.1".parse().unwrap(), len: 32 };
        let with = TunConfig { routes: vec![route], ..TunConfig::default() };
        let refused = |old: &TunConfig, new: &TunConfig| {
            outside_engine(&settings(vec![old.clone()]), &settings(vec![new.clone()]))
        };
        assert_eq!(refused(&with, &with), Vec::<String>::new());
        assert_eq!(refused(&with, &TunConfig::default()), Vec::<String>::new());
        assert!(refused(&TunConfig::default(), &with)[0].contains("given up at the start"));
        for other in [
            TunConfig { name: "other".into(), ..with.clone() },
            TunConfig { queues: 7, ..with.clone() },
            TunConfig { mtu: Some(9000), ..with.clone() },
            TunConfig { offload: false, ..with.clone() },
        ] {
            assert_eq!(refused(&with, &other).len(), 1, "{other:?}");
        }
        assert_eq!(outside_engine(&settings(vec![with]), &settings(vec![])), ["the number of ports"]);
    }
}
