//! The project's own chores.
//!
//! `cargo xtask rfc` prints which test proves which requirement; `--check` fails where the matrix has a
//! hole; `--write` writes `docs/rfc/matrix.md`.

mod citations;
mod matrix;
mod requirements;

use matrix::Matrix;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask rfc [--check | --write]";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["rfc"] => Matrix::read(root).map(|matrix| print!("{}", matrix.table())),
        ["rfc", "--check"] => check(root),
        ["rfc", "--write"] => write(root),
        _ => Err(USAGE.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn check(root: &Path) -> Result<(), String> {
    let matrix = Matrix::read(root)?;
    let faults = matrix.faults(root);
    if faults.is_empty() {
        println!("{}", matrix.summary());
        return Ok(());
    }
    Err(format!("{}\nxtask rfc: {} faults", faults.join("\n"), faults.len()))
}

fn write(root: &Path) -> Result<(), String> {
    let matrix = Matrix::read(root)?;
    let path = root.join(matrix::PUBLISHED);
    std::fs::write(&path, matrix.markdown()).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{}", matrix.summary());
    Ok(())
}
