//! Memory for large tables, and the keyed hash for them.
//!
//! All unsafe code outside the I/O backends is here. Every public signature is safe. Contents:
//!
//! - [`HugeVec`]: fixed-length array of zeroes in memory from the kernel, on huge pages if available, for
//!   types that are `Copy` and zerocopy's `FromZeros`; or in a file, which outlives the process;
//! - [`SharedRecords`]: records of such a file, read and cleared word by word by several threads;
//! - [`WrappingTable`]: table whose index wraps round, so that a lookup needs no branch;
//! - [`prefetch_read`], [`prefetch_write`]: request a cache line before it is needed;
//! - [`take_at_once`], [`take_room`]: memory that is allocated before it is needed;
//! - [`find16`]: finds one of sixteen tags in a few instructions;
//! - [`Counting`]: counting allocator, for the bench that shows that nothing is allocated;
//! - [`cycles`]: cycle counter of the processor, for the bench;
//! - [`hash::Hasher64`]: keyed hash of 32 bytes to 64 bits.
//!
//! The tests also run under AddressSanitizer: `make nightly`.
#![no_std]
extern crate std;

mod counting;
mod cycles;
mod find16;
pub mod hash;
mod huge_vec;
mod prefetch;

pub use counting::{Counting, count_allocations};
pub use cycles::cycles;
pub use find16::find16;
pub use huge_vec::{
    Footprint, HugeVec, NotMapped, OutOfMemory, SharedRecords, WrappingTable, bytes_written,
    is_taken_at_once, pages_set_aside, take_at_once, take_room,
};
pub use prefetch::{prefetch_read, prefetch_write};
pub use rustix::fd::BorrowedFd;
