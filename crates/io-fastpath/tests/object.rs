//! The committed object: it belongs to the sources beside it, and is what the compiler makes of them.

use gatun_testkit::Manifest;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf")
}

#[test]
fn the_object_is_of_these_sources() {
    let files = ["layout.h", "decide.h", "siit.h", "xdp.h", "fastpath.bpf.c", "fastpath.o"];
    Manifest::read(&folder()).check(&files, "crates/io-fastpath/bpf/build.sh");
}

/// Missing parts of what compiles the object: the compiler of the manifest, and headers.
fn missing(compiler: &str) -> Option<String> {
    let version = Command::new("clang-14").arg("--version").output();
    let version =
        version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let headers = ["bpf/bpf_helpers.h", "linux/bpf.h"];
    let is_installed = headers.iter().all(|header| Path::new("/usr/include").join(header).is_file());
    (version.lines().next() != Some(compiler) || !is_installed)
        .then(|| format!("{compiler}, llvm-14 or libbpf-dev is missing (scripts/setup)"))
}

#[test]
fn the_same_compiler_makes_the_same_object() {
    let manifest = Manifest::read(&folder());
    if let Some(why) = missing(manifest.compiler()) {
        return gatun_testkit::skip(&why);
    }
    let out = std::env::temp_dir().join(format!("gatun-bpf-{}", std::process::id()));
    std::fs::create_dir_all(&out).unwrap();
    let built = Command::new(folder().join("build.sh")).arg(&out).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let again = std::fs::read(out.join("fastpath.o")).unwrap();
    let manifest_again = Manifest::read(&out);
    std::fs::remove_dir_all(&out).unwrap();
    assert!(
        again == std::fs::read(folder().join("fastpath.o")).unwrap(),
        "run crates/io-fastpath/bpf/build.sh"
    );
    assert_eq!(manifest_again.text(), manifest.text());
}
