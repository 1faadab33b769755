//! Sinks with real collectors, and with collectors that are away, slow or faulty.

mod collectors;
mod sinks;
mod support;
