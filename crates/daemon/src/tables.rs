//! Tables for people.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// Columns of the screen where the terminal does not say how many it has.
const WIDTH: u16 = 110;

/// Headers of columns whose cells are no numbers.
const TEXT: &[&str] = &[
    "",
    "reason",
    "what it means",
    "instance",
    "pool",
    "protocol",
    "inside",
    "outside",
    "remote",
    "state",
    "name",
    "backend",
    "device",
    "addresses",
    "subscriber",
    "public address",
    "protocols",
    "counter",
    "",
];

/// An empty table; numbers stand on the right.
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    table_of(&header)
}

/// The same, however many columns it has.
pub fn table_of(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(WIDTH);
    }
    table.set_header(header.iter().copied());
    for (index, name) in header.iter().enumerate() {
        if let Some(column) = table.column_mut(index).filter(|_| !TEXT.contains(name)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A number with its thousands set apart.
pub fn group(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let cases = [(0, "0"), (999, "999"), (1000, "1 000"), (1234567, "1 234 567")];
        for (n, expected) in cases {
            assert_eq!(group(n), expected);
        }
    }
}
