//! Errors of the switch, with corrections.

use gatun_dpdk_shim::LoadError;
use std::fmt;
use std::path::PathBuf;

/// Reason why a switch cannot do something.
#[derive(Debug)]
pub enum SwitchError {
    /// DPDK's libraries cannot be loaded.
    Load(LoadError),
    /// DPDK's environment did not start; its messages are on standard error.
    Environment(String),
    /// A file cannot be read or written.
    File {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        error: std::io::Error,
    },
    /// The program is not a valid `.spec`.
    Program {
        /// The file.
        path: PathBuf,
        /// Line, from 1. Zero: the whole file.
        line: u32,
        /// Message of DPDK.
        message: String,
    },
    /// The program's metadata are longer than instructions reach.
    Metadata {
        /// Length, bytes.
        bytes: u32,
        /// Bytes that instructions reach.
        reach: u32,
    },
    /// The headers of the generated code are missing, or of another version than the library.
    Headers {
        /// The directory.
        path: PathBuf,
        /// Version of the library, as "22.11.11".
        version: String,
    },
    /// The C compiler cannot be run, or refuses the generated code.
    Compiler(String),
    /// The pipeline, a port or a table cannot be made.
    Step {
        /// The object.
        name: String,
        /// The step that failed.
        step: &'static str,
        /// Error of the system.
        error: std::io::Error,
    },
    /// Another process serves the socket of a memif.
    SocketBusy(String),
    /// The program has no such table, action, register or meter.
    Missing {
        /// "table", "action", ...
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The entry does not fit the table.
    Entry {
        /// Name of the table.
        table: String,
        /// The fault.
        fault: &'static str,
    },
    /// The table has no place for another entry.
    Full(String),
    /// A line of a file of entries is wrong.
    Line {
        /// Its number, from 1.
        number: usize,
        /// The fault.
        error: Box<SwitchError>,
    },
}

impl SwitchError {
    /// Error of a step, from a negated error number.
    pub(crate) fn step(name: &str, step: &'static str, status: i32) -> SwitchError {
        let error = std::io::Error::from_raw_os_error(-status);
        SwitchError::Step { name: name.to_owned(), step, error }
    }

    /// Makes the error of a file.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> SwitchError {
        let path = path.to_owned();
        move |error| SwitchError::File { path, error }
    }
}

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SwitchError::Load(LoadError::Instructions(names)) => {
                write!(f, "the processor lacks {names}, which DPDK's libraries use")
            }
            SwitchError::Load(LoadError::Libraries(error)) => {
                write!(f, "cannot load DPDK's libraries (Debian: apt install dpdk): {error}")
            }
            SwitchError::Environment(error) => write!(f, "DPDK's environment did not start: {error}"),
            SwitchError::File { path, error } => write!(f, "{}: {error}", path.display()),
            SwitchError::Program { path, line: 0, message } => write!(f, "{}: {message}", path.display()),
            SwitchError::Program { path, line, message } => {
                write!(f, "{}:{line}: {message}", path.display())
            }
            SwitchError::Metadata { bytes, reach } => write!(
                f,
                "the program's metadata take {bytes} bytes, and DPDK's instructions reach {reach}: use less"
            ),
            SwitchError::Headers { path, version } => write!(
                f,
                "{} does not have the headers of DPDK {version}: run scripts/dpdk-headers, or give their \
                 directory with --headers",
                path.display()
            ),
            SwitchError::Compiler(error) => write!(f, "the C compiler failed: {error}"),
            SwitchError::Step { name, step, error } => write!(f, "{name}: {step}: {error}"),
            SwitchError::SocketBusy(path) => write!(
                f,
                "another process serves the memif socket {path}: stop it first, or write another socket, or role=client"
            ),
            SwitchError::Missing { kind, name } => write!(f, "the program has no {kind} `{name}`"),
            SwitchError::Entry { table, fault } => write!(f, "table {table}: {fault}"),
            SwitchError::Full(table) => write!(f, "table {table} is full"),
            SwitchError::Line { number, error } => write!(f, "line {number}: {error}"),
        }
    }
}

impl std::error::Error for SwitchError {}

impl From<LoadError> for SwitchError {
    fn from(error: LoadError) -> SwitchError {
        SwitchError::Load(error)
    }
}
