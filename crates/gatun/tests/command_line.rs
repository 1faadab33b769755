//! Configuration commands, as a user runs them.

use std::path::PathBuf;
use std::process::{Command, Output};

fn gatun(args: &[&str]) -> Output {
    gatun_testkit::output(Command::new(env!("CARGO_BIN_EXE_gatun")).args(args)).unwrap()
}

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("gatun-cli-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn check_accepts_the_file_of_init_and_nothing_is_overwritten() {
    let dir = scratch("init");
    for mode in ["nat64", "siit"] {
        let file = dir.join(format!("{mode}.toml"));
        let file = file.to_str().unwrap();
        let written = gatun(&["init", "--mode", mode, "--output", file]);
        assert!(written.status.success(), "{written:?}");
        let checked = gatun(&["check", file]);
        assert!(checked.status.success(), "{checked:?}");
        assert!(String::from_utf8_lossy(&checked.stdout).starts_with(&format!("{file}: OK\n")));
        // The file has example addresses, which cause warnings.
        let said = String::from_utf8(checked.stderr).unwrap();
        let mut warnings = said.lines().filter(|line| !line.starts_with("    help: "));
        // The host of the test may have such an address, too.
        let expected = ["reserved for documentation", "this host's uplink"];
        let is_expected = |line: &str| expected.iter().any(|part| line.contains(part));
        assert!(said.contains(expected[0]) && warnings.all(is_expected), "{said}");
        let again = gatun(&["init", "--mode", mode, "--output", file]);
        assert_eq!(again.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&again.stderr).contains("--force"));
        assert!(gatun(&["init", "--mode", mode, "--output", file, "--force"]).status.success());
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn check_prints_each_error_on_a_line_and_exits_with_1() {
    let dir = scratch("check");
    let file = dir.join("bad.toml");
    std::fs::write(&file, "[[nat64]]\npool6 = \"64:ff9b::/95\"\nsubscribr = \"/64\"\n").unwrap();
    let checked = gatun(&["check", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(1));
    let said = String::from_utf8(checked.stderr).unwrap();
    assert!(said.contains("bad.toml:2:9: error: "), "{said}");
    assert!(said.contains("bad.toml:3:1: error: unknown key `subscribr`"), "{said}");
    assert!(said.ends_with("3 errors\n"), "{said}");
    let json = gatun(&["check", "--json", file.to_str().unwrap()]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&json["ok"], json["problems"].as_array().map(Vec::len)),
        (&serde_json::json!(false), Some(3))
    );
    std::fs::remove_dir_all(dir).unwrap();
}

/// Standard output and standard error of `check` for a file, and its success.
fn check(name: &str, text: &str) -> (String, String, bool) {
    let dir = scratch(name);
    let file = dir.join("t.toml");
    std::fs::write(&file, text).unwrap();
    let checked = gatun(&["check", file.to_str().unwrap()]);
    std::fs::remove_dir_all(dir).unwrap();
    let [out, err] = [checked.stdout, checked.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (out, err, checked.status.success())
}

const POOL: &str = "[translator]\nown6 = \"2a00::1\"\n[[pool]]\nprefixes = \"9.9.9.0/28\"\n\
    allocation = { kind = \"blocks\", size = 1024 }\n[[nat64]]\npool6 = \"64:ff9b::/96\"\n[log]\n";

#[test]
fn check_summarises_ports_workers_pools_and_logs() {
    let (out, err, accepted) = check("tun", &format!("[[port]]\nqueues = 3\n{POOL}"));
    assert!(accepted && err.is_empty(), "{err}");
    for line in [
        "          1,008 blocks of 1,024 ports: serves 1,008 subscribers with one each, 252 with 4 (blocks_per_subscriber)",
        "  workers 3, one for each queue, on processors that the kernel chooses",
        "  memory  ",
        "  log     0.",
    ] {
        assert!(out.lines().any(|said| said.starts_with(line)), "{line}: {out}");
    }
    let program = format!("  program gatun {}, backends: tun", env!("CARGO_PKG_VERSION"));
    assert!(out.contains(&program), "{out}");
    let xdp = format!(
        "[[port]]\nbackend = \"xdp\"\ndevice = \"eth0\"\nqueues = 2\n[workers]\ncores = [1, 3]\n{POOL}"
    );
    let (out, err, accepted) = check("xdp", &xdp);
    if cfg!(feature = "xdp") {
        assert!(accepted, "{err}");
        assert!(out.contains("interface eth0 through AF_XDP, 2 queues, no address"), "{out}");
        assert!(out.contains("  workers 2, one for each queue, on processors 1, 3\n"), "{out}");
    }
}

#[test]
fn check_and_run_refuse_a_backend_that_was_not_built() {
    let text = format!("[[port]]\nbackend = \"dpdk\"\ndevice = \"0000:01:00.0\"\n{POOL}");
    let (out, err, accepted) = check("dpdk", &text);
    match cfg!(feature = "dpdk") {
        true => assert!(accepted && out.contains("device 0000:01:00.0 through DPDK, 1 queue"), "{out}{err}"),
        false => {
            assert!(!accepted && out.is_empty(), "{out}");
            assert!(err.contains("t.toml: error: this gatun was built without the dpdk backend"), "{err}");
        }
    }
}

#[test]
fn check_warns_of_a_pool_with_the_only_address_of_the_hosts_uplink() {
    gatun_testkit::run_test(
        "check_warns_of_a_pool_with_the_only_address_of_the_hosts_uplink",
        gatun_testkit::refusal,
        || {
            let net = gatun_testkit::Topology::new().unwrap();
            net.translator.ip("route add default via 198.51.100.2").unwrap();
            let file = "/run/uplink.toml";
            let says = |prefixes: &str| {
                std::fs::write(file, POOL.replace("9.9.9.0/28", prefixes)).unwrap();
                let program = env!("CARGO_BIN_EXE_gatun");
                let output =
                    gatun_testkit::output(net.translator.command(program).args(["check", "--quiet", file]))
                        .unwrap();
                assert!(output.status.success(), "{output:?}");
                String::from_utf8(output.stderr).unwrap()
            };
            assert!(!says("198.51.100.9").contains("only IPv4 address"));
            let said = says("198.51.100.0/28");
            let warning =
                "/run/uplink.toml: warning: pool `pool1` has 198.51.100.1, the only IPv4 address of ";
            assert!(said.contains(warning), "{said}");
            net.translator.ip("address add 192.168.7.1/32 dev lo").unwrap();
            assert!(
                says("198.51.100.0/28").contains(warning),
                "an address of another interface is no uplink's"
            );
        },
    );
}

#[test]
fn every_command_has_completions_and_a_manual_page() {
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(gatun(&["completions", shell]).stdout).unwrap();
        assert!(script.contains("translate") && script.contains("check"), "{shell}");
    }
    let dir = scratch("man");
    assert!(gatun(&["man", dir.to_str().unwrap()]).status.success());
    for page in ["gatun.1", "gatun-run.1", "gatun-check.1", "gatun-init.1", "gatun-translate.1"] {
        assert!(dir.join(page).exists(), "{page}");
    }
    let page = std::fs::read_to_string(dir.join("gatun.toml.5")).unwrap();
    assert!(page.contains(".TH gatun.toml 5") && page.contains("pool6"), "{page}");
    std::fs::remove_dir_all(dir).unwrap();
}

/// Tests run programs by `gatun_testkit::output` or `run`, which check that the texts of `gatun` are for
/// people.
#[test]
fn every_output_that_a_test_reads_is_checked() {
    fn sources(dir: &std::path::Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true => sources(&entry, found),
                false => found.extend(entry.extension().is_some_and(|end| end == "rs").then_some(entry)),
            }
        }
    }
    let mut files = Vec::new();
    sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"), &mut files);
    assert!(files.len() > 40, "{files:?}");
    let unchecked = concat!(".out", "put()");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(
            !text.contains(unchecked),
            "{}: gatun_testkit::output instead of {unchecked}",
            file.display()
        );
    }
}

#[test]
fn help_shows_examples_and_version_prints_the_version() {
    let help = String::from_utf8(gatun(&["--help"]).stdout).unwrap();
    assert!(help.contains("Examples:"), "{help}");
    let version = String::from_utf8(gatun(&["--version"]).stdout).unwrap();
    assert_eq!(version, format!("gatun {}\n", env!("CARGO_PKG_VERSION")));
}

/// Files of a member, as `gatun peer init` writes them.
fn member(directory: &std::path::Path) -> gatun_peer::link::TlsFiles {
    let [authority, certificate, key] =
        ["ca.pem", "certificate.pem", "key.pem"].map(|name| directory.join(name));
    gatun_peer::link::TlsFiles { authority, certificate, key }
}

/// Returns true if members with these files connect, within some seconds.
fn connect(first: &std::path::Path, second: &std::path::Path) -> bool {
    let name = gatun_peer::tls::SERVER_NAME;
    connect_as((first, name), (second, name))
}

/// The same for boxes that expect the name of the other one in its certificate.
fn connect_as(first: (&std::path::Path, &str), second: (&std::path::Path, &str)) -> bool {
    use gatun_peer::link::{Link, LinkSettings};
    use gatun_peer::ownership::Member;
    use gatun_peer::wire::{Exchange, Settings};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let dead_after_ms = 60_000;
    let end = |member, directory: &std::path::Path, name: &str, listen, connect| {
        let (files, name) = (self::member(directory), name.to_owned());
        let link = Link::new(LinkSettings { member, listen, connect, files, name, dead_after_ms });
        (link.unwrap(), Exchange::new(Settings::new(member, "box", 1, vec![])))
    };
    let mut ends = [
        end(Member::First, first.0, second.1, Some(listener), None),
        end(Member::Second, second.0, first.1, None, Some(address)),
    ];
    for now_ms in 0..3_000 {
        let mut are_up = true;
        for (link, exchange) in &mut ends {
            are_up &= link.turn(now_ms, exchange, true, &mut vec![], true).is_up;
            exchange.accept_greeting(now_ms);
        }
        if are_up {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    false
}

#[test]
fn members_of_a_pair_get_certificates_and_new_ones() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = scratch("peer");
    let (pair, other) = (dir.join("pair"), dir.join("other"));
    for directory in [&pair, &other] {
        let made = gatun(&["peer", "init", directory.to_str().unwrap(), "--days", "10"]);
        assert!(made.status.success(), "{made:?}");
    }
    for key in ["authority/key.pem", "a/key.pem", "b/key.pem"] {
        assert_eq!(std::fs::metadata(pair.join(key)).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let (a, b) = (pair.join("a"), pair.join("b"));
    assert!(connect(&a, &b) && connect(&b, &a));
    assert!(!connect(&a, &other.join("b")));
    // The clock of the other box may be a day late.
    let yesterday = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() - 86_400;
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["verify", "-attime", &yesterday.to_string(), "-CAfile"]);
    gatun_testkit::run(openssl.args([a.join("ca.pem"), a.join("certificate.pem")])).unwrap();
    let refused = gatun(&["peer", "init", pair.to_str().unwrap()]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("exists: choose another directory"), "{said}");
    // A new certificate of one member, which the other one trusts.
    let before = gatun_peer::link::Tls::load(&member(&a)).unwrap().certificate_end;
    let renew = |authority: &std::path::Path| {
        let authority = authority.join("authority");
        gatun(&["peer", "renew", authority.to_str().unwrap(), a.to_str().unwrap(), "--days", "20"])
    };
    let renewed = renew(&pair);
    let said = String::from_utf8(renewed.stdout).unwrap();
    assert!(renewed.status.success() && said.contains("the daemon uses it after a reload"), "{said}");
    let days = (gatun_peer::link::Tls::load(&member(&a)).unwrap().certificate_end - before) / 86_400;
    assert_eq!(days, 10);
    assert!(connect(&a, &b));
    let refused = renew(&other);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("is the certificate of another authority"), "{said}");
    let refused = renew(&dir);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("`gatun peer init` makes it"), "{said}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn nodes_of_a_cluster_get_certificates_with_their_names() {
    let dir = scratch("cluster");
    let cluster = dir.join("cluster");
    let path = cluster.to_str().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|node| cluster.join(node));
    let [of_a, of_b, of_c] = ["a", "b", "c"].map(|node| gatun_config::node_certificate_name(node).unwrap());
    let made = gatun(&["cluster", "init", path, "a", "b"]);
    assert!(made.status.success() && !c.exists(), "{made:?}");
    let added = gatun(&["cluster", "add", path, "c"]);
    assert!(added.status.success(), "{added:?}");
    assert!(connect_as((&a, &of_a), (&b, &of_b)) && connect_as((&c, &of_c), (&a, &of_a)));
    // A node cannot speak for another one.
    assert!(!connect_as((&a, &of_a), (&b, &of_c)));
    let refused = |arguments: &[&str], what: &str| {
        let refused = gatun(arguments);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains(what), "{said}");
    };
    refused(&["cluster", "add", path, "c"], "`gatun cluster renew` replaces its certificate");
    refused(&["cluster", "add", path, "Node_1"], "invalid name of a node \"Node_1\"");
    refused(&["cluster", "add", path, "authority"], "is the name of the authority's directory");
    refused(&["cluster", "add", dir.join("x").to_str().unwrap(), "d"], "`gatun cluster init` makes it");
    refused(&["cluster", "init", path, "a"], "exists: choose another directory");
    let authority = cluster.join("authority");
    let renewed = gatun(&["cluster", "renew", authority.to_str().unwrap(), "c"]);
    let said = String::from_utf8(renewed.stdout).unwrap();
    // 824 days and some hours, if a second has passed since.
    let is_said =
        ["825", "824"].iter().any(|days| said.contains(&format!("c/certificate.pem: valid for {days} days")));
    assert!(renewed.status.success() && is_said, "{said}");
    assert!(connect_as((&a, &of_a), (&c, &of_c)));
    std::fs::remove_dir_all(dir).unwrap();
}
