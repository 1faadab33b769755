//! iperf3 through Gatun, tayga and plain kernel forwarding in turn, so that other load on the machine
//! affects all three alike.

use super::network::Lab;
use super::report::{Check, Report, Throughput};
use super::screen::Screen;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, CellAlignment, Color, Table};
use gatun_testkit::topology::{SERVER, SERVER4};
use gatun_testkit::{Error, Iperf, tayga};
use std::time::Duration;

const COMBINATIONS: [(u32, &str); 4] = [(1, "upload"), (1, "download"), (10, "upload"), (10, "download")];

/// The paths; only tayga may be missing.
const PATHS: [&str; 3] = ["gatun", "tayga", "kernel"];

/// Failures in a row after which the rest is skipped, because a program that hangs takes long.
const FAILURES_MAX: u32 = 3;

pub(super) fn measure(lab: &Lab, screen: &Screen, seconds: u32, report: &mut Report) {
    screen.title("Throughput by iperf3, all ends on this machine's processors");
    if !gatun_testkit::has_program("iperf3") {
        return screen.record(Check::not_run("throughput", "iperf3 is missing"), report);
    }
    if let Err(e) = give_ipv4_to_client(lab) {
        return screen.record(Check::from_result("throughput", Err(e)), report);
    }
    let mut failures = 0;
    for (streams, direction) in COMBINATIONS {
        for path in PATHS {
            let s = if streams == 1 { "" } else { "s" };
            let name = format!("iperf3: {path}, {streams} stream{s}, {direction}");
            screen.progress(&name);
            let check = match path {
                "tayga" if !lab.has_tayga => Check::not_run(&name, "tayga is missing"),
                _ if failures >= FAILURES_MAX => {
                    Check::from_result(&name, Err(Error(format!("given up: {failures} failed in a row"))))
                }
                _ => {
                    let measured = iperf(lab, path, streams, direction, seconds);
                    failures = if measured.is_ok() { 0 } else { failures + 1 };
                    if let Ok(gbit_s) = measured {
                        report.iperf.push(Throughput { path, streams, direction, gbit_s });
                    }
                    Check::from_result(&name, measured.map(|gbit_s| format!("{gbit_s:.2} Gbit/s")))
                }
            };
            screen.record(check, report);
        }
    }
}

/// Gives the client an IPv4 address, for the kernel's forwarding without translation.
fn give_ipv4_to_client(lab: &Lab) -> Result<(), Error> {
    lab.net.client.address("eth0", "10.99.0.2/24")?;
    lab.net.translator.address("inside", "10.99.0.1/24")?;
    lab.net.client.ip("route add 198.51.100.0/24 via 10.99.0.1")
}

fn iperf(lab: &Lab, path: &str, streams: u32, direction: &str, seconds: u32) -> Result<f64, Error> {
    let target = match path {
        "gatun" => SERVER,
        "tayga" => tayga::SERVER,
        _ => SERVER4,
    };
    let reverse = if direction == "download" { "-R" } else { "" };
    let text = Iperf {
        program: "iperf3",
        server: &lab.net.server,
        client: &lab.net.client,
        arguments: &format!("-c {target} -t {seconds} -O 1 -P {streams} --connect-timeout 3000 {reverse}"),
        max: Duration::from_secs(u64::from(seconds) + 15),
    }
    .measure()?;
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| Error(format!("iperf3 to {target}: {e}")))?;
    match json["end"]["sum_received"]["bits_per_second"].as_f64() {
        Some(bits) if bits > 0.0 => Ok(bits / 1e9),
        _ => Err(Error(format!("iperf3 to {target} carried nothing"))),
    }
}

/// Table of Gbit/s, with ratios of Gatun to the others.
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
        let [gatun, tayga, kernel] = PATHS.map(|path| find(path, streams, direction));
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
