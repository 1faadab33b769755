//! Compiles the shim into a shared object that is embedded in the program and loaded when a port needs it.

fn main() {
    println!("cargo::rerun-if-changed=shim");
    #[cfg(feature = "libdpdk")]
    gatun_dpdk_shim::compile();
}
