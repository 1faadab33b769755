//! A network namespace: a host of the lab.

use super::process::{self, Process};
use crate::Error;
use std::ffi::OsStr;
use std::process::Command;

/// A host of the lab.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// A new one, with nothing in it but its loopback device, up.
    ///
    /// # Errors
    /// Where `ip netns add` fails.
    pub fn new(name: &str) -> Result<Self, Error> {
        process::run(Command::new("ip").args(["netns", "add", name]))?;
        let namespace = Namespace { name: name.to_owned() };
        namespace.ip("link set lo up")?;
        // An address that is tentative for a second would be a second's wait in every test.
        namespace.sysctl("net.ipv6.conf.all.accept_dad", "0")?;
        namespace.sysctl("net.ipv6.conf.default.accept_dad", "0")?;
        Ok(namespace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A program that will run in it. The lab's own process may be root of its user namespace only.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg("--").arg(program);
        command
    }

    /// Runs a line of words to its end and returns what it wrote.
    ///
    /// # Errors
    /// Where the program cannot be started or fails; with its standard error.
    pub fn run(&self, line: &str) -> Result<String, Error> {
        process::run(&mut self.words(line))
    }

    /// Starts a line of words.
    ///
    /// # Errors
    /// Where the program cannot be started.
    pub fn start(&self, line: &str) -> Result<Process, Error> {
        Process::start(&mut self.words(line))
    }

    fn words(&self, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().unwrap_or_default());
        command.args(words);
        command
    }

    /// Runs `ip` with the words of a line.
    ///
    /// # Errors
    /// Where it fails.
    pub fn ip(&self, line: &str) -> Result<(), Error> {
        process::run(Command::new("ip").args(["-n", &self.name]).args(line.split_whitespace())).map(drop)
    }

    /// Writes a kernel setting.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), Error> {
        self.run(&format!("sysctl -qw {key}={value}")).map(drop)
    }

    /// Lets it forward packets of both versions.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub fn forward(&self) -> Result<(), Error> {
        self.sysctl("net.ipv4.ip_forward", "1")?;
        self.sysctl("net.ipv6.conf.all.forwarding", "1")
    }

    /// Connects it with another one: a cable with a device at each end, both up.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub fn connect(&self, device: &str, peer: &Namespace, peer_device: &str) -> Result<(), Error> {
        let line = format!(
            "link add {device} netns {} type veth peer name {peer_device} netns {}",
            self.name, peer.name
        );
        process::run(Command::new("ip").args(line.split_whitespace()))?;
        self.ip(&format!("link set {device} up"))?;
        peer.ip(&format!("link set {peer_device} up"))
    }

    /// Gives a device an address at once.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub fn address(&self, device: &str, address: &str) -> Result<(), Error> {
        let nodad = if address.contains(':') { "nodad" } else { "" };
        self.ip(&format!("address add {address} dev {device} {nodad}"))
    }
}
