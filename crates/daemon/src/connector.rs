//! A thread that connects to collectors, also to those that a later configuration names. It may connect to anybody and opens no
//! file; no other thread may make a socket.

use super::sandbox::{Calls, Sandbox};
use anyhow::Context as _;
use gatun_export::{CollectorAddress, Connect, Transport, connect_directly};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

struct Request {
    target: CollectorAddress,
    answer: Sender<io::Result<Transport>>,
}

/// Starts it, where a sandbox makes it necessary. Rights are given up by now, and the sandbox is not entered.
///
/// # Errors
/// If no thread can be started.
pub(super) fn start(sandbox: &Sandbox) -> anyhow::Result<Connect> {
    if !sandbox.is_wanted() {
        return Ok(connect_directly());
    }
    let (requests, received) = channel();
    let sandbox = sandbox.clone();
    let body = move || {
        sandbox.enter(Calls::Connector);
        serve(&received);
    };
    std::thread::Builder::new().name("connect".into()).spawn(body).context("no thread to connect")?;
    Ok(Arc::new(move |target| {
        let (answer, answers) = channel();
        let gone = |_| io::Error::other("no connection can be made by this process");
        requests.send(Request { target: target.clone(), answer }).map_err(|_| gone(()))?;
        answers.recv().map_err(|_| gone(()))?
    }))
}

/// Each request has a thread: a collector that does not answer holds up no other.
fn serve(requests: &Receiver<Request>) {
    for Request { target, answer } in requests {
        let body = move || drop(answer.send(Transport::open(&target)));
        // Where there can be none, the channel's end says so to whoever waits, and it tries again.
        let _ = std::thread::Builder::new().name("connecting".into()).spawn(body);
    }
}
