//! Loaded programs. The kernel verifies a program in a tenth of a second, and there are hundreds of tests: so
//! the process loads each program a few times, and tests use it in turn.

use super::{At, MAC, config, interface};
use crate::control::KernelTime;
use crate::layout::{REASONS, ROWS, STATELESS_MAX};
use crate::maps::Maps;
use crate::stateless::StatelessPlan;
use crate::table::{SlotId, Table};
use crate::{open, program, sys};
use aya::programs::{TestRun as _, TestRunOptions};
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Programs that no test uses.
static UNUSED: Mutex<Vec<Programs>> = Mutex::new(Vec::new());
/// Largest number of processors in these tests.
const PROCESSORS_MAX: usize = 256;

/// A loaded program with its maps.
pub(crate) struct Programs {
    pub(crate) at: At,
    pub(crate) ebpf: aya::Ebpf,
    pub(crate) table: Table,
}

/// A program that a test uses. Its maps are as if they were new.
pub(crate) struct Loaded {
    programs: Option<Programs>,
    /// False if it is loaded with other variables.
    is_usual: bool,
}

impl Deref for Loaded {
    type Target = Programs;
    fn deref(&self) -> &Programs {
        self.programs.as_ref().unwrap()
    }
}

impl DerefMut for Loaded {
    fn deref_mut(&mut self) -> &mut Programs {
        self.programs.as_mut().unwrap()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // A failed test may leave anything, and so may one that writes to the maps without the table.
        let is_whole = self.table.iter().count() == self.table.len() as usize;
        if self.is_usual && is_whole && !std::thread::panicking() {
            UNUSED.lock().unwrap_or_else(PoisonError::into_inner).extend(self.programs.take());
        }
    }
}

impl Loaded {
    /// A program with the engine's hop limits.
    pub(crate) fn new(at: At) -> Loaded {
        let unused = {
            let mut unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner);
            let found = unused.iter().position(|programs| programs.at == at);
            found.map(|index| unused.swap_remove(index))
        };
        let globals = [("mac_len", MAC.len() as u32 + 2), ("xdp_hops", 1)];
        let mut programs = unused.unwrap_or_else(|| Programs::load(at, &globals));
        programs.begin();
        Loaded { programs: Some(programs), is_usual: true }
    }

    /// A program with the hop limits of production, where the stack decrements them before and behind the
    /// device.
    pub(crate) fn as_in_production(at: At) -> Loaded {
        let mut programs = Programs::load(at, &[]);
        programs.begin();
        Loaded { programs: Some(programs), is_usual: false }
    }
}

impl Programs {
    fn load(at: At, globals: &[(&'static str, u32)]) -> Programs {
        let ebpf = program::load(config().capacity, config().hosts, globals).unwrap();
        let maps = Maps::from_files(program::files(&ebpf).unwrap()).unwrap();
        let (table, is_fresh) = open::table(maps, &config()).unwrap();
        assert!(is_fresh);
        Programs { at, ebpf, table }
    }

    /// Empties the maps.
    fn begin(&mut self) {
        let all: Vec<SlotId> = self.table.iter().map(|(id, _)| id).collect();
        self.table.remove(&all, &mut Vec::new());
        self.table.set_stateless(&StatelessPlan::default()).unwrap();
        let [_, _, _, _, reasons, stateless, ..] = self.table.files();
        let zeros = [0u64; REASONS * PROCESSORS_MAX];
        // The kernel reads as many values as there are processors.
        (0..2 * ROWS).for_each(|row| sys::update(reasons.as_fd(), &row, &zeros).unwrap());
        (0..STATELESS_MAX).for_each(|row| sys::update(stateless.as_fd(), &row, &zeros).unwrap());
        let control = self.table.control();
        control.set_epoch(0);
        control.set_smallest_path(None);
        control.renew_lease(Duration::from_secs(3600));
        // Nothing is on its way through the engine.
        control.set_drained(0, KernelTime(u64::MAX));
        if self.at == At::Interface {
            interface::enter_network(&self.ebpf);
        }
    }

    /// The program's result on a packet.
    pub(crate) fn run(&mut self, packet: &[u8], gso_size: u32) -> (u32, Vec<u8>, u32) {
        let ethertype: [u8; 2] =
            if packet.first().is_some_and(|b| b >> 4 == 4) { [8, 0] } else { [0x86, 0xdd] };
        let frame = [&MAC[..], &ethertype, packet].concat();
        if self.at == At::Interface {
            return interface::run(&mut self.ebpf, &frame);
        }
        let mut out = vec![0; frame.len() + 100];
        // struct __sk_buff: mark at 8, gso_size at 176.
        let (mut context, mut context_out) = ([0u8; 192], [0u8; 192]);
        context[8..12].copy_from_slice(&5u32.to_ne_bytes());
        context[176..180].copy_from_slice(&gso_size.to_ne_bytes());
        let options = TestRunOptions {
            data_in: Some(&frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            ctx_out: Some(&mut context_out),
            ..TestRunOptions::default()
        };
        let result = program::program(&mut self.ebpf).unwrap().test_run(options).unwrap();
        out.truncate(result.data_size_out as usize);
        let mark = u32::from_ne_bytes(context_out[8..12].try_into().unwrap());
        (result.return_value, out.split_off(14), mark)
    }
}
