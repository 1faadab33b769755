//! Target: a program on DPDK's pipeline, in a thread of its own that moves frames between two changes.

use crate::target::{Change, MaskedEntry, Program, ProgramAction, ProgramTable, Rates, Target, TargetError};
use gatun_p4_switch::{
    Description, Environment, EnvironmentConfig, Match, MeterRates, Object, ObjectConfig, PortConfig,
    PortCounters, Switch, SwitchConfig, SwitchError, TableInfo,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Requests that wait for the switch, frames of the controller among them.
const COMMANDS: usize = 1024;
/// Changes of entries between two bursts of frames.
const CHANGES: usize = 64;
/// Time limit for the answer to a question for counters.
const COUNTERS_MAX: Duration = Duration::from_secs(1);
/// Frames for the controller between two bursts.
const FRAMES: usize = 64;
/// Turns without a frame or a request before the first sleep. The pipeline is empty by then.
const IDLE_TURNS: u32 = 1_000;

/// Configuration of a host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// DPDK's environment.
    pub environment: EnvironmentConfig,
    /// First program.
    pub program: PathBuf,
    /// Compilation of programs.
    pub object: ObjectConfig,
    /// Ports from number 1 on.
    pub ports: Vec<PortConfig>,
    /// Port 0, the controller's. Without a device, its frames pass over P4Runtime.
    pub controller_port: PortConfig,
    /// Packet buffers.
    pub buffers: u32,
    /// Entries of the first program's tables, as text.
    pub entries: Option<String>,
    /// Sleep between two turns while no frames come. Zero: none, so the switch uses its processor whole.
    pub idle_sleep: Duration,
}

/// Counters of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// Ports, from number 0 on.
    pub ports: Vec<PortCounters>,
    /// Frames that the program dropped.
    pub dropped: u64,
    /// Frames of `dropped` that were the controller's echoes, which the program has read.
    pub echoes: u64,
    /// Frames for the controller that were lost because its queue was full.
    pub controller_lost: u64,
}

/// The switch's thread. Dropping it does not end the thread.
pub struct HostHandle {
    commands: SyncSender<Command>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<HostCounters>,
    /// Entries of the text of [`HostConfig::entries`].
    pub entries: usize,
}

impl HostHandle {
    /// Present counters. `None`: the switch has ended, or is so busy with requests that it does not answer
    /// in time. The switch's thread does not wait for the caller.
    pub fn counters(&self) -> Option<HostCounters> {
        let (sender, receiver) = sync_channel(1);
        self.commands.try_send(Command::Count(sender)).ok()?;
        receiver.recv_timeout(COUNTERS_MAX).ok()
    }

    /// Ends the switch.
    pub fn stop(self) -> HostCounters {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

enum Command {
    Call(Box<dyn FnOnce(&mut Switch) + Send>),
    Change(Vec<Change>, SyncSender<Vec<Result<(), TargetError>>>),
    Frame(Vec<u8>),
    Count(SyncSender<HostCounters>),
}

/// A program on DPDK's pipeline.
pub struct Host {
    commands: SyncSender<Command>,
    environment: Environment,
    object: ObjectConfig,
    running: (Vec<u8>, Program),
    next: Option<(Vec<u8>, Program)>,
}

impl Host {
    /// Starts the switch. It sends frames for the controller to `frames`, or counts them if that is full.
    ///
    /// # Errors
    /// The environment, the program, a port, or the text of entries.
    pub fn start(
        config: &HostConfig,
        frames: SyncSender<Vec<u8>>,
    ) -> Result<(Host, HostHandle), SwitchError> {
        let text = std::fs::read(&config.program);
        let text = text.map_err(|error| SwitchError::File { path: config.program.clone(), error })?;
        let (commands, receiver) = sync_channel(COMMANDS);
        let (started, wait_started) = sync_channel(1);
        let (give_object, take_object) = sync_channel::<Object>(1);
        let (built, wait_built) = sync_channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let (own, ending) = (config.clone(), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("gatun-p4-switch".to_owned()).spawn(move || {
            // DPDK binds this thread to a processor.
            let environment = Environment::start(&own.environment);
            let running = environment.as_ref().ok().copied();
            let _ = started.send(environment);
            let (Some(environment), Ok(object)) = (running, take_object.recv()) else {
                return HostCounters::default();
            };
            match build(environment, object, &own) {
                Ok((switch, entries)) => {
                    let _ = built.send(Ok((switch.describe(), entries)));
                    let has_controller_port = own.controller_port.device.is_some();
                    let idle_sleep = own.idle_sleep;
                    Forwarder { switch, receiver, frames, lost: 0, has_controller_port, idle_sleep }
                        .run(&ending)
                }
                Err(error) => {
                    let _ = built.send(Err(error));
                    HostCounters::default()
                }
            }
        });
        let thread = thread.map_err(|e| SwitchError::Environment(e.to_string()))?;
        let ended = |_| SwitchError::Environment("the switch's thread has ended".to_owned());
        let environment = wait_started.recv().map_err(ended)??;
        let _ = give_object.send(Object::compile(environment, &config.program, &config.object)?);
        let (description, entries) = wait_built.recv().map_err(ended)??;
        let running = (text, program(&description));
        let handle = HostHandle { commands: commands.clone(), stop, thread, entries };
        let host = Host { commands, environment, object: config.object.clone(), running, next: None };
        Ok((host, handle))
    }

    /// Lets the switch's thread call a function.
    fn call<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut Switch) -> T + Send + 'static,
    ) -> Result<T, TargetError> {
        let (sender, receiver) = sync_channel(1);
        let call = Command::Call(Box::new(move |switch| {
            let _ = sender.try_send(function(switch));
        }));
        self.commands.send(call).map_err(|_| ended())?;
        receiver.recv().map_err(|_| ended())
    }
}

fn ended() -> TargetError {
    TargetError::Fault("the switch has ended".to_owned())
}

fn fault(error: SwitchError) -> TargetError {
    match error {
        SwitchError::Full(_) => TargetError::Full(error.to_string()),
        SwitchError::Missing { .. } | SwitchError::Entry { .. } | SwitchError::Program { .. } => {
            TargetError::Invalid(error.to_string())
        }
        _ => TargetError::Fault(error.to_string()),
    }
}

/// Makes the switch. The compiled program's files are not needed afterwards.
fn build(
    environment: Environment,
    object: Object,
    config: &HostConfig,
) -> Result<(Switch, usize), SwitchError> {
    let ports = std::iter::once(config.controller_port.clone()).chain(config.ports.iter().cloned()).collect();
    let mut switch = Switch::new(environment, &object, &SwitchConfig { ports, buffers: config.buffers })?;
    switch.lift_limits()?;
    let entries = config.entries.as_ref().map_or(Ok(0), |text| switch.load(text))?;
    Ok((switch, entries))
}

fn program(description: &Description) -> Program {
    let action = |(name, arguments): &(String, Vec<(String, u32)>)| ProgramAction {
        name: name.clone(),
        arguments: arguments.clone(),
    };
    let table = |table: &TableInfo| ProgramTable {
        name: table.name.clone(),
        size: table.size,
        is_exact: table.is_exact,
        fields: table.fields.clone(),
        actions: table.actions.iter().map(action).collect(),
    };
    Program {
        tables: description.tables.iter().map(table).collect(),
        arrays: description.arrays.clone(),
        meters: description.meters.clone(),
    }
}

impl Target for Host {
    fn check(&mut self, program_text: &[u8]) -> Result<Program, TargetError> {
        self.next = None;
        if program_text.is_empty() || program_text == self.running.0 {
            return Ok(self.running.1.clone());
        }
        let invalid =
            || TargetError::Invalid("the program is not a .spec of p4c-dpdk: it is no text".to_owned());
        let text = std::str::from_utf8(program_text).map_err(|_| invalid())?;
        let object =
            Object::compile_text(self.environment, Path::new("p4_device_config"), text, &self.object);
        let object = object.map_err(fault)?;
        let prepare = move |switch: &mut Switch| {
            switch.prepare(&object)?;
            Ok(switch.describe_next().unwrap_or_default())
        };
        let next = program(&self.call(prepare)?.map_err(fault)?);
        self.next = Some((program_text.to_vec(), next.clone()));
        Ok(next)
    }

    fn load(&mut self) -> Result<(), TargetError> {
        let Some(next) = self.next.take() else { return self.call(Switch::clear)?.map_err(fault) };
        let load = |switch: &mut Switch| if switch.replace() { switch.lift_limits() } else { Ok(()) };
        self.call(load)?.map_err(fault)?;
        self.running = next;
        Ok(())
    }

    fn change(&mut self, changes: Vec<Change>) -> Vec<Result<(), TargetError>> {
        let (sender, receiver) = sync_channel(1);
        match self.commands.send(Command::Change(changes, sender)) {
            Ok(()) => receiver.recv().unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    fn cells(&mut self, array: &str, indexes: &[u32]) -> Result<Vec<u64>, TargetError> {
        let (array, indexes) = (array.to_owned(), indexes.to_vec());
        let read = move |switch: &mut Switch| {
            indexes.iter().map(|i| switch.register(&array, *i)).collect::<Result<Vec<_>, _>>()
        };
        self.call(read)?.map_err(fault)
    }

    fn set_cell(&mut self, array: &str, index: u32, value: u64) -> Result<(), TargetError> {
        let array = array.to_owned();
        self.call(move |switch| switch.set_register(&array, index, value))?.map_err(fault)
    }

    fn set_meter(&mut self, meter: &str, index: u32, rates: Option<Rates>) -> Result<(), TargetError> {
        let meter = meter.to_owned();
        let rates = rates.map_or(MeterRates::UNLIMITED, |r| MeterRates {
            cir: r.cir,
            cbs: r.cburst,
            pir: r.pir,
            pbs: r.pburst,
        });
        self.call(move |switch| switch.set_meter(&meter, index, &rates))?
            .map_err(|error| TargetError::Invalid(error.to_string()))
    }

    fn send(&mut self, frame: Vec<u8>) -> Result<(), TargetError> {
        self.commands.try_send(Command::Frame(frame)).map_err(|error| match error {
            TrySendError::Full(_) => TargetError::Full("the queue to the switch is full".to_owned()),
            TrySendError::Disconnected(_) => ended(),
        })
    }
}

/// The switch's thread.
struct Forwarder {
    switch: Switch,
    receiver: Receiver<Command>,
    frames: SyncSender<Vec<u8>>,
    lost: u64,
    /// True if a device takes the frames for the controller.
    has_controller_port: bool,
    idle_sleep: Duration,
}

impl Forwarder {
    fn run(mut self, stop: &AtomicBool) -> HostCounters {
        let mut idle_turns = 0;
        while !stop.load(Ordering::Relaxed) {
            let is_idle = !self.forward();
            idle_turns = if is_idle { (idle_turns + 1).min(IDLE_TURNS) } else { 0 };
            let command = match idle_turns == IDLE_TURNS && !self.idle_sleep.is_zero() {
                true => self.receiver.recv_timeout(self.idle_sleep).ok(),
                false => self.receiver.try_recv().ok(),
            };
            idle_turns = if command.is_some() { 0 } else { idle_turns };
            match command {
                Some(Command::Call(function)) => function(&mut self.switch),
                Some(Command::Change(changes, sender)) => {
                    let results = self.change(&changes);
                    let _ = sender.try_send(results);
                }
                // The port's counters have the frames that the pipeline did not take.
                Some(Command::Frame(frame)) => drop(self.switch.put(0, &frame)),
                Some(Command::Count(sender)) => drop(sender.try_send(self.counters())),
                None => {}
            }
        }
        self.counters()
    }

    fn counters(&self) -> HostCounters {
        let (dropped, echoes) = (self.switch.dropped(), self.switch.echoes());
        HostCounters { ports: self.switch.counters(), dropped, echoes, controller_lost: self.lost }
    }

    /// Moves a burst of frames, those for the controller included. False: no frame came.
    fn forward(&mut self) -> bool {
        let has_come = self.switch.turn();
        if self.has_controller_port {
            return has_come;
        }
        for _ in 0..FRAMES {
            let Some(frame) = self.switch.take(0) else { break };
            self.lost += u64::from(self.frames.try_send(frame).is_err());
        }
        has_come
    }

    /// Executes changes, removals first: so frames are waited for once.
    fn change(&mut self, changes: &[Change]) -> Vec<Result<(), TargetError>> {
        let mut results = vec![Ok(()); changes.len()];
        for (number, change) in changes.iter().enumerate() {
            results[number] = remove(&mut self.switch, change);
            if number % CHANGES == CHANGES - 1 {
                self.forward();
            }
        }
        self.switch.settle();
        for (number, change) in changes.iter().enumerate() {
            if results[number].is_ok() {
                results[number] = add(&mut self.switch, change);
            }
            if number % CHANGES == CHANGES - 1 {
                self.forward();
            }
        }
        results
    }
}

/// Removes an entry, also one that gets another action: a frame that has found the entry would give the new
/// action's data to the old action.
fn remove(switch: &mut Switch, change: &Change) -> Result<(), TargetError> {
    let (table, key) = match change {
        Change::Remove { table, key } => (*table, key),
        Change::Modify { table, key, before, call } if *before != call.action => (*table, key),
        _ => return Ok(()),
    };
    let table = switch.table_at(table).ok_or_else(no_table)?;
    switch.remove(table, &[key]).map_err(fault)
}

fn add(switch: &mut Switch, change: &Change) -> Result<(), TargetError> {
    match change {
        Change::Remove { .. } => Ok(()),
        Change::Insert { table, key, call } | Change::Modify { table, key, call, .. } => {
            let table = switch.table_at(*table).ok_or_else(no_table)?;
            switch.insert_call(table, key, call.action, &call.data).map_err(fault)
        }
        Change::Fill { table, entries } => {
            let table = switch.table_at(*table).ok_or_else(no_table)?;
            let entry = |entry: &MaskedEntry| Match {
                key: entry.key.clone(),
                priority: entry.priority,
                action: switch.action_at(table, entry.call.action).unwrap_or_default().to_owned(),
                data: entry.call.data.clone(),
            };
            let entries: Vec<Match> = entries.iter().map(entry).collect();
            switch.fill(table, &entries).map_err(fault)
        }
    }
}

fn no_table() -> TargetError {
    TargetError::Invalid("the program has no such table".to_owned())
}
