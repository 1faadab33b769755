//! Listening sockets, opened before the daemon drops its rights.

use rustix::fs::{Mode, OFlags};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Mode of the socket: the owner and the group may connect.
const MODE: u32 = 0o660;

/// Mode of a directory made for the socket: everybody may enter it.
const DIRECTORY_MODE: u32 = 0o755;

/// Error of a socket that cannot be opened.
#[derive(Debug)]
pub enum Error {
    /// Another gatun listens there.
    Taken(PathBuf),
    /// The path is a file of another kind.
    NoSocket(PathBuf),
    /// A system call failed: its purpose and its error.
    System(String, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Taken(path) => write!(
                f,
                "another gatun listens at {}: give each its own [api] listen = \"unix:PATH\"",
                path.display()
            ),
            Error::NoSocket(path) => write!(f, "{} exists and is not a socket", path.display()),
            Error::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// The socket's file. Dropping it removes the file, if that is still allowed.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl SocketFile {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A daemon that may no longer remove it leaves it; the next one replaces it.
        let _ = fs::remove_file(&self.0);
    }
}

/// Listens at a path and creates its directory if needed. A socket without a listener is replaced. `give`
/// sets owner and group before anybody can connect.
///
/// # Errors
/// Returns an error if another process listens there, the path is no socket, or a system call fails.
pub fn unix(
    path: &Path,
    give: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(UnixListener, SocketFile), Error> {
    let system = |what: &str| {
        let what = format!("{what} {}", path.display());
        move |error| Error::System(what, error)
    };
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    if let Some(directory) = directory.filter(|directory| !directory.exists()) {
        fs::create_dir_all(directory)
            .and_then(|()| {
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = File::from(rustix::fs::open(directory, flags, Mode::empty())?);
                made.set_permissions(fs::Permissions::from_mode(DIRECTORY_MODE))
            })
            .map_err(system("cannot make the directory of"))?;
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(Error::NoSocket(path.to_owned())),
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(Error::Taken(path.to_owned())),
        _ => {}
    }
    // Bind under another name first: nobody can connect before the rights are set, and the rename replaces
    // the old socket.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = path.with_file_name(name);
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new).map_err(system("cannot listen at"))?;
    let made = open_socket(&new)
        .and_then(|node| {
            // In a directory of another user, the name may already be another file's: change the opened file,
            // not the path.
            let this = PathBuf::from(format!("/proc/self/fd/{}", node.as_raw_fd()));
            fs::set_permissions(&this, fs::Permissions::from_mode(MODE)).and_then(|()| give(&this))
        })
        .and_then(|()| fs::rename(&new, path));
    if let Err(error) = made {
        let _ = fs::remove_file(&new);
        return Err(system("cannot set up")(error));
    }
    Ok((listener, SocketFile(path.to_owned())))
}

/// Opens the socket's file without following links.
fn open_socket(path: &Path) -> io::Result<File> {
    let node = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let node = File::from(node);
    if node.metadata()?.file_type().is_socket() {
        Ok(node)
    } else {
        Err(io::Error::other("another file has taken its name"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn only_a_socket_without_listener_is_replaced() {
        let directory = std::env::temp_dir().join(format!("gatun-listen-{}", std::process::id()));
        let path = directory.join("deeper/api.sock");
        let (listener, file) = unix(&path, |_| Ok(())).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert!(matches!(unix(&path, |_| Ok(())), Err(Error::Taken(_))));
        drop(listener);
        std::mem::forget(file);
        // A process that another test starts has a copy of the listener until it executes its program.
        let end = Instant::now() + Duration::from_secs(10);
        while UnixStream::connect(&path).is_ok() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (_listener, file) = unix(&path, |_| Ok(())).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(file);
        assert!(!path.exists());
        let refused = unix(&path, |_| Err(io::ErrorKind::PermissionDenied.into())).unwrap_err();
        assert!(refused.to_string().contains("cannot set up"), "{refused}");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0, "nothing is left behind");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(unix(&path, |_| Ok(())), Err(Error::NoSocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn another_file_at_the_sockets_name_keeps_its_mode() {
        let directory = std::env::temp_dir().join(format!("gatun-listen-link-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let [socket, file, link] = ["socket", "file", "link"].map(|name| directory.join(name));
        let _listener = UnixListener::bind(&socket).unwrap();
        fs::write(&file, "precious").unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        assert!(open_socket(&socket).is_ok());
        assert!(open_socket(&file).is_err());
        assert!(open_socket(&link).is_err());
        fs::remove_dir_all(&directory).unwrap();
    }
}
