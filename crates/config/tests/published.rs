//! The published schema and reference page are current. `GATUN_BLESS=1 cargo test -p gatun-config` rewrites
//! them.

use std::path::PathBuf;

fn compare(file: &str, current: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(file);
    if std::env::var_os("GATUN_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, current).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == current,
        "docs/reference/{file} is not current: GATUN_BLESS=1 cargo test -p gatun-config"
    );
}

#[test]
fn the_published_schema_is_current() {
    compare("config.schema.json", &gatun_config::json_schema());
}

#[test]
fn the_published_reference_page_is_current() {
    compare("configuration.md", &gatun_config::reference_page());
}
