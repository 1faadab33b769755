//! A thread that makes TCP connections, to collectors that nobody knew at the start as well: it may connect to anybody and can open
//! no file, and all other threads may connect to nobody.

use super::sandbox::{Calls, Sandbox};
use anyhow::Context as _;
use gatun_export::{Connect, directly};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

struct Request {
    address: SocketAddr,
    patience: Duration,
    answer: Sender<io::Result<TcpStream>>,
}

/// Starts it, where a sandbox makes it necessary. Rights are given up by now, and the sandbox is not entered.
///
/// # Errors
/// Where there can be no thread.
pub(super) fn start(sandbox: &Sandbox) -> anyhow::Result<Connect> {
    if !sandbox.is_wanted() {
        return Ok(directly());
    }
    let (requests, received) = channel();
    let sandbox = sandbox.clone();
    let body = move || {
        sandbox.enter(Calls::Connector);
        serve(&received);
    };
    std::thread::Builder::new().name("connect".into()).spawn(body).context("no thread to connect")?;
    Ok(Arc::new(move |address, patience| {
        let (answer, answers) = channel();
        let gone = |_| io::Error::other("no connection can be made by this process");
        requests.send(Request { address, patience, answer }).map_err(|_| gone(()))?;
        answers.recv().map_err(|_| gone(()))?
    }))
}

/// Each has a thread: one that does not answer holds up no other.
fn serve(requests: &Receiver<Request>) {
    for Request { address, patience, answer } in requests {
        let body = move || drop(answer.send(TcpStream::connect_timeout(&address, patience)));
        // Where there can be none, whoever waits is told by the channel's end, and tries again.
        let _ = std::thread::Builder::new().name("connecting".into()).spawn(body);
    }
}
