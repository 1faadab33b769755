//! Server that returns what it gets.

use crate::{Error, Namespace, Process, wait_until};
use std::process::Stdio;
use std::time::Duration;

/// Port of the server, TCP and UDP.
pub const ECHO_PORT: u16 = 7777;

const SCRIPT: &str = "
import socket, sys, threading
port = int(sys.argv[1])
def tcp(s):
    while True:
        c, _ = s.accept()
        threading.Thread(target=serve, args=(c,), daemon=True).start()
def serve(c):
    while d := c.recv(4096): c.sendall(d)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
u.bind(('', port))
threading.Thread(target=tcp, args=(socket.create_server(('', port)),), daemon=True).start()
while True:
    d, a = u.recvfrom(2048)
    u.sendto(d, a)
";

/// Starts the server on a host, at all its IPv4 addresses.
///
/// # Errors
/// Returns an error if Python is missing, or if the server does not listen.
pub fn echo(host: &Namespace) -> Result<Process, Error> {
    let port = ECHO_PORT.to_string();
    let server = Process::start(host.python(SCRIPT, &[&port]).stdout(Stdio::null()))?;
    let is_heard = || host.run("ss -Hltn").is_ok_and(|listed| listed.contains(&format!(":{port} ")));
    wait_until("the echo server", Duration::from_secs(10), is_heard)?;
    Ok(server)
}
