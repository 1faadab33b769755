//! Steps that need capabilities while an interface that has come back is taken into use: loading and attaching the
//! program, and opening sockets. Everything else of it works with the descriptors alone (since Linux 6.0, bpf(2) changes
//! maps without a capability). Another process can therefore keep the capabilities.

use crate::XdpError;
use crate::attached::{self, Attached, AttachedParts, PortConfig};
use crate::interface::Interface;
use crate::program::PrefixTables;
use crate::socket;
use std::os::fd::OwnedFd;

/// Does the steps that need capabilities.
pub trait Privileged: Send {
    /// Puts a program on the interface of a port.
    ///
    /// # Errors
    /// If there is no such interface, or the kernel refuses.
    fn attach(&mut self, port: usize) -> Result<AttachedParts, XdpError>;

    /// Opens an AF_XDP socket, for the interface of a port.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn open_socket(&mut self, port: usize) -> Result<OwnedFd, XdpError>;
}

/// Parts that a [`Keeper`] is made of.
pub struct KeeperParts {
    /// The interfaces.
    pub ports: Vec<PortConfig>,
    /// Queues of each that are served.
    pub queues: u32,
    /// PrefixTables of the program.
    pub tables: [OwnedFd; 3],
}

/// The process that keeps the capabilities.
pub struct Keeper {
    ports: Vec<PortConfig>,
    queues: u32,
    tables: PrefixTables,
}

impl Keeper {
    /// For the interfaces of these parts alone.
    pub fn new(KeeperParts { ports, queues, tables }: KeeperParts) -> Keeper {
        Keeper { ports, queues, tables: PrefixTables::from_files(tables) }
    }

    fn port(&self, port: usize) -> Result<&PortConfig, XdpError> {
        self.ports.get(port).ok_or_else(|| XdpError::Missing(format!("port {port}")))
    }
}

impl Privileged for Keeper {
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
