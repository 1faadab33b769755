//! Standard output and the log, each written by its own thread: a reader that does not read (a full pipe)
//! must not block the daemon or its end. Text that such a reader misses is reported on the other stream and
//! by the exit status.

use gatun_api::types::LogLevel;
use gatun_control::Level;
use gatun_wire::text::counted;
use std::io::{self, ErrorKind, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Largest number of texts that wait for their reader.
const WAITING_MAX: usize = 16;

/// Longest wait for the reader of each stream at the end.
const FINISH_MAX: Duration = Duration::from_secs(1);

enum Message {
    Text(String),
    /// Asks for the result of the previous write.
    Flush(Sender<io::Result<()>>),
}

/// Writes to standard output. A closed pipe (`| head`) is not an error.
///
/// # Errors
/// Returns an error if standard output cannot be written for another reason.
pub fn print_bytes(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Stream that accepts texts without blocking. Clones write to the same stream.
#[derive(Clone)]
pub(super) struct OutputStream {
    messages: Sender<Message>,
    waiting: Arc<AtomicUsize>,
    lost: Arc<AtomicUsize>,
    /// True if the last wait for the reader was in vain.
    is_unread: Arc<AtomicBool>,
}

impl OutputStream {
    /// Creates a stream. A thread called `name` passes the texts to `write`, which may block.
    ///
    /// # Errors
    /// Returns an error if the process has reached its limit of threads.
    pub(super) fn new(
        name: &str,
        write: impl FnMut(&str) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (messages, queue) = channel();
        let (waiting, lost, is_unread) = Default::default();
        let output = OutputStream { messages, waiting, lost, is_unread };
        let waiting = Arc::clone(&output.waiting);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || drain(&queue, &waiting, write))?;
        Ok(output)
    }

    /// Queues a text. Returns false if too many texts wait. The number of lost texts is written before the
    /// next accepted one.
    pub(super) fn put(&self, text: &str) -> bool {
        if self.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.put_last(text);
        true
    }

    /// Queues the last text, however many wait.
    fn put_last(&self, text: &str) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let text = match self.lost.swap(0, Ordering::Relaxed) {
            0 => text.to_owned(),
            n => format!(
                "gatun: {} missing here because nobody read them\n{text}",
                counted(n as u64, "message")
            ),
        };
        // The thread lives as long as the last clone.
        let _ = self.messages.send(Message::Text(text));
    }

    /// Waits until all queued texts are written.
    ///
    /// # Errors
    /// Returns an error if the last text could not be written, or is not written within `timeout`.
    pub(super) fn flush(&self, timeout: Duration) -> io::Result<()> {
        let (answer, answers) = channel();
        let _ = self.messages.send(Message::Flush(answer));
        let answer = answers.recv_timeout(timeout);
        let is_unread = matches!(answer, Err(RecvTimeoutError::Timeout));
        self.is_unread.store(is_unread, Ordering::Relaxed);
        match answer {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads it")),
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Both streams of the daemon.
#[derive(Clone)]
pub(super) struct Output {
    stdout: OutputStream,
    stderr: OutputStream,
    /// Log level.
    pub(super) level: Level,
}

impl Output {
    /// Opens standard output and standard error.
    ///
    /// # Errors
    /// Returns an error if the process has reached its limit of threads.
    pub(super) fn new() -> io::Result<Self> {
        let stderr =
            OutputStream::new("log", |line| io::Write::write_all(&mut io::stderr(), line.as_bytes()))?;
        let log = stderr.clone();
        let stdout = OutputStream::new("stdout", move |text| {
            print_bytes(text.as_bytes()).inspect_err(|error| {
                log.put(&format!("gatun: cannot write to standard output: {error}\n"));
            })
        })?;
        Ok(Output { stdout, stderr, level: Level::default() })
    }

    /// Logs a line. A closed or unread standard error does not stop packets.
    pub(super) fn log(&self, line: &str) {
        if self.level.has(LogLevel::Info) {
            self.error(line);
        }
    }

    /// Logs a line about a failure, at any log level.
    pub(super) fn error(&self, line: &str) {
        self.stderr.put(&format!("gatun: {line}\n"));
    }

    /// Logs lines about one failure, at any log level: all of them or none.
    pub(super) fn error_lines(&self, lines: &[String]) {
        let text: String = lines.iter().map(|line| format!("gatun: {line}\n")).collect();
        self.stderr.put(&text);
    }

    /// Logs a line at level debug.
    pub(super) fn debug(&self, line: impl FnOnce() -> String) {
        if self.level.has(LogLevel::Debug) {
            self.error(&line());
        }
    }

    /// Waits until logged lines are written, at most [`FINISH_MAX`]; not for a reader that did not read
    /// before.
    pub(super) fn settle(&self) {
        if !self.stderr.is_unread.load(Ordering::Relaxed) {
            let _ = self.stderr.flush(FINISH_MAX);
        }
    }

    /// Prints a text to standard output, unless nobody reads it.
    pub(super) fn print(&self, text: &str) {
        if !self.stdout.put(text) {
            self.error("counters are not printed: nobody reads standard output");
        }
    }

    /// Prints the last text and waits for its reader. If nobody reads it, the log gets `short`, the same in
    /// one line. Returns true if both streams were written.
    pub(super) fn finish(&self, text: &str, short: &str) -> bool {
        self.stdout.put_last(text);
        let written = self.stdout.flush(FINISH_MAX);
        if let Err(why) = &written {
            self.error(&format!("standard output lacks the final counters ({why}): {short}"));
        }
        // The exit status reports lines that nobody reads on either stream.
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
                // The caller may have stopped waiting.
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
    fn a_stream_without_a_reader_does_not_block_and_counts_lost_messages() {
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
        let expected =
            ".".repeat(WAITING_MAX) + "gatun: 3 messages missing here because nobody read them\nlast";
        assert_eq!(*written.lock().unwrap(), expected);
    }

    #[test]
    fn an_unwritable_text_is_reported_once() {
        let output = OutputStream::new("test", |_| Err(io::ErrorKind::StorageFull.into())).unwrap();
        assert!(output.put("x"));
        assert_eq!(output.flush(LATER).unwrap_err().kind(), io::ErrorKind::StorageFull);
        output.flush(LATER).unwrap();
    }
}
