//! The store as a whole: in files that end wherever a process or the power may end, and in real ones.

mod crash;
mod files;
mod support;
mod tamper;
mod who;
