//! Makes Rust of the protocol's definitions.

use prost::Message as _;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["p4/v1/p4runtime.proto"], ["proto"])?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("Cargo sets OUT_DIR")?);
    std::fs::write(out.join("definitions.bin"), files.encode_to_vec())?;
    tonic_prost_build::configure().include_file("p4runtime.rs").compile_fds(files)?;
    Ok(())
}
