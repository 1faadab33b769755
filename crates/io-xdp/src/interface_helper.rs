//! Privileged steps of reusing an interface that has come back: loading and attaching the program, and
//! opening sockets. All other steps need only descriptors (since Linux 6.0, bpf(2) changes maps without a
//! capability). Therefore another process can keep the capabilities.

use crate::XdpError;
use crate::attached::{self, Attached, AttachedParts, PortConfig};
use crate::interface::Interface;
use crate::program::PrefixTables;
use crate::socket;
use std::os::fd::OwnedFd;

/// Privileged steps.
pub trait Privileged: Send {
    /// Attaches a program to the interface of a port.
    ///
    /// # Errors
    /// Returns an error if the interface does not exist, or the kernel refuses.
    fn attach(&mut self, port: usize) -> Result<AttachedParts, XdpError>;

    /// Opens an AF_XDP socket for the interface of a port.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    fn open_socket(&mut self, port: usize) -> Result<OwnedFd, XdpError>;
}

/// Parts of a [`InterfaceHelper`].
pub struct InterfaceHelperParts {
    /// Interfaces.
    pub ports: Vec<PortConfig>,
    /// Number of queues served on each interface.
    pub queues: u32,
    /// Prefix tables of the program.
    pub tables: [OwnedFd; 3],
}

/// Privileged steps done in the process that keeps the capabilities.
pub struct InterfaceHelper {
    ports: Vec<PortConfig>,
    queues: u32,
    tables: PrefixTables,
}

impl InterfaceHelper {
    /// Creates a helper for the interfaces of these parts.
    pub fn new(InterfaceHelperParts { ports, queues, tables }: InterfaceHelperParts) -> InterfaceHelper {
        InterfaceHelper { ports, queues, tables: PrefixTables::from_files(tables) }
    }

    fn port(&self, port: usize) -> Result<&PortConfig, XdpError> {
        self.ports.get(port).ok_or_else(|| XdpError::Missing(format!("port {port}")))
    }
}

impl Privileged for InterfaceHelper {
    fn attach(&mut self, port: usize) -> Result<AttachedParts, XdpError> {
        let PortConfig { interface, mode } = self.port(port)?;
        let interface = Interface::find(interface)?;
        attached::check(&interface, self.queues)?;
        let attached = Attached::new(&interface, *mode, &self.tables, self.queues)?;
        Ok(attached.into_parts(interface.index))
    }

    fn open_socket(&mut self, port: usize) -> Result<OwnedFd, XdpError> {
        socket::open_unbound(&self.port(port)?.interface)
    }
}
