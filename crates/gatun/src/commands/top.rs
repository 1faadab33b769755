//! `gatun top`: what a running daemon does at this moment, again and again.

use super::ask::Daemon;
use gatun_api::client::Client;
use gatun_api::types::{Count, Drop, Pool, Status, Subscriber, Worker};
use gatun_daemon::tables::{group, table};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Rates are over the time since the picture before. Ctrl-C ends it.

Examples:
  gatun top
  gatun top --interval 5 --subscribers 20
  gatun top --once                      one picture, after a second, for a file or a mail
";

/// Rows of a table at most: more do not fit beside the others.
const ROWS_MAX: usize = 8;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Seconds between pictures
    #[arg(long, short, value_name = "SECONDS", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: u32,
    /// Subscribers with most sessions that are shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    subscribers: u32,
    /// One picture, a second from now; so it is, too, where the output is no terminal
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// What is known at a moment.
struct Sample {
    at: Instant,
    status: Status,
    workers: Vec<Worker>,
    pools: Vec<Pool>,
    drops: Vec<Drop>,
    top: Vec<Subscriber>,
}

impl Sample {
    fn take(client: &Client, subscribers: u32) -> anyhow::Result<Sample> {
        Ok(Sample {
            at: Instant::now(),
            status: client.get("/v1/status")?,
            workers: client.get("/v1/workers")?,
            pools: client.get("/v1/pools")?,
            drops: client.get("/v1/drops")?,
            top: client.get(&format!("/v1/top?count={subscribers}"))?,
        })
    }
}

/// # Errors
/// Why the daemon does not answer.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.daemon.client()?;
    let mut before = Sample::take(&client, args.subscribers)?;
    if args.once || !std::io::stdout().is_terminal() {
        std::thread::sleep(Duration::from_secs(1));
        let now = Sample::take(&client, args.subscribers)?;
        super::print_bytes(picture(&before, &now)?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&over))?;
    }
    let screen = Screen::enter()?;
    let mut wait = Duration::from_secs(1);
    while !over.load(Ordering::Relaxed) {
        // A signal ends the wait on the next look.
        let until = Instant::now() + wait;
        while Instant::now() < until && !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let now = Sample::take(&client, args.subscribers)?;
        screen.show(&picture(&before, &now)?)?;
        before = now;
        wait = Duration::from_secs(args.interval.into());
    }
    Ok(ExitCode::SUCCESS)
}

/// The terminal's second screen, without a cursor, as long as this is there.
struct Screen;

impl Screen {
    fn enter() -> std::io::Result<Screen> {
        super::print_bytes(b"\x1b[?1049h\x1b[?25l")?;
        Ok(Screen)
    }

    /// Writes over what was there, so that nothing flickers.
    fn show(&self, picture: &str) -> std::io::Result<()> {
        let mut text = String::from("\x1b[H");
        for line in picture.lines() {
            text += line;
            text += "\x1b[K\n";
        }
        super::print_bytes((text + "\x1b[J").as_bytes())
    }
}

impl std::ops::Drop for Screen {
    fn drop(&mut self) {
        let mut out = std::io::stdout();
        // Nobody sees it where it cannot be written.
        let _ = out.write_all(b"\x1b[?25h\x1b[?1049l").and_then(|()| out.flush());
    }
}

/// How much more there is than before, for each second.
struct Rate(f64);

impl Rate {
    fn of(&self, now: u64, before: u64) -> String {
        // A daemon that was restarted begins anew.
        group((now.saturating_sub(before) as f64 / self.0).round() as u64)
    }

    fn count(&self, now: &Count, before: &Count) -> String {
        let bits = (now.bytes.saturating_sub(before.bytes) * 8) as f64 / self.0;
        format!("{} packets/s, {:.1} Mbit/s", self.of(now.packets, before.packets), bits / 1e6)
    }
}

fn percent(used: u64, total: u64) -> String {
    match total {
        0 => "-".to_owned(),
        total => format!("{:.1} %", used as f64 * 100.0 / total as f64),
    }
}

fn picture(before: &Sample, now: &Sample) -> anyhow::Result<String> {
    let rate = Rate(now.at.duration_since(before.at).as_secs_f64().max(0.001));
    let (s, b) = (&now.status, &before.status);
    let mut out = String::new();
    let up = s.uptime_seconds;
    let (days, hours, minutes) = (up / 86_400, up / 3600 % 24, up / 60 % 60);
    writeln!(out, "gatun {}, process {}, up {days} d {hours:02}:{minutes:02}", s.version, s.pid)?;
    writeln!(
        out,
        "sessions {}   bindings {}   subscribers {}   {}",
        group(s.sessions),
        group(s.bindings),
        group(s.subscribers),
        if s.adds_up { "every packet is accounted for" } else { "PACKETS ARE MISSING" }
    )?;
    for (name, now, before) in [
        ("received", &s.received, &b.received),
        ("forwarded", &s.forwarded, &b.forwarded),
        ("dropped", &s.dropped, &b.dropped),
        ("silently", &s.dropped_silently, &b.dropped_silently),
    ] {
        writeln!(out, "{name:>10}  {}", rate.count(now, before))?;
    }
    for trouble in &s.troubles {
        writeln!(out, "NEEDS ATTENTION: {}", trouble.what)?;
    }
    writeln!(out, "{}\n{}", workers(&rate, before, now), pools(now))?;
    writeln!(out, "{}\n{}", drops(&rate, before, now), subscribers(now))?;
    Ok(out)
}

fn workers(rate: &Rate, before: &Sample, now: &Sample) -> gatun_daemon::tables::Table {
    let mut table =
        table(["worker", "device", "received/s", "forwarded/s", "dropped/s", "handed over/s", "sessions"]);
    for (w, b) in now.workers.iter().zip(&before.workers).take(ROWS_MAX) {
        table.add_row([
            w.number.to_string(),
            w.device.clone(),
            rate.of(w.received.packets, b.received.packets),
            rate.of(w.forwarded.packets, b.forwarded.packets),
            rate.of(w.dropped.packets, b.dropped.packets),
            rate.of(w.handed_before + w.handed_after, b.handed_before + b.handed_after),
            group(w.sessions),
        ]);
    }
    table
}

fn pools(now: &Sample) -> gatun_daemon::tables::Table {
    let mut table = table(["pool", "TCP ports", "UDP ports", "ICMP ids", "blocks", "subscribers", "refused"]);
    for pool in now.pools.iter().take(ROWS_MAX) {
        table.add_row([
            pool.name.to_string(),
            percent(pool.tcp.used, pool.tcp.total),
            percent(pool.udp.used, pool.udp.total),
            percent(pool.icmp.used, pool.icmp.total),
            pool.blocks
                .as_ref()
                .map_or_else(|| "-".into(), |blocks| percent(blocks.owned + blocks.held, blocks.total)),
            group(pool.subscribers),
            group(pool.refused),
        ]);
    }
    table
}

fn drops(rate: &Rate, before: &Sample, now: &Sample) -> gatun_daemon::tables::Table {
    let all = |drop: &Drop| drop.six_to_four.packets + drop.four_to_six.packets + drop.four_to_four.packets;
    let mut rows: Vec<_> = now.drops.iter().zip(&before.drops).filter(|(drop, _)| all(drop) > 0).collect();
    // Those that occur now, then those that have occurred most.
    rows.sort_by_key(|(drop, before)| std::cmp::Reverse((all(drop).saturating_sub(all(before)), all(drop))));
    let mut table = table(["reason", "dropped/s", "in all", "what it means"]);
    for (drop, before) in rows.into_iter().take(ROWS_MAX) {
        table.add_row([
            drop.reason.clone(),
            rate.of(all(drop), all(before)),
            group(all(drop)),
            drop.help.clone(),
        ]);
    }
    table
}

fn subscribers(now: &Sample) -> gatun_daemon::tables::Table {
    let mut table =
        table(["subscriber", "instance", "public address", "sessions", "ports", "blocks", "refused"]);
    for s in &now.top {
        let ports = [s.tcp_ports, s.udp_ports, s.icmp_ids].map(u64::from).iter().sum();
        let refused = [s.refused_sessions, s.refused_rate, s.refused_ports, s.refused_blocks];
        table.add_row([
            s.subscriber.clone(),
            s.instance.to_string(),
            s.address.map_or_else(|| "-".to_owned(), |address| address.to_string()),
            group(s.sessions.into()),
            group(ports),
            group(s.blocks.into()),
            group(refused.map(u64::from).iter().sum()),
        ]);
    }
    table
}
