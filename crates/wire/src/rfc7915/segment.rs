//! Cutting super-packets in software.
