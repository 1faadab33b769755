//! Memory for large tables, and the keyed hash that spreads over them.
//!
//! The one home of unsafe code outside the I/O backends; every public signature is safe. What is here:
//!
//! - [`HugeVec`]: a fixed-length array of zeroes, straight from the kernel, on huge pages where it has them;
//!   whatever is `Copy` and zerocopy's `FromZeros` may lie in it; or in a file, which outlives the process;
//! - [`SharedRecords`]: such a file's records, read and cleared word by word by several threads;
//! - [`WrappingTable`]: a table that is looked at without a branch, since its index wraps round;
//! - [`prefetch_read`], [`prefetch_write`]: ask for a cache line before it is needed;
//! - [`find16`]: which of sixteen tags is the one, in a few instructions;
//! - [`Counting`]: an allocator that counts, for the bench that shows that nothing is allocated;
//! - [`cycles`]: the processor's own clock, for the bench;
//! - [`hash::Hasher64`]: 32 bytes to 64 bits, under a key.
//!
//! The tests also run under AddressSanitizer: `make nightly`.
#![no_std]
#[cfg(test)]
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
    is_taken_at_once, pages_set_aside, take_at_once,
};
pub use prefetch::{prefetch_read, prefetch_write};
pub use rustix::fd::BorrowedFd;
