//! Memory for large tables.
//!
//! The one home of unsafe code outside the I/O backends. Public signatures are safe.
#![no_std]
extern crate alloc;
