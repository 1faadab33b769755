//! Large inline `eam` lists, read before the TOML parser sees them.
//!
//! The parser makes a tree node with a hash table for every `{ v4 = "...", v6 = "..." }`: a million of them
//! take over ten times as long as the entries' own work, and 1.5 GB. So lists in which every entry is written
//! plainly are read here, and blanked out of the text; offsets, and with them the places of errors, stay what
//! they were. A list with anything else in it - an escape, another key, a wrong address - is left as it is,
//! and the ordinary way reads it and says what is wrong; unless so much is left that it would take gigabytes
//! of memory: [`Blanked::left`] and [`Blanked::stop`] say how much, and why.

use crate::reader::Wrong;
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
    /// Bytes that are left to the parser.
    pub(crate) left: usize,
    /// Where the first list that is left is not plain.
    pub(crate) stop: Option<Stop>,
}

/// What is not plain in a list.
pub(crate) struct Stop {
    /// The place.
    pub(crate) at: Range<usize>,
    /// The key whose value is wrong, and why; without, it may well be right.
    pub(crate) wrong: Option<(&'static str, Wrong)>,
}

/// Takes the large plain lists out of `text`.
pub(crate) fn blank(text: &str) -> Blanked<'_> {
    let mut blanked =
        Blanked { text: Cow::Borrowed(text), lists: HashMap::new(), left: text.len(), stop: None };
    if text.len() < TEXT_MIN {
        return blanked;
    }
    // In a string of several lines, what looks like a list may be none.
    let safe_end = ["\"\"\"", "'''"].iter().filter_map(|q| text.find(q)).min().unwrap_or(text.len());
    let mut at = 0;
    let mut holes = Vec::new();
    while let Some(open) = next_list(text, at).filter(|open| *open < safe_end) {
        at = open + 1;
        match plain_list(text, at) {
            Ok((entries, close)) if close - open > TEXT_MIN => {
                holes.push(at..close);
                blanked.lists.insert(open, entries);
                at = close;
            }
            Ok(_) => {}
            Err(stop) => {
                // What was plain so far holds no other list.
                at = at.max(stop.at.start);
                blanked.stop.get_or_insert(stop);
            }
        }
    }
    if !holes.is_empty() {
        let mut bytes = text.as_bytes().to_vec();
        for hole in holes {
            blanked.left -= hole.len();
            bytes[hole].fill(b' ');
        }
        // Whole characters were replaced.
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

/// The entries from `at` on, and the offset of the `]`.
fn plain_list(text: &str, at: usize) -> Result<(Entries, usize), Stop> {
    let mut cursor = Cursor { text, at };
    let mut entries = Vec::new();
    loop {
        cursor.skip_blanks();
        if cursor.eat("]") {
            return Ok((entries, cursor.at - 1));
        }
        let start = cursor.at;
        let eam = cursor.entry()?;
        entries.push((eam, start..cursor.at));
        cursor.skip_blanks();
        if !cursor.eat(",") && !cursor.rest().starts_with(']') {
            return Err(cursor.stop());
        }
    }
}

struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn eat(&mut self, word: &str) -> bool {
        let there = self.rest().starts_with(word);
        self.at += if there { word.len() } else { 0 };
        there
    }

    /// `{ v4 = "...", v6 = "..." }`, in this order or the other.
    fn entry(&mut self) -> Result<Eam, Stop> {
        self.expect("{")?;
        let (mut v4, mut v6) = (None, None);
        for separator in [",", "}"] {
            self.skip_spaces();
            if v4.is_none() && self.eat("v4") {
                v4 = Some(self.value("v4", value::parse_net4)?);
            } else if v6.is_none() && self.eat("v6") {
                v6 = Some(self.value("v6", value::parse_net6)?);
            }
            self.expect(separator)?;
        }
        let (Some(v4), Some(v6)) = (v4, v6) else { return Err(self.stop()) };
        Ok(Eam { v4, v6 })
    }

    /// A string without escapes, and what it stands for.
    fn value<T>(&mut self, key: &'static str, parse: impl Fn(&str) -> Result<T, Wrong>) -> Result<T, Stop> {
        self.expect("=")?;
        self.skip_spaces();
        let start = self.at;
        let quote = if self.rest().starts_with('\'') { "'" } else { "\"" };
        self.expect(quote)?;
        let rest = self.rest();
        let len = rest.find(['"', '\'', '\\', '\n']).ok_or_else(|| self.stop())?;
        self.at += len;
        self.expect(quote)?;
        parse(&rest[..len]).map_err(|wrong| Stop { at: start..self.at, wrong: Some((key, wrong)) })
    }

    /// A word after spaces on the same line.
    fn expect(&mut self, word: &str) -> Result<(), Stop> {
        self.skip_spaces();
        if self.eat(word) { Ok(()) } else { Err(self.stop()) }
    }

    fn stop(&self) -> Stop {
        Stop { at: self.at..self.at, wrong: None }
    }

    fn skip_spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
    }

    /// Spaces, ends of lines, and comments; one with a character that no comment may have stays.
    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            let rest = self.rest();
            let line = rest.find('\n').map_or(rest, |end| &rest[..end]);
            let line = line.strip_suffix('\r').unwrap_or(line);
            if !line.starts_with('#') || line.contains(|c: char| c.is_ascii_control() && c != '\t') {
                return;
            }
            self.at += line.len();
        }
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
        // A key in quotes leaves it to the parser.
        let ordinary = plain.replacen("{ v4", "{ \"v4\"", 1);
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
        for more in [
            "{ v4 = \"x\" }",
            "7",
            "{ v4 = \"10.9.9.9\", v6 = \"2001:db8::1\", v8 = 1 }",
            "# \u{7}\n",
            "\u{e9}",
        ] {
            let text = file(more);
            let blanked = super::blank(&text);
            assert_eq!((blanked.lists.len(), blanked.left), (0, text.len()), "{more}");
            let stop = blanked.stop.unwrap().at.start;
            assert!((text.find(more).unwrap()..).contains(&stop) && stop < text.len() - 15, "{more}: {stop}");
            assert!(load_str(&text, "f").is_err());
        }
    }

    #[test]
    fn comments_and_either_order_and_either_quotes_are_plain() {
        let more = [
            "# ] } \"\n",
            "# M\u{fc}ller, \u{1f4e1}\r\n",
            "{ v6 = \"2001:db8:ffff::1\", v4 = \"10.9.9.9\" }, # {\n#\n#\n",
            "{ v6 = '2001:db8:ffff::2', v4 = \"10.9.9.8\" }# last\n",
        ];
        let text = file(&more.concat()).replacen("eam = [", "eam = [ # all of them, and '''more'''", 1);
        let text = text.replace("denylist4 = 7\n", "");
        let blanked = super::blank(&text);
        assert_eq!((blanked.lists.len(), blanked.text.len()), (1, text.len()));
        assert!(blanked.left < 30 && blanked.stop.is_none(), "{} left", blanked.left);
        let (fast, _) = load_str(&text, "f").unwrap();
        let (slow, _) = load_str(&text.replacen("{ v4", "{ \"v4\"", 1), "f").unwrap();
        assert_eq!(fast.plan.siit[0].eamt.len(), 502);
        assert_eq!(fast.plan.siit[0].eamt, slow.plan.siit[0].eamt);
    }

    #[test]
    fn a_list_in_a_string_of_several_lines_is_none() {
        let text = format!("x = \"\"\"\n{}\"\"\"\n", file(""));
        assert_eq!(super::blank(&text).lists.len(), 0);
    }
}
