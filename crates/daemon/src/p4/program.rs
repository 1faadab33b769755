//! P4 programs for switches that have none.

use anyhow::{Context as _, anyhow};
use gatun_config::{Offload, P4Program, P4ProgramSource};
use gatun_p4_controller::connection::Pipeline;
use std::path::Path;
use std::sync::Arc;

const DPDK_INFO: &str = include_str!("../../../../p4/psa.p4info.txt");
const DPDK: &[u8] = include_bytes!("../../../../p4/gatun.spec");
const BMV2_INFO: &str = include_str!("../../../../p4/v1model.p4info.txt");
const BMV2: &[u8] = include_bytes!("../../../../p4/gatun.json");

/// Returns the program of a configuration. `None` if switches have to have one.
///
/// # Errors
/// Returns an error if a file cannot be read, or is no description of a program.
pub(super) fn pipeline(offload: &Offload) -> anyhow::Result<Option<Arc<Pipeline>>> {
    let (info, device_config) = match &offload.program {
        P4ProgramSource::Own(P4Program::Installed) => return Ok(None),
        P4ProgramSource::Own(P4Program::Dpdk) => (DPDK_INFO.to_owned(), DPDK.to_vec()),
        P4ProgramSource::Own(P4Program::Bmv2) => (BMV2_INFO.to_owned(), BMV2.to_vec()),
        P4ProgramSource::Files { p4info, program } => {
            let text = String::from_utf8(read("p4info", p4info)?);
            let text = text.map_err(|_| anyhow!("[[offload]] p4info {}: not a text", p4info.display()))?;
            (text, read("program_file", program)?)
        }
    };
    let info = gatun_p4_controller::p4info_from_text(&info).map_err(|error| {
        anyhow!("[[offload]] p4info: {error}: name a file that p4c has written by `--p4runtime-files`")
    })?;
    Ok(Some(Arc::new(Pipeline { info, device_config, replaces: offload.replaces_program })))
}

fn read(key: &str, file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("[[offload]] {key}: cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_p4_controller::program::{Limits, Program};

    #[test]
    fn the_own_programs_are_gatuns() {
        for (info, capacity) in [(DPDK_INFO, 1_048_320), (BMV2_INFO, 1_048_320)] {
            let info = gatun_p4_controller::p4info_from_text(info).unwrap();
            assert_eq!(Program::new(info, Limits::default()).unwrap().capacity(), capacity);
        }
    }
}
