//! Plain forwarder that replaces the translator in measurements: shows the cost of a backend without an
//! engine.

use crate::{FrameSink as _, Frames};
use gatun_io::Waker;
use std::io;
use std::time::Duration;

/// Longest time between two calls of `go_on` while no frames arrive.
const PATIENCE: Duration = Duration::from_millis(10);

/// Sends frames from each of two devices out of the other one, with swapped Ethernet addresses, while `go_on`
/// returns true. `go_on` is called before each burst with the number of frames of the previous one.
///
/// # Errors
/// Returns an error if the system call that waits fails.
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
