//! Every document is a chapter of the book, and every link has a target.

use crate::{markdown, read, root};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Documents in a folder and its subfolders, relative to the repository.
fn documents(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
    for entry in entries {
        let entry = entry.expect("the folder can be read");
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            found.extend(documents(&path));
        } else if path.ends_with(".md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Path without `..`; `None` outside the repository.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => plain.pop().then_some(())?,
            Component::Normal(name) => plain.push(name),
            _ => {}
        }
    }
    Some(plain)
}

/// Fault of a link in a document.
fn fault(document: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let folder = Path::new(document).parent()?;
    let target = if file.is_empty() { Some(document.into()) } else { plain(&folder.join(file)) };
    let Some(target) = target.filter(|target| root().join(target).exists()) else {
        return Some(format!("{document}: ({link}) leads nowhere"));
    };
    let anchor = anchor?;
    let target = target.to_str().expect("names are ASCII");
    let known = markdown::anchors(&read(target));
    (!known.iter().any(|name| name == anchor))
        .then(|| format!("{document}: ({link}): {target} has no such heading, but {known:?}"))
}

#[test]
fn links_and_anchors_of_the_documents_have_targets() {
    let mut documents = documents("docs");
    documents.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(String::from));
    let links: Vec<_> = documents
        .iter()
        .flat_map(|document| {
            markdown::links(&read(document)).into_iter().map(move |link| (document.as_str(), link))
        })
        .collect();
    assert!(links.len() > 60, "{} links", links.len());
    let faults: Vec<_> = links.iter().filter_map(|(document, link)| fault(document, link)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn broken_links_are_detected() {
    assert_eq!(fault("docs/reference/api.md", "metrics.md"), None);
    assert_eq!(fault("docs/reference/api.md", "../../README.md#figures"), None);
    assert_eq!(fault("docs/reference/api.md", "https://example.org/"), None);
    assert!(fault("docs/reference/api.md", "metric.md").is_some());
    assert!(fault("docs/reference/api.md", "../../../etc/passwd").is_some());
    assert!(fault("docs/reference/api.md", "../../README.md#nothing").is_some());
    assert!(fault("docs/reference/api.md", "#nothing").is_some());
}

#[test]
fn the_book_has_every_document_once() {
    let chapters = markdown::links(&read("docs/SUMMARY.md"));
    let named: BTreeSet<_> = chapters.iter().map(|link| format!("docs/{link}")).collect();
    assert_eq!(chapters.len(), named.len(), "docs/SUMMARY.md names a chapter twice");
    let there: BTreeSet<_> = documents("docs").into_iter().filter(|path| path != "docs/SUMMARY.md").collect();
    let missing: Vec<_> = there.difference(&named).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md does not name {missing:?}");
    let gone: Vec<_> = named.difference(&there).collect();
    assert!(gone.is_empty(), "docs/SUMMARY.md names {gone:?}");
}

#[test]
fn files_named_by_the_architecture_exist() {
    let text = read("ARCHITECTURE.md");
    let spans = text.split('`').skip(1).step_by(2);
    let files: Vec<_> = spans.filter(|span| span.ends_with(".rs") && span.contains('/')).collect();
    assert!(files.len() > 40, "{} files", files.len());
    let gone: Vec<_> = files.iter().filter(|file| !root().join("crates").join(file).exists()).collect();
    assert!(gone.is_empty(), "ARCHITECTURE.md names {gone:?}");
}
