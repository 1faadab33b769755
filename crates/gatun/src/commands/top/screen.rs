//! Full-screen terminal: the alternate screen without a cursor, and keys one by one. The terminal is restored
//! at exit, at a panic (also one that aborts the process), and while the process is suspended.

use crate::commands::colour;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Mutex;
use std::time::Instant;

/// Size of a terminal that does not report one.
const USUAL_SIZE: (usize, usize) = (80, 24);
/// Switches to the alternate screen and hides the cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";
const INTERRUPT: u8 = 0x03;
const SUSPEND: u8 = 0x1a;
const ESCAPE: u8 = 0x1b;

/// Style of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Title,
    Faint,
    Good,
    Warning,
    Bad,
    Chart,
}

impl Style {
    fn sequence(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Title => "\x1b[7m",
            Style::Faint => "\x1b[2m",
            Style::Good => "\x1b[32m",
            Style::Warning => "\x1b[33m",
            Style::Bad => "\x1b[1;31m",
            Style::Chart => "\x1b[36m",
        }
    }
}

/// Line of styled texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line(pub(super) Vec<(Style, String)>);

/// Key with a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Letter(u8),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
}

/// Settings of the terminal before it was changed.
struct Saved {
    output: File,
    input: Option<(OwnedFd, Termios)>,
}

/// Settings to restore, at a panic from anywhere.
static SAVED: Mutex<Option<Saved>> = Mutex::new(None);

/// Restores the terminal, once.
fn restore() {
    // A panic while this lock is held leaves the terminal as it is.
    let Ok(Some(mut taken)) = SAVED.try_lock().map(|mut taken| taken.take()) else { return };
    // An error cannot be reported.
    let _ = taken.output.write_all(LEAVE).and_then(|()| taken.output.flush());
    if let Some((input, before)) = &taken.input {
        let _ = tcsetattr(input, OptionalActions::Now, before);
    }
}

/// Full-screen terminal, restored on drop.
pub(super) struct Screen {
    output: File,
    /// Input of keys; none if standard input is not a terminal.
    input: Option<OwnedFd>,
    /// Keys read together with an earlier one.
    pressed: VecDeque<Key>,
    has_colours: bool,
}

impl Screen {
    /// Sets up the terminal of standard input and output.
    ///
    /// # Errors
    /// Returns an error if the terminal cannot be set up or written to.
    pub(super) fn take() -> io::Result<Screen> {
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        Screen::take_these(io::stdout().as_fd().try_clone_to_owned()?.into(), input)
    }

    fn take_these(output: File, input: OwnedFd) -> io::Result<Screen> {
        let input = tcgetattr(&input).is_ok().then_some(input);
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            default(info);
        }));
        let mut screen = Screen { output, input, pressed: VecDeque::new(), has_colours: colour::allowed() };
        screen.enter()?;
        Ok(screen)
    }

    fn enter(&mut self) -> io::Result<()> {
        let input = match &self.input {
            None => None,
            Some(input) => {
                let before = tcgetattr(input)?;
                let mut raw = before.clone();
                raw.make_raw();
                tcsetattr(input, OptionalActions::Now, &raw)?;
                Some((input.try_clone()?, before))
            }
        };
        let output = self.output.try_clone()?;
        *SAVED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Saved { output, input });
        self.output.write_all(ENTER)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(&self.output).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or(USUAL_SIZE, |size| (size.ws_col.into(), size.ws_row.into()))
    }

    /// Overwrites the lines in place, which avoids flicker.
    ///
    /// # Errors
    /// Returns an error if the terminal is closed.
    pub(super) fn show(&mut self, lines: &[Line]) -> io::Result<()> {
        let mut text = String::new();
        for (row, line) in lines.iter().enumerate() {
            text += &format!("\x1b[{};1H", row + 1);
            for (style, part) in &line.0 {
                let sequence = if self.has_colours { style.sequence() } else { "" };
                text += sequence;
                text += part;
                text += if sequence.is_empty() { "" } else { "\x1b[0m" };
            }
            text += "\x1b[K";
        }
        text += "\x1b[J";
        self.output.write_all(text.as_bytes())
    }

    /// Waits for a key, until `deadline` or a signal.
    ///
    /// # Errors
    /// Returns an error if the terminal is closed.
    pub(super) fn key(&mut self, deadline: Instant) -> io::Result<Option<Key>> {
        if let Some(key) = self.pressed.pop_front() {
            return Ok(Some(key));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut fds: Vec<PollFd<'_>> =
            self.input.iter().map(|input| PollFd::new(input, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            other => other.map(drop)?,
        }
        let Some(input) = &self.input else { return Ok(None) };
        let mut bytes = [0; 32];
        match rustix::io::read(input, &mut bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                self.pressed = keys_of(bytes.get(..len).unwrap_or_default());
                Ok(self.pressed.pop_front())
            }
            Err(Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Restores the terminal while the process is stopped.
    ///
    /// # Errors
    /// Returns an error if the terminal cannot be set up again.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        restore();
        kill_process(getpid(), Signal::STOP)?;
        self.enter()
    }
}

impl std::ops::Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Parses keys. Escape sequences of other keys are ignored.
fn keys_of(bytes: &[u8]) -> VecDeque<Key> {
    let (mut keys, mut rest) = (VecDeque::new(), bytes);
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        match (first, behind) {
            (INTERRUPT, _) => keys.push_back(Key::Interrupt),
            (SUSPEND, _) => keys.push_back(Key::Suspend),
            // ECMA-48: parameters, and a final byte from @ on.
            (ESCAPE, [b'[' | b'O', sequence @ ..]) => {
                let end = sequence.iter().position(|byte| (b'@'..=b'~').contains(byte));
                rest = end.and_then(|end| sequence.get(end + 1..)).unwrap_or_default();
            }
            (ESCAPE, _) => {}
            (letter, _) => keys.push_back(Key::Letter(letter)),
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

    fn terminal() -> (OwnedFd, OwnedFd) {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        (ours, theirs)
    }

    fn written(ours: &OwnedFd) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let len = rustix::io::read(ours, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn a_panic_restores_the_terminal_before_unwinding() {
        let (ours, theirs) = terminal();
        let modes = |fd: &OwnedFd| tcgetattr(fd).unwrap().local_modes;
        let before = modes(&theirs);
        let [output, input] = [0, 1].map(|_| theirs.try_clone().unwrap());
        let panicked = std::panic::catch_unwind(move || {
            let screen = Screen::take_these(output.into(), input).unwrap();
            assert_ne!(modes(&screen.input.as_ref().unwrap().try_clone().unwrap()), before, "not raw");
            // If a panic aborts the process, nothing is dropped.
            std::mem::forget(screen);
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        let bytes = written(&ours);
        assert!(bytes.starts_with(ENTER) && bytes.ends_with(LEAVE), "{}", String::from_utf8_lossy(&bytes));
        assert_eq!(modes(&theirs), before);
    }

    #[test]
    fn escape_sequences_are_not_taken_for_keys() {
        let letter = |letter| Key::Letter(letter);
        assert_eq!(keys_of(b"qp"), [letter(b'q'), letter(b'p')]);
        assert_eq!(keys_of(b"\x03\x1a"), [Key::Interrupt, Key::Suspend]);
        assert_eq!(keys_of(b"\x1b[Ai\x1bOBr\x1b[15~s"), [b'i', b'r', b's'].map(letter));
        for nothing in [&b""[..], b"\x1b", b"\x1b[", b"\x1b[1;5"] {
            assert_eq!(keys_of(nothing), [], "{nothing:?}");
        }
    }
}
