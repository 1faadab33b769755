//! Mappings added to a configuration's text, or taken out of it. Everything else stays as it is, byte for byte:
//! comments, order, blanks. Whether the result is right is for [`crate::load_str`] to say.
//!
//! The places come from the reader's own parser, and of large plain lists from `eam_fast`: a list of a
//! million entries is changed by the few bytes of one.

use crate::eam_fast::{self, Lists};
use crate::value;
use gatun_nat::plan::{Eam, Net4, Net6};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A mapping as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The instance that it is of; the only one that can have it where nothing is said.
    pub instance: Option<String>,
    /// Of a binding (`static`) its protocol; without one it is an explicit address mapping (`eam`).
    pub protocol: Option<String>,
    /// Inside address and port, or IPv6 prefix.
    pub inside: String,
    /// Public address and port, or IPv4 prefix.
    pub outside: String,
}

/// Why a text is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotEdited {
    /// What is wrong.
    pub what: String,
    /// What to do instead.
    pub instead: String,
}

impl fmt::Display for NotEdited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.instead.is_empty() {
            true => f.write_str(&self.what),
            false => write!(f, "{}: {}", self.what, self.instead),
        }
    }
}

impl std::error::Error for NotEdited {}

fn not(what: impl Into<String>, instead: impl Into<String>) -> NotEdited {
    NotEdited { what: what.into(), instead: instead.into() }
}

/// The text with one mapping more, at the end of its instance's list.
///
/// # Errors
/// Where there is no such instance, or its list is written in a way that is left to people.
pub fn add_mapping(text: &str, mapping: &Mapping) -> Result<String, NotEdited> {
    let entry = entry_of(mapping)?;
    let blanked = eam_fast::blank(text);
    let root = parse(&blanked.text)?;
    let instance = find_instance(&root, mapping)?;
    let list = List::find(text, &instance, mapping, &blanked.lists)?;
    let wanted = ends_of(mapping);
    if list.entries.iter().any(|(_, there)| there.is_some() && *there == wanted) {
        return Err(not("this mapping is there already", ""));
    }
    Ok(match list.place {
        None => with_new_list(text, &instance, mapping.key(), &entry),
        Some(ref place) => with_entry(text, place, list.entries.last().map(|(range, _)| range.end), &entry),
    })
}

/// The text without a mapping; its line goes as a whole where nothing else stands there.
///
/// # Errors
/// Where there is none such, or it is written as one of several in a row.
pub fn remove_mapping(text: &str, mapping: &Mapping) -> Result<String, NotEdited> {
    let blanked = eam_fast::blank(text);
    let root = parse(&blanked.text)?;
    let instance = find_instance(&root, mapping)?;
    let wanted = ends_of(mapping);
    let list = List::find(text, &instance, mapping, &blanked.lists)?;
    let found = list.entries.iter().find(|(_, there)| there.is_some() && *there == wanted);
    let (range, _) = found.ok_or_else(|| {
        let file =
            if instance.table.contains_key("eam_file") { ", or in the file of `eam_file`" } else { "" };
        not(
            format!("`{}` of {} has no such entry", mapping.key(), instance.name),
            format!("`gatun map show` lists them; one of several ports in a row{file} is for an editor"),
        )
    })?;
    Ok(without_entry(text, range.clone()))
}

impl Mapping {
    fn key(&self) -> &'static str {
        if self.protocol.is_some() { "static" } else { "eam" }
    }

    /// The kinds of instances that can have it.
    fn kinds(&self) -> &'static [&'static str] {
        if self.protocol.is_some() { &["nat64", "nat44"] } else { &["siit"] }
    }
}

/// What tells entries of a list apart: parsed, as one thing can be written in several ways.
type Ends = (String, String, String);

fn ends_of(mapping: &Mapping) -> Option<Ends> {
    ends(mapping.protocol.as_deref(), &mapping.inside, &mapping.outside)
}

fn ends(protocol: Option<&str>, inside: &str, outside: &str) -> Option<Ends> {
    let string = |text: &str| DeValue::String(Cow::Owned(text.to_owned()));
    match protocol {
        None => Some(ends_of_eam(value::parse_net4(outside).ok()?, value::parse_net6(inside).ok()?)),
        Some(protocol) => {
            let outside = value::endpoint4(&string(outside)).ok()?;
            let inside = match inside.starts_with('[') {
                true => format!("{:?}", value::endpoint6(&string(inside)).ok()?),
                false => format!("{:?}", value::endpoint4(&string(inside)).ok()?),
            };
            Some((protocol.to_owned(), inside, format!("{outside:?}")))
        }
    }
}

fn ends_of_eam(v4: Net4, v6: Net6) -> Ends {
    (String::new(), format!("{}/{}", v6.addr, v6.len), format!("{}/{}", v4.addr, v4.len))
}

/// The entry in TOML.
fn entry_of(mapping: &Mapping) -> Result<String, NotEdited> {
    let Mapping { protocol, inside, outside, .. } = mapping;
    if ends_of(mapping).is_none() {
        return Err(match protocol {
            None => not(
                format!("'{inside}' and '{outside}' are not an IPv6 and an IPv4 prefix"),
                "write, for example, 2001:db8::5 and 203.0.113.5; a binding has a protocol and ports",
            ),
            Some(_) => not(
                format!(
                    "'{inside}' and '{outside}' are not an inside and a public address, with a port each"
                ),
                "write, for example, [2001:db8::5]:443 and 203.0.113.5:443",
            ),
        });
    }
    // What has been read as addresses has nothing that TOML would read otherwise; the protocol is a word of the API.
    Ok(match protocol {
        None => format!("{{ v4 = \"{outside}\", v6 = \"{inside}\" }}"),
        Some(protocol) => format!(
            "{{ protocol = \"{}\", inside = \"{inside}\", outside = \"{outside}\" }}",
            protocol.escape_default()
        ),
    })
}

fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, NotEdited> {
    DeTable::parse(text).map_err(|error| not(format!("the text cannot be read: {}", error.message()), ""))
}

/// An instance in the text.
struct Found<'t> {
    name: String,
    table: &'t DeTable<'t>,
    /// Its header, or the whole of it where it is written inline.
    span: Range<usize>,
}

fn find_instance<'t>(root: &'t Spanned<DeTable<'t>>, mapping: &Mapping) -> Result<Found<'t>, NotEdited> {
    let mut found = Vec::new();
    for kind in mapping.kinds() {
        let Some(DeValue::Array(tables)) = root.get_ref().get(*kind).map(Spanned::get_ref) else { continue };
        for (at, node) in tables.iter().enumerate() {
            let DeValue::Table(table) = node.get_ref() else { continue };
            let name = match table.get("name").map(Spanned::get_ref) {
                Some(DeValue::String(name)) => name.to_string(),
                _ => format!("{kind}-{}", at + 1),
            };
            found.push(Found { name, table, span: node.span() });
        }
    }
    let kinds = mapping.kinds().join(" or ");
    let names = found.iter().map(|instance| &instance.name[..]).collect::<Vec<_>>().join(", ");
    if let Some(wanted) = &mapping.instance {
        let one = found.into_iter().find(|instance| instance.name == *wanted);
        let hint = if names.is_empty() { names } else { format!("there are {names}") };
        return one.ok_or_else(|| not(format!("there is no {kinds} instance '{wanted}'"), hint));
    }
    match found.len() {
        1 => Ok(found.swap_remove(0)),
        0 => Err(not(format!("there is no {kinds} instance"), "")),
        _ => Err(not("there are several instances that could have it", format!("name one of {names}"))),
    }
}

/// A list of mappings in the text.
struct List {
    /// From its `[` to behind its `]`; none where it is not written.
    place: Option<Range<usize>>,
    /// Its entries; what is none of ours has no ends.
    entries: Vec<(Range<usize>, Option<Ends>)>,
}

impl List {
    fn find(text: &str, instance: &Found<'_>, mapping: &Mapping, lists: &Lists) -> Result<List, NotEdited> {
        let by_hand = || {
            not(
                format!("`{}` of {} is not written as a list in brackets", mapping.key(), instance.name),
                "change it with an editor, and `gatun config apply`",
            )
        };
        let Some(node) = instance.table.get(mapping.key()) else {
            let is_header = text.get(instance.span.start..).is_some_and(|rest| rest.starts_with("[["));
            return if is_header { Ok(List { place: None, entries: Vec::new() }) } else { Err(by_hand()) };
        };
        let place = node.span();
        let (DeValue::Array(array), Some(written)) = (node.get_ref(), text.get(place.clone())) else {
            return Err(by_hand());
        };
        if !written.starts_with('[') || !written.ends_with(']') || written.starts_with("[[") {
            return Err(by_hand());
        }
        let entries = match lists.get(&place.start) {
            Some(entries) => {
                let ours =
                    |(eam, range): &(Eam, Range<usize>)| (range.clone(), Some(ends_of_eam(eam.v4, eam.v6)));
                entries.iter().map(ours).collect()
            }
            None => {
                array.iter().map(|entry| (entry.span(), ends_of_entry(entry.get_ref(), mapping))).collect()
            }
        };
        Ok(List { place: Some(place), entries })
    }
}

fn ends_of_entry(entry: &DeValue<'_>, mapping: &Mapping) -> Option<Ends> {
    let DeValue::Table(table) = entry else { return None };
    let get = |key: &str| match table.get(key).map(Spanned::get_ref) {
        Some(DeValue::String(text)) => Some(text.to_string()),
        _ => None,
    };
    match mapping.protocol {
        None => ends(None, &get("v6")?, &get("v4")?),
        Some(_) => ends(Some(&get("protocol")?), &get("inside")?, &get("outside")?),
    }
}

/// A list where there was none: below the instance's header.
fn with_new_list(text: &str, instance: &Found<'_>, key: &str, entry: &str) -> String {
    let line_end = text[instance.span.start..].find('\n').map(|at| instance.span.start + at + 1);
    let (before, after) = text.split_at(line_end.unwrap_or(text.len()));
    let line = if before.ends_with('\n') { "" } else { "\n" };
    format!("{before}{line}{key} = [\n    {entry},\n]\n{after}")
}

/// One entry more, in a list at `place` whose last entry ends at `last`.
fn with_entry(text: &str, place: &Range<usize>, last: Option<usize>, entry: &str) -> String {
    let close = place.end - 1;
    let line_start = text[..close].rfind('\n').map_or(0, |at| at + 1);
    let closes_alone = line_start > place.start && text[line_start..close].trim().is_empty();
    let Some(last) = last else {
        let (before, after) = if closes_alone { text.split_at(line_start) } else { text.split_at(close) };
        return match closes_alone {
            true => format!("{before}    {entry},\n{after}"),
            false => format!("{before}{entry}{after}"),
        };
    };
    if !closes_alone {
        // A comma that follows is the new one's.
        let (before, after) = text.split_at(last);
        return format!("{before}, {entry}{after}");
    }
    let comma = if has_comma(&text[last..close]) { "" } else { "," };
    let begin = text[..last].rfind('\n').map_or(0, |at| at + 1);
    let indent: String = match begin > place.start {
        true => text[begin..].chars().take_while(|c| matches!(c, ' ' | '\t')).collect(),
        false => "    ".to_owned(),
    };
    format!("{}{comma}{}{indent}{entry},\n{}", &text[..last], &text[last..line_start], &text[line_start..])
}

/// Whether a comma stands between an entry and what follows, comments left out.
fn has_comma(between: &str) -> bool {
    between.lines().any(|line| line.split('#').next().is_some_and(|code| code.contains(',')))
}

fn without_entry(text: &str, entry: Range<usize>) -> String {
    let mut end = entry.end;
    let rest = &text[end..];
    // Its comma may stand on another line, behind a comment: then it is the list's, and left.
    let blanks = rest.len() - rest.trim_start_matches([' ', '\t']).len();
    let mut has_own_comma = false;
    if rest[blanks..].starts_with(',') {
        end += blanks + 1;
        has_own_comma = true;
    }
    let line_start = text[..entry.start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[end..].find('\n').map_or(text.len(), |at| end + at + 1);
    let is_alone = text[line_start..entry.start].trim().is_empty()
        && text[end..line_end].split('#').next().is_some_and(|code| code.trim().is_empty());
    if is_alone {
        return format!("{}{}", &text[..line_start], &text[line_end..]);
    }
    let mut start = entry.start;
    if has_own_comma {
        end += text[end..].len() - text[end..].trim_start_matches([' ', '\t']).len();
        if text[end..].starts_with(']') {
            start = text[..start].trim_end_matches([' ', '\t']).len();
        }
    } else if let Some(comma) = text[..start].trim_end().strip_suffix(',') {
        // The last of a line: the comma before it goes with it.
        start = comma.len();
    }
    format!("{}{}", &text[..start], &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    fn eam(inside: &str, outside: &str) -> Mapping {
        Mapping { instance: None, protocol: None, inside: inside.to_owned(), outside: outside.to_owned() }
    }

    fn binding(inside: &str, outside: &str) -> Mapping {
        Mapping { protocol: Some("tcp".to_owned()), ..eam(inside, outside) }
    }

    fn loads(text: &str) -> crate::Config {
        crate::load_str(text, "x").unwrap_or_else(|report| panic!("{report}\n{text}")).0
    }

    const ADDED: [&str; 2] = ["2001:db8::7", "203.0.113.7"];

    #[test]
    fn an_entry_more_and_an_entry_less_leave_all_else_as_it_was() {
        for list in [
            "eam = []",
            "eam = [ ]",
            "eam = [\n]",
            "eam = [\n    # nobody yet\n]",
            "eam = [{ v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" }]",
            "eam = [{ v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" },]",
            "eam = [\n  { v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" }, # Alice, of all, [people]\n]",
            "eam = [\n\t{ v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" }, # Alice\n\t# the end\n]",
            "eam = [{ v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" },\n  { v4 = \"203.0.113.6\", v6 = \"2001:db8::6\" }] # both",
        ] {
            let text = format!(
                "# before\n[[siit]]\npool6 = \"2001:db8:46::/96\" # ours\n{list}\n\n# behind\n[limits]\n"
            );
            let more = add_mapping(&text, &eam(ADDED[0], ADDED[1])).unwrap();
            let (before, after) = (loads(&text).plan, loads(&more).plan);
            assert_eq!(after.siit[0].eamt.len(), before.siit[0].eamt.len() + 1, "{more}");
            for comment in text.split('#').skip(1).map(|rest| rest.lines().next().unwrap()) {
                assert!(more.contains(comment), "{comment} is gone: {more}");
            }
            let again = add_mapping(&more, &eam("2001:0db8::7/128", "203.0.113.7/32")).unwrap_err();
            assert_eq!(again.what, "this mapping is there already");
            assert_eq!(remove_mapping(&more, &eam(ADDED[0], ADDED[1])).unwrap(), text);
        }
        // One that has no comma behind it gets one.
        let text = "[[siit]]\neam = [\n    { v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" } # Alice\n]\n";
        let more = add_mapping(text, &eam(ADDED[0], ADDED[1])).unwrap();
        assert!(more.contains("}, # Alice\n    { v4 = \"203.0.113.7\""), "{more}");
        assert_eq!(loads(&more).plan.siit[0].eamt.len(), 2);
        let less = remove_mapping(&more, &eam("2001:db8::5", "203.0.113.5")).unwrap();
        assert!(!less.contains("Alice") && loads(&less).plan.siit[0].eamt.len() == 1, "{less}");
    }

    const TWO: &str = "[[pool]]\nprefixes = \"192.0.2.0/28\"\n[[nat64]] # the first\nname = \"home\"\npool6 = \"64:ff9b::/96\"\n\
                       [[nat44]]\ninside = \"100.64.0.0/10\"\nstatic = [{ protocol = \"tcp\", inside = \"100.64.0.1:80\", outside = \"192.0.2.1:80\" }]\n";

    #[test]
    fn bindings_go_to_the_instance_that_is_named() {
        let six = binding("[2001:db8::5]:443", "192.0.2.1:443");
        let refused = add_mapping(TWO, &six).unwrap_err().to_string();
        assert_eq!(refused, "there are several instances that could have it: name one of home, nat44-1");
        let home = Mapping { instance: Some("home".to_owned()), ..six };
        let more = add_mapping(TWO, &home).unwrap();
        assert!(
            more.contains("[[nat64]] # the first\nstatic = [\n    { protocol = \"tcp\", inside"),
            "{more}"
        );
        assert_eq!(loads(&more).plan.nat64[0].static_bindings.len(), 1);
        let less = remove_mapping(&more, &home).unwrap();
        assert!(loads(&less).plan.nat64[0].static_bindings.is_empty());
        let of44 = |mapping| Mapping { instance: Some("nat44-1".to_owned()), ..mapping };
        let less = remove_mapping(TWO, &of44(binding("100.64.0.1:80", "192.0.2.1:80"))).unwrap();
        assert!(less.contains("static = []\n"), "{less}");
        let none = remove_mapping(TWO, &of44(binding("100.64.0.1:81", "192.0.2.1:80"))).unwrap_err();
        assert!(none.what.contains("has no such entry"), "{none}");
        let unknown = Mapping { instance: Some("office".to_owned()), ..home };
        let refused = add_mapping(TWO, &unknown).unwrap_err().to_string();
        assert_eq!(refused, "there is no nat64 or nat44 instance 'office': there are home, nat44-1");
    }

    #[test]
    fn what_is_no_mapping_or_stands_in_another_form_is_left_to_people() {
        let text = "[[siit]]\npool6 = \"2001:db8:46::/96\"\n[[siit.eam]]\nv4 = \"203.0.113.5\"\nv6 = \"2001:db8::5\"\n";
        let refused = add_mapping(text, &eam(ADDED[0], ADDED[1])).unwrap_err();
        assert!(refused.what.contains("not written as a list in brackets"), "{refused}");
        assert!(add_mapping("[[siit", &eam(ADDED[0], ADDED[1])).is_err());
        assert!(add_mapping("", &eam(ADDED[0], ADDED[1])).is_err());
        let siit = "[[siit]]\npool6 = \"2001:db8:46::/96\"\n";
        for (inside, outside) in
            [("x", "y"), ("2001:db8::5\" }, #", "203.0.113.5"), ("203.0.113.5", "2001:db8::5")]
        {
            assert!(add_mapping(siit, &eam(inside, outside)).is_err(), "{inside} {outside}");
        }
        let odd = Mapping { protocol: Some("t\"cp".to_owned()), ..binding("[2001:db8::5]:1", "192.0.2.1:1") };
        let odd = add_mapping(TWO, &Mapping { instance: Some("home".to_owned()), ..odd }).unwrap();
        assert!(crate::load_str(&odd, "x").is_err());
    }

    #[test]
    fn a_hundred_thousand_entries_are_no_reason_to_parse_them_all() {
        let mut text = "[[siit]]\npool6 = \"2001:db8:46::/96\"\neam = [\n".to_owned();
        for n in 0..100_000u32 {
            let v4 = std::net::Ipv4Addr::from(0x0a00_0000 + n);
            writeln!(text, "    {{ v4 = \"{v4}\", v6 = \"2001:db8:1::{:x}:{:x}\" }},", n >> 16, n & 0xffff)
                .unwrap();
        }
        text.push_str("]\n");
        let more = add_mapping(&text, &eam(ADDED[0], ADDED[1])).unwrap();
        assert_eq!(loads(&more).plan.siit[0].eamt.len(), 100_001);
        assert_eq!(remove_mapping(&more, &eam(ADDED[0], ADDED[1])).unwrap(), text);
        let less = remove_mapping(&text, &eam("2001:db8:1::0:7", "10.0.0.7")).unwrap();
        assert_eq!(less.lines().count(), text.lines().count() - 1);
    }
}
