//! `gatun top`: what a running daemon does at this moment, again and again.
//!
//! ```text
//!   screen   the terminal: taken, drawn on, given back whatever happens
//!   view     what is drawn, line by line, for a terminal of any size
//!   plain    the same once, as text
//! ```

mod plain;
mod screen;
mod view;

use super::ask::Daemon;
use gatun_api::client::Client;
use gatun_api::types::{Drop, History, Pool, Status, Subscriber, Worker};
use screen::{Key, Screen};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use view::{Order, Trends, View};

const EXAMPLES: &str = "\
Keys: q ends it, space asks again at once, s p b r t a sort subscribers by sessions, ports,
blocks, refusals, traffic and address, i turns the order round, + and - change the interval.
Colours follow NO_COLOR. Rates are over the time since the picture before. Without a
terminal, or with TERM=dumb, it prints one picture as plain text.

Examples:
  gatun top
  gatun top --interval 5
  gatun top --once --subscribers 20     one picture, after a second, for a file or a mail
";

/// Subscribers that a screen is drawn from: as many as the API tells of.
const SUBSCRIBERS_MAX: u32 = 100;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Seconds between pictures
    #[arg(long, short, value_name = "SECONDS", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: u32,
    /// Subscribers with most sessions in the plain picture; a screen shows as many as fit
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    subscribers: u32,
    /// One picture as plain text, a second from now; so it is, too, where the output is no terminal
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
    fn take(client: &Client, subscribers: u32, order: Order) -> anyhow::Result<Sample> {
        Ok(Sample {
            at: Instant::now(),
            status: client.get("/v1/status")?,
            workers: client.get("/v1/workers")?,
            pools: client.get("/v1/pools")?,
            drops: client.get("/v1/drops")?,
            top: client.get(&format!("/v1/top?count={subscribers}&by={}", order.by()))?,
        })
    }
}

/// Packets that were not forwarded for a reason.
fn all(drop: &Drop) -> u64 {
    drop.six_to_four.packets + drop.four_to_six.packets + drop.four_to_four.packets
}

/// # Errors
/// Why the daemon does not answer.
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
    // A daemon that does not answer at all is told of before the terminal is taken.
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

/// A daemon on the screen.
struct Watch {
    client: Client,
    before: Option<Sample>,
    now: Sample,
    trends: Trends,
    order: Order,
    is_reversed: bool,
    interval: Duration,
    /// Why the daemon does not answer.
    gone: Option<String>,
}

impl Watch {
    /// Draws until a key or a signal ends it.
    fn run(mut self, over: &AtomicBool, resized: &AtomicBool) -> anyhow::Result<()> {
        let mut screen = Screen::take()?;
        // The first rates come soon.
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
                    // Others may have most of it: these are asked for at once.
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
            // It may come back: what was seen last stays on the screen.
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
