//! tayga, another translator, for the same client with another prefix and another public address.

use crate::{Error, Process, Topology};
use std::process::Stdio;

/// The server as the client sees it through tayga.
pub const SERVER: &str = "2001:db8:65::c633:6402";

const CONFIG: &str = "\
tun-device tayga0
ipv4-addr 192.0.2.30
ipv6-addr 2001:db8:65:ffff::1
prefix 2001:db8:65::/96
map 192.0.2.17 2001:db8:1::2
data-dir /run/tayga
";

/// Starts tayga on the translator. /run belongs to the sandbox.
///
/// # Errors
/// Returns an error if tayga is not installed, or the kernel refuses its device.
pub fn start(net: &Topology) -> Result<Process, Error> {
    let written = |e: std::io::Error| Error(e.to_string());
    std::fs::create_dir_all("/run/tayga").map_err(written)?;
    std::fs::write("/run/tayga.conf", CONFIG).map_err(written)?;
    let host = &net.translator;
    host.run("tayga --mktun -c /run/tayga.conf")?;
    host.ip("link set tayga0 up")?;
    host.ip("route add 192.0.2.16/28 dev tayga0")?;
    host.ip("-6 route add 2001:db8:65::/96 dev tayga0")?;
    let mut command = host.command("tayga");
    command.args(["-d", "-c", "/run/tayga.conf"]);
    Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}
