//! Compilation of a shim, for build scripts.

use std::path::PathBuf;

/// Compiles `shim/shim.c` of the crate into `shim.so` in the build script's output directory.
///
/// # Panics
/// Panics if libdpdk or a C compiler is missing, or the shim does not compile.
pub fn compile() {
    // The program is not linked with libdpdk, because its libraries execute code as soon as they are loaded.
    let found = pkg_config::Config::new().atleast_version("22.11").cargo_metadata(false).probe("libdpdk");
    let library = found.unwrap_or_else(|e| {
        panic!("libdpdk 22.11 or later is needed (Debian: apt install libdpdk-dev pkg-config): {e}")
    });
    let mut shim = cc::Build::new();
    // Under AddressSanitizer the program has Rust's runtime of it; the C compiler's would be a second one.
    shim.inherit_rustflags(false);
    shim.includes(&library.include_paths).opt_level(3).pic(true).cargo_metadata(false);
    // pkg-config's flags of these two kinds are not passed through: the header that every DPDK file includes,
    // and the processor for which its inline functions are compiled.
    shim.flag("-include").flag("rte_config.h");
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        shim.flag("-march=corei7");
    }
    shim.flag("-Wno-deprecated-declarations").define("ALLOW_EXPERIMENTAL_API", None);
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    let mut command = shim.get_compiler().to_command();
    command.args(["-shared", "-Wl,-z,defs,-z,now", "-o"]).arg(out.join("shim.so")).arg("shim/shim.c");
    // Only libraries that the shim uses. Drivers are loaded when the environment starts, from their
    // installation directory.
    command
        .arg("-Wl,--as-needed")
        .args(library.link_paths.iter().map(|path| format!("-L{}", path.display())));
    command.args(library.libs.iter().map(|name| format!("-l{name}")));
    let status = command.status().expect("the C compiler runs");
    assert!(status.success(), "the shim does not compile: {command:?}");
}
