//! Manual page gatun.toml(5), from the list of keys.

use crate::keys::{self, FILE_KEYS, Key, Kind};
use crate::reference::value;
use roff::{Inline, Roff, bold, italic, roman};

const EXAMPLE: &str = "[[pool]]\nprefixes = \"192.0.2.0/28\"\n\n[[nat64]]\npool6 = \"64:ff9b::/96\"";

/// The page as roff, with `version` in its footer.
pub fn manual_page(version: &str) -> String {
    let mut page = Roff::new();
    let source = format!("gatun {version}");
    page.control("TH", ["gatun.toml", "5", "", &source, "File formats"]);
    section(&mut page, "NAME", "gatun.toml - configuration of the address translator gatun");
    section(
        &mut page,
        "DESCRIPTION",
        "One file in TOML. `gatun check FILE` reports every error with its line and the correction. An unknown key is an \
         error.",
    );
    paragraph(
        &mut page,
        "A time span is a string such as `\"5m\"`, `\"2h4m\"`, `\"6s\"` or `\"1500ms\"`. Ports are a number, or a string such as \
         `\"1024-65535\"`. A list of one value can be written as the value alone. An address counts as a prefix of one address.",
    );
    for section in FILE_KEYS {
        write_section(&mut page, section);
    }
    page.control("SH", ["EXAMPLE"]);
    page.control("EX", []);
    page.text([roman(EXAMPLE)]);
    page.control("EE", []);
    section(
        &mut page,
        "SEE ALSO",
        "`gatun`(1), `gatun-check`(1), `gatun-run`(1), `gatun-init`(1), `gatun-config`(1)",
    );
    page.render()
}

fn section(page: &mut Roff, title: &str, text: &str) {
    page.control("SH", [title]);
    page.text(inlines(text));
}

fn paragraph(page: &mut Roff, text: &str) {
    page.control("PP", []);
    page.text(inlines(text));
}

fn write_section(page: &mut Roff, section: &Key) {
    let (header, table_keys) = match &section.kind {
        Kind::Tables(keys) => (format!("[[{}]]", section.name), *keys),
        Kind::Table(keys) => (format!("[{}]", section.name), *keys),
        _ => return,
    };
    page.control("SH", [header.as_str()]);
    page.text(inlines(section.doc));
    write_keys(page, table_keys);
    for key in table_keys {
        match &key.kind {
            Kind::Tables(inner) | Kind::Table(inner) | Kind::WordOrTable(inner)
                if !std::ptr::eq(*inner, keys::TIMEOUTS) =>
            {
                let title = format!("{} in {header}", key.name);
                page.control("SS", [title.as_str()]);
                write_keys(page, inner);
            }
            _ => {}
        }
    }
}

fn write_keys(page: &mut Roff, keys: &[Key]) {
    for key in keys {
        page.control("TP", []);
        page.text([bold(key.name)]);
        let mut text = inlines(key.doc);
        text.push(roman(" Value: "));
        text.extend(inlines(&value(&key.kind)));
        if key.required {
            text.push(roman(". Required."));
        } else if !key.default.is_empty() {
            text.push(roman(". Default: "));
            text.push(italic(key.default));
            text.push(roman("."));
        }
        text.push(roman(" Example: "));
        text.push(bold(key.example_line()));
        page.text(text);
    }
}

/// Converts Markdown to roff: code becomes bold, a link its text.
fn inlines(markdown: &str) -> Vec<Inline> {
    let parts = markdown.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(i, part)| if i % 2 == 1 { bold(part) } else { roman(without_links(part)) }).collect()
}

fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        plain.push_str(before);
        match link.split_once("](").and_then(|(name, after)| Some((name, after.split_once(')')?.1))) {
            Some((name, after)) => {
                plain.push_str(name);
                rest = after;
            }
            None => {
                plain.push('[');
                rest = link;
            }
        }
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_section_and_key() {
        let page = manual_page("1.2.3");
        assert!(page.contains("gatun 1.2.3"), "{page}");
        for section in FILE_KEYS {
            assert!(page.contains(section.name), "{}", section.name);
            let (Kind::Tables(keys) | Kind::Table(keys)) = &section.kind else { continue };
            for key in *keys {
                assert!(page.contains(&format!("\\fB{}\\fR", key.name)), "{}", key.name);
            }
        }
    }

    #[test]
    fn markdown_becomes_roff() {
        assert_eq!(inlines("see [this](a.md), `b` [c]"), [roman("see this, "), bold("b"), roman(" [c]")]);
    }
}
