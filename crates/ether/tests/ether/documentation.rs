//! Checks that docs/reference/ethernet.md lists every counter with its help text.

use gatun_ether::{Answer, Consumed, Dropped, EtherEvent, Foreign, Stats, Unsent};
use std::fmt::Write as _;
use std::path::Path;

macro_rules! table {
    ($text:expr, $title:literal, $kind:ident) => {
        let rows = $kind::ALL.iter().map(|counter| (counter.name(), counter.help()));
        write_table($text, $title, rows);
    };
}

fn write_table(text: &mut String, title: &str, rows: impl Iterator<Item = (&'static str, &'static str)>) {
    write!(text, "\n### {title}\n\n| counter | what it counts |\n|---|---|\n").unwrap();
    rows.for_each(|(name, help)| writeln!(text, "| `{name}` | {help} |").unwrap());
}

fn tables() -> String {
    let mut text = String::new();
    let stats = Stats::default();
    let flat = stats.rows().take_while(|row| row.0.starts_with("ether_"));
    write_table(&mut text, "Totals", flat.map(|(name, help, _)| (name, help)));
    table!(&mut text, "Answered", Answer);
    table!(&mut text, "Consumed", Consumed);
    table!(&mut text, "Not for us", Foreign);
    table!(&mut text, "Dropped", Dropped);
    table!(&mut text, "Not sent", Unsent);
    table!(&mut text, "Events", EtherEvent);
    text
}

#[test]
fn the_page_lists_the_counters_of_the_code() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/ethernet.md");
    let page = std::fs::read_to_string(&file).expect("the page is part of the repository");
    let (before, after) = page.split_once("\n### Totals\n").expect("the page has its tables at the end");
    if std::env::var_os("GATUN_BLESS").is_some() {
        std::fs::write(&file, format!("{before}{}", tables())).expect("the page can be written");
        return;
    }
    assert_eq!(format!("\n### Totals\n{after}"), tables(), "run with GATUN_BLESS=1 to rewrite the page");
}
