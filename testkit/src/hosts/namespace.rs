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
    /// Makes a namespace whose only device is loopback, up.
    ///
    /// # Errors
    /// Returns an error if `ip netns add` fails.
    pub fn new(name: &str) -> Result<Self, Error> {
        process::run(Command::new("ip").args(["netns", "add", name]))?;
        let namespace = Namespace { name: name.to_owned() };
        namespace.ip("link set lo up")?;
        // Duplicate address detection would keep each address tentative for a second, in every test.
        namespace.sysctl("net.ipv6.conf.all.accept_dad", "0")?;
        namespace.sysctl("net.ipv6.conf.default.accept_dad", "0")?;
        Ok(namespace)
    }

    /// Name of the namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run in the namespace. The lab's own process may be root of its user namespace
    /// only.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg("--").arg(program);
        command
    }

    /// A command that will run a Python script in the namespace.
    pub fn python(&self, script: &str, arguments: &[&str]) -> Command {
        let mut command = self.command("python3");
        command.args(["-c", script]).args(arguments);
        command
    }

    /// Runs a command line to its end and returns its standard output.
    ///
    /// # Errors
    /// Returns an error with its standard error if the program cannot be started or fails.
    pub fn run(&self, line: &str) -> Result<String, Error> {
        process::run(&mut self.words(line))
    }

    /// Starts a command line.
    ///
    /// # Errors
    /// Returns an error if the program cannot be started.
    pub fn start(&self, line: &str) -> Result<Process, Error> {
        Process::start(&mut self.words(line))
    }

    fn words(&self, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().unwrap_or_default());
        command.args(words);
        command
    }

    /// Runs `ip` with the words of a line in the namespace.
    ///
    /// # Errors
    /// Returns an error if `ip` fails.
    pub fn ip(&self, line: &str) -> Result<(), Error> {
        process::run(Command::new("ip").args(["-n", &self.name]).args(line.split_whitespace())).map(drop)
    }

    /// Writes a kernel setting.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), Error> {
        self.run(&format!("sysctl -qw {key}={value}")).map(drop)
    }

    /// Enables forwarding of IPv4 and IPv6.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn forward(&self) -> Result<(), Error> {
        self.sysctl("net.ipv4.ip_forward", "1")?;
        self.sysctl("net.ipv6.conf.all.forwarding", "1")
    }

    /// Connects it to another namespace with a veth pair, and sets both devices up.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn connect(&self, device: &str, peer: &Namespace, peer_device: &str) -> Result<(), Error> {
        let line = format!(
            "link add {device} netns {} type veth peer name {peer_device} netns {}",
            self.name, peer.name
        );
        process::run(Command::new("ip").args(line.split_whitespace()))?;
        self.ip(&format!("link set {device} up"))?;
        peer.ip(&format!("link set {peer_device} up"))
    }

    /// Adds an address to a device, without duplicate address detection.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn address(&self, device: &str, address: &str) -> Result<(), Error> {
        let nodad = if address.contains(':') { "nodad" } else { "" };
        self.ip(&format!("address add {address} dev {device} {nodad}"))
    }

    /// Routes packets from the NAT44 inside, 100.64.0.0/10, to the TUN device "nat64"; packets from the
    /// device follow the main table.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn steer_private(&self) -> Result<(), Error> {
        self.ip("rule add priority 100 iif nat64 lookup main")?;
        self.ip("rule add priority 101 from 100.64.0.0/10 lookup 4464")?;
        self.ip("route add default dev nat64 table 4464")
    }

    /// Removes the rules of [`Namespace::steer_private`]. The kernel removes the device's routes with it.
    ///
    /// # Errors
    /// Returns an error if there are none.
    pub fn unsteer_private(&self) -> Result<(), Error> {
        [100, 101].iter().try_for_each(|priority| self.ip(&format!("rule del priority {priority}")))
    }
}
