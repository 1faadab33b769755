//! Colours of what is printed, where standard output is a terminal and nobody has said NO_COLOR.

use gatun_api::types::Urgency;
use std::io::IsTerminal as _;

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[33m";
const RESET: &str = "\x1b[0m";

/// Whether colours are allowed: NO_COLOR forbids them with any value but the empty one.
pub(crate) fn allowed() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A line in the colour of its urgency.
pub(crate) fn line(urgency: Urgency, text: &str) -> String {
    let colour = match urgency {
        Urgency::Bad => RED,
        Urgency::Warning => YELLOW,
    };
    match allowed() && std::io::stdout().is_terminal() {
        true => format!("{colour}{text}{RESET}"),
        false => text.to_owned(),
    }
}
