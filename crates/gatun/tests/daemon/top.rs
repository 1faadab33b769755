//! `gatun top` on a pseudoterminal of 80 by 24, with a simple terminal emulator for its output.

use crate::harness::{CREATE, Daemon, NAT64, in_lab, network, ping};
use gatun_testkit::topology::SERVER;
use gatun_testkit::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);
const COLUMNS: usize = 80;
const ROWS: usize = 24;

/// Contents of a terminal: characters, and the cursor.
struct Shown {
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    /// True if something was written outside the screen.
    is_overrun: bool,
}

impl Shown {
    fn of(written: &str, (columns, rows): (usize, usize)) -> Shown {
        let mut shown = Shown { cells: vec![vec![' '; columns]; rows], at: (0, 0), is_overrun: false };
        let mut rest = written.chars().peekable();
        while let Some(c) = rest.next() {
            if c != '\u{1b}' {
                shown.put(c);
                continue;
            }
            assert_eq!(rest.next(), Some('['), "a sequence that no terminal of today has");
            let mut numbers = String::new();
            let last = loop {
                match rest.next() {
                    Some(c) if c.is_ascii_alphabetic() => break c,
                    Some(c) => numbers.push(c),
                    None => return shown,
                }
            };
            shown.sequence(last, &numbers);
        }
        shown
    }

    fn put(&mut self, c: char) {
        assert!(!c.is_control(), "{c:?}");
        let (row, column) = self.at;
        match self.cells.get_mut(row).and_then(|line| line.get_mut(column)) {
            Some(cell) => *cell = c,
            None => self.is_overrun = true,
        }
        self.at.1 += 1;
    }

    fn sequence(&mut self, last: char, numbers: &str) {
        match last {
            'H' => {
                let mut parts = numbers.split(';').map(|part| part.parse::<usize>().unwrap_or(1) - 1);
                self.at = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
            }
            'K' => {
                let (row, column) = self.at;
                self.cells[row].iter_mut().skip(column).for_each(|cell| *cell = ' ');
            }
            'J' => {}
            'm' => {}
            'h' | 'l' => assert!(matches!(numbers, "?1049" | "?25"), "{numbers}"),
            other => panic!("{numbers}{other}"),
        }
    }

    fn lines(&self) -> Vec<String> {
        self.cells.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect()
    }
}

/// `gatun top` on its own terminal.
struct Top {
    process: Child,
    ours: OwnedFd,
    theirs: OwnedFd,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Top {
    fn start(environment: &[(&str, &str)]) -> Top {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatun"));
        command.args(["top", "--interval", "1"]).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        command.envs(environment.iter().copied());
        let stream = || Stdio::from(theirs.try_clone().unwrap());
        command.stdin(stream()).stdout(stream()).stderr(stream());
        let top = Top { process: command.spawn().unwrap(), ours, theirs, written: Arc::default() };
        top.resize(COLUMNS, ROWS);
        let (mut reader, written) = (File::from(top.ours.try_clone().unwrap()), Arc::clone(&top.written));
        // It ends when the terminal closes.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = reader.read(&mut bytes) {
                written.lock().unwrap().extend_from_slice(&bytes[..len]);
            }
        });
        top
    }

    fn resize(&self, columns: usize, rows: usize) {
        let size = Winsize { ws_row: rows as u16, ws_col: columns as u16, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.ours, size).unwrap();
    }

    fn press(&self, key: &str) {
        File::from(self.ours.try_clone().unwrap()).write_all(key.as_bytes()).unwrap();
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// Last complete picture on a terminal of this size.
    fn picture(&self, (columns, rows): (usize, usize)) -> Vec<String> {
        let written = self.written();
        let whole = written.rfind("\u{1b}[J").map_or("", |end| &written[..end]);
        let begin = whole.rfind("\u{1b}[1;1H").unwrap_or(0);
        let shown = Shown::of(&whole[begin..], (columns, rows));
        assert!(!shown.is_overrun, "{:#?}", shown.lines());
        assert_eq!(gatun_testkit::unreadable(&shown.lines().join("\n")), None);
        shown.lines()
    }

    fn wait_for(&self, part: &str) -> Vec<String> {
        let deadline = Instant::now() + SOON;
        loop {
            let lines = self.picture((COLUMNS, ROWS));
            if lines.iter().any(|line| line.contains(part)) {
                return lines;
            }
            assert!(Instant::now() < deadline, "no '{part}' in {lines:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.theirs).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.written());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the end and checks that the terminal is restored.
    fn ends(mut self) -> String {
        let status = self.end();
        assert!(status.success(), "{status:?}: {}", self.written());
        let is_back = || self.written().ends_with("\u{1b}[?25h\u{1b}[?1049l");
        wait_until("the first screen", SOON, is_back).unwrap();
        assert!(!self.is_raw());
        self.written()
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        // The program has already ended, unless the test has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn top_fills_a_terminal_obeys_keys_and_restores_it() {
    in_lab("top::top_fills_a_terminal_obeys_keys_and_restores_it", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        assert!(ping(&net.client, 3, SERVER, ""));
        let top = Top::start(&[]);
        let lines = top.wait_for("sessions▼");
        assert!(lines[0].starts_with(" gatun ") && lines[0].ends_with("every 1 s"), "{lines:#?}");
        assert_eq!(lines[1], "nothing needs attention");
        assert!(lines[ROWS - 1].starts_with("q quit"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with("2001:db8:1::/64") && line.contains("192.0.2.1")));
        assert!(top.is_raw());
        top.press("p");
        top.wait_for("ports▼");
        top.press("\u{1b}[A");
        top.press("i");
        top.wait_for("ports▲");
        // A larger terminal is used immediately.
        top.resize(120, 40);
        let is_larger = || top.picture((120, 40))[39].starts_with("q quit");
        wait_until("a larger picture", SOON, is_larger).unwrap();
        top.press("q");
        let written = top.ends();
        assert!(written.starts_with("\u{1b}[?1049h\u{1b}[?25l") && written.contains("\u{1b}[32mnothing"));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn top_restores_the_terminal_at_signals_and_respects_no_color() {
    const NAME: &str = "top::top_restores_the_terminal_at_signals_and_respects_no_color";
    in_lab(NAME, || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let top = Top::start(&[("NO_COLOR", "1")]);
            top.wait_for("nothing needs attention");
            kill_process(Pid::from_child(&top.process), signal).unwrap();
            let written = top.ends();
            let looks: Vec<_> = written.split("\u{1b}[").filter_map(|part| part.split_once('m')).collect();
            let of_looks = |code: &&str| code.chars().all(|c| c.is_ascii_digit() || c == ';');
            let codes: Vec<_> = looks.into_iter().map(|(code, _)| code).filter(of_looks).collect();
            // The last sequence resets the style.
            assert_eq!(codes, ["0"], "{written}");
        }
        let top = Top::start(&[]);
        top.wait_for("nothing needs attention");
        // Ctrl-Z: the shell uses the terminal meanwhile.
        top.press("\u{1a}");
        let state = || crate::harness::status_line(top.process.id(), "State");
        wait_until("that it is stopped", SOON, || state().starts_with('T')).unwrap();
        assert!(!top.is_raw());
        let shell = "\u{1b}[?25h\u{1b}[?1049l";
        wait_until("the first screen", SOON, || top.written().ends_with(shell)).unwrap();
        kill_process(Pid::from_child(&top.process), Signal::CONT).unwrap();
        let is_again = || top.written().rsplit(shell).next().is_some_and(|rest| rest.contains("q quit"));
        wait_until("a picture again", SOON, is_again).unwrap();
        assert!(top.is_raw());
        top.press("\u{3}");
        top.ends();
        // A stopped daemon is reported, and the last data stays.
        let top = Top::start(&[]);
        top.wait_for("nothing needs attention");
        daemon.stop(Signal::TERM);
        let lines = top.wait_for("no answer, data is old: ");
        assert!(lines[2].starts_with("sessions "), "{lines:#?}");
        top.press("q");
        top.ends();
    });
}

#[test]
fn top_prints_plain_text_without_a_capable_terminal() {
    in_lab("top::top_prints_plain_text_without_a_capable_terminal", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        let piped = crate::harness::gatun(["top"]);
        let piped = String::from_utf8(piped.stdout).unwrap();
        assert!(piped.contains("packets/s") && !piped.contains('\u{1b}'), "{piped}");
        let mut top = Top::start(&[("TERM", "dumb")]);
        assert!(top.end().success());
        let is_there = || top.written().contains("packets/s");
        wait_until("a picture", SOON, is_there).unwrap();
        assert!(!top.written().contains('\u{1b}'), "{}", top.written());
        daemon.stop(Signal::TERM);
    });
}
