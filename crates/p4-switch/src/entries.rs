//! Entries as text: for a switch without a controller, and for tests.
//!
//! ```text
//!   # TABLE KEY... [priority N] ACTION ARGUMENT=VALUE...
//!   known 0x020000000001 0x020000000002 forward port=2 type=0x0800
//!   ranges 0x0100/0xff00 priority 8 forward port=2 type=0x0800
//! ```
//! Numbers are decimal, or hexadecimal with 0x. A key of a table with masks has VALUE/MASK, or VALUE for
//! all bits.

use crate::error::SwitchError;
use crate::switch::Switch;
use crate::tables::{Entry, Match, Table};
use std::collections::BTreeMap;

/// One line.
struct Line<'a> {
    table: Table,
    key: Vec<(u64, u64)>,
    priority: u32,
    action: &'a str,
    data: Vec<u64>,
}

impl Switch {
    /// Adds the entries of a text, and returns their number. Tables with masks that it names lose their
    /// other entries.
    ///
    /// # Errors
    /// A line is wrong, or does not fit its table. The entries of earlier lines stay.
    pub fn load(&mut self, text: &str) -> Result<usize, SwitchError> {
        let mut with_masks: BTreeMap<Table, Vec<Match>> = BTreeMap::new();
        let mut count = 0;
        for (number, text) in text.lines().enumerate() {
            let text = text.split('#').next().unwrap_or_default();
            if text.trim().is_empty() {
                continue;
            }
            count += 1;
            let at = |error: SwitchError| SwitchError::Line { number: number + 1, error: Box::new(error) };
            let line = self.parse(text).map_err(at)?;
            if self.program.objects.tables[line.table.0].is_exact {
                let key: Vec<u64> = line.key.iter().map(|(value, _)| *value).collect();
                self.insert(line.table, &Entry { key: &key, action: line.action, data: &line.data })
                    .map_err(at)?;
            } else {
                with_masks.entry(line.table).or_default().push(Match {
                    key: line.key,
                    priority: line.priority,
                    action: line.action.to_owned(),
                    data: line.data,
                });
            }
        }
        for (table, entries) in with_masks {
            self.fill(table, &entries)?;
        }
        Ok(count)
    }

    fn parse<'a>(&self, text: &'a str) -> Result<Line<'a>, SwitchError> {
        let mut words = text.split_whitespace().peekable();
        let table = self.table(words.next().unwrap_or_default())?;
        let layout = &self.program.objects.tables[table.0];
        let fault = |fault| layout.fault(fault);
        let mut key = Vec::with_capacity(layout.width());
        for all in layout.largest() {
            let word =
                words.next().ok_or_else(|| fault("an entry needs a value for each field of the key"))?;
            let (value, mask) =
                word.split_once('/').map_or((word, None), |(value, mask)| (value, Some(mask)));
            let pair = (number(value), mask.map_or(Some(all), number));
            let (Some(value), Some(mask)) = pair else {
                return Err(fault("a field of the key is not a number"));
            };
            key.push((value, mask));
        }
        let mut priority = 0;
        if words.next_if_eq(&"priority").is_some() {
            let value = words.next().and_then(number).and_then(|n| u32::try_from(n).ok());
            priority = value.ok_or_else(|| fault("a priority is a number up to 4294967295"))?;
        }
        let action = words.next().ok_or_else(|| fault("an entry needs an action"))?;
        let mut data = Vec::new();
        for name in self.arguments(table, action)? {
            let word = words.next().and_then(|word| word.strip_prefix(name)?.strip_prefix('='));
            let missing = || SwitchError::Missing { kind: "value for the argument", name: name.to_owned() };
            data.push(word.and_then(number).ok_or_else(missing)?);
        }
        match words.next() {
            Some(_) => Err(fault("an entry ends with its action's last argument")),
            None => Ok(Line { table, key, priority, action, data }),
        }
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        let all =
            [("12", Some(12)), ("0x1f", Some(31)), ("0x", None), ("1f", None), ("", None), ("-1", None)];
        for (text, value) in all {
            assert_eq!(number(text), value, "{text}");
        }
    }
}
