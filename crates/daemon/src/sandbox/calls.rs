//! System calls, by seccomp (seccomp(2)): a list of those that are allowed. Others fail with EPERM, as some library may try one
//! and have another way; those that only an intruder asks for end the process, which the kernel logs.

use libc::*;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    /// All threads that begin when the devices are open.
    Daemon,
    /// The same, where a driver of DPDK is called by them.
    #[cfg_attr(not(feature = "dpdk"), allow(dead_code))]
    Dpdk,
    /// The thread that connects to collectors.
    Connector,
    /// The thread that sets routes, over a socket of its own each time.
    Links,
    /// The thread that uses an interface through AF_XDP when it comes back.
    #[cfg_attr(not(feature = "xdp"), allow(dead_code))]
    Interfaces,
}

/// Files and descriptors.
#[rustfmt::skip]
const FILES: &[c_long] = &[
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_preadv2,
    SYS_pwritev2, SYS_lseek, SYS_close, SYS_close_range, SYS_openat, SYS_openat2, SYS_fstat, SYS_newfstatat,
    SYS_statx, SYS_fstatfs, SYS_statfs, SYS_faccessat, SYS_faccessat2, SYS_readlinkat, SYS_getdents64, SYS_getcwd,
    SYS_mkdirat, SYS_unlinkat, SYS_renameat, SYS_renameat2, SYS_ftruncate, SYS_fallocate, SYS_fsync, SYS_fdatasync,
    SYS_sync_file_range, SYS_fchmod, SYS_fchmodat, SYS_fchown, SYS_fchownat, SYS_utimensat, SYS_flock, SYS_fcntl,
    SYS_fadvise64, SYS_dup, SYS_dup3, SYS_pipe2, SYS_ioctl, SYS_copy_file_range, SYS_sendfile, SYS_splice,
    SYS_umask,
];

/// Sockets, but for making one; nobody listens anew, as Landlock has it.
#[rustfmt::skip]
const SOCKETS: &[c_long] = &[
    SYS_socketpair, SYS_bind, SYS_listen, SYS_accept4, SYS_connect, SYS_shutdown, SYS_getsockname, SYS_getpeername,
    SYS_getsockopt, SYS_setsockopt, SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg, SYS_recvmmsg,
    SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_eventfd2,
    SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime,
];

/// Memory, threads, time, signals.
#[rustfmt::skip]
const PROCESS: &[c_long] = &[
    SYS_brk, SYS_munmap, SYS_mremap, SYS_madvise, SYS_mincore, SYS_mlock, SYS_munlock, SYS_mlock2, SYS_msync,
    SYS_memfd_create, SYS_membarrier, SYS_futex, SYS_set_robust_list, SYS_get_robust_list, SYS_rseq,
    SYS_set_tid_address, SYS_clone3, SYS_exit, SYS_exit_group, SYS_gettid, SYS_getpid, SYS_getppid, SYS_getuid,
    SYS_geteuid, SYS_getgid, SYS_getegid, SYS_tgkill, SYS_sched_yield, SYS_sched_getaffinity,
    SYS_sched_setaffinity, SYS_getcpu, SYS_getpriority, SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime,
    SYS_clock_getres, SYS_gettimeofday, SYS_times, SYS_getrusage, SYS_prlimit64, SYS_sysinfo, SYS_uname,
    SYS_getrandom, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigtimedwait, SYS_rt_sigsuspend,
    SYS_sigaltstack, SYS_restart_syscall, SYS_capget,
];

/// Older forms of the same that this processor still has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OLDER: &[c_long] = &[
    SYS_open, SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_mkdir, SYS_unlink, SYS_rename, SYS_chmod,
    SYS_chown, SYS_dup2, SYS_pipe, SYS_accept, SYS_poll, SYS_select, SYS_epoll_create, SYS_epoll_wait, SYS_eventfd,
    SYS_time, SYS_getrlimit, SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[SYS_accept];

/// What nobody here ever asks for: another program, another process's memory, the kernel's own matters.
#[rustfmt::skip]
const NEVER: &[c_long] = &[
    SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_mount, SYS_umount2,
    SYS_move_mount, SYS_fsopen, SYS_fsmount, SYS_open_tree, SYS_pivot_root, SYS_chroot, SYS_init_module,
    SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_kexec_file_load, SYS_reboot, SYS_swapon, SYS_swapoff,
    SYS_unshare, SYS_setns, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_userfaultfd, SYS_perf_event_open,
    SYS_open_by_handle_at, SYS_io_uring_setup, SYS_personality, SYS_pidfd_getfd, SYS_settimeofday,
    SYS_clock_settime, SYS_sethostname,
];

/// Threads are made, processes are not.
const THREAD: u64 = CLONE_THREAD as u64;
/// Of prctl(2): names of threads and of memory.
const PR_SET_VMA: u64 = 0x5356_4d41;

impl Calls {
    /// Whether such a thread opens files.
    pub(super) fn needs_files(self) -> bool {
        matches!(self, Calls::Daemon | Calls::Dpdk)
    }

    /// Whether such a thread connects to others by TCP.
    pub(super) fn may_connect(self) -> bool {
        matches!(self, Calls::Connector)
    }

    /// Restricts the calling thread.
    ///
    /// # Errors
    /// Where the kernel does not let itself be asked.
    pub(super) fn restrict(self) -> Result<(), Error> {
        // The strictest answer of all filters holds; the last one has to come last, as it forbids to add more.
        for filter in self.filters()? {
            apply_filter(&filter)?;
        }
        Ok(())
    }

    fn filters(self) -> Result<[BpfProgram; 3], Error> {
        let allow = self.allowed()?;
        let mut never = plain(NEVER);
        if self != Calls::Interfaces {
            never.insert(SYS_bpf, Vec::new());
        }
        // A filter cannot look at what clone3 is given; the C library takes clone instead where it is not there.
        let absent = SeccompAction::Errno(ENOSYS as u32);
        Ok([
            filter(plain(&[SYS_clone3]), SeccompAction::Allow, absent)?,
            filter(never, SeccompAction::Allow, SeccompAction::KillProcess)?,
            filter(allow, SeccompAction::Errno(EPERM as u32), SeccompAction::Allow)?,
        ])
    }

    fn allowed(self) -> Result<BTreeMap<i64, Vec<SeccompRule>>, Error> {
        let mut rules = plain(FILES);
        [SOCKETS, PROCESS, OLDER].into_iter().for_each(|calls| rules.extend(plain(calls)));
        rules.insert(SYS_clone, vec![rule(0, Op::MaskedEq(THREAD), THREAD)?]);
        // No memory that was written can be run.
        let runs = PROT_EXEC as u64;
        rules.insert(SYS_mmap, vec![rule(2, Op::MaskedEq(runs), 0)?]);
        rules.insert(SYS_mprotect, vec![rule(2, Op::MaskedEq(runs), 0)?]);
        let names = [PR_SET_NAME as u64, PR_GET_NAME as u64, PR_SET_VMA];
        rules.insert(SYS_prctl, one_of(0, &names)?);
        let mut families = vec![AF_UNIX, AF_INET, AF_INET6];
        match self {
            Calls::Daemon | Calls::Connector => {}
            // Network drivers of software look at interfaces.
            Calls::Dpdk => families.push(AF_NETLINK),
            Calls::Links => families.push(AF_NETLINK),
            Calls::Interfaces => {
                families.extend([AF_NETLINK, AF_XDP, AF_PACKET]);
                rules.insert(SYS_bpf, Vec::new());
            }
        }
        let families: Vec<u64> = families.iter().map(|family| *family as u64).collect();
        rules.insert(SYS_socket, one_of(0, &families)?);
        Ok(rules)
    }
}

/// Whatever they are given.
fn plain(calls: &[c_long]) -> BTreeMap<i64, Vec<SeccompRule>> {
    calls.iter().map(|&call| (call, Vec::new())).collect()
}

fn rule(argument: u8, op: Op, value: u64) -> Result<SeccompRule, Error> {
    let condition = SeccompCondition::new(argument, Len::Dword, op, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

fn one_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, Error> {
    values.iter().map(|&value| rule(argument, Op::Eq, value)).collect()
}

/// What is listed gets `listed`, all else `other`.
fn filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    other: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, Error> {
    let target = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(rules, other, listed, target)?.try_into()?)
}
