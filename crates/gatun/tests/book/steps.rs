//! Steps of a document: blocks of commands, dialogues and files, and hidden comments.

use crate::markdown::{self, Block};
use crate::screen;
use crate::shell::Shell;
use std::time::{Duration, Instant};

/// Time that the screen may take to show the expected text: something started a moment ago may not be up yet.
const PATIENCE: Duration = Duration::from_secs(30);
/// Minimum number of tries of a command: a ping without an answer takes the whole time.
const TRIES_MIN: usize = 4;
/// Seconds after which a command that runs until Ctrl-C is interrupted.
const INTERRUPT_AFTER: &str = "1";

/// Comment of a document, `<!-- ... -->`, at the beginning of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Comment {
    pub(crate) text: String,
    /// Line of the file on which it begins, from 1.
    pub(crate) line: usize,
}

/// Comments of a text outside its blocks, in order.
pub(crate) fn comments(text: &str) -> Vec<Comment> {
    let mut found: Vec<Comment> = Vec::new();
    let mut is_open = false;
    let mut is_fenced = false;
    for (i, line) in text.lines().enumerate() {
        is_fenced ^= !is_open && line.starts_with("```");
        if !is_open && !is_fenced && line.starts_with("<!--") {
            found.push(Comment { text: String::new(), line: i + 1 });
            is_open = true;
        }
        if is_open && let Some(comment) = found.last_mut() {
            let part = line.strip_prefix("<!--").filter(|_| comment.text.is_empty()).unwrap_or(line);
            let (part, end) = part.split_once("-->").map_or((part, false), |(part, _)| (part, true));
            comment.text.push_str(part);
            comment.text.push('\n');
            is_open = !end;
        }
    }
    assert!(!is_open, "a comment has no end");
    for comment in &mut found {
        comment.text = comment.text.trim().to_owned();
    }
    found
}

/// Treatment of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// `<!-- until interrupted -->`: the commands run until Ctrl-C.
    Interrupted,
    /// `<!-- not run: REASON -->`
    NotRun(String),
}

/// Steps of a test through a document, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// `<!-- scene: NAME -->`: environment that the document assumes.
    Scene(String),
    /// `<!-- run ... -->`: hidden commands.
    Hidden(Block),
    Block(Block, Option<Mark>),
}

/// Beginnings of comments around parts that programs write.
const GENERATED_PARTS: [&str; 7] =
    ["structure:", "figures:", "iperf:", "backends:", "cluster:", "fastpath:", "thesis:"];

/// Steps of a text.
pub(crate) fn steps(text: &str) -> Vec<Step> {
    let mut found: Vec<(usize, Step)> = Vec::new();
    let mut marks: Vec<(usize, Mark)> = Vec::new();
    for comment in comments(text) {
        let Comment { text, line } = comment;
        if let Some(name) = text.strip_prefix("scene: ") {
            found.push((line, Step::Scene(name.to_owned())));
        } else if let Some(commands) = text.strip_prefix("run\n") {
            let block = Block { language: "sh".into(), text: format!("{commands}\n"), line: line + 1 };
            found.push((line, Step::Hidden(block)));
        } else if let Some(reason) = text.strip_prefix("not run: ") {
            marks.push((line, Mark::NotRun(reason.to_owned())));
        } else if text == "until interrupted" {
            marks.push((line, Mark::Interrupted));
        } else if !GENERATED_PARTS.iter().any(|part| text.starts_with(part)) {
            panic!("line {line}: unknown comment: {text}");
        }
    }
    for block in markdown::blocks(text) {
        // The fence is the line before the text, and the mark the line before that.
        let mark = marks.iter().find(|(line, _)| line + 2 == block.line).map(|(_, mark)| mark.clone());
        found.push((block.line, Step::Block(block, mark)));
    }
    let marked = found.iter().filter(|(_, step)| matches!(step, Step::Block(_, Some(_)))).count();
    assert_eq!(marks.len(), marked, "a mark stands directly above its block: {marks:?}");
    found.sort_by_key(|(line, _)| *line);
    found.into_iter().map(|(_, step)| step).collect()
}

/// True if a block has commands.
pub(crate) fn has_commands(block: &Block) -> bool {
    block.language == "sh" || block.language == "console"
}

/// Runs a block, or saves it as a file.
pub(crate) fn take(shell: &mut Shell, document: &str, block: &Block, mark: Option<&Mark>) {
    let at = format!("{document}:{}", block.line);
    match (block.language.as_str(), mark) {
        (_, Some(Mark::NotRun(_))) => {}
        ("sh", Some(Mark::Interrupted)) => {
            for command in block.text.lines() {
                interrupt(shell, &at, command, None);
            }
        }
        ("console", Some(Mark::Interrupted)) => {
            for (command, told) in dialogue(&block.text) {
                interrupt(shell, &at, &command, Some(&told));
            }
        }
        ("sh", None) => {
            let shown = shell.step(&block.text).unwrap();
            assert!(shown.failed.is_empty(), "{at}: failed: {}\n{}", shown.failed, shown.text);
        }
        ("console", None) => talk(shell, &at, &block.text),
        _ => {
            if let Some(name) = file_name(block) {
                shell.save(name, &block.text).unwrap();
            }
        }
    }
}

/// Runs a command and interrupts it, as Ctrl-C does.
fn interrupt(shell: &mut Shell, at: &str, command: &str, told: Option<&str>) {
    // 124 is the status of `timeout`, 130 that of an interrupted program.
    let line = format!(
        "timeout --signal=INT --kill-after=5 {INTERRUPT_AFTER} {command} || case $? in 124 | 130) ;; *) false ;; esac"
    );
    let shown = shell.step(&line).unwrap();
    let is_interrupted = |failed: &str| failed.trim_start().starts_with("timeout ");
    let failed =
        shown.failed.split("; ").filter(|failed| !failed.is_empty() && !is_interrupted(failed)).count();
    assert!(failed == 0, "{at}: {command}: failed\n{}", shown.text);
    if let Some(told) = told {
        assert!(
            screen::is_as_told(told, &shown.text),
            "{at}: {command}\n--- is to show\n{told}\n--- shows\n{}",
            shown.text
        );
    }
}

/// Name of the file in a block, from its first line `# NAME`.
pub(crate) fn file_name(block: &Block) -> Option<&str> {
    let first = block.text.lines().next().and_then(|line| line.strip_prefix("# "))?.trim();
    (!first.contains(' ') && first.contains('.')).then_some(first)
}

/// Commands with their output.
fn dialogue(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            found.push((command.to_owned(), String::new()));
        } else {
            let (command, told) = found.last_mut().expect("a block of console begins with a command");
            let part = if goes_on { command } else { told };
            if !part.is_empty() {
                part.push('\n');
            }
            part.push_str(line);
        }
        goes_on = (goes_on || line.starts_with("$ ")) && line.ends_with('\\');
    }
    found
}

/// True if a command may be repeated until its output is as expected: it only shows something.
fn may_repeat(command: &str) -> bool {
    !["--yes", "confirm", "kill ", "drain ", "snapshot ", "gatun run "]
        .iter()
        .any(|word| command.contains(word))
}

fn talk(shell: &mut Shell, at: &str, text: &str) {
    for (command, told) in dialogue(text) {
        let deadline = Instant::now() + PATIENCE;
        for tries in 1.. {
            let shown = shell.step(&command).unwrap().text;
            if screen::is_as_told(&told, &shown) {
                break;
            }
            let is_over = !may_repeat(&command) || (tries >= TRIES_MIN && Instant::now() >= deadline);
            assert!(!is_over, "{at}: {command}\n--- is to show\n{told}\n--- shows\n{shown}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn dialogues_are_split_into_commands_and_output() {
    let text = "$ one \\\n  and a half\nshown\nmore\n$ two\n$ three\nend\n";
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(
        dialogue(text),
        [pair("one \\\n  and a half", "shown\nmore"), pair("two", ""), pair("three", "end")]
    );
}

#[test]
fn comments_and_blocks_are_steps_in_order() {
    let text = "<!-- scene: a -->\n<!-- run\none\ntwo\n-->\n\n<!-- not run: why -->\n```sh\nthree\n```\n\n```console\n$ four\n```\n";
    let block =
        |language: &str, text: &str, line| Block { language: language.into(), text: text.into(), line };
    assert_eq!(
        steps(text),
        [
            Step::Scene("a".into()),
            Step::Hidden(block("sh", "one\ntwo\n", 3)),
            Step::Block(block("sh", "three\n", 9), Some(Mark::NotRun("why".into()))),
            Step::Block(block("console", "$ four\n", 13), None),
        ]
    );
}

#[test]
#[should_panic(expected = "directly above")]
fn a_mark_without_a_block_is_an_error() {
    steps("<!-- not run: why -->\n\n```sh\none\n```\n");
}
