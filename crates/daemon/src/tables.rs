//! Text tables: aligned on a wide terminal or in a file, one field per line on a narrow terminal.
//!
//! Cells are never broken, so that addresses, ports and numbers can be copied and searched. Only columns of
//! sentences wrap, between words, and only on a terminal.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width};
use std::fmt;

/// A number with commas between thousands.
pub fn group(n: u64) -> String {
    gatun_wire::text::group(n).to_string()
}

/// A number and its noun, which is given in the singular.
pub fn counted(n: u64, one: &str) -> String {
    gatun_wire::text::counted(n, one).to_string()
}

/// Headers of the columns that hold sentences.
const PROSE: &[&str] = &["what it means", "chosen by", VALUE];

/// Header of the values in a table of fields.
const VALUE: &str = " ";

/// Smallest width of a wrapped column of sentences, in characters.
const PROSE_MIN: usize = 24;

/// Table: a header and its rows.
#[derive(Clone, Debug)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Creates an empty table.
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    table_of(&header)
}

/// Creates an empty table of the fields of one object: a name and a value in each row.
pub fn table_of_fields() -> Table {
    table(["", VALUE])
}

/// Creates an empty table with any number of columns.
pub fn table_of(header: &[&str]) -> Table {
    Table { header: header.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
}

impl Table {
    /// Appends a row. Missing cells are empty.
    pub fn add_row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.header.len(), String::new());
        self.rows.push(row);
    }

    /// Number of rows without the header.
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Renders the table for a terminal of `columns` characters. `None` means unlimited.
    pub fn render(&self, columns: Option<usize>) -> String {
        let natural: usize =
            (0..self.header.len()).map(|column| self.width_of(column) + 3).sum::<usize>() + 1;
        let Some(columns) = columns.filter(|&columns| columns < natural) else {
            return self.aligned(None);
        };
        let prose = self.header.iter().position(|name| PROSE.contains(&name.as_str()));
        let left = prose.map(|column| (column, columns.saturating_sub(natural - self.width_of(column))));
        match left {
            Some((column, width)) if width >= PROSE_MIN.max(self.longest_word(column)) => {
                self.aligned(Some((column, width)))
            }
            _ if self.header.last().is_some_and(|name| name == VALUE) => self.fields(columns),
            _ => self.records(columns),
        }
    }

    fn width_of(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.chain([self.header[column].chars().count()]).max().unwrap_or_default()
    }

    fn longest_word(&self, column: usize) -> usize {
        let words = self.rows.iter().flat_map(|row| row[column].split(' '));
        words.map(|word| word.chars().count()).max().unwrap_or_default()
    }

    /// Renders rows and columns. `prose` is the column of sentences and its width.
    fn aligned(&self, prose: Option<(usize, usize)>) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(&self.header);
        for row in &self.rows {
            table.add_row(row.iter().enumerate().map(|(column, cell)| match prose {
                Some((wrapped, width)) if wrapped == column => wrap(cell, width).join("\n"),
                _ => cell.clone(),
            }));
        }
        for column in 0..self.header.len() {
            let is_number = self.rows.iter().all(|row| is_number(&row[column]));
            if let Some(column) = table.column_mut(column) {
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(1)));
                if is_number {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        table.to_string()
    }

    /// Renders fields without lines around them, for values with a word that is too long for a column.
    fn fields(&self, columns: usize) -> String {
        let names = self.width_of(0);
        let lines = self.rows.iter().flat_map(|row| {
            let parts = wrap(&row[1], columns.saturating_sub(names + 2));
            parts.into_iter().enumerate().map(move |(at, part)| {
                let name = if at == 0 { row[0].as_str() } else { "" };
                format!("{name:<names$}  {part}")
            })
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Renders one field per line, with an empty line between rows.
    fn records(&self, columns: usize) -> String {
        let names = (0..self.header.len()).map(|column| self.header[column].chars().count()).max();
        let names = names.unwrap_or_default();
        let mut lines = Vec::new();
        for row in &self.rows {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            let filled = self.header.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
            for (name, cell) in filled {
                let mut name = name.as_str();
                for part in wrap(cell, columns.saturating_sub(names + 2)) {
                    lines.push(format!("{name:<names$}  {part}"));
                    name = "";
                }
            }
        }
        lines.join("\n")
    }
}

impl fmt::Display for Table {
    /// Formats for standard output: as wide as its terminal, unlimited otherwise.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(terminal_columns()))
    }
}

/// Width of the terminal on standard output.
fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

/// Splits a text between words into lines of at most `width` characters; a longer word stays whole.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Returns true if a cell is right-aligned: a number, "5 of 10", "3.1 %", or nothing.
fn is_number(cell: &str) -> bool {
    cell.split(' ').all(|word| {
        let digits = word.trim_end_matches(['%', '+', 's']).replace(',', "");
        matches!(word, "" | "-" | "of" | "%") || digits.parse::<f64>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: &str = "[2001:db8:1234:5678:9abc:def0:1234:5678]:51234";

    fn sessions() -> Table {
        let mut table = table(["inside", "outside", "packets", "what it means"]);
        let meaning = "a sentence that is long enough to need more than one line of a narrow terminal";
        table.add_row([END, "203.0.113.255:65535", "1,234,567", meaning]);
        table.add_row(["[2001:db8::1]:1", "192.0.2.1:1", "7", "short"]);
        table
    }

    #[test]
    fn cells_are_not_broken_at_any_width() {
        for columns in (1..200).map(Some).chain([None]) {
            let text = sessions().render(columns);
            for cell in [END, "203.0.113.255:65535", "1,234,567"] {
                assert!(text.contains(cell), "{columns:?}: {text}");
            }
        }
    }

    #[test]
    fn lines_are_not_wider_than_the_terminal() {
        for columns in 70..200 {
            let text = sessions().render(Some(columns));
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= columns, "{columns}: {widest}\n{text}");
        }
    }

    #[test]
    fn a_file_gets_a_line_for_each_row() {
        assert_eq!(sessions().render(None).lines().count(), 6);
    }

    #[test]
    fn a_narrow_terminal_gets_a_line_for_each_field() {
        let text = sessions().render(Some(80));
        assert!(text.starts_with(&format!("inside         {END}\n")), "{text}");
        assert!(text.contains("\n\ninside         [2001:db8::1]:1\n"), "{text}");
    }

    #[test]
    fn a_table_of_fields_keeps_each_name_beside_its_value_at_any_width() {
        let mut table = table_of_fields();
        let memory = "12.3 MB on transparent huge pages, 170.1 MB on small pages, and more of it";
        table.add_row(["memory", memory]);
        table.add_row(["sessions", "51 of 262,144"]);
        table.add_row(["  silently", "3 packets, 1,234 bytes"]);
        for long in [false, true] {
            if long {
                table.add_row([
                    "file",
                    "/etc/gatun/a/directory/with/a/very/long/name/that/nothing/breaks.toml",
                ]);
            }
            for columns in (46..120).map(Some).chain([None]) {
                let text = table.render(columns);
                for row in &table.rows {
                    let first = row[1].split(' ').next().unwrap();
                    let is_beside = |line: &str| line.contains(&row[0]) && line.contains(first);
                    assert_eq!(text.lines().filter(|line| is_beside(line)).count(), 1, "{columns:?}\n{text}");
                }
                let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
                assert!(long || widest <= columns.unwrap_or(200), "{columns:?}\n{text}");
                assert!(!text.contains("\n\n"), "{columns:?}\n{text}");
            }
        }
    }

    #[test]
    fn numbers_are_distinguished_from_words_and_addresses() {
        for number in ["", "-", "0", "1,234", "5 of 64,512", "3.1 %", "3+"] {
            assert!(is_number(number), "{number}");
        }
        for text in ["192.0.2.1", "192.0.2.1:80", "main", "[::1]:80", "none: drained"] {
            assert!(!is_number(text), "{text}");
        }
    }
}
