//! The generator on a backend's devices: device 0 inside, device 1 outside.

use super::{Devices, Received};
use gatun_io::BURST_MAX;
use gatun_io_ether::{FrameSink as _, Frames};

/// Receives at most one burst, and sends frames of device 1 back if `outside` returns true.
pub fn receive(
    frames: &mut impl Frames,
    mut outside: impl FnMut(&mut [u8]) -> bool,
    mut inside: impl FnMut(&[u8]),
) -> Received {
    let mut returned = 0;
    let count = frames.receive(
        |device, frame, out| {
            if device == 0 {
                returned += 1;
                inside(frame.bytes());
            } else if outside(frame.bytes_mut()) {
                out.relay(device, frame);
            }
            false
        },
        |_, _| (),
    );
    Received { inside: returned, is_full: count >= BURST_MAX }
}

/// Two devices of one backend.
pub struct FrameDevices<F>(pub F);

impl<F: Frames> Devices for FrameDevices<F> {
    fn send(&mut self, frame: &[u8]) {
        self.0.outbox().send(0, frame);
    }

    fn receive(&mut self, outside: impl FnMut(&mut [u8]) -> bool, inside: impl FnMut(&[u8])) -> Received {
        receive(&mut self.0, outside, inside)
    }

    /// Frames that the devices refused to send.
    fn refused(&self) -> u64 {
        self.0.stats().tx_errors.iter().sum()
    }
}
