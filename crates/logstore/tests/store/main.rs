//! Tests of the whole store: in simulated files that end at any operation, and in real files.

mod crash;
mod files;
mod support;
mod tamper;
mod who;
