//! Sinks against real collectors, and against those that are away, slow or broken.

mod collectors;
mod sinks;
mod support;
