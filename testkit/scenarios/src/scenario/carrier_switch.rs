//! `carrier --switch`: the traffic of many subscribers through a P4 switch, with Gatun as its controller.
//! Counters of the switch and the engine together explain every packet.

mod moves;
mod opening;

use super::RunOptions;
use super::carrier::{begin, build_up, config_with_room, stages};
use crate::ends::{Latency, Load, StageResult, Until};
use crate::memif::Reflector;
use crate::middle::NO_STATE;
use crate::report::{Report, group};
use crate::run::kills::KilledPrograms;
use crate::run::{Middle, Run};
use crate::switch::{CONTROLLER, state};
use gatun_api::client::Client;
use gatun_api::types;
use gatun_testkit::traffic::Sizes;
use std::time::{Duration, Instant};

const ABOUT: &str = "Many subscribers with many flows each use Gatun's stateful translation. A P4 switch in software (`gatun p4 switch`) \
translates established sessions, Gatun opens and ends them. All sessions open, then go on in random order, while Gatun's API ends random ones, \
which open again. Then Gatun is killed and started again, while the switch goes on. Then the switch is killed under load and started again, empty, while \
packets go on, and then both. Then reloads switch the use of the switch off and on while numbered packets pass. \
At last, new sessions open with the switch and without it. A reflector sends every packet back, so each passes the switch twice.";

/// Sessions outlive a killed Gatun.
const STATE: &str = "directory = \"/run/lab-state\"";
/// Sessions ended on request each second by default.
const KILLS_PER_S: f64 = 500.0;
/// Packets that the queues of a switch and of its three cables hold: two rings of a memif and two of the
/// switch at each port.
const QUEUED_MAX: u64 = 3 * 2 * (2048 + 1024);
/// Time limit for the last packets of the switch to be credited.
const CREDITED_MAX: Duration = Duration::from_secs(20);

pub(crate) fn run(options: &RunOptions) -> anyhow::Result<Report> {
    let traffic = options.traffic(4096, 16, Sizes::Fixed(128));
    let flows = u64::from(traffic.flows());
    let length = options.length(60.0);
    anyhow::ensure!(
        options.reflector == Reflector::Own,
        "the switch is killed under load: only the lab's own reflector can say what it sent (--reflector own)"
    );
    let mut report = Report::new("carrier", ABOUT);
    let mut bed = options.bed(&traffic)?;
    bed.insert_switch()?;
    let load = options.rate.map_or(Load::InFlight(bed.in_flight()), Load::Rate);

    // An ended session keeps its place until the switch has confirmed the end of its entries.
    let config = config_with_room(&bed, &traffic, 2 * flows).replace(NO_STATE, STATE);
    let config = format!("{config}\n{CONTROLLER}");
    let mut run = begin(&bed, options, Middle::Switch(&config, flows), &traffic)?;
    let build_up = build_up(&mut run, load, flows);
    let kills = options.kills.unwrap_or(KILLS_PER_S);
    let (steady, killed) = run.stage_with_kills("steady", load, Until::Elapsed(length), kills)?;
    report.kills_per_s = Some(killed as f64 / steady.seconds);
    // Without ended sessions, nearly all packets are the switch's.
    let calm = run.stage("no session ends", load, Until::Elapsed(length / 4));
    report.sessions = run.counters()?.map(|counters| counters.sessions);
    check_counters(&mut run, &mut report)?;
    // The switch goes on while Gatun is killed, and the next Gatun takes its sessions over.
    run.kill_gatun()?;
    let alone = run.stage("Gatun killed", load, Until::Elapsed(length / 4));
    run.start_gatun(&options.programs, &config)?;
    let again = run.stage("Gatun again", load, Until::Elapsed(length / 4));
    let adopted = state()?.adopted;
    let mut kills_of_programs = Kills { options, flows, load, length: length / 4, rows: Vec::new() };
    kills_of_programs.play(&mut run, KilledPrograms::Switch, None, &mut report)?;
    kills_of_programs.play(&mut run, KilledPrograms::Both, Some(&config), &mut report)?;
    let (accounts, ends) = run.finish()?;
    report.samples = ends.samples().to_vec();
    report.account_with_moves(&accounts);
    let mut rows = vec![
        ("build-up", &build_up),
        ("steady", &steady),
        ("no session ends", &calm),
        ("Gatun killed", &alone),
        ("Gatun again", &again),
    ];
    rows.extend(kills_of_programs.rows.iter().map(|(name, stage)| (*name, stage)));
    drop(ends);
    let moves = moves::run(&bed, options, &mut report)?;
    rows.push(("moves by reloads", &moves));
    opening::run(&mut bed, options, &mut report)?;
    report.pps = Some(calm.pps());
    report.latency_us = Latency::of(&calm.latency);
    report.tables.insert(0, stages(&rows));
    report.check(alone.rx > 0, format!("{} packets returned while there was no Gatun", group(alone.rx)));
    report.check(adopted > 0, format!("the next Gatun took {} sessions over", group(adopted)));
    report.check(killed > 0 || kills <= 0.0, format!("{} sessions were ended on request", group(killed)));
    let note = "A session whose packets are always on their way through Gatun moves into the switch after a second, and can reorder packets then (decision 0111).";
    report.notes.push(note.into());
    report.notes.push(
        "Generator, switch and Gatun poll, and share the processors: the rate is not the switch's maximum."
            .into(),
    );
    Ok(report)
}

/// Kills of the switch under load, alone or with Gatun.
struct Kills<'a> {
    options: &'a RunOptions,
    flows: u64,
    load: Load,
    length: Duration,
    rows: Vec<(&'static str, StageResult)>,
}

impl Kills<'_> {
    /// Kills the switch, and Gatun if `config` is its configuration, and starts them again. Packets inside a
    /// killed program are in no counter: those of the programs beside it say how many ended there.
    fn play(
        &mut self,
        run: &mut Run<'_>,
        killed: KilledPrograms,
        config: Option<&str>,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let names = match killed {
            KilledPrograms::Switch => ["switch killed", "empty switch", "switch again"],
            KilledPrograms::Both => ["both killed", "both empty", "both again"],
        };
        let (killed, borders, uncounted) =
            run.stage_with_kills_of_programs(names[0], self.load, self.length, killed)?;
        // What was sent between the count of lost packets and the kill may be lost without a count.
        let share = uncounted.as_secs_f64() / (self.length / 2).as_secs_f64();
        let may_end = queued_max(self.load) + (killed.tx as f64 * share) as u64;
        report.check(
            borders.ended() <= may_end && killed.rx > 0,
            format!(
                "{}: {} packets ended inside: the programs beside it gave {} and got {}, and at most {} were on their way or came between the count of lost packets and the kill",
                names[0],
                group(borders.ended()),
                group(borders.given),
                group(borders.got),
                group(may_end)
            ),
        );
        let restart = (&self.options.programs, self.flows);
        let empty = run.stage_with_restart(names[1], self.load, restart, config)?;
        let again = run.stage(names[2], self.load, Until::Elapsed(self.length));
        let sessions = state()?.sessions;
        report.check(
            sessions > 0 && again.rx > 0,
            format!("{}: {} sessions moved into the empty switch", names[2], group(sessions)),
        );
        self.rows.extend(names.into_iter().zip([killed, empty, again]));
        Ok(())
    }
}

/// Packets that can be on their way when a switch is killed. The generator gives a window up after 200 ms,
/// and can send another one if it notices the lost link later.
fn queued_max(load: Load) -> u64 {
    match load {
        Load::InFlight(max) => 2 * max,
        Load::Rate(_) => QUEUED_MAX,
    }
}

/// Compares the counters of switch and engine with the packets that passed.
fn check_counters(run: &mut Run<'_>, report: &mut Report) -> anyhow::Result<()> {
    let client = Client::new(crate::middle::SOCKET);
    let deadline = Instant::now() + CREDITED_MAX;
    loop {
        run.settle();
        let status: types::Status = client.get("/v1/status")?;
        let offload = state()?;
        let counted = status.received.packets + offload.packets_uncredited;
        let (sent, back) = (run.sent(), run.returned());
        // A packet that was lost on its way has passed once, twice or not at all.
        let is_right = (2 * back..=2 * sent).contains(&counted);
        if !is_right && Instant::now() < deadline {
            continue;
        }
        let switch = offload.packets + offload.packets_uncredited;
        report.check(
            is_right,
            format!(
                "the counters of switch and engine have {} packets, {} of them the switch's; {} were sent, and {} returned",
                group(counted),
                group(switch),
                group(sent),
                group(back)
            ),
        );
        let moved = offload.installed > 0 && 2 * switch > counted;
        report.check(moved, format!("{} sessions moved into the switch", group(offload.installed)));
        return Ok(());
    }
}
