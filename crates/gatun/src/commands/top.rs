//! `gatun top`: live view of a running daemon.
//!
//! ```text
//!   screen   terminal: set up, drawn on, restored in any case
//!   view     lines of the screen, for a terminal of any size
//!   plain    one snapshot as plain text
//! ```

mod plain;
mod screen;
mod view;

use super::ask::Daemon;
use super::{cluster, peer};
use gatun_api::client::Client;
use gatun_api::types::{
    Drop, FastPathPlace, History, Offload, OffloadSwitch, Pool, Status, Subscriber, Worker,
};
use screen::{Key, Screen};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use std::cmp::Reverse;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use view::{Order, Trends, View};

const EXAMPLES: &str = "\
Keys:
  q              quit
  space          refresh
  s p b r t a    sort by sessions, ports, blocks, refusals, traffic, address
  i              invert the order
  + -            change the interval

Rates cover the time since the previous refresh. NO_COLOR turns colours off. Without a \
terminal, or with TERM=dumb, it prints one snapshot as plain text.

Examples:
  gatun top
  gatun top --interval 5
  gatun top --once --subscribers 20     one snapshot as text, after a second
";

/// Subscribers requested for a screen: the API's maximum.
const SUBSCRIBERS_MAX: u32 = 100;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Seconds between refreshes
    #[arg(long, short, value_name = "SECONDS", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: u32,
    /// Number of subscribers with --once; a screen shows as many as fit
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    subscribers: u32,
    /// Print one snapshot as plain text after a second (default without a terminal)
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// State and counters at one moment.
struct Sample {
    at: Instant,
    status: Status,
    workers: Vec<Worker>,
    pools: Vec<Pool>,
    drops: Vec<Drop>,
    top: Vec<Subscriber>,
    /// P4 switches, if they are the fast path.
    switches: Vec<OffloadSwitch>,
    /// The pair or the cluster, as a line. `None` for a box of its own.
    boxes: Option<String>,
}

impl Sample {
    fn take(client: &Client, subscribers: u32, order: Order) -> anyhow::Result<Sample> {
        let status: Status = client.get("/v1/status")?;
        let switches = match status.fast_path {
            FastPathPlace::Switches => client.get::<Offload>("/v1/offload")?.switches,
            _ => Vec::new(),
        };
        Ok(Sample {
            at: Instant::now(),
            status,
            switches,
            boxes: boxes(client),
            workers: client.get("/v1/workers")?,
            pools: client.get("/v1/pools")?,
            drops: client.get("/v1/drops")?,
            top: client.get(&format!("/v1/top?count={subscribers}&by={}", order.by()))?,
        })
    }
}

/// Line about a pair or a cluster. An older daemon knows none.
fn boxes(client: &Client) -> Option<String> {
    let of_pair = client.get("/v1/peer").ok().as_ref().and_then(peer::summary);
    of_pair.or_else(|| client.get("/v1/cluster").ok().as_ref().and_then(cluster::summary))
}

/// Packets dropped for one reason.
fn all(drop: &Drop) -> u64 {
    drop.six_to_four.packets + drop.four_to_six.packets + drop.four_to_four.packets
}

/// Drop reasons with the packets of the sample before: current reasons first, then the most frequent ones.
fn drops<'s>(now: &'s Sample, before: Option<&Sample>) -> Vec<(&'s Drop, Option<u64>)> {
    let before = |drop: &Drop| before?.drops.iter().find(|before| before.reason == drop.reason).map(all);
    let occurred = now.drops.iter().filter(|drop| all(drop) > 0);
    let mut rows: Vec<_> = occurred.map(|drop| (drop, before(drop))).collect();
    rows.sort_by_key(|(drop, before)| Reverse((all(drop).saturating_sub(before.unwrap_or(0)), all(drop))));
    rows
}

/// Ports of a subscriber, of all protocols.
fn ports(s: &Subscriber) -> u64 {
    [s.tcp_ports, s.udp_ports, s.icmp_ids].map(u64::from).iter().sum()
}

/// Bytes of a subscriber in both directions.
fn traffic(s: &Subscriber) -> u64 {
    s.outbound.bytes.saturating_add(s.inbound.bytes)
}

/// Sessions refused to a subscriber, for any reason.
fn refused(s: &Subscriber) -> u64 {
    [s.refused_sessions, s.refused_rate, s.refused_ports, s.refused_blocks].map(u64::from).iter().sum()
}

/// # Errors
/// Returns an error if the daemon does not answer.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.daemon.client()?;
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if args.once || is_dumb || !std::io::stdout().is_terminal() {
        let before = Sample::take(&client, args.subscribers, Order::Sessions)?;
        std::thread::sleep(Duration::from_secs(1));
        let now = Sample::take(&client, args.subscribers, Order::Sessions)?;
        super::print_bytes(plain::picture(&before, &now)?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    // Report a daemon that does not answer before the terminal is changed.
    let first = Sample::take(&client, SUBSCRIBERS_MAX, Order::Sessions)?;
    let (over, resized) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&over))?;
    }
    signal_hook::flag::register(SIGWINCH, Arc::clone(&resized))?;
    let mut trends = Trends::default();
    if let Ok(history) = client.get::<History>("/v1/history") {
        trends.begin_with(&history);
    }
    let interval = Duration::from_secs(args.interval.into());
    let watch = Watch {
        client,
        before: None,
        now: first,
        trends,
        order: Order::Sessions,
        is_reversed: false,
        interval,
        gone: None,
    };
    watch.run(&over, &resized)?;
    Ok(ExitCode::SUCCESS)
}

/// Live view: the daemon, its last samples and the screen's settings.
struct Watch {
    client: Client,
    before: Option<Sample>,
    now: Sample,
    trends: Trends,
    order: Order,
    is_reversed: bool,
    interval: Duration,
    /// Reason why the daemon does not answer.
    gone: Option<String>,
}

impl Watch {
    /// Draws until a key or a signal stops it.
    fn run(mut self, over: &AtomicBool, resized: &AtomicBool) -> anyhow::Result<()> {
        let mut screen = Screen::take()?;
        // A short first interval, so that rates appear soon.
        let mut next = Instant::now() + self.interval.min(Duration::from_secs(1));
        while !over.load(Ordering::Relaxed) {
            if Instant::now() >= next {
                self.look();
                next = Instant::now() + self.interval;
            }
            self.draw(&mut screen)?;
            resized.store(false, Ordering::Relaxed);
            match screen.key(next)? {
                None => {}
                Some(Key::Interrupt | Key::Letter(b'q' | b'Q')) => break,
                Some(Key::Suspend) => screen.suspend()?,
                Some(Key::Letter(b' ')) => next = Instant::now(),
                Some(Key::Letter(b'+')) => self.interval = (self.interval * 2).min(Duration::from_secs(3600)),
                Some(Key::Letter(b'-')) => {
                    self.interval = (self.interval / 2).max(Duration::from_secs(1));
                    next = next.min(Instant::now() + self.interval);
                }
                Some(Key::Letter(b'i')) => self.is_reversed = !self.is_reversed,
                Some(Key::Letter(letter)) => {
                    let order = Order::of_key(letter).unwrap_or(self.order);
                    // Other subscribers may be at the top of this order: request them immediately.
                    if order.by() != self.order.by() {
                        next = Instant::now();
                    }
                    self.order = order;
                }
            }
        }
        Ok(())
    }

    fn look(&mut self) {
        match Sample::take(&self.client, SUBSCRIBERS_MAX, self.order) {
            Ok(now) => {
                let before = std::mem::replace(&mut self.now, now);
                self.trends.add(&before, &self.now);
                self.before = Some(before);
                self.gone = None;
            }
            // The daemon may come back: the last sample stays on the screen.
            Err(error) => self.gone = Some(error.to_string()),
        }
    }

    fn draw(&self, screen: &mut Screen) -> std::io::Result<()> {
        let (columns, rows) = screen.size();
        let view = View {
            before: self.before.as_ref(),
            now: &self.now,
            trends: &self.trends,
            order: self.order,
            is_reversed: self.is_reversed,
            interval: self.interval,
            gone: self.gone.as_deref(),
        };
        screen.show(&view.lines(columns, rows))
    }
}
