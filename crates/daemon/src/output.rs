//! Standard output and the log, each written by a thread of its own: a reader that does not read (a full pipe) must
//! hold up neither a stop nor anything else. What such a reader misses is said on the other stream, and in
//! the end by the exit status.

use gatun_api::types::LogLevel;
use gatun_control::Level;
use std::io::{self, ErrorKind, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Texts that wait for their reader at most.
const WAITING_MAX: usize = 16;

/// Longest wait for the reader of each stream at the end.
const FINISH_MAX: Duration = Duration::from_secs(1);

enum Message {
    Text(String),
    /// Asks how the text before it went.
    Flush(Sender<io::Result<()>>),
}

/// Writes to standard output; that nobody reads it any more (`| head`) is no error.
///
/// # Errors
/// If standard output cannot be written to for any other reason.
pub fn print_bytes(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// A stream that takes texts without blocking. Clones write to the same stream.
#[derive(Clone)]
pub(super) struct OutputStream {
    messages: Sender<Message>,
    waiting: Arc<AtomicUsize>,
    lost: Arc<AtomicUsize>,
}

impl OutputStream {
    /// An output whose texts a thread called `name` gives to `write`, which may block.
    ///
    /// # Errors
    /// If the process may have no more threads.
    pub(super) fn new(
        name: &str,
        write: impl FnMut(&str) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (messages, queue) = channel();
        let output = OutputStream { messages, waiting: Arc::default(), lost: Arc::default() };
        let waiting = Arc::clone(&output.waiting);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || drain(&queue, &waiting, write))?;
        Ok(output)
    }

    /// Hands a text over. `false` where too many wait already; how many were lost in this way is written
    /// before the next one that is taken.
    pub(super) fn put(&self, text: &str) -> bool {
        if self.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.put_last(text);
        true
    }

    /// Hands over a text behind which nothing comes, however many wait.
    fn put_last(&self, text: &str) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let text = match self.lost.swap(0, Ordering::Relaxed) {
            0 => text.to_owned(),
            n => format!("gatun: {n} texts are missing here, as nobody read them\n{text}"),
        };
        // The thread ends with the last output, not before.
        let _ = self.messages.send(Message::Text(text));
    }

    /// Waits until everything so far is written.
    ///
    /// # Errors
    /// If the last text could not be written, or is not yet after `timeout`.
    pub(super) fn flush(&self, timeout: Duration) -> io::Result<()> {
        let (answer, answers) = channel();
        let _ = self.messages.send(Message::Flush(answer));
        match answers.recv_timeout(timeout) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads it")),
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// The two streams of the daemon.
#[derive(Clone)]
pub(super) struct Output {
    stdout: OutputStream,
    stderr: OutputStream,
    /// Log level.
    pub(super) level: Level,
}

impl Output {
    /// For standard output and standard error.
    ///
    /// # Errors
    /// If the process may have no more threads.
    pub(super) fn new() -> io::Result<Self> {
        let stderr =
            OutputStream::new("log", |line| io::Write::write_all(&mut io::stderr(), line.as_bytes()))?;
        let log = stderr.clone();
        let stdout = OutputStream::new("stdout", move |text| {
            print_bytes(text.as_bytes()).inspect_err(|error| {
                log.put(&format!("gatun: standard output cannot be written: {error}\n"));
            })
        })?;
        Ok(Output { stdout, stderr, level: Level::default() })
    }

    /// One line for the operator or the journal. A standard error that is closed or not read stops no packets.
    pub(super) fn log(&self, line: &str) {
        if self.level.has(LogLevel::Info) {
            self.error(line);
        }
    }

    /// A line about what has failed, whatever the level.
    pub(super) fn error(&self, line: &str) {
        self.stderr.put(&format!("gatun: {line}\n"));
    }

    /// Lines about one failure, whatever the level: all of them are written, or none.
    pub(super) fn error_lines(&self, lines: &[String]) {
        let text: String = lines.iter().map(|line| format!("gatun: {line}\n")).collect();
        self.stderr.put(&text);
    }

    /// A line about how something was done, for who looks closely.
    pub(super) fn debug(&self, line: impl FnOnce() -> String) {
        if self.level.has(LogLevel::Debug) {
            self.error(&line());
        }
    }

    /// Waits until what was logged is written, but not for a reader who does not read.
    pub(super) fn settle(&self) {
        let _ = self.stderr.flush(FINISH_MAX);
    }

    /// A text to standard output, where somebody reads it.
    pub(super) fn print(&self, text: &str) {
        if !self.stdout.put(text) {
            self.error("counters are not printed: nobody reads standard output");
        }
    }

    /// The last text, for whose reader the process waits; `short` says the same in a line, for the log, where
    /// nobody reads the text. Returns whether it was written.
    pub(super) fn finish(&self, text: &str, short: &str) -> bool {
        self.stdout.put_last(text);
        let written = self.stdout.flush(FINISH_MAX);
        if let Err(why) = &written {
            self.error(&format!("standard output lacks the final counters ({why}): {short}"));
        }
        // What nobody reads on either stream is left to the exit status.
        self.stderr.flush(FINISH_MAX).is_ok() && written.is_ok()
    }
}

fn drain(queue: &Receiver<Message>, waiting: &AtomicUsize, mut write: impl FnMut(&str) -> io::Result<()>) {
    let mut last = Ok(());
    for message in queue {
        match message {
            Message::Text(text) => {
                last = write(&text);
                waiting.fetch_sub(1, Ordering::Relaxed);
            }
            Message::Flush(answer) => {
                // Whoever asked may have given up waiting.
                let _ = answer.send(std::mem::replace(&mut last, Ok(())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    const SOON: Duration = Duration::from_millis(50);
    const LATER: Duration = Duration::from_secs(10);

    #[test]
    fn without_a_reader_nobody_waits_and_what_was_lost_is_counted_for_the_next() {
        let (gate, closed) = channel::<()>();
        let written = Arc::new(Mutex::new(String::new()));
        let page = Arc::clone(&written);
        let output = OutputStream::new("test", move |text| {
            let _ = closed.recv();
            page.lock().unwrap().push_str(text);
            Ok(())
        })
        .unwrap();
        let taken = (0..WAITING_MAX + 3).filter(|_| output.put(".")).count();
        assert_eq!(taken, WAITING_MAX);
        assert_eq!(output.flush(SOON).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(gate);
        output.flush(LATER).unwrap();
        assert!(output.put("last"));
        output.flush(LATER).unwrap();
        let expected = ".".repeat(WAITING_MAX) + "gatun: 3 texts are missing here, as nobody read them\nlast";
        assert_eq!(*written.lock().unwrap(), expected);
    }

    #[test]
    fn a_text_that_cannot_be_written_is_an_error_once() {
        let output = OutputStream::new("test", |_| Err(io::ErrorKind::StorageFull.into())).unwrap();
        assert!(output.put("x"));
        assert_eq!(output.flush(LATER).unwrap_err().kind(), io::ErrorKind::StorageFull);
        output.flush(LATER).unwrap();
    }
}
