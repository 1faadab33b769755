//! Tests of edits, in the configuration and in files.

use super::*;
use std::fmt::Write as _;
use std::fs;

fn eam(inside: &str, outside: &str) -> Mapping {
    Mapping { protocol: None, inside: inside.to_owned(), outside: outside.to_owned() }
}

fn binding(inside: &str, outside: &str) -> Mapping {
    Mapping { protocol: Some("tcp".to_owned()), ..eam(inside, outside) }
}

fn edit_in(
    instance: Option<&str>,
    text: &str,
    add: &[Mapping],
    remove: &[Mapping],
) -> Result<String, EditError> {
    let change = MappingChange::Edit { add: add.to_vec(), remove: remove.to_vec() };
    let edited = edit_mappings(text, "x", instance, &change)?;
    assert_eq!(edited.file, None);
    Ok(edited.text)
}

fn added(text: &str, mapping: &Mapping) -> Result<String, EditError> {
    edit_in(None, text, std::slice::from_ref(mapping), &[])
}

fn removed(text: &str, mapping: &Mapping) -> Result<String, EditError> {
    edit_in(None, text, &[], std::slice::from_ref(mapping))
}

fn loads(text: &str) -> crate::Config {
    crate::load_str(text, "x").unwrap_or_else(|report| panic!("{report}\n{text}")).0
}

fn new() -> Mapping {
    eam("2001:db8::7", "203.0.113.7")
}

#[test]
fn adding_and_removing_an_entry_changes_nothing_else() {
    for list in [
        "eam = []",
        "eam = [ ]",
        "eam = [\n]",
        "eam = [\n    # nobody yet\n]",
        "eam = [{ v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" }]",
        "eam = [ { v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" } ]",
        "eam = [{ v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" },]",
        "eam = [ # some\n  { v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" }, # Alice, of all, [people]\n]",
        "eam = [\n\t{ v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" }, # Alice\n\t# the end\n]",
        "eam = [{ v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" },\n  { v4 = \"203.0.113.6\", v6 = \"2001:db8::6\" }] # both",
    ] {
        let text = format!(
            "# before\n[[siit]]\npool6 = \"2001:db8:46::/96\" # ours\n{list}\n\n# behind\n[limits]\n"
        );
        let more = added(&text, &new()).unwrap();
        let (before, after) = (loads(&text).plan, loads(&more).plan);
        assert_eq!(after.siit[0].eamt.len(), before.siit[0].eamt.len() + 1, "{more}");
        for comment in text.split('#').skip(1).map(|rest| rest.lines().next().unwrap()) {
            assert!(more.contains(comment), "{comment} is gone: {more}");
        }
        let again = added(&more, &eam("2001:0db8::7/128", "203.0.113.7/32")).unwrap_err();
        assert_eq!(
            again.what,
            "mapping 1 of `add`: `eam` of siit-1 has the mapping 2001:db8::7 203.0.113.7 already"
        );
        assert_eq!(removed(&more, &new()).unwrap(), text);
    }
    // An entry without a comma gets one.
    let text = "[[siit]]\neam = [\n    { v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" } # Alice\n]\n";
    let more = added(text, &new()).unwrap();
    assert!(more.contains("}, # Alice\n    { v4 = \"203.0.113.7\""), "{more}");
    assert_eq!(loads(&more).plan.siit[0].eamt.len(), 2);
    let less = removed(&more, &eam("2001:db8::5", "203.0.113.5")).unwrap();
    assert!(!less.contains("Alice") && loads(&less).plan.siit[0].eamt.len() == 1, "{less}");
}

#[test]
fn removing_a_line_removes_only_its_own_comment() {
    let text = "[[siit]]\neam = [ # all\n    # servers\n    { v4 = \"203.0.113.1\", v6 = \"2001:db8::1\" }, # one\n    \
                { v4 = \"203.0.113.2\", v6 = \"2001:db8::2\" }, # two\n    # others\n    \
                { v4 = \"203.0.113.3\", v6 = \"2001:db8::3\" }, { v4 = \"203.0.113.4\", v6 = \"2001:db8::4\" } # four\n]\n";
    let without = |n: u8| {
        let less = removed(text, &eam(&format!("2001:db8::{n}"), &format!("203.0.113.{n}"))).unwrap();
        assert_eq!(loads(&less).plan.siit[0].eamt.len(), 3, "{less}");
        less
    };
    let comments = |text: &str| text.split("# ").skip(1).map(|c| c[..3].to_owned()).collect::<String>();
    assert_eq!(comments(text), "allseronetwoothfou");
    assert_eq!(comments(&without(1)), "allsertwoothfou");
    assert_eq!(comments(&without(2)), "allseroneothfou");
    assert_eq!(comments(&without(3)), comments(text));
    assert!(without(2).contains("# one\n    # others\n"), "{}", without(2));
}

#[test]
fn a_batch_adds_and_removes_and_a_replacement_removes_the_rest() {
    let text = "[[siit]] # the only one\neam = [\n    { v4 = \"203.0.113.1\", v6 = \"2001:db8::1\" },\n    \
                { v4 = \"203.0.113.2\", v6 = \"2001:db8::2\" },\n]\n[limits]\nsessions_max = 5\n";
    let old = [eam("2001:db8::1", "203.0.113.1"), eam("2001:db8::2", "203.0.113.2")];
    let moved = edit_in(None, text, &[new(), eam("2001:db8::2", "203.0.113.1")], &old).unwrap();
    let eamt = &loads(&moved).plan.siit[0].eamt;
    assert_eq!(eamt.len(), 2, "{moved}");
    assert_eq!(edit_in(None, &moved, &old, &[new(), eam("2001:db8::2", "203.0.113.1")]).unwrap(), text);
    let missing = edit_in(None, text, &[new()], &[old[0].clone(), new()]).unwrap_err().to_string();
    assert!(
        missing.starts_with("mapping 2 of `remove`: `eam` of siit-1 has no mapping 2001:db8::7"),
        "{missing}"
    );
    let replaced = edit_mappings(text, "x", Some("siit-1"), &MappingChange::Replace(vec![new()])).unwrap();
    let expected = "[[siit]] # the only one\neam = [\n    { v4 = \"203.0.113.7\", v6 = \"2001:db8::7\" },\n]\n[limits]\nsessions_max = 5\n";
    assert_eq!(replaced, Edited { file: None, text: expected.to_owned() });
    let none = edit_mappings(text, "x", None, &MappingChange::Replace(Vec::new())).unwrap().text;
    assert!(none.contains("eam = []\n"), "{none}");
}

const TWO: &str = "[[pool]]\nprefixes = \"192.0.2.0/28\"\n[[nat64]] # the first\nname = \"home\"\npool6 = \"64:ff9b::/96\"\n\
                   [[nat44]]\ninside = \"100.64.0.0/10\"\nstatic = [{ protocol = \"tcp\", inside = \"100.64.0.1:80\", outside = \"192.0.2.1:80\" }]\n";

#[test]
fn bindings_go_to_the_named_instance() {
    let six = binding("[2001:db8::5]:443", "192.0.2.1:443");
    let refused = added(TWO, &six).unwrap_err().to_string();
    assert_eq!(refused, "several instances can have these mappings: name one of home, nat44-1");
    let more = edit_in(Some("home"), TWO, std::slice::from_ref(&six), &[]).unwrap();
    assert_eq!(loads(&more).plan.nat64[0].static_bindings.len(), 1);
    assert!(
        more.contains("pool6 = \"64:ff9b::/96\"\nstatic = [\n    { protocol = \"tcp\", inside"),
        "{more}"
    );
    let less = edit_in(Some("home"), &more, &[], std::slice::from_ref(&six)).unwrap();
    assert!(loads(&less).plan.nat64[0].static_bindings.is_empty());
    let less = edit_in(Some("nat44-1"), TWO, &[], &[binding("100.64.0.1:80", "192.0.2.1:80")]).unwrap();
    assert!(less.contains("static = []\n"), "{less}");
    let none = edit_in(Some("nat44-1"), TWO, &[], &[binding("100.64.0.1:81", "192.0.2.1:80")]).unwrap_err();
    assert!(none.what.contains("has no mapping tcp 100.64.0.1:81 192.0.2.1:80"), "{none}");
    let refused = edit_in(Some("office"), TWO, &[six], &[]).unwrap_err().to_string();
    assert_eq!(refused, "unknown instance `office`: instances: home, nat44-1");
    let kind = edit_in(Some("home"), TWO, &[new()], &[]).unwrap_err().to_string();
    assert_eq!(kind, "home is a nat64 instance: it has bindings, with a protocol and ports");
    let mixed = edit_in(Some("home"), TWO, &[binding("[2001:db8::5]:443", "192.0.2.1:443"), new()], &[]);
    assert!(
        mixed.unwrap_err().what.contains("mapping 2 of `add`: 2001:db8::7 203.0.113.7 is of another kind")
    );
}

#[test]
fn tables_with_headers_are_changed_too() {
    let text = "[[siit]]\npool6 = \"2001:db8:46::/96\"\n[[siit.eam]]\nv4 = \"203.0.113.5\"\nv6 = \"2001:db8::5\"\n[limits]\n";
    let more = added(text, &new()).unwrap();
    assert_eq!(loads(&more).plan.siit[0].eamt.len(), 2, "{more}");
    assert_eq!(loads(&removed(&more, &new()).unwrap()).plan.siit[0].eamt.len(), 1);
    let inline = "siit = [{ pool6 = \"2001:db8:46::/96\" }]\n";
    assert_eq!(loads(&added(inline, &new()).unwrap()).plan.siit[0].eamt.len(), 1);
}

#[test]
fn a_malformed_mapping_is_named_by_its_number_with_a_correction() {
    assert!(added("[[siit", &new()).unwrap_err().what.starts_with("invalid configuration: "));
    let none = added("", &new()).unwrap_err().to_string();
    assert_eq!(none, "there is no siit instance: add one to the configuration first");
    let siit = "[[siit]]\npool6 = \"2001:db8:46::/96\"\n";
    for (inside, outside) in
        [("x", "y"), ("2001:db8::5\" }, #", "203.0.113.5"), ("203.0.113.5", "2001:db8::5")]
    {
        let refused = added(siit, &eam(inside, outside)).unwrap_err();
        assert!(refused.what.starts_with("mapping 1 of `add`: `inside`: \""), "{refused}");
        assert_eq!(refused.instead, EAM);
    }
    let odd = Mapping { protocol: Some("t\"cp".to_owned()), ..binding("[2001:db8::5]:1", "192.0.2.1:1") };
    let refused = added(TWO, &odd).unwrap_err().to_string();
    assert_eq!(
        refused,
        "mapping 1 of `add`: `protocol`: unknown protocol \"t\"cp\": write `tcp`, `udp` or `icmp`"
    );
    let mut many: Vec<Mapping> = (0..80_000)
        .map(|n| {
            eam(
                &format!("2001:db8::{:x}:{:x}", n >> 16, n & 0xffff),
                &Ipv4Addr::from(0x0a00_0000 + n).to_string(),
            )
        })
        .collect();
    many[73_420].outside = "10.0.0.300".to_owned();
    let refused = edit_mappings(siit, "x", None, &MappingChange::Replace(many)).unwrap_err();
    assert_eq!(refused.what, "mapping 73421 of `maps`: `outside`: \"10.0.0.300\" is not an IPv4 prefix");
    assert_eq!(refused.instead, EAM);
}

/// Creates a directory with mapping files; returns the name of a configuration in it.
fn directory(name: &str, files: &[(&str, &str)]) -> String {
    let directory = std::env::temp_dir().join(format!("gatun-mappings-{}-{name}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    for (file, text) in files {
        fs::write(directory.join(file), text).unwrap();
    }
    directory.join("gatun.toml").display().to_string()
}

const LINES: &str = "# ours\n203.0.113.1 2001:db8::1 # one\n\n203.0.113.2/32\t2001:db8::2";

#[test]
fn a_file_of_mappings_is_changed_line_by_line_and_replaced_as_a_whole() {
    let name = directory("file", &[("eam.txt", LINES)]);
    let text = "[[siit]]\neam_file = \"eam.txt\"\n";
    let one = eam("2001:db8::1", "203.0.113.1");
    let change = MappingChange::Edit { add: vec![new()], remove: vec![one.clone()] };
    let edited = edit_mappings(text, &name, None, &change).unwrap();
    let file = Path::new(&name).with_file_name("eam.txt");
    assert_eq!(edited.file.as_deref(), Some(&*file));
    assert_eq!(edited.text, "# ours\n\n203.0.113.2/32\t2001:db8::2\n203.0.113.7 2001:db8::7\n");
    let config = crate::load_str_with(text, &name, (&file, &edited.text)).unwrap().0;
    assert_eq!(config.plan.siit[0].eamt.len(), 2);
    let before = crate::load_str(text, &name).unwrap().0;
    assert!(
        before.mapping_files[0].is(LINES.as_bytes()) && config.mapping_files[0].is(edited.text.as_bytes())
    );
    assert_ne!(before.revision, config.revision);
    let again = MappingChange::Edit { add: vec![one], remove: Vec::new() };
    let refused = edit_mappings(text, &name, None, &again).unwrap_err().to_string();
    assert!(refused.contains("eam.txt has the mapping 2001:db8::1 203.0.113.1 already"), "{refused}");
    let replaced = edit_mappings(text, &name, None, &MappingChange::Replace(vec![new()])).unwrap();
    assert_eq!(replaced.text, "203.0.113.7 2001:db8::7\n");
}

#[test]
fn a_table_in_several_places_is_edited_and_not_replaced() {
    let name = directory("several", &[("a.txt", LINES), ("b.txt", "203.0.113.9 2001:db8::9\n")]);
    let text = "[[siit]]\neam_file = [\"a.txt\", \"b.txt\"]\neam = [{ v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" }]\n";
    let without = |mapping| {
        let change = MappingChange::Edit { add: Vec::new(), remove: vec![mapping] };
        edit_mappings(text, &name, None, &change)
    };
    let in_b = without(eam("2001:db8::9", "203.0.113.9")).unwrap();
    assert_eq!((in_b.file.unwrap().file_name().unwrap().to_str(), &in_b.text[..]), (Some("b.txt"), ""));
    let inline = without(eam("2001:db8::5", "203.0.113.5")).unwrap();
    assert!(inline.file.is_none() && inline.text.ends_with("eam = []\n"), "{}", inline.text);
    let refused = without(new()).unwrap_err();
    assert!(refused.what.contains("a.txt has no mapping"), "{refused}");
    let refused = edit_mappings(text, &name, None, &MappingChange::Replace(Vec::new())).unwrap_err();
    assert!(refused.what.contains("are in several places"), "{refused}");
    let gone = text.replace("a.txt", "c.txt").replace(", \"b.txt\"", "").replace("v4", "v5");
    let change = MappingChange::Edit { add: vec![new()], remove: Vec::new() };
    assert!(edit_mappings(&gone, &name, None, &change).is_ok());
    let gone = gone.split("eam = ").next().unwrap();
    let refused = edit_mappings(gone, &name, None, &change).unwrap_err().to_string();
    assert!(refused.contains("c.txt cannot be read: No such file"), "{refused}");
}

#[test]
fn a_hundred_thousand_entries_are_changed_at_once() {
    let mut text = "[[siit]]\npool6 = \"2001:db8:46::/96\"\neam = [\n".to_owned();
    let mut half = Vec::new();
    for n in 0..100_000u32 {
        let (v4, v6) =
            (Ipv4Addr::from(0x0a00_0000 + n), format!("2001:db8:1::{:x}:{:x}", n >> 16, n & 0xffff));
        writeln!(text, "    {{ v4 = \"{v4}\", v6 = \"{v6}\" }},").unwrap();
        if n % 2 == 0 {
            half.push(eam(&v6, &v4.to_string()));
        }
    }
    text.push_str("]\n");
    let more = added(&text, &new()).unwrap();
    assert_eq!(removed(&more, &new()).unwrap(), text);
    let less = edit_in(None, &text, &[], &half).unwrap();
    assert_eq!(less.lines().count(), text.lines().count() - 50_000);
    assert_eq!(loads(&less).plan.siit[0].eamt.len(), 50_000);
}
