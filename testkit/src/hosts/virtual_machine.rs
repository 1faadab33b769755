//! Virtual machines with Debian's kernels (qemu, without KVM).
//!
//! ```text
//!   target/kernels/SERIES/{vmlinuz,modules/}   by scripts/setup, out of Debian's packages
//!   initramfs     the machine's files; `init` is the first process
//!   ttyS0         the kernel's messages
//!   ttyS1         what the first process reports
//! ```

use super::initramfs::temporary;
use super::{Initramfs, Process};
use crate::{find_program, missing};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const QEMU: &str = "qemu-system-x86_64";
/// The kernel replaces its own instructions by way of breakpoints. In qemu, a processor may execute one that
/// the other processor has already removed. The kernel does not know it any more, and dies.
const REMOVED_BREAKPOINT: &str = "int3: 0000";
/// Maximum number of times that a machine is started, if it dies of that.
const STARTS: usize = 3;

/// Virtual machine with two processors.
#[derive(Clone, Debug)]
pub struct VirtualMachine {
    /// Series of the kernel, such as `6.1`.
    pub series: &'static str,
    /// Processor model of qemu.
    pub processor: &'static str,
    /// Further parameters of the kernel's command line.
    pub words: String,
    /// Further parameters of qemu.
    pub devices: Vec<String>,
    /// Time limit of a run.
    pub limit: Duration,
}

/// Report and messages of a virtual machine that has ended.
#[derive(Debug)]
pub struct MachineEnd {
    /// Text that the first process has written to ttyS1.
    pub report: String,
    /// Exit of qemu, and the messages of the kernel.
    pub console: String,
}

impl VirtualMachine {
    /// Directory of the kernel.
    fn kernel(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/kernels").join(self.series)
    }

    /// Reason why the machine cannot run on this host.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        if cfg!(not(target_arch = "x86_64")) {
            return Some("the guest is an x86-64".to_owned());
        }
        let programs = [
            (QEMU, "qemu-system-x86"),
            ("busybox", "busybox-static"),
            ("ip", "iproute2"),
            ("objcopy", "binutils"),
            ("ldd", "libc-bin"),
        ];
        missing(&programs).or_else(|| {
            let kernel = self.kernel().join("vmlinuz");
            (!kernel.exists()).then(|| format!("there is no {} (scripts/setup)", kernel.display()))
        })
    }

    /// Runs the machine until it ends, or for its time limit.
    ///
    /// # Panics
    /// If its files cannot be written, or qemu cannot be started.
    #[must_use]
    pub fn run(&self, files: Initramfs) -> MachineEnd {
        let directory = temporary("machine");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("initramfs"), files.finish(&self.kernel().join("modules"))).unwrap();
        let mut end = self.start(&directory);
        for _ in 1..STARTS {
            if !end.console.contains(REMOVED_BREAKPOINT) {
                break;
            }
            println!("qemu executed a breakpoint that was removed; again. {}", end.console);
            end = self.start(&directory);
        }
        fs::remove_dir_all(&directory).unwrap();
        end
    }

    fn start(&self, directory: &Path) -> MachineEnd {
        let [files, console, report] = ["initramfs", "console", "report"].map(|name| directory.join(name));
        let mut qemu = Command::new(find_program(QEMU).unwrap_or_else(|| QEMU.into()));
        qemu.args("-accel tcg -m 512 -smp 2 -display none -no-reboot -nodefaults".split(' '));
        qemu.args(["-cpu", self.processor]).args(&self.devices);
        for port in [&console, &report] {
            qemu.arg("-serial").arg(format!("file:{}", port.display()));
        }
        let kernel = self.kernel().join("vmlinuz");
        qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(&files);
        let words = format!("console=ttyS0 quiet panic=-1 {}", self.words);
        qemu.args(["-append", &words]).stdin(Stdio::null());
        let ended = Process::start(&mut qemu).unwrap().wait(self.limit);
        let text =
            |file: &Path| String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).replace('\r', "");
        let (report, console) = (text(&report), text(&console));
        MachineEnd { report, console: format!("qemu: {ended:?}; its console:\n{console}") }
    }
}
