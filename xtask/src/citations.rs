//! Citations: the requirements that a test proves, as `// proves: ID, ID` (in Python `# proves: ID`)
//! directly above the test function. Attributes and doc comments may stand between them.

use std::fs;
use std::path::{Path, PathBuf};

/// A test that cites an id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Citation {
    pub(crate) id: String,
    /// `path/to/file.rs::name_of_the_test`, the path relative to the project's folder.
    pub(crate) test: String,
}

/// All citations under `folders` of `root`, and the faults: comments without a test below them.
pub(crate) fn collect(root: &Path, folders: &[&str]) -> Result<(Vec<Citation>, Vec<String>), String> {
    let mut files = Vec::new();
    for folder in folders {
        sources(&root.join(folder), &mut files)?;
    }
    files.sort();
    let (mut citations, mut faults) = (Vec::new(), Vec::new());
    for file in files {
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        scan(&name, &text, &mut citations, &mut faults);
    }
    Ok((citations, faults))
}

/// Rust and Python files under `folder`; build output is left out.
fn sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                sources(&path, files)?;
            }
        } else if path.extension().is_some_and(|e| e == "rs" || e == "py") {
            files.push(path);
        }
    }
    Ok(())
}

fn scan(name: &str, text: &str, citations: &mut Vec<Citation>, faults: &mut Vec<String>) {
    let python = name.ends_with(".py");
    let marker = if python { "# proves:" } else { "// proves:" };
    let mut ids: Vec<&str> = Vec::new();
    let mut is_test = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(list) = line.strip_prefix(marker) {
            ids.extend(list.split(',').map(str::trim).filter(|id| !id.is_empty()));
            continue;
        }
        if ids.is_empty() {
            continue;
        }
        if let Some(function) = function_name(line, python) {
            if is_test || (python && function.starts_with("test")) {
                let test = format!("{name}::{function}");
                citations.extend(ids.drain(..).map(|id| Citation { id: id.into(), test: test.clone() }));
            }
        } else if is_between(line, python) {
            is_test |= line.contains("test]") || line.contains("test(");
            continue;
        }
        if !ids.is_empty() {
            faults.push(format!("{name}:{}: `{marker}` without a test below it", number + 1));
            ids.clear();
        }
        is_test = false;
    }
    if !ids.is_empty() {
        faults.push(format!("{name}: `{marker}` at the end of the file, without a test below it"));
    }
}

/// Returns true if a line may stand between the comment and its function: an attribute or a comment.
fn is_between(line: &str, python: bool) -> bool {
    if python {
        line.starts_with('@') || line.starts_with('#')
    } else {
        line.starts_with("#[") || line.starts_with("//")
    }
}

fn function_name(line: &str, python: bool) -> Option<&str> {
    let rest = if python {
        line.strip_prefix("def ")?
    } else {
        line.strip_prefix("pub ").unwrap_or(line).strip_prefix("fn ")?
    };
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    rest.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(name: &str, text: &str) -> (Vec<Citation>, Vec<String>) {
        let (mut citations, mut faults) = (Vec::new(), Vec::new());
        scan(name, text, &mut citations, &mut faults);
        (citations, faults)
    }

    fn citation(id: &str, test: &str) -> Citation {
        Citation { id: id.into(), test: test.into() }
    }

    #[test]
    fn a_comment_above_a_test_cites_every_id_in_it() {
        let (citations, faults) = scanned(
            "a.rs",
            "// proves: A1-1, A1-2\n// proves: A1-3\n#[test]\n#[ignore]\n/// Why.\nfn it_holds() {}\n#[test]\nfn other() {}\n",
        );
        let expected = ["A1-1", "A1-2", "A1-3"].map(|id| citation(id, "a.rs::it_holds"));
        assert_eq!(citations, expected);
        assert_eq!(faults, [""; 0]);
    }

    #[test]
    fn a_comment_above_something_else_is_a_fault() {
        let cases = [
            "// proves: A1-1\nfn helper() {}\n",
            "// proves: A1-1\n\n#[test]\nfn t() {}\n",
            "// proves: A1-1\n",
        ];
        for text in cases {
            let (citations, faults) = scanned("a.rs", text);
            assert_eq!((citations.len(), faults.len()), (0, 1), "{text}");
        }
    }

    #[test]
    fn python_tests_cite_too() {
        let (citations, faults) =
            scanned("o.py", "    # proves: A1-1\n    def test_it(self):\n        pass\n");
        assert_eq!(citations, [citation("A1-1", "o.py::test_it")]);
        assert_eq!(faults, [""; 0]);
    }
}
