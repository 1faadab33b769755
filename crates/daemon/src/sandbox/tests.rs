//! Forbidden actions of a process in the sandbox. Each attempt runs in its own process.

use super::{Allowed, Calls, Sandbox};
use nix::sys::ptrace;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use rustix::net::{AddressFamily, SendFlags, SocketType, socket};
use rustix::process::{Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, set_thread_uid};
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::num::NonZero;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Variables with the attempt of a child and its directory.
const ATTEMPT: &str = "GATUN_SANDBOX_ATTEMPT";
const DIRECTORY: &str = "GATUN_SANDBOX_DIRECTORY";
/// Variable with the port of a listener.
const PORT: &str = "GATUN_SANDBOX_PORT";
/// SIGSYS, with which the kernel ends a process that makes a forbidden call.
const SIGSYS: i32 = 31;

#[derive(Debug, PartialEq)]
enum Fate {
    Fine,
    /// EPERM, by seccomp.
    Refused,
    /// EACCES, by Landlock.
    NoAccess,
    Killed,
    Other(String),
}

fn fate(result: io::Result<()>) -> Fate {
    match result.map_err(|error| error.raw_os_error()) {
        Ok(()) => Fate::Fine,
        Err(Some(libc::EPERM)) => Fate::Refused,
        Err(Some(libc::EACCES)) => Fate::NoAccess,
        Err(other) => Fate::Other(format!("{other:?}")),
    }
}

fn raw(family: AddressFamily, kind: SocketType) -> io::Result<()> {
    Ok(socket(family, kind, None).map(drop)?)
}

/// Makes an attempt in a child.
fn attempt(name: &str, directory: &Path, port: u16) -> io::Result<()> {
    let [read, write, other] = ["read", "write", "other"].map(|name| directory.join(name).join("file"));
    match name {
        "to become another program" => Err(Command::new("/bin/true").exec()),
        "to start another program" => Command::new("/bin/true").status().map(drop),
        "to mount" => {
            Ok(rustix::mount::mount("none", "/mnt", "tmpfs", rustix::mount::MountFlags::empty(), None)?)
        }
        "to enter a namespace" => {
            let namespace = File::open("/proc/self/ns/net");
            let fd = namespace.or_else(|_| File::open("/proc/meminfo"))?;
            Ok(move_into_link_name_space(fd.as_fd(), Some(LinkNameSpaceType::Network))?)
        }
        "to trace another process" => Ok(ptrace::seize(Pid::parent(), ptrace::Options::empty())?),
        "to be traced" => Ok(ptrace::traceme()?),
        "to read another's memory" => {
            let (mut local, remote) = ([0; 8], [RemoteIoVec { base: 0x1000, len: 8 }]);
            Ok(process_vm_readv(Pid::parent(), &mut [io::IoSliceMut::new(&mut local)], &remote).map(drop)?)
        }
        "to signal another process" => Ok(kill_process(rustix::process::Pid::INIT, Signal::URG)?),
        "to become another user" => Ok(set_thread_uid(rustix::process::Uid::ROOT)?),
        "to read the password file" => File::open("/etc/passwd").map(drop),
        "to read hashes of passwords" => File::open("/etc/shadow").map(drop),
        "to list processes" => fs::read_dir("/proc").map(drop),
        "to read another's file" => File::open(other).map(drop),
        "to write where it may read" => fs::write(read, "x"),
        "to write elsewhere" => fs::write(other, "x"),
        "to make a link to elsewhere" => {
            std::os::unix::fs::symlink("/etc/shadow", write.with_extension("link"))
        }
        "to receive raw packets" => raw(AddressFamily::PACKET, SocketType::RAW),
        "to talk of routes" => raw(AddressFamily::NETLINK, SocketType::RAW),
        "to talk of netfilter's rules" => {
            let netfilter = rustix::net::Protocol::from_raw(const { NonZero::new(12).unwrap() });
            Ok(socket(AddressFamily::NETLINK, SocketType::RAW, Some(netfilter)).map(drop)?)
        }
        "to begin a thread" => std::thread::Builder::new().spawn(|| ()).map(drop),
        "to listen" => TcpListener::bind("127.0.0.1:0").map(drop),
        "to connect to somebody" => TcpStream::connect(("127.0.0.1", port)).map(drop),
        "to connect to a Unix socket" => UnixStream::connect(directory.join("socket")).map(drop),
        "to connect by MPTCP" => {
            let mptcp = rustix::net::Protocol::from_raw(const { NonZero::new(262).unwrap() });
            Ok(socket(AddressFamily::INET, SocketType::STREAM, Some(mptcp)).map(drop)?)
        }
        "to connect by sending" => {
            let stream = socket(AddressFamily::INET, SocketType::STREAM, None)?;
            let flags = SendFlags::from_bits_retain(libc::MSG_FASTOPEN as u32);
            let to = SocketAddr::from(([127, 0, 0, 1], port));
            Ok(rustix::net::sendto(&stream, b"x", flags, &to).map(drop)?)
        }
        "to signal a thread of its own" => Ok(nix::sys::signal::raise(nix::sys::signal::Signal::SIGURG)?),
        "to limit another process" => {
            let limit = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
            let pid = rustix::process::getppid();
            Ok(rustix::process::prlimit(pid, rustix::process::Resource::Nofile, limit).map(drop)?)
        }
        "to move another process to a processor" => {
            let mut processors = rustix::thread::CpuSet::new();
            processors.set(0);
            Ok(rustix::thread::sched_setaffinity(rustix::process::getppid(), &processors)?)
        }
        "to change the mode of a file by its path" => {
            fs::set_permissions(&other, fs::Permissions::from_mode(0o4755))
        }
        "to change the owner of a file by its path" => std::os::unix::fs::chown(&other, Some(1), Some(1)),
        "to change the time of a file by its path" => {
            let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
            let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
            Ok(rustix::fs::utimensat(rustix::fs::CWD, &other, &times, rustix::fs::AtFlags::empty())?)
        }
        "to set the user of a file of its own" => {
            File::open(&write)?.set_permissions(fs::Permissions::from_mode(0o4755))
        }
        "to make a file that runs as its owner" => {
            let mut options = File::options();
            options.write(true).create(true).mode(0o4755);
            options.open(write.with_extension("set-user-id")).map(drop)
        }
        "to use a pair of sockets" => UnixStream::pair().map(drop),
        // Allowed actions.
        "to change the mode of a file of its own" => {
            File::open(&write)?.set_permissions(fs::Permissions::from_mode(0o640))
        }
        "to send datagrams" => UdpSocket::bind("127.0.0.1:0")?.send_to(b"x", "127.0.0.1:9").map(drop),
        "to read its own files" => fs::read(read).map(drop),
        "to read a certificate behind a link" => fs::read(directory.join("live/file")).map(drop),
        "to read a certificate behind a link that was replaced" => {
            fs::read(directory.join("live/../archive/file2")).map(drop)
        }
        "to know its memory" => fs::read_to_string("/proc/meminfo").map(drop),
        "to make, write, rename and remove" => {
            fs::write(write.with_extension("new"), "x")?;
            fs::rename(write.with_extension("new"), &write)?;
            File::options().append(true).open(&write)?.sync_all()?;
            fs::remove_file(write)
        }
        "to make a file in a usual place" => fs::write(directory.join("usual").join("new"), "x"),
        "to begin a thread, which is bound too" => {
            let body = || {
                (fate(File::open("/etc/passwd").map(drop)), fate(raw(AddressFamily::PACKET, SocketType::RAW)))
            };
            let fates = std::thread::Builder::new().name("x".into()).spawn(body)?.join();
            assert_eq!(fates.ok(), Some((Fate::NoAccess, Fate::Refused)));
            Ok(())
        }
        other => Err(io::Error::other(format!("no such attempt: {other}"))),
    }
}

/// Runs the child's part. Does nothing in other processes.
#[test]
fn an_attempt() {
    let Ok(name) = std::env::var(ATTEMPT) else { return };
    let directory = PathBuf::from(std::env::var(DIRECTORY).unwrap());
    let port = std::env::var(PORT).unwrap().parse().unwrap();
    let (name, calls) = match name.split_once(": ") {
        Some(("helper", name)) => (name, Calls::NetworkHelper),
        Some(("interface helper", name)) => (name, Calls::InterfaceHelper),
        Some((_, name)) => (name, Calls::Connector),
        None => (&name[..], Calls::Daemon),
    };
    let allowed = Allowed {
        read: [super::with_links(&directory.join("live")), vec![directory.join("read")]].concat(),
        write: vec![directory.join("write")],
        usual: vec![directory.join("usual"), directory.join("not there")],
    };
    println!("{}", Sandbox(Some(Arc::new(allowed))).enter(calls));
    println!("fate: {:?}", fate(attempt(name, &directory, port)));
}

fn try_in_child(name: &str, directory: &Path, port: &str) -> (String, Fate) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "sandbox::tests::an_attempt", "--nocapture", "--test-threads=1"]);
    let output = command.envs([(ATTEMPT, name), (PORT, port)]).env(DIRECTORY, directory).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let entered = text.lines().find_map(|line| line.split_once("sandbox: ")).map_or("", |(_, rest)| rest);
    let told = text.lines().find_map(|line| line.strip_prefix("fate: "));
    let fate = match (told, output.status.signal()) {
        (Some("Fine"), _) => Fate::Fine,
        (Some("Refused"), _) => Fate::Refused,
        (Some("NoAccess"), _) => Fate::NoAccess,
        (None, Some(SIGSYS)) => Fate::Killed,
        _ => Fate::Other(format!("{text} {output:?}")),
    };
    (entered.to_owned(), fate)
}

#[test]
fn the_sandbox_forbids_everything_that_the_daemon_does_not_need() {
    let directory = std::env::temp_dir().join(format!("gatun-sandbox-{}", std::process::id()));
    for name in ["read", "write", "usual", "other", "live", "archive"] {
        fs::create_dir_all(directory.join(name)).unwrap();
        fs::write(directory.join(name).join("file"), "x").unwrap();
    }
    // As certbot does: links to files of another directory.
    fs::remove_file(directory.join("live/file")).unwrap();
    std::os::unix::fs::symlink("../archive/file", directory.join("live/file")).unwrap();
    fs::write(directory.join("archive/file2"), "x").unwrap();
    let _socket = UnixListener::bind(directory.join("socket")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let (entered, _) = try_in_child("to read its own files", &directory, &port);
    let has_landlock = entered.starts_with("landlock");
    if !has_landlock {
        gatun_testkit::skip(&format!(
            "this kernel has no Landlock: what it would refuse is not tried ({entered})"
        ));
    }
    for (name, wanted) in [
        ("to become another program", Fate::Killed),
        ("to start another program", Fate::Refused),
        ("to mount", Fate::Killed),
        ("to enter a namespace", Fate::Killed),
        ("to trace another process", Fate::Killed),
        ("to be traced", Fate::Killed),
        ("to read another's memory", Fate::Killed),
        ("to signal another process", Fate::Refused),
        ("to limit another process", Fate::Refused),
        ("to move another process to a processor", Fate::Refused),
        ("to change the mode of a file by its path", Fate::Refused),
        ("to change the owner of a file by its path", Fate::Refused),
        ("to change the time of a file by its path", Fate::Refused),
        ("to set the user of a file of its own", Fate::Refused),
        ("to make a file that runs as its owner", Fate::Refused),
        ("to connect to a Unix socket", Fate::Refused),
        ("to use a pair of sockets", Fate::Refused),
        ("to connect by MPTCP", Fate::Refused),
        ("connector: to connect by MPTCP", Fate::Refused),
        ("connector: to connect by sending", Fate::Refused),
        ("to become another user", Fate::Refused),
        ("to read the password file", Fate::NoAccess),
        ("to read hashes of passwords", Fate::NoAccess),
        ("to list processes", Fate::NoAccess),
        ("to read another's file", Fate::NoAccess),
        ("to write where it may read", Fate::NoAccess),
        ("to write elsewhere", Fate::NoAccess),
        ("to make a link to elsewhere", Fate::Refused),
        ("to receive raw packets", Fate::Refused),
        ("to talk of routes", Fate::Refused),
        ("to listen", Fate::Refused),
        ("to connect to somebody", Fate::Refused),
        ("connector: to connect to somebody", Fate::Fine),
        ("connector: to listen", Fate::NoAccess),
        ("connector: to read its own files", Fate::NoAccess),
        ("connector: to receive raw packets", Fate::Refused),
        ("connector: to become another program", Fate::Killed),
        ("helper: to become another program", Fate::Killed),
        ("helper: to start another program", Fate::Refused),
        ("helper: to mount", Fate::Killed),
        ("helper: to trace another process", Fate::Killed),
        ("helper: to be traced", Fate::Killed),
        ("helper: to read another's memory", Fate::Killed),
        ("helper: to signal another process", Fate::Refused),
        ("helper: to limit another process", Fate::Refused),
        ("helper: to move another process to a processor", Fate::Refused),
        ("helper: to become another user", Fate::Refused),
        ("helper: to begin a thread", Fate::Refused),
        ("helper: to read the password file", Fate::Refused),
        ("helper: to list processes", Fate::Refused),
        ("helper: to know its memory", Fate::Refused),
        ("helper: to read its own files", Fate::Refused),
        ("helper: to write elsewhere", Fate::Refused),
        ("helper: to make a link to elsewhere", Fate::Refused),
        ("helper: to make a file that runs as its owner", Fate::Refused),
        ("helper: to change the mode of a file by its path", Fate::Refused),
        ("helper: to change the owner of a file by its path", Fate::Refused),
        ("helper: to change the time of a file by its path", Fate::Refused),
        ("helper: to connect to a Unix socket", Fate::Refused),
        ("helper: to use a pair of sockets", Fate::Refused),
        ("helper: to connect to somebody", Fate::Refused),
        ("helper: to connect by MPTCP", Fate::Refused),
        ("helper: to connect by sending", Fate::Refused),
        ("helper: to listen", Fate::Refused),
        ("helper: to send datagrams", Fate::Refused),
        ("helper: to receive raw packets", Fate::Refused),
        ("helper: to talk of netfilter's rules", Fate::Refused),
        ("helper: to talk of routes", Fate::Fine),
        ("helper: to signal a thread of its own", Fate::Fine),
        ("interface helper: to become another program", Fate::Killed),
        ("interface helper: to trace another process", Fate::Killed),
        ("interface helper: to signal another process", Fate::Refused),
        ("interface helper: to begin a thread", Fate::Refused),
        ("interface helper: to read the password file", Fate::Refused),
        ("interface helper: to connect to a Unix socket", Fate::Refused),
        ("interface helper: to connect to somebody", Fate::Refused),
        ("interface helper: to talk of netfilter's rules", Fate::Refused),
        ("interface helper: to talk of routes", Fate::Fine),
        ("to send datagrams", Fate::Refused),
        ("connector: to send datagrams", Fate::Fine),
        ("connector: to connect to a Unix socket", Fate::Fine),
        ("to signal a thread of its own", Fate::Fine),
        ("to change the mode of a file of its own", Fate::Fine),
        ("to read its own files", Fate::Fine),
        ("to read a certificate behind a link", Fate::Fine),
        ("to read a certificate behind a link that was replaced", Fate::Fine),
        ("to know its memory", Fate::Fine),
        ("to make, write, rename and remove", Fate::Fine),
        ("to make a file in a usual place", Fate::Fine),
        ("to begin a thread, which is bound too", Fate::Fine),
    ] {
        if has_landlock || wanted != Fate::NoAccess && !name.ends_with("bound too") {
            let (entered, fate) = try_in_child(name, &directory, &port);
            assert!(entered.ends_with("seccomp"), "{entered}");
            assert_eq!(fate, wanted, "{name}");
        }
    }
    assert!(!directory.join("not there").exists());
    fs::remove_dir_all(&directory).unwrap();
}
