//! Steps of a history.

use super::switch::SwitchFault;

/// A step of a history. `shard` chooses an engine.
#[allow(missing_docs)] // The fields are what their names say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Packet from an inside host: TCP with these flags, or UDP; from the last of three ports a ping
    /// instead of UDP. `six` chooses NAT64 and its prefix.
    Out { shard: u8, host: u8, port: u8, server: u8, flags: Option<u8>, six: Option<u8> },
    /// Answer to a session, by its number.
    Back { shard: u8, session: u8, flags: u8 },
    /// Packet of a host outside to a public port.
    In { shard: u8, server: u8, port: u8, flags: Option<u8> },
    /// Some packets in both directions of every entry.
    Busy { packets: u8 },
    /// Time passes, and nobody does anything.
    Pass { ms: u32 },
    /// The engines end what has expired, for some seconds.
    Sweep,
    /// An operator ends the sessions of a port, or all of them.
    Clear { shard: u8, port: Option<u8>, bindings: bool },
    /// The manager hangs while sessions begin and all end, so that records are lost.
    Storm { shard: u8 },
    /// The other plan, for all engines.
    Reload,
    /// A turn of the manager.
    Turn,
    /// A worker handles commands, and does a part of a walk.
    Work { shard: u8, commands: u8 },
    /// A worker restores sessions.
    Restore { shard: u8 },
    /// Everybody works until nothing is left to do.
    Settle,
    /// Kills the manager. `stray` leaves an entry without a session.
    KillManager { stray: bool },
    /// Kills the manager and the engines; the next ones take over.
    KillAll { stray: bool },
    /// Flows that the table refuses.
    Refuse { flows: u8 },
    /// Room in a worker's queue, in batches.
    Room { shard: u8, batches: u8 },
    /// A switch executes requests.
    Serve { switch: u8, requests: u8 },
    /// The engine gives back packets of a switch, or loses their echoes.
    GiveBack { switch: u8, frames: u8, loses: bool },
    /// Something happens to a switch.
    Fault { switch: u8, fault: SwitchFault },
    /// Switches offload on or off.
    Enable(bool),
    /// An instance takes part, or does not.
    Instance { number: u8, offloaded: bool },
    /// Another limit.
    Limit(u8),
    /// Another epoch.
    Epoch(u8),
}
