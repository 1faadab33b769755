//! Long sentences in pages and comments.

/// Most words of a sentence. A colon or a semicolon ends one here.
const WORDS_MAX: usize = 30;

/// Sentences of a file with too many words, each with the line on which its paragraph begins.
pub(super) fn long(file: &str, text: &str) -> Vec<(usize, String)> {
    let read = if file.ends_with(".md") { page_line } else { comment_line };
    let mut found = Vec::new();
    let mut paragraph = Paragraph::default();
    let mut in_fence = false;
    for (i, line) in text.lines().enumerate() {
        let text = match read(line) {
            Some(text) if text.trim_start().starts_with("```") => {
                in_fence ^= true;
                None
            }
            text => text.filter(|_| !in_fence),
        };
        match text {
            Some(text) if text.starts_with('|') => {
                paragraph.end(&mut found);
                for cell in text.split('|') {
                    paragraph.add(i + 1, cell);
                    paragraph.end(&mut found);
                }
            }
            Some(text) => {
                if let Some(item) = item(text) {
                    paragraph.end(&mut found);
                    paragraph.add(i + 1, item);
                } else {
                    paragraph.add(i + 1, text);
                }
            }
            None => paragraph.end(&mut found),
        }
    }
    paragraph.end(&mut found);
    found
}

#[derive(Default)]
struct Paragraph {
    line: usize,
    text: String,
}

impl Paragraph {
    fn add(&mut self, line: usize, text: &str) {
        if self.text.is_empty() {
            self.line = line;
        }
        self.text.push_str(text.trim());
        self.text.push(' ');
    }

    fn end(&mut self, found: &mut Vec<(usize, String)>) {
        let text = std::mem::take(&mut self.text);
        let mut words = Vec::new();
        for word in text.split_whitespace() {
            words.push(word);
            if word.trim_end_matches(['"', ')', '*', '`']).ends_with(['.', ':', ';', '?', '!']) {
                self.sentence(&mut words, found);
            }
        }
        self.sentence(&mut words, found);
    }

    fn sentence(&self, words: &mut Vec<&str>, found: &mut Vec<(usize, String)>) {
        let count = words.iter().filter(|word| word.contains(char::is_alphanumeric)).count();
        if count > WORDS_MAX {
            found.push((self.line, format!("{count} words: {}", words.join(" "))));
        }
        words.clear();
    }
}

/// Text of a line of Markdown. `None` if it has none: an empty line, a heading or a block of code.
fn page_line(line: &str) -> Option<&str> {
    let is_code = line.starts_with("    ") && !line.starts_with("      ");
    Some(line).filter(|line| !line.trim().is_empty() && !line.starts_with('#') && !is_code)
}

/// Text of a comment line of Rust, C or a script. `None` for code, drawings and headings in a comment.
fn comment_line(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = ["///", "//!", "//", "# "].iter().find_map(|prefix| line.strip_prefix(prefix))?;
    let is_drawing = text.starts_with("     ");
    Some(text.trim()).filter(|text| !text.is_empty() && !is_drawing && !text.starts_with("# "))
}

/// Text of a list's item.
fn item(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    text.strip_prefix("- ")
        .or_else(|| text.strip_prefix("* "))
        .or_else(|| digits.strip_prefix(". ").filter(|_| digits.len() < text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(file: &str, text: &str) -> Vec<usize> {
        long(file, text).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn a_sentence_of_more_than_thirty_words_is_found_over_lines() {
        let words = |n: usize| vec!["word"; n].join(" ");
        assert_eq!(lines("a.md", &format!("# Heading\n\n{}\n{}.\n", words(15), words(15))), [0; 0]);
        assert_eq!(lines("a.md", &format!("# Heading\n\n{}\n{}.\n", words(15), words(16))), [3]);
        assert_eq!(lines("a.md", &format!("{}: {}.\n", words(20), words(20))), [0; 0]);
        assert_eq!(lines("a.md", &format!("- {}\n- {}\n", words(20), words(20))), [0; 0]);
        assert_eq!(lines("a.md", &format!("| {} | {} |\n", words(20), words(31))), [1]);
        assert_eq!(lines("a.md", &format!("```\n{}\n```\n", words(40))), [0; 0]);
    }

    #[test]
    fn comments_are_read_and_code_is_not() {
        let words = vec!["word"; 20].join(" ");
        assert_eq!(lines("a.rs", &format!("    /// {words}\n    /// {words}.\n    fn f() {{}}\n")), [1]);
        assert_eq!(lines("a.rs", &format!("// {words}.\n// {words}.\n")), [0; 0]);
        assert_eq!(lines("a.rs", &format!("/// ```text\n/// {words}\n/// {words}\n/// ```\n")), [0; 0]);
        assert_eq!(lines("scripts/a", &format!("# {words}\n# {words}\nrun {words}\n")), [1]);
    }
}
