//! `gatun init --pair`: files for two boxes that back each other.

use super::{Args, Mode, quoted};
use crate::commands::certificates::{MEMBER_DAYS, service_user};
use crate::commands::peer::certificates;
use crate::commands::print_bytes;
use anyhow::{bail, ensure};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// TCP port of the connection between the boxes.
const PORT: u16 = 7464;

/// Addresses of both boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// Address of member `a`.
    a: SocketAddr,
    /// Address of member `b`.
    b: SocketAddr,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Pair, String> {
        let (a, b) = text
            .split_once(',')
            .ok_or("write the addresses of both boxes as ADDRESS,ADDRESS, such as 10.0.0.1,10.0.0.2")?;
        let (a, b) = (address(a.trim())?, address(b.trim())?);
        if a == b {
            return Err(format!("both boxes have the address {a}: each needs its own"));
        }
        Ok(Pair { a, b })
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = || format!("\"{text}\" is not an address, with or without a port");
    let alone = |text: &str| text.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, PORT));
    let found = alone(text).or_else(|| text.parse().ok()).ok_or_else(wrong)?;
    match found.ip().is_unspecified() {
        true => Err(format!(
            "{text} is the address of no host: write the address at which the other box reaches it"
        )),
        false => Ok(found),
    }
}

impl Pair {
    /// Checks the other arguments before questions are asked.
    pub(super) fn check(&self, args: &Args) -> anyhow::Result<()> {
        ensure!(
            args.mode != Some(Mode::Siit),
            "--pair is for --mode nat64 and --mode nat44: two boxes with the same stateless configuration \
             need no pair (docs/tutorials/two-boxes.md)"
        );
        ensure!(!args.force, "--pair never overwrites a directory: remove --force");
        let directory = directory(args);
        if directory.as_os_str() == "-" {
            bail!("--pair writes several files: name a directory with --output");
        }
        ensure!(!directory.exists(), "{} exists: name another directory with --output", directory.display());
        Ok(())
    }

    /// Writes certificates and both configurations. `text` is what both have in common.
    pub(super) fn write(&self, args: &Args, text: &str) -> anyhow::Result<()> {
        let directory = directory(args);
        let texts = [("a", self.a, self.b), ("b", self.b, self.a)]
            .map(|(member, own, other)| (member, own, format!("{text}\n{}", section(member, own, other))));
        for (member, _, text) in &texts {
            if let Err(report) = gatun_config::load_str(text, member) {
                bail!("invalid configuration from these answers:\n{}", report.pretty(false));
            }
        }
        certificates::create(&directory, MEMBER_DAYS)?;
        for (member, _, text) in &texts {
            super::write(&directory.join(format!("{member}.toml")), false, text)?;
        }
        let boxes = texts.iter().map(|(member, own, _)| copies(&directory, member, *own)).collect::<String>();
        let directory = directory.display();
        print_bytes(
            format!(
                "created {directory}.\n{boxes}{}\
                 Keep {directory}/authority for `gatun peer renew`, where nobody else can read it.\n\
                 Then start Gatun on both boxes; `gatun peer status` shows the pair.\n",
                service_user(gatun_config::PEER_DIRECTORY)
            )
            .as_bytes(),
        )?;
        Ok(())
    }
}

/// Directory to create.
fn directory(args: &Args) -> PathBuf {
    args.output.clone().unwrap_or_else(|| "pair".into())
}

/// List of files to copy to a box.
fn copies(directory: &Path, member: &str, own: SocketAddr) -> String {
    let (directory, host) = (directory.display(), own.ip());
    format!(
        "Copy to the box with the address {host}:\n  \
         {directory}/{member}.toml as /etc/gatun/gatun.toml\n  \
         {directory}/{member}/*.pem to /etc/gatun/peer/\n"
    )
}

/// Section of a member.
fn section(member: &str, own: SocketAddr, other: SocketAddr) -> String {
    format!(
        "\
# The other box of the pair. Everything above must be the same on both boxes. docs/how-to/pair.md tells how to
# operate them, and docs/how-to/announce.md how routers learn which box to use.
[peer]
member = {}
listen = {}
connect = {}
",
        quoted(member),
        quoted(&own.to_string()),
        quoted(&other.to_string())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_config::PeerMember;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn args(output: &Path) -> Args {
        Args {
            mode: Some(Mode::Nat64),
            pool6: None,
            pool4: Vec::new(),
            inside: Vec::new(),
            eam: Vec::new(),
            pair: Some("10.0.0.1,[2001:db8::2]:7000".parse().unwrap()),
            output: Some(output.to_owned()),
            force: false,
        }
    }

    #[test]
    fn both_files_are_valid_and_lead_to_each_other() {
        let output = std::env::temp_dir().join(format!("gatun-init-pair-{}", std::process::id()));
        super::super::execute(args(&output)).unwrap();
        let peer = |member: &str| {
            let text = fs::read_to_string(output.join(format!("{member}.toml"))).unwrap();
            let (config, warnings) = gatun_config::load_str(&text, member).unwrap();
            assert!(warnings.is_empty(), "{warnings}");
            (config.peer.unwrap(), text)
        };
        let ((a, text_a), (b, text_b)) = (peer("a"), peer("b"));
        assert_eq!((a.member, b.member), (PeerMember::A, PeerMember::B));
        assert_eq!((a.listen, b.listen), (b.connect, a.connect));
        assert_eq!(a.listen.unwrap(), "10.0.0.1:7464".parse().unwrap());
        let differ = text_a.lines().zip(text_b.lines()).filter(|(a, b)| a != b).count();
        assert_eq!(differ, 3, "member, listen and connect");
        for member in ["a", "b"] {
            let key = output.join(member).join("key.pem");
            assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let again = super::super::execute(args(&output)).unwrap_err().to_string();
        assert!(again.contains("exists: name another directory"), "{again}");
        fs::remove_dir_all(output).unwrap();
    }

    #[test]
    fn wrong_addresses_are_refused_in_words() {
        for (text, word) in [
            ("10.0.0.1", "both boxes"),
            ("10.0.0.1,10.0.0.1", "each needs its own"),
            ("10.0.0.1,second", "is not an address"),
            ("0.0.0.0,10.0.0.2", "no host"),
        ] {
            let said = text.parse::<Pair>().unwrap_err();
            assert!(said.contains(word), "{said}");
        }
        let mut siit = args(Path::new("/nowhere"));
        siit.mode = Some(Mode::Siit);
        let said = siit.pair.unwrap().check(&siit).unwrap_err().to_string();
        assert!(said.contains("need no pair"), "{said}");
    }
}
