//! The Containerfile matches the package and the service. `scripts/container` builds and runs the image, if
//! podman and a base image are available.

use crate::{markdown, read};

/// Instructions with their arguments. A line that ends in a backslash continues.
fn instructions(text: &str) -> Vec<(String, String)> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split = |line: &str| {
        let (name, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{line}: an instruction alone"));
        (name.to_owned(), rest.trim().to_owned())
    };
    lines.map(split).collect()
}

#[test]
fn the_container_runs_the_packages_program_with_the_services_configuration() {
    let file = instructions(&read("packaging/Containerfile"));
    let all = |name: &str| -> Vec<_> {
        file.iter().filter(|(other, _)| other == name).map(|(_, rest)| rest.as_str()).collect()
    };
    let known = ["ARG", "FROM", "COPY", "RUN", "STOPSIGNAL", "ENTRYPOINT", "CMD"];
    assert!(file.iter().all(|(name, _)| known.contains(&name.as_str())), "{file:?}");
    assert_eq!(file.iter().take(2).map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["ARG", "FROM"]);
    // The package, named by cargo-deb and found by scripts/package, is the only file in the context.
    assert!(read("scripts/package").contains("target/debian/gatun_*.deb"));
    assert!(all("COPY").iter().all(|copy| copy.starts_with("gatun_*.deb ")));
    let words = |list: &str| -> Vec<String> { serde_json::from_str(list).expect("a list of words") };
    let [entry] = all("ENTRYPOINT")[..] else { panic!("one entry") };
    let [command] = all("CMD")[..] else { panic!("one command") };
    let line = [words(entry), words(command)].concat().join(" ");
    assert!(read("packaging/gatun.service").contains(&format!("\nExecStart={line}\n")), "{line}");
}

#[test]
fn the_script_runs_the_commands_of_the_page_on_containers() {
    let page = read("docs/how-to/container.md");
    let blocks: String = markdown::blocks(&page).into_iter().map(|block| block.text).collect();
    let script = read("scripts/container");
    // The script extracts the longest command from the page.
    assert_eq!(blocks.matches("podman run ").count(), 1);
    assert!(script.contains(r"sed -n '/^podman run/,/ gatun$/p' docs/how-to/container.md"));
    assert!(blocks.lines().any(|line| line.ends_with("/etc/gatun/gatun.toml:ro gatun")));
    for line in blocks.lines().filter(|line| line.starts_with("podman ") && !line.starts_with("podman run "))
    {
        // Names of images and options for less output differ.
        let words: Vec<_> = line.split_whitespace().take(2).collect();
        let tried = script.contains(&words.join(" ")) || (words[1] == "build" && script.contains(" bud "));
        assert!(tried, "scripts/container does not try: {line}");
    }
}
