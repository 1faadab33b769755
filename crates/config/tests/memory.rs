//! What reading a configuration may take of memory. A process of its own, as the peak is the process's.

use std::process::Command;

/// Peak resident memory of this process, bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// The peak of loading `text`, in a process that does nothing else.
fn peak_of(name: &str, text: &str) -> u64 {
    if let Ok(file) = std::env::var("GATUN_MEMORY_OF") {
        let _ = gatun_config::load_file(file.as_ref());
        println!("peak {}", peak());
        std::process::exit(0);
    }
    let file = std::env::temp_dir().join(format!("gatun-memory-{}-{name}.toml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "no_file_takes_more_than_a_gigabyte", "--nocapture"])
        .env("GATUN_MEMORY_OF", &file);
    let output = child.output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let line = said.lines().find_map(|line| line.strip_prefix("peak ")).unwrap_or_else(|| panic!("{said}"));
    line.parse().unwrap()
}

#[test]
fn no_file_takes_more_than_a_gigabyte() {
    let entry = "{ \"v4\" = \"192.0.2.1\", v6 = \"2001:db8::1\" },\n";
    let list = |bytes: usize| format!("[[siit]]\neam = [\n{}]\n", entry.repeat(bytes / entry.len()));
    let cases = [
        // As long as is parsed at all, and what took 5 GB.
        ("parsed", list((8 << 20) - 100)),
        ("numbers", format!("x = [{}]\n", "1,".repeat((4 << 20) - 10))),
        ("refused", list(100 << 20)),
    ];
    for (name, text) in cases {
        let peak = peak_of(name, &text);
        println!("{name}: {} bytes of text, peak {} MiB", text.len(), peak >> 20);
        assert!(peak < 1 << 30, "{name}: {peak}");
    }
}
