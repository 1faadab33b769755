//! Large inline `eam` lists, read before the TOML parser sees them.
//!
//! The parser makes a tree node with a hash table for every `{ v4 = "...", v6 = "..." }`: a million of them
//! take over ten times as long as the entries' own work, and 1.5 GB. So lists in which every entry is written
//! plainly are read here, and blanked out of the text; offsets, and with them the places of errors, stay what
//! they were. A list with anything else in it - an escape, another key, a wrong address - is left as it is,
//! and the ordinary way reads it and says what is wrong.

use crate::value;
use gatun_nat::plan::Eam;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// Shorter lists are left to the parser.
const TEXT_MIN: usize = 4096;

/// Entries with their places.
type Entries = Vec<(Eam, Range<usize>)>;

/// Lists by the offset of their list's `[`.
pub(crate) type Lists = HashMap<usize, Entries>;

/// A text without its large lists, and what was in them.
pub(crate) struct Blanked<'t> {
    /// As long as the original.
    pub(crate) text: Cow<'t, str>,
    /// What was in them.
    pub(crate) lists: Lists,
}

/// Takes the large plain lists out of `text`.
pub(crate) fn blank(text: &str) -> Blanked<'_> {
    let mut blanked = Blanked { text: Cow::Borrowed(text), lists: HashMap::new() };
    // In a string of several lines, what looks like a list may be none.
    if text.len() < TEXT_MIN || text.contains("\"\"\"") || text.contains("'''") {
        return blanked;
    }
    let mut at = 0;
    let mut holes = Vec::new();
    while let Some(open) = next_list(text, at) {
        at = open + 1;
        if let Some((entries, close)) = plain_list(text, open + 1)
            && close - open > TEXT_MIN
        {
            holes.push(open + 1..close);
            blanked.lists.insert(open, entries);
            at = close;
        }
    }
    if !holes.is_empty() {
        let mut bytes = text.as_bytes().to_vec();
        for hole in holes {
            bytes[hole].fill(b' ');
        }
        // Only whole characters of ASCII were replaced.
        blanked.text = String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned);
    }
    blanked
}

/// The offset of the `[` of a line that begins with `eam = [`.
fn next_list(text: &str, from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let found = at + text.get(at..)?.find("eam")?;
        at = found + 3;
        let before = text[..found].trim_end_matches([' ', '\t']);
        let begins = before.is_empty() || before.ends_with('\n');
        let rest = text[at..].trim_start_matches([' ', '\t']);
        if let Some(rest) = rest.strip_prefix('=').filter(|_| begins)
            && rest.trim_start_matches([' ', '\t']).starts_with('[')
        {
            return Some(at + text[at..].find('[')?);
        }
    }
}

/// The entries from `at` on, and the offset of the `]`; `None` where anything is not plain.
fn plain_list(text: &str, at: usize) -> Option<(Entries, usize)> {
    let mut cursor = Cursor { text, at };
    let mut entries = Vec::new();
    loop {
        cursor.skip_blanks()?;
        if cursor.eat("]") {
            return Some((entries, cursor.at - 1));
        }
        let start = cursor.at;
        let v4 = cursor.expect("{")?.expect("v4")?.expect("=")?.plain_string()?;
        let v6 = cursor.expect(",")?.expect("v6")?.expect("=")?.plain_string()?;
        cursor.expect("}")?;
        let end = cursor.at;
        entries.push((Eam { v4: value::parse_net4(v4).ok()?, v6: value::parse_net6(v6).ok()? }, start..end));
        cursor.skip_blanks()?;
        if !cursor.eat(",") && !cursor.text[cursor.at..].starts_with(']') {
            return None;
        }
    }
}

struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    fn eat(&mut self, word: &str) -> bool {
        let there = self.text[self.at..].starts_with(word);
        self.at += if there { word.len() } else { 0 };
        there
    }

    /// A word after spaces on the same line.
    fn expect(&mut self, word: &str) -> Option<&mut Self> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
        self.eat(word).then_some(self)
    }

    /// A string without escapes.
    fn plain_string(&mut self) -> Option<&'t str> {
        self.expect("\"")?;
        let rest = &self.text[self.at..];
        let len = rest.find(|c: char| !(c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '/')))?;
        self.at += len;
        self.eat("\"").then(|| &rest[..len])
    }

    /// Spaces and ends of lines; a comment is not plain, as its text could be anything.
    fn skip_blanks(&mut self) -> Option<()> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
        (self.at < self.text.len()).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use crate::load_str;
    use std::fmt::Write as _;

    /// A list of mappings, long enough to be taken out; `more` stands in it too.
    fn file(more: &str) -> String {
        let mut text = String::from("[[siit]]\n  eam = [\n");
        for n in 0..500 {
            let (high, low) = (n / 256, n % 256);
            let _ = writeln!(text, "    {{ v4 = \"10.{high}.{low}.0/24\", v6 = \"2001:db8:{n:x}::/64\" }},");
        }
        text + more + "]\ndenylist4 = 7\n"
    }

    fn report(text: &str) -> Vec<String> {
        let report = load_str(text, "f").err().map(|report| report.to_string()).unwrap_or_default();
        report.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_list_that_is_read_ahead_gives_what_the_parser_would_give() {
        let plain = file("").replace("denylist4 = 7\n", "");
        assert_eq!(super::blank(&plain).lists.len(), 1);
        // A comment in the list leaves it to the parser.
        let ordinary = plain.replacen("eam = [", "eam = [ # all", 1);
        assert_eq!(super::blank(&ordinary).lists.len(), 0);
        let (a, _) = load_str(&plain, "f").unwrap();
        let (b, _) = load_str(&ordinary, "f").unwrap();
        assert_eq!(a.plan.siit[0].eamt.len(), 500);
        assert_eq!(a.plan.siit[0].eamt, b.plan.siit[0].eamt);
    }

    #[test]
    fn errors_in_it_and_behind_it_are_at_their_places() {
        let narrow = "    { v4 = \"11.0.0.0/24\", v6 = \"2001:db8:ffff::/121\" },\n";
        let expected =
            "f:503:5: error: the IPv6 prefix leaves 7 bits free and the IPv4 prefix 8 (RFC 7757 3.2)";
        let text = file(narrow);
        assert_eq!(super::blank(&text).lists.len(), 1);
        let said = report(&text);
        assert_eq!(said[0], expected);
        assert!(said[2].starts_with("f:505:13: error: `denylist4`"), "{said:?}");
        assert_eq!(said, report(&text.replacen("[[siit]]", "[[siit]] # \"\"\"", 1)));
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_parser() {
        for more in
            ["{ v4 = \"x\" }", "7", "{ v4 = \"10.9.9.9\", v6 = \"2001:db8::1\", v8 = 1 }", "# ]\n", "\u{e9}"]
        {
            assert_eq!(super::blank(&file(more)).lists.len(), 0, "{more}");
            assert!(load_str(&file(more), "f").is_err());
        }
    }
}
