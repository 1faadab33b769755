//! Colours of output, if standard output is a terminal and NO_COLOR is not set.

use gatun_api::types::Urgency;
use std::io::IsTerminal as _;

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[33m";
const RESET: &str = "\x1b[0m";

/// True if colours are allowed: NO_COLOR is unset or empty.
pub(crate) fn allowed() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Colours a line by its urgency.
pub(crate) fn line(urgency: Urgency, text: &str) -> String {
    let colour = match urgency {
        Urgency::Bad | Urgency::Other => RED,
        Urgency::Warning => YELLOW,
    };
    match allowed() && std::io::stdout().is_terminal() {
        true => format!("{colour}{text}{RESET}"),
        false => text.to_owned(),
    }
}
