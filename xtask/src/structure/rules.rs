//! Rules and allowed violations, from `xtask/structure.toml`.

use serde::Deserialize;
use std::fs;
use std::path::Path;

const FILE: &str = "xtask/structure.toml";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rules {
    pub(crate) limits: Limits,
    /// Crates from the bottom up: a crate uses only crates before it in the file.
    #[serde(rename = "crate")]
    pub(crate) crates: Vec<CrateRule>,
    /// Layers of modules inside a crate.
    #[serde(default, rename = "layers")]
    pub(crate) layers: Vec<Layers>,
    #[serde(default)]
    pub(crate) allowed: Allowed,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    pub(crate) function_lines: usize,
    pub(crate) file_lines: usize,
    pub(crate) parameters: usize,
}

/// A crate of the workspace and the crates of the workspace that it may use outside tests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CrateRule {
    pub(crate) name: String,
    /// One line for the map.
    pub(crate) is: String,
    pub(crate) uses: Vec<String>,
    #[serde(default)]
    pub(crate) no_std: bool,
    /// May contain unsafe code.
    #[serde(default)]
    pub(crate) has_unsafe: bool,
}

/// Layers of a crate's modules, from the bottom up: a module uses only its own layer and those below.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layers {
    #[serde(rename = "crate")]
    pub(crate) of: String,
    pub(crate) layer: Vec<Layer>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layer {
    pub(crate) name: String,
    pub(crate) is: String,
    /// Top-level modules.
    pub(crate) modules: Vec<String>,
}

/// Existing violations. This list only shrinks.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Allowed {
    /// Number of lines beyond the column limit, in all files together.
    #[serde(default)]
    pub(crate) columns: usize,
    /// Import cycles among the top-level modules of a crate.
    #[serde(default)]
    pub(crate) cycles: Vec<Cycle>,
    /// Arrows from a layer to a higher one.
    #[serde(default)]
    pub(crate) upward: Vec<Upward>,
    /// Functions (`path::function`) with their lines.
    #[serde(default)]
    pub(crate) functions: Vec<At>,
    /// Functions (`path::function`) with their parameters.
    #[serde(default)]
    pub(crate) parameters: Vec<At>,
    /// Files with their lines of code without tests.
    #[serde(default)]
    pub(crate) files: Vec<At>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cycle {
    #[serde(rename = "crate")]
    pub(crate) of: String,
    pub(crate) modules: Vec<String>,
    pub(crate) why: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upward {
    #[serde(rename = "crate")]
    pub(crate) of: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) why: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct At {
    pub(crate) at: String,
    pub(crate) is: usize,
    pub(crate) why: String,
}

impl Rules {
    pub(crate) fn read(root: &Path) -> Result<Rules, String> {
        let text = fs::read_to_string(root.join(FILE)).map_err(|error| format!("{FILE}: {error}"))?;
        Rules::parse(&text)
    }

    pub(crate) fn parse(text: &str) -> Result<Rules, String> {
        let rules: Rules = toml::from_str(text).map_err(|error| format!("{FILE}: {error}"))?;
        let allowed = &rules.allowed;
        let sizes = [&allowed.functions, &allowed.parameters, &allowed.files];
        let reasons = sizes.into_iter().flatten().map(|entry| &entry.why);
        let reasons = reasons.chain(allowed.upward.iter().map(|arrow| &arrow.why));
        if reasons.chain(allowed.cycles.iter().map(|cycle| &cycle.why)).any(|why| why.trim().is_empty()) {
            return Err(format!("{FILE}: an allowed violation has no reason"));
        }
        Ok(rules)
    }
}
