//! Packets of the engine's tests that the program translated or gave to the controller. `counts.txt` has them
//! all, so that no test passes without its packets. Each test alone gives its first packets to the switch;
//! the test here runs all of them in a process of its own, where they give all.
//!
//! ```text
//!   GATUN_BLESS=1 cargo test -p gatun-p4-switch --features libdpdk --test program counts::
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// Set in the process whose tests print their counts.
const PRINTS: &str = "GATUN_P4_COUNTS";
/// Packets that a test gives to the switch in any other process, where nobody asks for its counts.
const FIRST: u64 = 500;
/// Begin of a line with counts.
const MARK: &str = "counted ";
/// Modules of the engine's tests.
const MODULES: [&str; 3] = ["nat44::", "nat64::", "wire::"];

/// Counts of a test, or of all tests of a module.
#[derive(Default)]
struct Counts {
    translated: u64,
    /// Packets that no frame can have: with work left for a device, of another realm, or too long.
    left_out: u64,
    /// Packets that the controller got, by reason.
    given: BTreeMap<u8, u64>,
}

/// Counts of this thread, which runs one test.
#[derive(Default)]
struct OfThread {
    test: Option<String>,
    counts: Counts,
}

thread_local! {
    static COUNTS: RefCell<OfThread> = RefCell::default();
}

impl Drop for OfThread {
    fn drop(&mut self) {
        let Counts { translated, left_out, given } = &self.counts;
        let Some(test) = &self.test else { return };
        let mut line = format!("{MARK}{test} {translated} {left_out}");
        given.iter().for_each(|(reason, packets)| line += &format!(" {reason}={packets}"));
        let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
    }
}

/// Whether this process is asked for all counts.
static IS_ASKED: LazyLock<bool> = LazyLock::new(|| std::env::var_os(PRINTS).is_some());

fn count(packet: impl FnOnce(&mut Counts)) {
    COUNTS.with_borrow_mut(|of| {
        if *IS_ASKED && of.test.is_none() {
            of.test = std::thread::current().name().map(str::to_owned);
        }
        packet(&mut of.counts);
    });
}

/// Whether the switch gets the test's next packet.
pub(crate) fn has_room() -> bool {
    let given = |of: &OfThread| of.counts.translated + of.counts.given.values().sum::<u64>();
    *IS_ASKED || COUNTS.with_borrow(given) < FIRST
}

/// The program has translated a packet.
pub(crate) fn translated() {
    count(|counts| counts.translated += 1);
}

/// The controller has got a packet.
pub(crate) fn given(reason: u8) {
    count(|counts| *counts.given.entry(reason).or_default() += 1);
}

/// The program does not get a packet.
pub(crate) fn left_out() {
    count(|counts| counts.left_out += 1);
}

impl Counts {
    /// Reads the counts of a test, and adds them. `None`: the text is something else.
    fn add(&mut self, text: &str) -> Option<()> {
        let mut words = text.split(' ');
        self.translated += words.next()?.parse::<u64>().ok()?;
        self.left_out += words.next()?.parse::<u64>().ok()?;
        for word in words {
            let (reason, packets) = word.split_once('=')?;
            *self.given.entry(reason.parse().ok()?).or_default() += packets.parse::<u64>().ok()?;
        }
        Some(())
    }
}

/// Counts of the modules of a run, by the lines that it printed.
fn modules(printed: &str) -> BTreeMap<String, Counts> {
    let mut modules: BTreeMap<String, Counts> = BTreeMap::new();
    for line in printed.lines().filter_map(|line| line.strip_prefix(MARK)) {
        let (test, counts) = line.split_once(' ').unwrap();
        let (module, _) = test.rsplit_once("::").unwrap();
        modules.entry(module.to_owned()).or_default().add(counts).unwrap_or_else(|| panic!("{line}"));
    }
    modules
}

fn table(modules: &BTreeMap<String, Counts>) -> String {
    let mut text = "# module translated left-out reason=packets, the controller got...\n".to_owned();
    for (module, Counts { translated, left_out, given }) in modules {
        let _ = write!(text, "{module} {translated} {left_out}");
        given.iter().for_each(|(reason, packets)| text += &format!(" {reason}={packets}"));
        text.push('\n');
    }
    text
}

#[test]
fn the_program_gets_every_packet_of_the_engines_tests() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    // Random packets are the same in every run.
    command.args(MODULES).env(PRINTS, "1").env("PROPTEST_RNG_SEED", "1").env("RUST_TEST_THREADS", "1");
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stdout));
    let modules = modules(&printed);
    let all = table(&modules);
    println!("{all}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/counts.txt");
    if std::env::var_os("GATUN_BLESS").is_some() {
        std::fs::write(&path, &all).unwrap();
    }
    // No table of nothing.
    for module in MODULES {
        let of = || modules.iter().filter(|(name, _)| name.starts_with(module)).map(|(_, counts)| counts);
        assert!(of().map(|counts| counts.translated).sum::<u64>() > 100, "{module}: {all}");
    }
    for reason in (1..=10).chain([15, 17]) {
        assert!(modules.values().any(|counts| counts.given.contains_key(&reason)), "{reason}: {all}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), all, "GATUN_BLESS=1 writes the new counts");
}
