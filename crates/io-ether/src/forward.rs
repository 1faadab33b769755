//! The plain forwarder, which measurements put in a translator's place: what a backend costs without an engine.

use crate::{Frames, Outbox as _};
use gatun_io::Waker;
use std::io;
use std::time::Duration;

/// How long `go_on` is not asked at most while nothing comes.
const PATIENCE: Duration = Duration::from_millis(10);

/// Sends what comes from one of two devices out of the other, its Ethernet addresses exchanged, as long as `go_on`, which is
/// asked before each burst, and told how many frames the one before had.
///
/// # Errors
/// Where the system refuses to wait.
pub fn forward(frames: &mut impl Frames, mut go_on: impl FnMut(usize) -> bool) -> io::Result<()> {
    let waker = Waker::new()?;
    let mut received = 0;
    while go_on(received) {
        received = frames.receive(
            |device, frame, out| {
                if let Some((to, from)) = frame.bytes_mut().get_mut(..12).map(|macs| macs.split_at_mut(6)) {
                    to.swap_with_slice(from);
                }
                out.relay(1 - device, frame);
                false
            },
            |_, _| (),
        );
        if received == 0 {
            frames.wait(&waker, Some(PATIENCE))?;
        }
    }
    Ok(())
}
