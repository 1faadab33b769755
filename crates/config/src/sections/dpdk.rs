//! `[dpdk]`: DPDK's environment; and names of DPDK devices.

use crate::keys::{self, HugePages};
use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, Invalid, Read};
use std::ops::Range;
use toml::Spanned;
use toml::de::DeValue;

/// DPDK's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dpdk {
    /// Use of huge pages for packet buffers.
    pub huge_pages: HugePages,
    /// Further arguments.
    pub eal: Vec<String>,
}

/// The section.
pub(crate) struct RawDpdk {
    pub(crate) settings: Dpdk,
    pub(crate) span: Range<usize>,
}

pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> RawDpdk {
    let huge_pages = table.get("huge_pages", problems, |v| value::choice(v, keys::HUGE_PAGES));
    let eal = table.list("eal", problems, argument);
    let settings = Dpdk {
        huge_pages: huge_pages.unwrap_or_default(),
        eal: eal.into_iter().map(Spanned::into_inner).collect(),
    };
    RawDpdk { settings, span: table.span.clone() }
}

/// One word: values follow `=`, so that no argument is taken for the value of another one.
fn argument(value: &DeValue<'_>) -> Read<String> {
    let s = value::text(value)?;
    if s.len() > 1 && s.starts_with('-') && s.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(s.to_owned());
    }
    let what = format!("\"{}\" is not an argument of DPDK's environment", value::shorten(s));
    Err(Invalid::with(what, "write one word for each, for example `eal = [\"--socket-limit=1024\"]`"))
}

/// The bus address of a card, or a driver's name with a number and its arguments.
pub(crate) fn device(value: &DeValue<'_>) -> Read<String> {
    const LEN_MAX: usize = 255;
    let s = value::text(value)?;
    let (name, _) = s.split_once(',').unwrap_or((s, ""));
    let is_driver = (name.starts_with("net_") || name.starts_with("eth_"))
        && name.ends_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_printable = s.bytes().all(|b| b.is_ascii_graphic());
    if s.len() <= LEN_MAX && is_printable && (is_driver || is_on_bus(name)) {
        return Ok(s.to_owned());
    }
    let what = format!("\"{}\" is not a device of DPDK", value::shorten(s));
    Err(Invalid::with(
        what,
        "write the bus address of a card, for example \"0000:01:00.0\", or a driver's name with a number and arguments, for example \"net_memif0,role=client,socket=/run/memif.sock\"",
    ))
}

/// Returns true for `0000:01:00.0`, also without the domain.
fn is_on_bus(name: &str) -> bool {
    let Some((bus, function)) = name.rsplit_once('.') else { return false };
    let lens: Vec<usize> = bus.split(':').map(str::len).collect();
    let is_hex = bus.bytes().all(|b| b == b':' || b.is_ascii_hexdigit());
    matches!(&lens[..], [4, 2, 2] | [2, 2]) && is_hex && matches!(function.as_bytes(), [b'0'..=b'7'])
}
