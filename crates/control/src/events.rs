//! Stream of events for clients of the API: one JSON object a line. A reader that is too slow loses events
//! and receives their number; writers never wait.

use crate::Control;
use crate::query::BadRequest;
use crate::response::Refusal;
use crate::worker_requests::WorkerError;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, mpsc};
use tokio::time::timeout;

/// Events buffered for the slowest reader; it loses older ones.
const WAITING_MAX: usize = 8_192;
/// Readers at a time.
const READERS_MAX: usize = 16;
/// Approximate bytes of lines sent at a time.
const TOGETHER: usize = 64 << 10;
/// An empty line is sent after this long without an event, so that both ends notice a dead connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Sink of events for clients of the API.
#[derive(Clone, Debug)]
pub struct EventTap {
    lines: broadcast::Sender<Bytes>,
    is_on: Arc<AtomicBool>,
}

impl EventTap {
    /// Creates a tap without readers. `is_on`: events are made.
    pub fn new(is_on: bool) -> EventTap {
        EventTap { lines: broadcast::channel(WAITING_MAX).0, is_on: Arc::new(AtomicBool::new(is_on)) }
    }

    /// Switches events on or off.
    pub fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Returns true if events are made.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Sends an event, a line with its end, to all current readers.
    pub fn put(&self, line: &[u8]) {
        if self.lines.receiver_count() > 0 {
            // An error means that the last reader has just gone, which is fine.
            let _ = self.lines.send(Bytes::copy_from_slice(line));
        }
    }
}

impl Control {
    /// Streams events from now on.
    pub(crate) fn events(&self) -> Result<mpsc::Receiver<Result<Bytes, WorkerError>>, Refusal> {
        let Some(tap) = self.setup.events.as_ref().filter(|tap| tap.is_on()) else {
            let hint = "write an [events] section: file = \"stdout\", and the kinds of events";
            return Err(BadRequest::new("events are switched off", hint).into());
        };
        if tap.lines.receiver_count() >= READERS_MAX {
            return Err(WorkerError::Busy.into());
        }
        let (out, lines) = mpsc::channel(2);
        tokio::spawn(send(tap.lines.subscribe(), out));
        Ok(lines)
    }
}

async fn send(mut events: broadcast::Receiver<Bytes>, out: mpsc::Sender<Result<Bytes, WorkerError>>) {
    let mut text = Vec::new();
    loop {
        match timeout(KEEP_ALIVE, events.recv()).await {
            Err(_) => text.push(b'\n'),
            Ok(Ok(line)) => text.extend(&line),
            Ok(Err(RecvError::Lagged(lost))) => text.extend(lost_line(lost)),
            Ok(Err(RecvError::Closed)) => return,
        }
        while text.len() < TOGETHER {
            match events.try_recv() {
                Ok(line) => text.extend(&line),
                Err(TryRecvError::Lagged(lost)) => text.extend(lost_line(lost)),
                Err(_) => break,
            }
        }
        if out.send(Ok(std::mem::take(&mut text).into())).await.is_err() {
            return;
        }
    }
}

/// Event that tells a reader how many it lost.
fn lost_line(lost: u64) -> Vec<u8> {
    format!("{{\"event\":\"events_lost\",\"lost\":{lost}}}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reader_gets_the_number_of_lost_events() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tap = EventTap::new(true);
            tap.put(b"nobody reads this\n");
            let (out, mut lines) = mpsc::channel(2);
            let reader = tap.lines.subscribe();
            for n in 0..WAITING_MAX + 100 {
                tap.put(format!("{n}\n").as_bytes());
            }
            tokio::spawn(send(reader, out));
            let mut text = String::new();
            while !text.ends_with(&format!("{}\n", WAITING_MAX + 99)) {
                text += std::str::from_utf8(&lines.recv().await.unwrap().unwrap()).unwrap();
            }
            let mut lines = text.lines();
            assert_eq!(lines.next().unwrap(), "{\"event\":\"events_lost\",\"lost\":100}");
            assert!(lines.eq((100..WAITING_MAX + 100).map(|n| n.to_string())));
        });
    }
}
