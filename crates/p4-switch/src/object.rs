//! From a `.spec` to a shared object: DPDK writes C, a compiler compiles it.

use crate::code::{self, Code};
use crate::environment::Environment;
use crate::error::SwitchError;
use crate::metadata;
use crate::program;
use crate::sys;
use std::ffi::{CString, OsString, c_char};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Run time of the host's own code of a program.
const RUN_TIME: &str = include_str!("../shim/packet.h");

/// Parameters of DPDK's functions.
const PARAMETERS: &str = "(struct rte_swx_pipeline *p)";

/// Directories that may exist already.
const DIRECTORIES_MAX: u32 = 10_000;

/// Settings of a compilation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectConfig {
    /// Directory of `rte_swx_pipeline_internal.h`, `rte_swx_pipeline_spec.h` and VERSION.
    pub headers: PathBuf,
    /// Other numbers of entries, by the names of tables.
    pub sizes: Vec<(String, u32)>,
    /// Optimisation level of the C compiler.
    pub optimisation: u8,
    /// Leave the program to DPDK's code and tables, even if the host could make its own: for comparisons.
    pub dpdk_code: bool,
}

/// A compiled program, in a directory of its own until dropped.
#[derive(Debug)]
pub struct Object {
    directory: PathBuf,
}

impl Object {
    /// Compiles the program `spec`.
    ///
    /// # Errors
    /// The program, the headers or the compiler.
    pub fn compile(
        environment: Environment,
        spec: &Path,
        config: &ObjectConfig,
    ) -> Result<Object, SwitchError> {
        let text = std::fs::read_to_string(spec).map_err(SwitchError::file(spec))?;
        Object::compile_text(environment, spec, &text, config)
    }

    /// Compiles a program from its text. Errors name it `spec`.
    ///
    /// # Errors
    /// As of [`Object::compile`].
    pub fn compile_text(
        environment: Environment,
        spec: &Path,
        text: &str,
        config: &ObjectConfig,
    ) -> Result<Object, SwitchError> {
        check_headers(environment, &config.headers)?;
        let object = Object { directory: directory()? };
        let resized = object.directory.join("program.spec");
        let text = resize(text, &config.sizes)?;
        let own = program::read(&text).filter(|_| !config.dpdk_code && cfg!(target_arch = "x86_64"));
        let own = own.and_then(|program| code::generate(&program));
        let text = match &own {
            // DPDK's tables are only there until the host's take their places.
            Some(own) => {
                resize(&text, &own.exact_tables.iter().map(|name| (name.clone(), 1)).collect::<Vec<_>>())?
            }
            None => metadata::fit(&text)?,
        };
        std::fs::write(&resized, &text).map_err(SwitchError::file(&resized))?;
        let code = object.directory.join("program.c");
        translate(spec, &resized, &code)?;
        if let Some(own) = own {
            let generated = std::fs::read_to_string(&code).map_err(SwitchError::file(&code))?;
            std::fs::write(&code, with_own_code(&generated, &own)).map_err(SwitchError::file(&code))?;
        }
        compile(&code, &object.path(), config)?;
        Ok(object)
    }

    /// The shared object.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("program.so")
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The generated code uses structures of the library that differ between versions.
fn check_headers(environment: Environment, headers: &Path) -> Result<(), SwitchError> {
    let version = environment.version();
    let present = ["rte_swx_pipeline_internal.h", "rte_swx_pipeline_spec.h"]
        .iter()
        .all(|name| headers.join(name).exists());
    let theirs = std::fs::read_to_string(headers.join("VERSION")).unwrap_or_default();
    match present && theirs.trim() == version {
        true => Ok(()),
        false => Err(SwitchError::Headers { path: headers.to_owned(), version }),
    }
}

/// A new directory that only this user can enter. Another process can have the same number in a namespace of
/// its own, and a killed one leaves its directory.
fn directory() -> Result<PathBuf, SwitchError> {
    use std::os::unix::fs::DirBuilderExt as _;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gatun-p4-{}-{number}", std::process::id()));
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < DIRECTORIES_MAX => {}
            Err(error) => return Err(SwitchError::File { path, error }),
        }
    }
}

/// Changes the sizes of tables in the text of a program.
fn resize(text: &str, sizes: &[(String, u32)]) -> Result<String, SwitchError> {
    let mut table = None;
    let mut found = vec![false; sizes.len()];
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("table"), Some(name)) if line.ends_with('{') => {
                table = sizes.iter().position(|(wanted, _)| wanted == name);
            }
            (Some("size"), Some(_)) if table.is_some() => {
                let at = table.take().unwrap_or_default();
                found[at] = true;
                lines.push(format!("\tsize {:#x}", sizes[at].1));
                continue;
            }
            _ => {}
        }
        lines.push(line.to_owned());
    }
    match found.iter().position(|found| !found) {
        Some(at) => Err(SwitchError::Missing { kind: "table", name: sizes[at].0.clone() }),
        None => Ok(lines.join("\n") + "\n"),
    }
}

/// Takes the bodies out of the functions that DPDK has made, and adds the host's code.
fn with_own_code(code: &str, own: &Code) -> String {
    let mut text = String::with_capacity(2 * code.len());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        match line.strip_suffix(PARAMETERS) {
            Some(name) => {
                text += &format!("{name}{PARAMETERS} {{}}\n");
                lines.by_ref().take_while(|line| *line != "}").for_each(drop);
            }
            None => {
                text += line;
                text.push('\n');
            }
        }
    }
    text + &own.definitions + RUN_TIME + &own.functions
}

fn translate(named: &Path, spec: &Path, code: &Path) -> Result<(), SwitchError> {
    let [spec, code] = [spec, code].map(|path| CString::new(path.as_os_str().as_bytes()).unwrap_or_default());
    let mut line = 0;
    let mut message = [0 as c_char; 256];
    // SAFETY: strings that end with a zero, and room for the message, which ends with a zero, too.
    let status = unsafe {
        sys::translate(spec.as_ptr(), code.as_ptr(), &mut line, message.as_mut_ptr(), message.len())
    };
    if status == 0 {
        return Ok(());
    }
    let bytes: Vec<u8> = message.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    let message = match bytes.is_empty() {
        true => std::io::Error::from_raw_os_error(-status).to_string(),
        false => String::from_utf8_lossy(&bytes).into_owned(),
    };
    Err(SwitchError::Program { path: named.to_owned(), line, message })
}

fn compile(code: &Path, object: &Path, config: &ObjectConfig) -> Result<(), SwitchError> {
    let failed = |error: std::io::Error| SwitchError::Compiler(error.to_string());
    let flags = Command::new("pkg-config").args(["--cflags", "libdpdk"]).output().map_err(failed)?;
    let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| OsString::from("cc"));
    let output = Command::new(compiler)
        // A header is read and written as words of several lengths.
        .args(["-shared", "-fPIC", "-march=native", "-fno-strict-aliasing", "-w", "-DALLOW_EXPERIMENTAL_API"])
        .arg(format!("-O{}", config.optimisation))
        .args(flags.split_whitespace().filter(|word| !word.starts_with("-march")))
        .arg("-I")
        .arg(&config.headers)
        .arg("-o")
        .args([object, code])
        .output()
        .map_err(failed)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(SwitchError::Compiler(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "struct table {\n}\ntable a {\n\tkey {\n\t}\n\tsize 0x100\n}\n\ntable b {\n\tsize 0x200\n}\n";

    #[test]
    fn the_size_of_a_table_changes_and_no_other() {
        let text = resize(TEXT, &[("b".into(), 16)]).unwrap();
        assert_eq!(text, TEXT.replace("0x200", "0x10"));
    }

    #[test]
    fn dpdks_functions_lose_their_bodies() {
        let code = "static int a;\nvoid\nf(struct rte_swx_pipeline *p)\n{\n\tif (1) {\n\t}\n}\n\nvoid\n\
                    g(struct rte_swx_pipeline *p)\n{\n}\n";
        let own = Code { definitions: "d\n".into(), functions: "f\n".into(), exact_tables: Vec::new() };
        let text = with_own_code(code, &own);
        let begin = "static int a;\nvoid\nf(struct rte_swx_pipeline *p) {}\n\nvoid\n\
                     g(struct rte_swx_pipeline *p) {}\nd\n";
        assert!(text.starts_with(begin) && text.ends_with("f\n"), "{text}");
    }

    #[test]
    fn directories_of_earlier_processes_are_left_alone() {
        let all = [(); 3].map(|()| directory().unwrap());
        assert!(all[0] != all[1] && all[1] != all[2]);
        let number = |path: &Path| path.to_str().unwrap().rsplit('-').next().unwrap().parse::<u32>().unwrap();
        let next = format!("gatun-p4-{}-{}", std::process::id(), number(&all[2]) + 1);
        let taken = std::env::temp_dir().join(next);
        let made = std::fs::create_dir(&taken).is_ok();
        let other = directory().unwrap();
        assert!(other != taken && other.is_dir());
        let all = all.into_iter().chain([other]).chain(made.then_some(taken));
        all.for_each(|path| std::fs::remove_dir(path).unwrap());
    }

    #[test]
    fn a_size_of_no_table_is_refused() {
        let error = resize(TEXT, &[("c".into(), 16)]).unwrap_err();
        assert_eq!(error.to_string(), "the program has no table `c`");
    }
}
