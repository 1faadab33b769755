//! Contents of the `gatun top` screen, fitted to the size of the terminal.

use super::plain::{Rate, describe, percent, place};
use super::screen::{Line, Style};
use super::{Sample, all, ports, refused, traffic};
use gatun_api::types::{Count, History, Pool, Subscriber, SwitchPhase, Urgency};
use gatun_config::Bytes;
use gatun_daemon::tables::group;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

/// Longest chart, in points.
const TRENDS_MAX: usize = 240;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Spaces between columns.
const GAP: usize = 2;
/// Shortest truncated sentence, in characters.
const SENTENCE_MIN: usize = 12;
const KEYS: &str = "q quit  space refresh  sort: s sessions p ports b blocks r refused a address i invert";
/// Lines that each panel gets per round, until none is left: workers, pools, drops, subscribers.
const SHARES: [usize; 4] = [1, 1, 2, 3];

/// Sort key of subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Sessions,
    Ports,
    Blocks,
    Refused,
    Traffic,
    Address,
}

impl Order {
    pub(super) fn of_key(key: u8) -> Option<Order> {
        Some(match key {
            b's' => Order::Sessions,
            b'p' => Order::Ports,
            b'b' => Order::Blocks,
            b'r' => Order::Refused,
            b't' => Order::Traffic,
            b'a' => Order::Address,
            _ => return None,
        })
    }

    /// Value of the API's parameter `by`.
    pub(super) fn by(self) -> &'static str {
        match self {
            Order::Sessions | Order::Blocks | Order::Address => "sessions",
            Order::Ports => "ports",
            Order::Refused => "refusals",
            Order::Traffic => "bytes",
        }
    }
}

/// Packets a second: received, forwarded, dropped.
#[derive(Default)]
pub(super) struct Trends(VecDeque<[f64; 3]>);

impl Trends {
    /// Starts with the daemon's history.
    pub(super) fn begin_with(&mut self, history: &History) {
        for point in &history.points {
            let per_second = |count: u64| count as f64 * 1000.0 / point.length_ms.max(1) as f64;
            let all = [point.received_packets, point.forwarded_packets, point.dropped_packets];
            self.push(all.map(per_second));
        }
    }

    pub(super) fn add(&mut self, before: &Sample, now: &Sample) {
        let seconds = Rate::between(before, now).0;
        let more =
            |of: fn(&Sample) -> &Count| of(now).packets.saturating_sub(of(before).packets) as f64 / seconds;
        self.push([more(|s| &s.status.received), more(|s| &s.status.forwarded), more(|s| &s.status.dropped)]);
    }

    fn push(&mut self, point: [f64; 3]) {
        if self.0.len() == TRENDS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(point);
    }

    /// Bars of the last points, scaled to the highest.
    fn bars(&self, which: usize, width: usize) -> String {
        let shown = || self.0.iter().skip(self.0.len().saturating_sub(width)).map(|point| point[which]);
        let most = shown().fold(0.0, f64::max);
        let bar = |value: f64| {
            let share = if most > 0.0 { value / most } else { 0.0 };
            BARS[((share * BARS.len() as f64).ceil() as usize).clamp(1, BARS.len()) - 1]
        };
        shown().map(bar).collect()
    }
}

/// Data and settings of a screen.
pub(super) struct View<'v> {
    pub(super) before: Option<&'v Sample>,
    pub(super) now: &'v Sample,
    pub(super) trends: &'v Trends,
    pub(super) order: Order,
    pub(super) is_reversed: bool,
    pub(super) interval: Duration,
    pub(super) gone: Option<&'v str>,
}

fn line(style: Style, text: impl Into<String>) -> Line {
    Line(vec![(style, text.into())])
}

impl View<'_> {
    /// Lines of the screen: at most `rows`, none wider than `columns`.
    pub(super) fn lines(&self, columns: usize, rows: usize) -> Vec<Line> {
        let mut lines = self.head(columns);
        let panels = [self.workers(), self.pools(), self.drops(), self.subscribers()];
        let left = rows.saturating_sub(lines.len() + 1);
        for (panel, rows) in panels.iter().zip(shares(&panels.each_ref().map(Panel::rows), left)) {
            lines.extend(panel.lines(columns, rows));
        }
        lines.truncate(rows.saturating_sub(1));
        lines.resize(rows.saturating_sub(1), Line::default());
        lines.push(line(Style::Faint, KEYS));
        lines.into_iter().map(|line| cut(line, columns)).collect()
    }

    fn head(&self, columns: usize) -> Vec<Line> {
        let s = &self.now.status;
        let up = s.uptime_seconds;
        let (days, hours, minutes) = (up / 86_400, up / 3600 % 24, up / 60 % 60);
        let name = format!(" gatun {}  up {days} d {hours:02}:{minutes:02}  process {}", s.version, s.pid);
        let every = format!("every {} s ", self.interval.as_secs());
        let room = columns.saturating_sub(name.chars().count());
        let title = line(Style::Title, format!("{name}{every:>room$}"));
        let limit = match s.sessions_max {
            0 => String::new(),
            max => format!(" of {} ({})", group(max), percent(s.sessions, max)),
        };
        let state = format!(
            "sessions {}{limit}   bindings {}   subscribers {}",
            group(s.sessions),
            group(s.bindings),
            group(s.subscribers)
        );
        let b = self.before.map(|before| &before.status);
        let mut lines = vec![title, self.attention(), line(Style::Plain, state)];
        let counts = [
            ("received", &s.received, b.map(|b| &b.received)),
            ("forwarded", &s.forwarded, b.map(|b| &b.forwarded)),
            ("dropped", &s.dropped, b.map(|b| &b.dropped)),
        ];
        for (which, (name, now, before)) in counts.into_iter().enumerate() {
            lines.push(self.rate(which, name, (now, before), columns));
        }
        let answered = self.per_second(s.rejected.packets, b.map(|b| b.rejected.packets));
        let silently = self.per_second(s.dropped_silently.packets, b.map(|b| b.dropped_silently.packets));
        let elsewhere = self.per_second(s.offloaded.packets, b.map(|b| b.offloaded.packets));
        let elsewhere = match s.offloaded.packets {
            0 => String::new(),
            _ => format!("; of the forwarded {} {elsewhere}/s", place(s.fast_path)),
        };
        let how = format!("  with an ICMP error {answered}/s, silently {silently}/s{elsewhere}");
        lines.push(line(Style::Plain, how));
        for switch in &self.now.switches {
            let style = if switch.phase == SwitchPhase::Ready { Style::Plain } else { Style::Warning };
            lines.push(line(style, format!("  {}", describe(switch))));
        }
        lines.extend(self.now.boxes.iter().map(|boxes| line(Style::Plain, format!("  {boxes}"))));
        lines
    }

    /// Line with the worst problem, if any.
    fn attention(&self) -> Line {
        if let Some(why) = self.gone {
            return line(Style::Bad, format!("no answer, data is old: {why}"));
        }
        let troubles = &self.now.status.troubles;
        let Some(worst) = troubles.first() else { return line(Style::Good, "nothing needs attention") };
        let style = match worst.urgency {
            Urgency::Bad | Urgency::Other => Style::Bad,
            Urgency::Warning => Style::Warning,
        };
        let more = match troubles.len() {
            1 => String::new(),
            n => format!("(1 of {n}) "),
        };
        line(style, format!("NEEDS ATTENTION: {more}{}", worst.what))
    }

    fn rate(
        &self,
        which: usize,
        name: &str,
        (now, before): (&Count, Option<&Count>),
        columns: usize,
    ) -> Line {
        let (packets, bits) = match (before, self.before) {
            (Some(before), Some(sample)) => {
                let rate = Rate::between(sample, self.now);
                let bits = now.bytes.saturating_sub(before.bytes) as f64 * 8.0 / rate.0;
                (rate.of(now.packets, before.packets), format!("{:.1}", bits / 1e6))
            }
            _ => ("-".to_owned(), "-".to_owned()),
        };
        let is_lost = which == 2 && packets != "0" && packets != "-";
        let text = format!("{name:<9} {packets:>13} packets/s {bits:>9} Mbit/s  ");
        let bars = self.trends.bars(which, columns.saturating_sub(text.chars().count()));
        Line(vec![(if is_lost { Style::Warning } else { Style::Plain }, text), (Style::Chart, bars)])
    }

    /// Rate since the previous sample; a dash without one.
    fn per_second(&self, now: u64, before: Option<u64>) -> String {
        let rate = self.before.map(|sample| Rate::between(sample, self.now));
        rate.zip(before).map_or_else(|| "-".to_owned(), |(rate, before)| rate.of(now, before))
    }

    fn workers(&self) -> Panel {
        let mut panel = Panel::new(
            "worker",
            &[
                ("device", 0),
                (">busy", 3),
                (">received/s", 0),
                (">forwarded/s", 1),
                (">dropped/s", 2),
                (">sessions", 4),
            ],
        );
        for w in &self.now.workers {
            let b = self.before.and_then(|before| before.workers.iter().find(|b| b.number == w.number));
            let seconds = self.before.map_or(1.0, |before| Rate::between(before, self.now).0);
            let busy = b.map_or_else(
                || "-".to_owned(),
                |b| format!("{:.0} %", w.busy_ns.saturating_sub(b.busy_ns) as f64 / seconds / 1e7),
            );
            let style = if w.answers { Style::Plain } else { Style::Bad };
            panel.add(
                style,
                [
                    w.number.to_string(),
                    w.device.clone(),
                    busy,
                    self.per_second(w.received.packets, b.map(|b| b.received.packets)),
                    self.per_second(w.forwarded.packets, b.map(|b| b.forwarded.packets)),
                    self.per_second(w.dropped.packets, b.map(|b| b.dropped.packets)),
                    group(w.sessions),
                ],
            );
        }
        panel
    }

    fn pools(&self) -> Panel {
        let titles =
            [(">TCP", 0), (">UDP", 0), (">ICMP", 3), (">blocks", 1), (">subscribers", 2), (">refused", 0)];
        let mut panel = Panel::new("pool", &titles);
        for pool in &self.now.pools {
            let refused_before =
                self.before.and_then(|b| b.pools.iter().find(|b| b.name == pool.name)).map(|b| b.refused);
            let style = match fullest(pool) {
                _ if refused_before.is_some_and(|before| pool.refused > before) => Style::Bad,
                share if share >= 0.95 => Style::Bad,
                share if share >= 0.8 => Style::Warning,
                _ => Style::Plain,
            };
            let blocks = pool.blocks.as_ref();
            let blocks = blocks.map_or_else(|| "-".to_owned(), |b| percent(b.owned + b.held, b.total));
            panel.add(
                style,
                [
                    pool.name.to_string(),
                    percent(pool.tcp.used, pool.tcp.total),
                    percent(pool.udp.used, pool.udp.total),
                    percent(pool.icmp.used, pool.icmp.total),
                    blocks,
                    group(pool.subscribers),
                    group(pool.refused),
                ],
            );
        }
        panel
    }

    fn drops(&self) -> Panel {
        let mut panel =
            Panel::new("drop reason", &[(">packets/s", 0), (">since the start", 0), ("meaning", 0)]);
        for (drop, before) in super::drops(self.now, self.before) {
            let occurs = before.is_some_and(|before| all(drop) > before);
            panel.add(
                if occurs { Style::Warning } else { Style::Plain },
                [
                    drop.reason.clone(),
                    self.per_second(all(drop), before),
                    group(all(drop)),
                    drop.help.clone(),
                ],
            );
        }
        panel
    }

    fn subscribers(&self) -> Panel {
        let mark =
            |order| if self.order == order { if self.is_reversed { "▲" } else { "▼" } } else { "" };
        // The sort column is shown at any width.
        let keep = |order, keep| if self.order == order { 0 } else { keep };
        let titles = [
            ("public address".to_owned(), 1),
            (format!(">sessions{}", mark(Order::Sessions)), keep(Order::Sessions, 0)),
            (format!(">ports{}", mark(Order::Ports)), keep(Order::Ports, 2)),
            (format!(">blocks{}", mark(Order::Blocks)), keep(Order::Blocks, 4)),
            (format!(">refused{}", mark(Order::Refused)), keep(Order::Refused, 3)),
            (format!(">traffic{}", mark(Order::Traffic)), keep(Order::Traffic, 6)),
            ("instance".to_owned(), 5),
        ];
        let titles = titles.each_ref().map(|(title, keep)| (&title[..], *keep));
        let mut panel = Panel::new(&format!("subscriber{}", mark(Order::Address)), &titles);
        for s in self.sorted() {
            let style = if refused(s) > 0 { Style::Warning } else { Style::Plain };
            panel.add(
                style,
                [
                    s.subscriber.clone(),
                    s.address.map_or_else(|| "-".to_owned(), |address| address.to_string()),
                    group(s.sessions.into()),
                    group(ports(s)),
                    group(s.blocks.into()),
                    group(refused(s)),
                    Bytes(traffic(s)).to_string(),
                    s.instance.to_string(),
                ],
            );
        }
        panel
    }

    fn sorted(&self) -> Vec<&Subscriber> {
        let mut sorted: Vec<&Subscriber> = self.now.top.iter().collect();
        match self.order {
            Order::Sessions => sorted.sort_by_key(|s| Reverse(s.sessions)),
            Order::Ports => sorted.sort_by_key(|s| Reverse(ports(s))),
            Order::Blocks => sorted.sort_by_key(|s| Reverse(s.blocks)),
            Order::Refused => sorted.sort_by_key(|s| Reverse(refused(s))),
            Order::Traffic => sorted.sort_by_key(|s| Reverse(traffic(s))),
            Order::Address => sorted.sort_by(|a, b| a.subscriber.cmp(&b.subscriber)),
        }
        if self.is_reversed {
            sorted.reverse();
        }
        sorted
    }
}

/// Highest usage of a pool's resources, as a ratio.
fn fullest(pool: &Pool) -> f64 {
    let blocks = pool.blocks.as_ref().map(|blocks| (blocks.owned + blocks.held, blocks.total));
    let ports = [&pool.tcp, &pool.udp, &pool.icmp].map(|usage| (usage.used, usage.total));
    let share = |(used, total): (u64, u64)| if total == 0 { 0.0 } else { used as f64 / total as f64 };
    ports.into_iter().chain(blocks).map(share).fold(0.0, f64::max)
}

/// Distributes `left` lines over panels that want so many rows; a panel with rows needs a title as well.
fn shares(wanted: &[usize; 4], left: usize) -> [usize; 4] {
    let titles = wanted.iter().filter(|rows| **rows > 0).count();
    let (mut left, mut given) = (left.saturating_sub(titles), [0; 4]);
    while left > 0 && given != *wanted {
        for ((given, wanted), share) in given.iter_mut().zip(wanted).zip(SHARES) {
            let more = share.min(*wanted - *given).min(left);
            *given += more;
            left -= more;
        }
    }
    given
}

/// Table with one line per row.
struct Panel {
    columns: Vec<Column>,
    rows: Vec<(Style, Vec<String>)>,
}

/// Column of a panel.
struct Column {
    title: String,
    is_right: bool,
    /// Priority for removal on a narrow terminal: highest first, 0 stays.
    goes: u8,
}

impl Panel {
    /// A title that begins with `>` right-aligns its column.
    fn new(first: &str, others: &[(&str, u8)]) -> Panel {
        let column = |title: &str, goes| Column {
            title: title.trim_start_matches('>').to_owned(),
            is_right: title.starts_with('>'),
            goes,
        };
        let others = others.iter().map(|(title, goes)| column(title, *goes));
        Panel { columns: std::iter::once(column(first, 0)).chain(others).collect(), rows: Vec::new() }
    }

    fn add<const N: usize>(&mut self, style: Style, cells: [String; N]) {
        self.rows.push((style, cells.into()));
    }

    fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Title and first rows; empty without rows.
    fn lines(&self, columns: usize, rows: usize) -> Vec<Line> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let widths = self.widths(columns, rows);
        let hidden = self.rows.len() - rows.min(self.rows.len());
        let mut title = self.line(&widths, |column| &self.columns[column].title);
        if hidden > 0 {
            let more = format!(" +{hidden}");
            if title.chars().count() + more.chars().count() <= columns {
                title += &more;
            }
        }
        let width = columns.saturating_sub(title.chars().count());
        let title = line(Style::Title, format!("{title}{:width$}", ""));
        let rows =
            self.rows.iter().take(rows).map(|(style, cells)| line(*style, self.line(&widths, |n| &cells[n])));
        std::iter::once(title).chain(rows).collect()
    }

    /// Widths of the columns, 0 for those that do not fit. Only sentences in a last column are truncated.
    fn widths(&self, columns: usize, rows: usize) -> Vec<usize> {
        let natural = |n: usize| {
            let cells = self.rows.iter().take(rows).map(|(_, cells)| cells[n].chars().count());
            cells.chain([self.columns[n].title.chars().count()]).max().unwrap_or_default()
        };
        let mut widths: Vec<usize> = (0..self.columns.len()).map(natural).collect();
        let total = |widths: &[usize]| {
            widths
                .iter()
                .filter(|width| **width > 0)
                .map(|width| width + GAP)
                .sum::<usize>()
                .saturating_sub(GAP)
        };
        let last = widths.len() - 1;
        if self.columns[last].title == "meaning" {
            let over = total(&widths).saturating_sub(columns);
            widths[last] = widths[last].saturating_sub(over).max(SENTENCE_MIN.min(widths[last]));
        }
        while total(&widths) > columns {
            let may_go = |n: &usize| widths[*n] > 0 && self.columns[*n].goes > 0;
            let Some(goes) = (0..widths.len()).filter(may_go).max_by_key(|n| self.columns[*n].goes) else {
                break;
            };
            widths[goes] = 0;
        }
        widths
    }

    fn line<'c>(&'c self, widths: &[usize], cell: impl Fn(usize) -> &'c String) -> String {
        let mut text = String::new();
        for (n, &width) in widths.iter().enumerate().filter(|(_, width)| **width > 0) {
            if !text.is_empty() {
                text += &" ".repeat(GAP);
            }
            let cell = shortened(cell(n), width);
            text +=
                &if self.columns[n].is_right { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
        }
        text
    }
}

/// Truncates a text to `width` characters, with an ellipsis.
fn shortened(text: &str, width: usize) -> String {
    match text.chars().count() <= width {
        true => text.to_owned(),
        false => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Truncates a line to `columns` characters.
fn cut(line: Line, columns: usize) -> Line {
    let mut left = columns;
    let mut parts = Vec::new();
    for (style, text) in line.0 {
        let text = shortened(&text, left);
        left -= text.chars().count().min(left);
        if !text.is_empty() {
            parts.push((style, text));
        }
    }
    Line(parts)
}

#[cfg(test)]
mod tests;
