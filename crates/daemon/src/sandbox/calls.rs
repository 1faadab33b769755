//! System calls, restricted by seccomp (seccomp(2)): a list of allowed calls with conditions on their
//! arguments. Other calls fail with EPERM, because a library may have an alternative. Calls that only an
//! intruder makes end the process, which the kernel logs.

use libc::*;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;

/// Thread or process with its own list of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    /// All threads that start after the devices are open.
    Daemon,
    /// The same, if threads call a DPDK driver.
    #[cfg_attr(not(feature = "dpdk"), allow(dead_code))]
    Dpdk,
    /// The thread that manages the sessions in the kernel.
    FastPath,
    /// The thread that connects to collectors.
    Connector,
    /// The thread that is connected to P4 switches.
    #[cfg_attr(not(feature = "dpdk"), allow(dead_code))]
    Controller,
    /// The threads that are connected to other boxes of a pair or a cluster, and to etcd.
    Peer,
    /// `gatun web`, which connects to the daemon's Unix socket.
    Page,
    /// The thread that reads the network helper's reports, and reaps it.
    HelperClient,
    /// The network helper: sets routes, each time over a new netlink socket.
    NetworkHelper,
    /// The network helper of AF_XDP: loads and attaches programs, opens sockets.
    #[cfg_attr(not(feature = "xdp"), allow(dead_code))]
    InterfaceHelper,
    /// The helper of the kernel fast path: attaches and detaches its programs.
    ProgramHelper,
    /// The thread that uses returning AF_XDP interfaces with files from the helper.
    #[cfg_attr(not(feature = "xdp"), allow(dead_code))]
    Interfaces,
}

/// Files and descriptors. Modes and owners are changed only through descriptors: a path would reach any file
/// of the user.
#[rustfmt::skip]
const FILES: &[c_long] = &[
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev,
    SYS_preadv2, SYS_pwritev2, SYS_lseek, SYS_close, SYS_close_range, SYS_fstat, SYS_newfstatat, SYS_statx,
    SYS_fstatfs, SYS_statfs, SYS_faccessat, SYS_faccessat2, SYS_readlinkat, SYS_getdents64, SYS_getcwd,
    SYS_mkdirat, SYS_unlinkat, SYS_renameat, SYS_renameat2, SYS_ftruncate, SYS_fallocate, SYS_fsync,
    SYS_fdatasync, SYS_sync_file_range, SYS_fchown, SYS_flock, SYS_fadvise64, SYS_dup, SYS_dup3, SYS_pipe2,
    SYS_copy_file_range, SYS_sendfile, SYS_splice, SYS_umask,
];

/// Existing sockets.
#[rustfmt::skip]
const SOCKETS: &[c_long] = &[
    SYS_accept4, SYS_shutdown, SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt, SYS_recvfrom,
    SYS_recvmsg, SYS_recvmmsg, SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait,
    SYS_epoll_pwait2, SYS_eventfd2, SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime,
];

/// Memory, threads, time, signals.
#[rustfmt::skip]
const PROCESS: &[c_long] = &[
    SYS_brk, SYS_munmap, SYS_mremap, SYS_madvise, SYS_mincore, SYS_mlock, SYS_munlock, SYS_mlock2, SYS_msync,
    SYS_memfd_create, SYS_membarrier, SYS_futex, SYS_set_robust_list, SYS_get_robust_list, SYS_rseq,
    SYS_set_tid_address, SYS_clone3, SYS_exit, SYS_exit_group, SYS_gettid, SYS_getpid, SYS_getppid,
    SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_sched_yield, SYS_sched_getaffinity, SYS_getcpu,
    SYS_getpriority, SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_clock_getres,
    SYS_gettimeofday, SYS_times, SYS_getrusage, SYS_sysinfo, SYS_uname, SYS_getrandom, SYS_rt_sigaction,
    SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigtimedwait, SYS_rt_sigsuspend, SYS_sigaltstack,
    SYS_restart_syscall, SYS_capget,
];

/// Calls of the network helper other than netlink sockets and the channel to the daemon: it opens no file,
/// starts no thread and signals only itself.
#[rustfmt::skip]
const HELPER: &[c_long] = &[
    SYS_read, SYS_write, SYS_close, SYS_bind, SYS_connect, SYS_getsockname, SYS_getsockopt, SYS_setsockopt,
    SYS_recvfrom, SYS_recvmsg, SYS_ppoll, SYS_brk, SYS_munmap, SYS_mremap, SYS_madvise, SYS_futex, SYS_exit,
    SYS_exit_group, SYS_gettid, SYS_getpid, SYS_getppid, SYS_sched_yield, SYS_clock_gettime,
    SYS_clock_nanosleep, SYS_getrandom, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn,
    SYS_sigaltstack, SYS_restart_syscall,
];
#[cfg(target_arch = "x86_64")]
const HELPER_OLDER: &[c_long] = &[SYS_poll];
#[cfg(not(target_arch = "x86_64"))]
const HELPER_OLDER: &[c_long] = &[];

/// Older variants of calls that this processor still has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OLDER: &[c_long] = &[
    SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_mkdir, SYS_unlink, SYS_rename, SYS_dup2, SYS_pipe,
    SYS_accept, SYS_poll, SYS_select, SYS_epoll_create, SYS_epoll_wait, SYS_eventfd, SYS_time, SYS_getrlimit,
    SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[SYS_accept];

/// Calls that only an intruder makes: other programs, other processes' memory, the kernel's settings.
#[rustfmt::skip]
const NEVER: &[c_long] = &[
    SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_mount, SYS_umount2,
    SYS_move_mount, SYS_fsopen, SYS_fsmount, SYS_open_tree, SYS_pivot_root, SYS_chroot, SYS_init_module,
    SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_kexec_file_load, SYS_reboot, SYS_swapon,
    SYS_swapoff, SYS_unshare, SYS_setns, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_userfaultfd,
    SYS_perf_event_open, SYS_open_by_handle_at, SYS_io_uring_setup, SYS_personality, SYS_pidfd_getfd,
    SYS_settimeofday, SYS_clock_settime, SYS_sethostname,
];

/// Calls of the helper of the kernel fast path on pins.
#[rustfmt::skip]
const PINS: &[c_long] = &[
    SYS_openat, SYS_getdents64, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_lseek, SYS_mkdirat, SYS_unlinkat,
];
#[cfg(target_arch = "x86_64")]
const PINS_OLDER: &[c_long] = &[SYS_stat, SYS_lstat, SYS_mkdir, SYS_unlink, SYS_rmdir];
#[cfg(not(target_arch = "x86_64"))]
const PINS_OLDER: &[c_long] = &[];

/// Flag of clone(2) that allows threads but no processes.
const THREAD: u64 = CLONE_THREAD as u64;
/// Operation of prctl(2): names of threads and of memory.
const PR_SET_VMA: u64 = 0x5356_4d41;
/// Set-user-ID, set-group-ID and sticky bits of a file.
const SPECIAL_MODE: u64 = 0o7000;
/// Flags of open(2) that create a file. (O_TMPFILE includes O_DIRECTORY.)
const CREATES: u64 = (O_CREAT | O_TMPFILE & !O_DIRECTORY) as u64;
/// Operations of fcntl(2) and ioctl(2) that make the kernel send signals to a chosen process.
const FCNTL_SIGNALS: [u64; 3] = [F_SETOWN as u64, F_SETSIG, F_SETOWN_EX];
const IOCTL_SIGNALS: [u64; 2] = [FIOSETOWN, SIOCSPGRP];
/// Operations of ioctl(2) that write to a terminal like its user.
const IOCTL_TYPES: [u64; 2] = [TIOCSTI, TIOCLINUX];
const F_SETSIG: u64 = 10;
const F_SETOWN_EX: u64 = 15;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
const TIOCLINUX: u64 = 0x541c;
/// Operations of ioctl(2) that convert between names and numbers of interfaces.
const IOCTL_NAMES: [u64; 2] = [0x8933, 0x8910];
const SIOCETHTOOL: u64 = 0x8946;
/// Mask of a socket's type without its flags.
const SOCKET_KIND: u64 = 0xf;

/// Commands of bpf(2) that read and write existing maps: single entries, several, and a map's sizes.
const MAP_COMMANDS: [u64; 9] = [1, 2, 3, 4, 15, 24, 25, 26, 27];

/// Commands of bpf(2) that attach programs: pins and links, and the map of the interfaces.
const ATTACH_COMMANDS: [u64; 9] = [2, 6, 7, 15, 24, 27, 28, 29, 34];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

impl Calls {
    /// Returns true if the thread opens files.
    pub(super) fn needs_files(self) -> bool {
        matches!(
            self,
            Calls::Daemon
                | Calls::Dpdk
                | Calls::FastPath
                | Calls::Controller
                | Calls::Peer
                | Calls::ProgramHelper
        )
    }

    /// Returns true if the thread reads the system files that every daemon reads.
    pub(super) fn reads_system(self) -> bool {
        !matches!(self, Calls::NetworkHelper | Calls::InterfaceHelper | Calls::ProgramHelper)
    }

    /// Returns true if the thread connects over TCP.
    pub(super) fn may_connect(self) -> bool {
        matches!(self, Calls::Connector | Calls::Controller | Calls::Peer)
    }

    /// Restricts the calling thread of the process `own`.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a filter.
    pub(super) fn restrict(self, own: u32) -> Result<(), Error> {
        // The strictest result of all filters applies. The last filter forbids further ones.
        for filter in self.filters(own)? {
            apply_filter(&filter)?;
        }
        Ok(())
    }

    fn filters(self, own: u32) -> Result<[BpfProgram; 3], Error> {
        let allow = self.allowed(own)?;
        let mut never = plain(NEVER);
        let may = [Calls::Interfaces, Calls::InterfaceHelper, Calls::ProgramHelper, Calls::FastPath];
        if !may.contains(&self) {
            never.insert(SYS_bpf, Vec::new());
        }
        // A filter cannot read the arguments of clone3. If it seems to be missing, the C library uses clone.
        let absent = SeccompAction::Errno(ENOSYS as u32);
        Ok([
            filter(plain(&[SYS_clone3]), SeccompAction::Allow, absent)?,
            filter(never, SeccompAction::Allow, SeccompAction::KillProcess)?,
            filter(allow, SeccompAction::Errno(EPERM as u32), SeccompAction::Allow)?,
        ])
    }

    fn allowed(self, own: u32) -> Result<Rules, Error> {
        match self {
            Calls::NetworkHelper => return helper(own),
            Calls::InterfaceHelper => return interface_helper(own),
            Calls::ProgramHelper => return program_helper(own),
            _ => {}
        }
        let mut rules = plain(FILES);
        [SOCKETS, PROCESS, OLDER].into_iter().for_each(|calls| rules.extend(plain(calls)));
        memory_and_processes(&mut rules, own)?;
        modes(&mut rules)?;
        self.sockets(&mut rules)?;
        match self {
            Calls::Interfaces => drop(rules.insert(SYS_bpf, Vec::new())),
            Calls::FastPath => drop(rules.insert(SYS_bpf, one_of(0, &MAP_COMMANDS)?)),
            Calls::HelperClient => rules.extend(plain(&[SYS_wait4, SYS_waitid])),
            _ => {}
        }
        Ok(rules)
    }

    /// Rules for sockets. Only threads that need them create sockets: others cannot connect, not even to a
    /// Unix socket of root.
    fn sockets(self, rules: &mut Rules) -> Result<(), Error> {
        let families: &[c_int] = match self {
            Calls::Daemon | Calls::FastPath | Calls::HelperClient => &[],
            Calls::Connector => &[AF_UNIX, AF_INET, AF_INET6],
            Calls::Controller | Calls::Peer => &[AF_INET, AF_INET6],
            Calls::Page => &[AF_UNIX],
            Calls::NetworkHelper | Calls::InterfaceHelper | Calls::ProgramHelper => &[AF_NETLINK],
            Calls::Interfaces => &[AF_INET, AF_NETLINK],
            // A memif is a Unix socket. Software network drivers query interfaces.
            Calls::Dpdk => &[AF_UNIX, AF_INET, AF_INET6, AF_NETLINK],
        };
        // With this flag, sending connects, which Landlock does not check.
        let no_connect = |argument| eq_masked(argument, MSG_FASTOPEN as u64, 0);
        if families.is_empty() {
            // Sending is only allowed to the connected peer.
            let to_peer = SeccompCondition::new(4, Len::Qword, Op::Eq, 0)?;
            rules.insert(SYS_sendto, vec![SeccompRule::new(vec![no_connect(3)?, to_peer])?]);
            return Ok(());
        }
        rules.insert(SYS_sendto, vec![SeccompRule::new(vec![no_connect(3)?])?]);
        rules.insert(SYS_sendmsg, vec![SeccompRule::new(vec![no_connect(2)?])?]);
        rules.insert(SYS_sendmmsg, vec![SeccompRule::new(vec![no_connect(3)?])?]);
        rules.extend(plain(&[SYS_bind, SYS_connect]));
        if self == Calls::Dpdk {
            rules.extend(plain(&[SYS_listen, SYS_socketpair]));
        }
        let kinds = families.iter().map(|family| socket(*family)).collect::<Result<Vec<_>, _>>()?;
        rules.insert(SYS_socket, kinds.into_iter().flatten().collect());
        Ok(())
    }
}

/// Complete list of the network helper.
fn helper(own: u32) -> Result<Rules, Error> {
    let mut rules = plain(HELPER);
    rules.extend(plain(HELPER_OLDER));
    no_code(&mut rules)?;
    rules.insert(SYS_tgkill, one_of(0, &[own.into()])?);
    rules.insert(SYS_ioctl, one_of(1, &IOCTL_NAMES)?);
    rules.insert(SYS_fcntl, one_of(1, &[F_GETFD as u64, F_GETFL as u64])?);
    // Only the netlink protocol for links, addresses and routes.
    let route = vec![eq(0, AF_NETLINK as u64)?, eq(2, NETLINK_ROUTE as u64)?];
    rules.insert(SYS_socket, vec![SeccompRule::new(route)?]);
    // Sending without an address: a netlink socket is connected to the kernel, the channel to the daemon.
    let to_peer = || SeccompCondition::new(4, Len::Qword, Op::Eq, 0);
    rules.insert(SYS_sendto, vec![SeccompRule::new(vec![to_peer()?])?]);
    rules.insert(SYS_sendmsg, Vec::new());
    Ok(rules)
}

/// Complete list of the helper of the kernel fast path, which also attaches programs, and pins them.
fn program_helper(own: u32) -> Result<Rules, Error> {
    let mut rules = helper(own)?;
    [PINS, PINS_OLDER].into_iter().for_each(|calls| rules.extend(plain(calls)));
    rules.insert(SYS_bpf, one_of(0, &ATTACH_COMMANDS)?);
    // The abilities of drivers are read by generic netlink.
    let netlink = |protocol: c_int| -> Result<SeccompRule, Error> {
        Ok(SeccompRule::new(vec![eq(0, AF_NETLINK as u64)?, eq(2, protocol as u64)?])?)
    };
    rules.insert(SYS_socket, vec![netlink(NETLINK_ROUTE)?, netlink(NETLINK_GENERIC)?]);
    Ok(rules)
}

/// Complete list of the AF_XDP helper, which also loads programs and opens unconnected sockets.
fn interface_helper(own: u32) -> Result<Rules, Error> {
    let mut rules = helper(own)?;
    rules.insert(SYS_bpf, Vec::new());
    rules.insert(SYS_ioctl, one_of(1, &[IOCTL_NAMES[0], IOCTL_NAMES[1], SIOCETHTOOL])?);
    let of = |family: c_int, kind: c_int, protocol: c_int| -> Result<SeccompRule, Error> {
        let kind = eq_masked(1, SOCKET_KIND, kind as u64)?;
        Ok(SeccompRule::new(vec![eq(0, family as u64)?, kind, eq(2, protocol as u64)?])?)
    };
    let sockets = vec![
        // Netlink does not distinguish both socket types.
        of(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)?,
        of(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE)?,
        of(AF_XDP, SOCK_RAW, 0)?,
        // Protocol 0: the socket receives no packets.
        of(AF_PACKET, SOCK_RAW, 0)?,
        // For the number of an interface's queues.
        of(AF_INET, SOCK_DGRAM, 0)?,
    ];
    rules.insert(SYS_socket, sockets);
    Ok(rules)
}

/// Forbids executable memory that was written.
fn no_code(rules: &mut Rules) -> Result<(), Error> {
    let runs = PROT_EXEC as u64;
    rules.insert(SYS_mmap, vec![SeccompRule::new(vec![eq_masked(2, runs, 0)?])?]);
    rules.insert(SYS_mprotect, vec![SeccompRule::new(vec![eq_masked(2, runs, 0)?])?]);
    Ok(())
}

/// Socket of a family; IP sockets only with TCP or UDP. (MPTCP would circumvent Landlock.)
fn socket(family: c_int) -> Result<Vec<SeccompRule>, Error> {
    let family_is = || eq(0, family as u64);
    match family {
        AF_INET | AF_INET6 => [0, IPPROTO_TCP, IPPROTO_UDP]
            .into_iter()
            .map(|protocol| Ok(SeccompRule::new(vec![family_is()?, eq(2, protocol as u64)?])?))
            .collect(),
        _ => Ok(vec![SeccompRule::new(vec![family_is()?])?]),
    }
}

/// Forbids executable memory that was written, and creating, signalling or limiting other processes.
fn memory_and_processes(rules: &mut Rules, own: u32) -> Result<(), Error> {
    rules.insert(SYS_clone, vec![SeccompRule::new(vec![eq_masked(0, THREAD, THREAD)?])?]);
    no_code(rules)?;
    rules.insert(SYS_prctl, one_of(0, &[PR_SET_NAME as u64, PR_GET_NAME as u64, PR_SET_VMA])?);
    rules.insert(SYS_tgkill, one_of(0, &[own.into()])?);
    // 0 means the caller.
    rules.insert(SYS_prlimit64, one_of(0, &[0])?);
    rules.insert(SYS_sched_setaffinity, one_of(0, &[0])?);
    rules.insert(SYS_fcntl, none_of(1, &FCNTL_SIGNALS)?);
    rules.insert(SYS_ioctl, none_of(1, &[IOCTL_SIGNALS, IOCTL_TYPES].concat())?);
    Ok(())
}

/// Forbids modes with which a file runs as its owner.
fn modes(rules: &mut Rules) -> Result<(), Error> {
    let opens = |flags, mode| -> Result<Vec<SeccompRule>, Error> {
        let alternatives = [eq_masked(flags, CREATES, 0)?, eq_masked(mode, SPECIAL_MODE, 0)?];
        alternatives.into_iter().map(|condition| Ok(SeccompRule::new(vec![condition])?)).collect()
    };
    rules.insert(SYS_openat, opens(2, 3)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(SYS_open, opens(1, 2)?);
    rules.insert(SYS_fchmod, vec![SeccompRule::new(vec![eq_masked(1, SPECIAL_MODE, 0)?])?]);
    Ok(())
}

/// Allows calls with any arguments.
fn plain(calls: &[c_long]) -> Rules {
    calls.iter().map(|&call| (call, Vec::new())).collect()
}

fn eq(argument: u8, value: u64) -> Result<SeccompCondition, Error> {
    Ok(SeccompCondition::new(argument, Len::Dword, Op::Eq, value)?)
}

fn eq_masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, Error> {
    Ok(SeccompCondition::new(argument, Len::Dword, Op::MaskedEq(mask), value)?)
}

fn one_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, Error> {
    values.iter().map(|&value| Ok(SeccompRule::new(vec![eq(argument, value)?])?)).collect()
}

fn none_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, Error> {
    let differs = |&value| SeccompCondition::new(argument, Len::Dword, Op::Ne, value);
    let conditions = values.iter().map(differs).collect::<Result<_, _>>()?;
    Ok(vec![SeccompRule::new(conditions)?])
}

/// Filter that answers `listed` for listed calls and `other` for all others.
fn filter(rules: Rules, other: SeccompAction, listed: SeccompAction) -> Result<BpfProgram, Error> {
    let target = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(rules, other, listed, target)?.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of a call according to the kernel: interprets the program as in bpf(4), with the four
    /// instructions that occur.
    fn answer(program: &BpfProgram, call: c_long, arguments: [u64; 6]) -> u32 {
        let arch: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
        let mut data = [call as u32, arch, 0, 0].to_vec();
        data.extend(arguments.iter().flat_map(|a| [*a as u32, (a >> 32) as u32]));
        let (mut at, mut a) = (0, 0);
        loop {
            let i = &program[at];
            at += 1;
            let jump = |taken| usize::from(if taken { i.jt } else { i.jf });
            match i.code {
                0x20 => a = data[i.k as usize / 4],
                0x54 => a &= i.k,
                0x05 => at += i.k as usize,
                0x15 => at += jump(a == i.k),
                0x25 => at += jump(a > i.k),
                0x35 => at += jump(a >= i.k),
                0x06 => return i.k,
                code => panic!("no such instruction: {code:#x}"),
            }
        }
    }

    #[test]
    fn calls_are_allowed_by_their_arguments() {
        const ALLOW: u32 = 0x7fff_0000;
        const REFUSE: u32 = 0x0005_0000 | EPERM as u32;
        let own = 4711;
        let [.., daemon] = Calls::Daemon.filters(own).unwrap();
        let [.., interfaces] = Calls::Interfaces.filters(own).unwrap();
        let [_, never, fastpath] = Calls::FastPath.filters(own).unwrap();
        let maps = |command| answer(&fastpath, SYS_bpf, [command, 0, 0, 0, 0, 0]) == ALLOW;
        assert_eq!(answer(&never, SYS_bpf, [1, 0, 0, 0, 0, 0]), ALLOW);
        // Looks up; but creates no map, loads no program, opens no pin, attaches nothing.
        assert!(maps(1) && maps(27) && [0, 5, 6, 7, 8, 28, 29].into_iter().all(|command| !maps(command)));
        let [.., programs] = Calls::ProgramHelper.filters(own).unwrap();
        let attaches = |command| answer(&programs, SYS_bpf, [command, 0, 0, 0, 0, 0]) == ALLOW;
        // Creates no map and loads no program.
        assert!(attaches(28) && attaches(34) && !attaches(0) && !attaches(5));
        let is = |call, arguments: &[u64], wanted| {
            let mut all = [0; 6];
            all[..arguments.len()].copy_from_slice(arguments);
            assert_eq!(answer(&daemon, call, all), wanted, "{call} {arguments:?}");
        };
        is(SYS_tgkill, &[own.into(), 4712, 6], ALLOW);
        is(SYS_tgkill, &[1, 1, 6], REFUSE);
        is(SYS_prlimit64, &[0, 7], ALLOW);
        is(SYS_prlimit64, &[1, 7], REFUSE);
        is(SYS_fcntl, &[3, F_GETFL as u64], ALLOW);
        for operation in FCNTL_SIGNALS {
            is(SYS_fcntl, &[3, operation, 1], REFUSE);
        }
        is(SYS_ioctl, &[3, FIONREAD], ALLOW);
        for operation in [IOCTL_SIGNALS, IOCTL_TYPES].concat() {
            is(SYS_ioctl, &[3, operation, 1], REFUSE);
        }
        // The mode only matters if a file is created.
        is(SYS_openat, &[0, 0, O_RDONLY as u64, 0o4755], ALLOW);
        is(SYS_openat, &[0, 0, (O_CREAT | O_WRONLY) as u64, 0o644], ALLOW);
        is(SYS_openat, &[0, 0, (O_CREAT | O_WRONLY) as u64, 0o4755], REFUSE);
        is(SYS_openat, &[0, 0, (O_TMPFILE | O_WRONLY) as u64, 0o2755], REFUSE);
        is(SYS_openat, &[0, 0, (O_DIRECTORY | O_RDONLY) as u64, 0o2755], ALLOW);
        is(SYS_fchmod, &[3, 0o640], ALLOW);
        is(SYS_fchmod, &[3, 0o2640], REFUSE);
        is(SYS_sendto, &[3, 0, 1, MSG_NOSIGNAL as u64, 0, 0], ALLOW);
        is(SYS_sendto, &[3, 0, 1, 0, 0x7fff_0000_0000, 16], REFUSE);
        is(SYS_sendto, &[3, 0, 1, MSG_FASTOPEN as u64, 0, 0], REFUSE);
        is(SYS_mmap, &[0, 4096, (PROT_READ | PROT_WRITE) as u64], ALLOW);
        is(SYS_mmap, &[0, 4096, (PROT_READ | PROT_EXEC) as u64], REFUSE);
        for call in [SYS_socket, SYS_connect, SYS_sendmsg, SYS_kill, SYS_openat2, SYS_fchmodat, SYS_fchownat]
        {
            is(call, &[AF_UNIX as u64, 0, 0, 0, 0, 0], REFUSE);
        }
        let [.., peer] = Calls::Peer.filters(own).unwrap();
        let connects = |family: c_int, kind: c_int| {
            answer(&peer, SYS_socket, [family as u64, kind as u64, 0, 0, 0, 0]) == ALLOW
        };
        assert!(connects(AF_INET, SOCK_STREAM | SOCK_CLOEXEC) && connects(AF_INET6, SOCK_STREAM));
        assert!(!connects(AF_UNIX, SOCK_STREAM) && !connects(AF_NETLINK, SOCK_RAW));
        assert!(
            [SYS_listen, SYS_execve, SYS_bpf].into_iter().all(|call| answer(&peer, call, [0; 6]) != ALLOW)
        );
        let [.., helper] = Calls::NetworkHelper.filters(own).unwrap();
        let helps = |call, arguments: [u64; 6]| answer(&helper, call, arguments) == ALLOW;
        assert!(helps(SYS_socket, [AF_NETLINK as u64, 3, NETLINK_ROUTE as u64, 0, 0, 0]));
        for (family, protocol) in
            [(AF_NETLINK, NETLINK_NETFILTER), (AF_UNIX, 0), (AF_INET, 0), (AF_PACKET, 0)]
        {
            assert!(!helps(SYS_socket, [family as u64, 3, protocol as u64, 0, 0, 0]), "{family} {protocol}");
        }
        assert!(
            helps(SYS_sendto, [3, 0, 1, 0, 0, 0]) && !helps(SYS_sendto, [3, 0, 1, 0, 0x7fff_0000_0000, 16])
        );
        assert!(helps(SYS_tgkill, [own.into(), 1, 6, 0, 0, 0]) && !helps(SYS_tgkill, [1, 1, 6, 0, 0, 0]));
        for call in [SYS_openat, SYS_clone, SYS_kill, SYS_bpf, SYS_execve, SYS_socketpair, SYS_prctl, SYS_dup]
        {
            assert!(!helps(call, [0; 6]), "{call}");
        }
        let makes = |family: c_int, protocol: u64| {
            answer(&interfaces, SYS_socket, [family as u64, 2, protocol, 0, 0, 0]) == ALLOW
        };
        assert!(makes(AF_NETLINK, 0) && makes(AF_INET, 17) && !makes(AF_XDP, 0) && !makes(AF_PACKET, 0));
        let [.., helper] = Calls::InterfaceHelper.filters(own).unwrap();
        let helps = |family: c_int, kind: c_int, protocol: u64| {
            answer(&helper, SYS_socket, [family as u64, kind as u64, protocol, 0, 0, 0]) == ALLOW
        };
        assert!(helps(AF_NETLINK, SOCK_DGRAM, 0) && !helps(AF_NETLINK, SOCK_DGRAM, 12));
        assert!(helps(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0) && helps(AF_PACKET, SOCK_RAW, 0));
        assert!(
            !helps(AF_PACKET, SOCK_RAW, 0x0300)
                && !helps(AF_INET, SOCK_STREAM, 0)
                && !helps(AF_UNIX, SOCK_RAW, 0)
        );
        assert!(!makes(AF_INET, 262) && !makes(AF_INET, 132) && !makes(AF_INET6, 17));
    }
}
