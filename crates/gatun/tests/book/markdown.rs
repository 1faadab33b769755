//! Subset of Markdown that the documents use: fenced and indented blocks, links, headings.

/// Fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Word after the fence; may be empty.
    pub(crate) language: String,
    /// Text between the fences.
    pub(crate) text: String,
    /// First line of the text in the file, from 1.
    pub(crate) line: usize,
}

/// Fenced blocks of a text, in order.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (i, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), is_open) {
            (Some(language), false) => {
                let language = language.trim().to_owned();
                found.push(Block { language, text: String::new(), line: i + 2 });
                is_open = true;
            }
            (Some(_), true) => is_open = false,
            (None, true) => {
                let block = found.last_mut().expect("a block is open");
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    assert!(!is_open, "the block in line {} has no end", found.last().map_or(0, |b| b.line));
    found
}

/// Lines of the text, with lines of code left empty.
pub(crate) fn prose(text: &str) -> Vec<String> {
    let mut is_fenced = false;
    let mut was_empty = true;
    let mut lines = Vec::new();
    for line in text.lines() {
        let is_fence = line.starts_with("```");
        let is_code = is_fenced || is_fence || (was_empty && line.starts_with("    "));
        is_fenced ^= is_fence;
        // An indented block goes on until a line that is not indented.
        was_empty = line.is_empty() || (was_empty && is_code);
        lines.push(if is_code { String::new() } else { line.to_owned() });
    }
    lines
}

/// Text without inline code, which may span lines.
fn without_inline_code(text: &str) -> String {
    text.split('`').enumerate().map(|(i, part)| if i % 2 == 0 { part } else { "code" }).collect()
}

/// Targets of the links of a text, in order.
pub(crate) fn links(text: &str) -> Vec<String> {
    let text = prose(text).join("\n");
    // Inline code ends with its paragraph.
    let text: Vec<_> = text.split("\n\n").map(without_inline_code).collect();
    let text = text.join("\n\n");
    assert!(!text.contains("]: "), "links by reference are not checked: write [text](file)");
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// Anchors of headings, as GitHub and mdBook generate them.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in prose(text) {
        let title = line.trim_start_matches('#');
        if line.starts_with('#') && title.starts_with(' ') {
            let name = anchor(title);
            let times = found.iter().filter(|other| **other == name).count();
            found.push(if times == 0 { name } else { format!("{name}-{times}") });
        }
    }
    found
}

fn anchor(title: &str) -> String {
    let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn blocks_prose_links_and_headings_are_parsed() {
    let text = "\
# A `[[pool]]`: what it is

See [this](a.md) and `[not](this.md)` and
[that](b.md#part-1).

```sh
echo [no](link.md)
```

    $ indented [no](c.md)

    still

- a list
  that goes on [yes](d.md)

## Part 1
## Part 1
";
    assert_eq!(blocks(text), [Block { language: "sh".into(), text: "echo [no](link.md)\n".into(), line: 7 }]);
    assert_eq!(links(text), ["a.md", "b.md#part-1", "d.md"]);
    assert_eq!(anchors(text), ["a-pool-what-it-is", "part-1", "part-1-1"]);
}
