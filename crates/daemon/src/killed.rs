//! Things that a killed process may still have: the kernel releases its devices, locks and sockets one after
//! the other.

use std::time::{Duration, Instant};

/// Interval of attempts.
const AGAIN: Duration = Duration::from_millis(2);

/// Tries again for a time, as long as another process has the thing.
pub(crate) fn once_released<T, E>(
    at_most: Duration,
    is_taken: impl Fn(&E) -> bool,
    mut take: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let begin = Instant::now();
    loop {
        match take() {
            Err(error) if is_taken(&error) && begin.elapsed() < at_most => std::thread::sleep(AGAIN),
            other => return other,
        }
    }
}
