//! Thread that connects to collectors, also to those of a later configuration. It may connect to any address
//! and opens no file; no other thread may create a socket.

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

/// Starts the thread if a sandbox requires it. Call it after privileges are dropped and before the sandbox is
/// entered.
///
/// # Errors
/// Returns an error if no thread can be started.
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
    std::thread::Builder::new()
        .name("connect".into())
        .spawn(body)
        .context("cannot start the connecting thread")?;
    Ok(Arc::new(move |target| {
        let (answer, answers) = channel();
        let gone = |_| io::Error::other("the connecting thread has ended");
        requests.send(Request { target: target.clone(), answer }).map_err(|_| gone(()))?;
        answers.recv().map_err(|_| gone(()))?
    }))
}

/// Serves each request in its own thread: a collector that does not answer delays no other.
fn serve(requests: &Receiver<Request>) {
    for Request { target, answer } in requests {
        let body = move || drop(answer.send(Transport::open(&target)));
        // If no thread can start, the closed channel tells the caller, which tries again.
        let _ = std::thread::Builder::new().name("connecting".into()).spawn(body);
    }
}
