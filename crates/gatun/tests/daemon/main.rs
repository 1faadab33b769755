//! `gatun run` between network namespaces, with the kernel's own stacks at both ends.
//!
//! Each test runs itself again inside a sandbox of `gatun_testkit`.

mod announce;
mod api;
mod attach;
mod browser;
mod clocks;
mod cluster;
mod cluster_config;
mod cluster_etcd;
mod cluster_faults;
mod cluster_state;
mod cluster_web;
mod config;
mod doctor;
mod doctor_boxes;
#[cfg(feature = "dpdk")]
mod dpdk;
mod events;
mod export;
mod failover;
mod fastpath;
mod fastpath_faults;
mod fastpath_moves;
mod fastpath_paths;
mod fastpath_stuck;
mod fastpath_xdp;
mod harness;
mod keepalived;
mod leftover;
mod lifecycle;
#[cfg(feature = "xdp")]
mod live_ports;
mod log;
mod long;
mod map;
mod map_tables;
mod memory;
mod nat44;
mod network_helper;
mod operate;
#[cfg(feature = "dpdk")]
mod p4;
#[cfg(feature = "dpdk")]
mod p4_faults;
#[cfg(feature = "dpdk")]
mod p4_limits;
#[cfg(feature = "dpdk")]
mod p4_offload;
#[cfg(feature = "dpdk")]
mod p4_stateless;
mod pair;
mod pair_tools;
mod processors;
mod reload;
mod restart;
mod routes;
mod sandbox;
mod service;
mod start;
mod tayga;
mod tls;
mod top;
mod traffic;
mod udp_gro;
mod web;
mod who;
#[cfg(feature = "xdp")]
mod xdp;
