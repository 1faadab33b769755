//! Checks with independent programs.

use super::network::Lab;
use super::report::{Check, Report};
use super::screen::Screen;
use gatun_testkit::topology::{FAR, PUBLIC, SERVER, SMALL_MTU};
use gatun_testkit::{Error, Namespace, run_for};
use std::process::Command;
use std::time::Duration;

type Checked = Result<String, Error>;

/// A name and its check.
type ToCheck = (&'static str, fn(&Lab) -> Checked);

/// Limit of every check: a hang is a failure.
const CHECK_MAX: Duration = Duration::from_secs(20);

/// Runs the captured checks with offloads off, so that each packet is as on a wire.
pub(super) fn run_all(lab: &Lab, screen: &Screen, report: &mut Report) {
    let checks: [ToCheck; 10] = [
        ("ping: IPv6 to IPv4", |lab| ping(&lab.net.client, SERVER)),
        ("ping: Gatun's own IPv6 address", |lab| ping(&lab.net.client, "2001:db8:ffff::1")),
        ("ping: Gatun's own IPv4 address", |lab| ping(&lab.net.server, "192.0.2.14")),
        ("traceroute: the path behind the translator", traceroute),
        ("HTTP: download, hash compared", |lab| {
            download(lab, &lab.net.client, &format!("http://[{SERVER}]:8080/file"))
        }),
        ("HTTP: from outside, by a static binding", |lab| {
            download(lab, &lab.net.server, &format!("http://{PUBLIC}:8081/file"))
        }),
        ("UDP: there and back", |lab| peer(&lab.net.client, &format!("udp_send {SERVER} 7000 1200"))),
        ("UDP: from outside, by a static binding", |lab| {
            peer(&lab.net.server, &format!("udp_send {PUBLIC} 7001 1200"))
        }),
        ("UDP: in fragments, there and back", |lab| {
            peer(&lab.net.client, &format!("udp_send {SERVER} 7000 4000"))
        }),
        ("path MTU: found across a small link", path_mtu),
    ];
    run(&checks, lab, screen, report);
}

/// Runs the checks with offloads on: 64 KB pass as one super-packet.
pub(super) fn run_with_offloads(lab: &Lab, screen: &Screen, report: &mut Report) {
    let checks: [ToCheck; 4] = [
        ("TCP: upload in super-packets, hash compared", |lab| {
            lab.net.set_offloads(true)?;
            peer(&lab.net.client, &format!("tcp_send {SERVER} 5000 64000000"))
        }),
        ("TCP: download in super-packets, hash compared", |lab| {
            download(lab, &lab.net.client, &format!("http://[{SERVER}]:8080/file"))
        }),
        ("TCP: upload across the small link", |lab| {
            peer(&lab.net.client, &format!("tcp_send {FAR} 5000 16000000"))
        }),
        ("idle: processor time of Gatun", idle),
    ];
    run(&checks, lab, screen, report);
}

fn run(checks: &[ToCheck], lab: &Lab, screen: &Screen, report: &mut Report) {
    for (name, check) in checks {
        screen.progress(name);
        let check = Check::from_result(name, check(lab));
        screen.record(check, report);
    }
}

/// Runs a program to its end, and returns its output if it succeeded.
fn output(command: &mut Command) -> Checked {
    let (status, text) = run_for(command, CHECK_MAX)?;
    match status.success() {
        true => Ok(text),
        false => Err(Error(format!("failed ({status}): {}", last_line(&text)))),
    }
}

fn last_line(text: &str) -> &str {
    text.trim().lines().last().unwrap_or_default()
}

fn ping(from: &Namespace, target: &str) -> Checked {
    // After its last request, ping waits for one interval: two seconds here, however busy the machine is.
    let line = format!("-c 10 -l 10 -i 2 -q {target}");
    let text = output(from.command("ping").args(line.split_whitespace()))?;
    if !text.contains(" 0% packet loss") {
        return Err(Error(text.trim().lines().skip(1).collect::<Vec<_>>().join("; ")));
    }
    Ok(last_line(&text).to_owned())
}

fn traceroute(lab: &Lab) -> Checked {
    let line = format!("-6 -n -q 1 -w 2 -m 8 {FAR}");
    let text = output(lab.net.client.command("traceroute").args(line.split_whitespace()))?;
    let hops: Vec<&str> =
        text.lines().skip(1).filter_map(|l| l.split_whitespace().nth(1)).map(|h| h.trim()).collect();
    // Gatun itself, the router behind the small link in the prefix, and the server.
    for wanted in ["2001:db8:ffff::1", "2001:db8:64::a40:2", FAR] {
        if !hops.contains(&wanted) {
            return Err(Error(format!("{wanted} is missing: {}", hops.join(", "))));
        }
    }
    Ok(hops.join(", "))
}

fn download(lab: &Lab, to: &Namespace, url: &str) -> Checked {
    let file = "/run/download";
    output(to.command("curl").args(["-sS", "-m", "15", "--noproxy", "*", "-g", "-o", file, url]))?;
    let text = output(Command::new("sha256sum").arg(file))?;
    let hash = text.split_whitespace().next().unwrap_or_default();
    if hash != lab.file_hash {
        return Err(Error(format!("SHA-256 {hash}, expected {}", lab.file_hash)));
    }
    Ok(format!("8 MB, SHA-256 {}...", &hash[..16.min(hash.len())]))
}

fn peer(from: &Namespace, line: &str) -> Checked {
    let text = output(from.command("python3").arg("/run/peers.py").args(line.split_whitespace()))?;
    Ok(last_line(&text).to_owned())
}

fn path_mtu(lab: &Lab) -> Checked {
    let client = &lab.net.client;
    // 1500 bytes: too large for the link of 1400 behind the translator, whose router reports it in IPv4.
    let line = format!("-c 3 -i 0.2 -W 1 -q -M do -s 1452 {FAR}");
    let _ = run_for(client.command("ping").args(line.split_whitespace()), CHECK_MAX)?;
    let route = client.run(&format!("ip -6 route get {FAR}"))?;
    let learnt = route.split_whitespace().skip_while(|w| *w != "mtu").nth(1).unwrap_or("nothing").to_owned();
    let expected = SMALL_MTU + 20;
    if learnt != expected.to_string() {
        return Err(Error(format!("the client learned {learnt}, expected {expected}")));
    }
    let fits = format!("-c 3 -l 3 -i 2 -q -M do -s {} {FAR}", expected - 48);
    output(client.command("ping").args(fits.split_whitespace()))?;
    Ok(format!("the client learned {learnt}: the link's {SMALL_MTU}, and 20 for the longer header"))
}

/// Measures Gatun's processor time over two seconds without packets.
fn idle(lab: &Lab) -> Checked {
    let ticks = || -> Result<u64, Error> {
        let file = format!("/proc/{}/stat", lab.gatun.id());
        let stat = std::fs::read_to_string(&file).map_err(|e| Error(format!("{file}: {e}")))?;
        let fields: Vec<u64> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|f| f.parse().ok())
            .collect();
        // After the state letter, utime and stime are fields 11 and 12.
        match fields.get(10..12) {
            Some([user, system]) => Ok(user + system),
            _ => Err(Error(format!("{file} has an unknown format"))),
        }
    };
    let before = ticks()?;
    std::thread::sleep(Duration::from_secs(2));
    let used_ms = (ticks()? - before) * 10;
    match used_ms {
        0..=20 => Ok(format!("{used_ms} ms of two seconds")),
        _ => Err(Error(format!("{used_ms} ms of two seconds"))),
    }
}
