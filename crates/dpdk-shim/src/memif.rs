//! Sockets of memif servers that killed processes have left.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

/// Value of an argument of a device, as "server" of "net_memif0,role=server".
pub fn argument<'d>(device: &'d str, key: &str) -> Option<&'d str> {
    device.split(',').skip(1).filter_map(|word| word.split_once('=')).find(|(k, _)| *k == key).map(|(_, v)| v)
}

/// Role of a memif according to its arguments.
pub fn is_client(device: &str) -> bool {
    !matches!(argument(device, "role"), Some("server" | "master"))
}

/// Removes a server's socket that a killed process left behind: nobody else could use its name.
///
/// # Errors
/// Another process serves the socket: its path.
pub fn free_socket(device: &str) -> Result<(), String> {
    let is_file = argument(device, "socket-abstract") == Some("no");
    let path = argument(device, "socket").filter(|_| is_file && !is_client(device));
    let Some(path) = path.map(Path::new) else { return Ok(()) };
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    if is_served(path) {
        // Several devices of this process may share a socket, which is created with the first.
        return Err(path.display().to_string());
    }
    drop(fs::remove_file(path));
    Ok(())
}

/// Checks whether a process has a socket open, which does not notice: the kernel refuses a connection of
/// another type than the socket's before it reaches the process. A connection to a DPDK server (22.11) that
/// disappears again can abort it, or keep it from greeting the next client.
fn is_served(path: &Path) -> bool {
    let connection = SocketAddrUnix::new(path).and_then(|address| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)
    });
    // EPROTOTYPE is the answer of a memif server.
    connection != Err(rustix::io::Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};

    #[test]
    fn only_the_socket_of_an_ended_server_is_removed() {
        let path = std::env::temp_dir().join(format!("gatun-memif-{}", std::process::id()));
        let device = |role| format!("net_memif0,role={role},socket={},socket-abstract=no", path.display());
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&socket, 1).unwrap();
        assert_eq!(free_socket(&device("server")), Err(path.display().to_string()));
        drop(socket);
        free_socket(&device("client")).unwrap();
        assert!(path.exists(), "it is not a client's to remove");
        free_socket(&device("server")).unwrap();
        assert!(!path.exists());
        free_socket(&device("server")).unwrap();
    }
}
