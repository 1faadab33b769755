//! Problems of a configuration: what is wrong, where, and how to correct it.

use gatun_wire::text::counted;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Most problems kept: further errors of a file with a million wrong lines add nothing.
const PROBLEMS_MAX: usize = 100;

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The configuration is accepted.
    Warning,
    /// The configuration is refused.
    Error,
}

/// A file that was read.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: Arc<str>,
}

/// A file of mappings that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingFile {
    /// Its path.
    pub path: PathBuf,
    /// SHA-256 of its text.
    pub hash: [u8; 32],
}

impl MappingFile {
    /// Returns true if `text` is the text that was read.
    pub fn is(&self, text: &[u8]) -> bool {
        hash(text) == self.hash
    }
}

fn hash(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    /// Index into the list of sources.
    pub(crate) file: usize,
    /// Range of bytes that the problem is about.
    pub(crate) span: Range<usize>,
    pub(crate) what: String,
    /// Correction.
    pub(crate) instead: Option<String>,
}

/// Collects problems while a configuration is read.
#[derive(Debug)]
pub(crate) struct Problems {
    sources: Vec<Source>,
    list: Vec<Problem>,
    left_out: usize,
}

impl Problems {
    /// Starts without problems.
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let source = Source { name: name.to_owned(), text: text.into() };
        Problems { sources: vec![source], list: Vec::new(), left_out: 0 }
    }

    /// Adds a file; the result is its index for [`Problems::error_in`].
    pub(crate) fn add_source(&mut self, name: &str, text: Arc<str>) -> usize {
        self.sources.push(Source { name: name.to_owned(), text });
        self.sources.len() - 1
    }

    /// The files of mappings.
    pub(crate) fn mapping_files(&self) -> Vec<MappingFile> {
        let file = |source: &Source| MappingFile {
            path: source.name.clone().into(),
            hash: hash(source.text.as_bytes()),
        };
        self.sources.iter().skip(1).map(file).collect()
    }

    /// SHA-256 of the configuration and of the hashes of the files that it names, in hexadecimal.
    pub(crate) fn revision(&self, files: &[MappingFile]) -> String {
        let mut all = Sha256::new();
        self.sources.iter().take(1).for_each(|source| all.update(source.text.as_bytes()));
        files.iter().for_each(|file| all.update(file.hash));
        all.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Adds an error in the configuration file.
    pub(crate) fn error(&mut self, span: Range<usize>, what: impl Into<String>, instead: impl Into<String>) {
        self.error_in(0, span, what, instead);
    }

    /// Adds an error in one of the sources.
    pub(crate) fn error_in(
        &mut self,
        file: usize,
        span: Range<usize>,
        what: impl Into<String>,
        instead: impl Into<String>,
    ) {
        self.push(Problem {
            severity: Severity::Error,
            file,
            span,
            what: what.into(),
            instead: Some(instead.into()).filter(|s| !s.is_empty()),
        });
    }

    /// Adds a warning about the configuration file.
    pub(crate) fn warn(&mut self, span: Range<usize>, what: impl Into<String>, instead: impl Into<String>) {
        self.push(Problem {
            severity: Severity::Warning,
            file: 0,
            span,
            what: what.into(),
            instead: Some(instead.into()).filter(|s| !s.is_empty()),
        });
    }

    fn push(&mut self, problem: Problem) {
        if self.list.len() < PROBLEMS_MAX {
            self.list.push(problem);
        } else if problem.severity == Severity::Error {
            self.left_out += 1;
        }
    }

    /// Number of errors so far; a step compares it before and after.
    pub(crate) fn errors(&self) -> usize {
        self.list.iter().filter(|p| p.severity == Severity::Error).count() + self.left_out
    }

    /// Returns the warnings, or all problems if there are errors.
    pub(crate) fn finish(self) -> Result<Warnings, Report> {
        let refused = self.errors() > 0;
        let report = self.into_report();
        if refused { Err(report) } else { Ok(Warnings(report)) }
    }

    /// Returns all problems, in the order of the files.
    pub(crate) fn into_report(mut self) -> Report {
        self.list.sort_by_key(|p| (p.file, p.span.start));
        Report { sources: self.sources, list: self.list, left_out: self.left_out }
    }
}

/// A problem with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<'a> {
    /// Its severity.
    pub severity: Severity,
    /// The file's name, as given.
    pub file: &'a str,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The problem.
    pub what: &'a str,
    /// Correction.
    pub instead: Option<&'a str>,
}

/// Problems of a refused configuration: at least one error, and the warnings.
#[derive(Clone, Debug)]
pub struct Report {
    sources: Vec<Source>,
    list: Vec<Problem>,
    left_out: usize,
}

/// Warnings about a configuration that was accepted.
#[derive(Clone, Debug)]
pub struct Warnings(Report);

impl Warnings {
    /// Iterates in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = Located<'_>> {
        self.0.iter()
    }

    /// Returns true if there are no warnings.
    pub fn is_empty(&self) -> bool {
        self.0.list.is_empty()
    }

    /// See [`Report::pretty`].
    pub fn pretty(&self, colour: bool) -> String {
        self.0.pretty(colour)
    }
}

impl fmt::Display for Warnings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Report {
    /// Creates a report of one error.
    pub(crate) fn single(name: &str, text: &str, span: Range<usize>, what: &str, instead: &str) -> Self {
        let mut problems = Problems::new(name, text);
        problems.error(span, what, instead);
        problems.into_report()
    }

    /// Iterates in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = Located<'_>> {
        self.list.iter().filter_map(|p| {
            let source = self.sources.get(p.file)?;
            let (line, column) = line_and_column(&source.text, p.span.start);
            Some(Located {
                severity: p.severity,
                file: &source.name,
                line,
                column,
                what: &p.what,
                instead: p.instead.as_deref(),
            })
        })
    }

    /// Number of errors, including those that are not listed.
    pub fn errors(&self) -> usize {
        self.list.iter().filter(|p| p.severity == Severity::Error).count() + self.left_out
    }

    /// Formats the problems with the lines of the file, for a terminal.
    pub fn pretty(&self, colour: bool) -> String {
        let theme = match colour {
            true => miette::GraphicalTheme::unicode(),
            false => miette::GraphicalTheme::unicode_nocolor(),
        };
        let handler = miette::GraphicalReportHandler::new_themed(theme).with_width(110).with_links(false);
        let mut out = String::new();
        for problem in &self.list {
            let Some(source) = self.sources.get(problem.file) else { continue };
            let diagnostic = Diagnostic { problem, source };
            // Rendering fails only if the source cannot be read; the short form does not need it.
            if handler.render_report(&mut out, &diagnostic).is_err() {
                out.push_str(&problem.what);
                out.push('\n');
            }
        }
        out.push_str(&self.tail());
        out
    }

    fn tail(&self) -> String {
        match self.left_out {
            0 => String::new(),
            n => format!("... and {}\n", counted(n as u64, "more error")),
        }
    }
}

/// Formats each problem as a line `file:line:column: error: problem` and a line of help.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for p in self.iter() {
            let kind = match p.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            };
            writeln!(f, "{}:{}:{}: {kind}: {}", p.file, p.line, p.column, p.what)?;
            if let Some(instead) = p.instead {
                writeln!(f, "    help: {instead}")?;
            }
        }
        f.write_str(&self.tail())
    }
}

impl std::error::Error for Report {}

/// Line and column (in characters) of a byte, both from 1.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Adapter of a problem to miette.
#[derive(Debug)]
struct Diagnostic<'a> {
    problem: &'a Problem,
    source: &'a Source,
}

impl fmt::Display for Diagnostic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem.what)
    }
}

impl std::error::Error for Diagnostic<'_> {}

impl miette::Diagnostic for Diagnostic<'_> {
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.problem.severity {
            Severity::Warning => miette::Severity::Warning,
            Severity::Error => miette::Severity::Error,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.problem.instead.as_ref().map(|s| Box::new(s) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        Some(self)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = miette::LabeledSpan> + '_>> {
        let span = self.problem.span.clone();
        Some(Box::new(std::iter::once(miette::LabeledSpan::underline(span))))
    }
}

/// Source text with its name.
impl miette::SourceCode for Diagnostic<'_> {
    fn read_span<'a>(
        &'a self,
        span: &miette::SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn miette::SpanContents<'a> + 'a>, miette::MietteError> {
        let inner = self.source.text.read_span(span, before, after)?;
        Ok(Box::new(miette::MietteSpanContents::new_named(
            self.source.name.clone(),
            inner.data(),
            *inner.span(),
            inner.line(),
            inner.column(),
            inner.line_count(),
        )))
    }
}
