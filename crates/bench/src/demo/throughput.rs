//! iperf3 through Gatun, through tayga and through plain kernel forwarding, taken in turns: what else the
//! machine does hits all three alike.

use super::network::Lab;
use super::report::{Report, Throughput};
use super::screen::Screen;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, CellAlignment, Color, Table};
use gatun_lab::topology::{SERVER, SERVER4};
use gatun_lab::{Error, run_for, tayga};
use std::time::Duration;

const COMBINATIONS: [(u32, &str); 4] = [(1, "upload"), (1, "download"), (10, "upload"), (10, "download")];

pub(super) fn measure(lab: &Lab, screen: &Screen, seconds: u32, report: &mut Report) -> Result<(), Error> {
    if !gatun_lab::has_program("iperf3") {
        screen.line("  no throughput: iperf3 is missing");
        return Ok(());
    }
    screen.title("Throughput by iperf3, all ends on this machine's processors");
    // For the kernel's own forwarding, which translates nothing, the client gets IPv4 for now.
    lab.net.client.address("eth0", "10.99.0.2/24")?;
    lab.net.translator.address("inside", "10.99.0.1/24")?;
    lab.net.client.ip("route add 198.51.100.0/24 via 10.99.0.1")?;
    let mut paths = vec![("gatun", SERVER), ("kernel", SERVER4)];
    if lab.has_tayga {
        paths.insert(1, ("tayga", tayga::SERVER));
    }
    for (streams, direction) in COMBINATIONS {
        for (path, target) in &paths {
            screen.passing(&format!(
                "{path}, {streams} stream{}, {direction}",
                if streams == 1 { "" } else { "s" }
            ));
            let gbit_s = iperf(lab, target, streams, direction, seconds)?;
            report.iperf.push(Throughput { path, streams, direction, gbit_s });
        }
    }
    Ok(())
}

fn iperf(lab: &Lab, target: &str, streams: u32, direction: &str, seconds: u32) -> Result<f64, Error> {
    let mut command = lab.net.client.command("iperf3");
    let line = format!("-c {target} -t {seconds} -O 1 -P {streams} -J --connect-timeout 3000");
    command.args(line.split_whitespace());
    if direction == "download" {
        command.arg("-R");
    }
    let (_, text) = run_for(&mut command, Duration::from_secs(u64::from(seconds) + 15))?;
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| Error(format!("iperf3 to {target}: {e}")))?;
    json["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .map(|bits| bits / 1e9)
        .ok_or_else(|| Error(format!("iperf3 to {target}: {}", json["error"])))
}

/// Gbit/s beside each other, and how Gatun compares.
pub(super) fn table(report: &Report, colours: bool) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    if !colours {
        table.force_no_tty();
    }
    table.set_header([
        "TCP, Gbit/s",
        "Gatun",
        "tayga",
        "kernel, untranslated",
        "Gatun / tayga",
        "Gatun / kernel",
    ]);
    let find = |path, streams, direction| {
        let mut all = report.iperf.iter();
        all.find(|t| (t.path, t.streams, t.direction) == (path, streams, direction)).map(|t| t.gbit_s)
    };
    for (streams, direction) in COMBINATIONS {
        let [gatun, tayga, kernel] = ["gatun", "tayga", "kernel"].map(|path| find(path, streams, direction));
        let number = |n: Option<f64>| Cell::new(n.map_or("-".into(), |n| format!("{n:.2}")));
        let ratio = |other: Option<f64>, good: f64, digits: usize| {
            let Some((a, b)) = gatun.zip(other) else { return Cell::new("-") };
            let colour = if a / b >= good { Color::Green } else { Color::Yellow };
            Cell::new(format!("{:.digits$}", a / b)).fg(colour)
        };
        let name = format!("{streams} stream{}, {direction}", if streams == 1 { "" } else { "s" });
        table.add_row([
            Cell::new(name),
            number(gatun).add_attribute(Attribute::Bold),
            number(tayga),
            number(kernel),
            ratio(tayga, 8.0, 1),
            ratio(kernel, 0.5, 2),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
