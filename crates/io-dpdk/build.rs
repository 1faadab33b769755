//! Compiles the shim and links libdpdk, where the feature `libdpdk` asks for it.

fn main() {
    println!("cargo::rerun-if-changed=shim/shim.c");
    println!("cargo::rerun-if-changed=shim/shim.h");
    #[cfg(feature = "libdpdk")]
    build();
}

#[cfg(feature = "libdpdk")]
fn build() {
    // The shared libraries: drivers are loaded when the environment starts, from where those were installed.
    let found = pkg_config::Config::new().atleast_version("22.11").probe("libdpdk");
    let library = found.unwrap_or_else(|e| {
        panic!("libdpdk 22.11 or later is wanted (Debian: apt install libdpdk-dev pkg-config): {e}")
    });
    let mut shim = cc::Build::new();
    shim.file("shim/shim.c").includes(&library.include_paths).opt_level(3);
    // pkg-config's flags of these two kinds do not come through: what every file of DPDK begins with, and the
    // processor that its inline functions are for.
    shim.flag("-include").flag("rte_config.h");
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        shim.flag("-march=corei7");
    }
    shim.flag("-Wno-deprecated-declarations").define("ALLOW_EXPERIMENTAL_API", None);
    shim.compile("gatun_dpdk_shim");
}
