//! Text form of p4info.

use crate::DEFINITIONS;
use crate::p4::config::v1::P4Info;
use prost_reflect::{DescriptorPool, DynamicMessage};
use std::fmt;
use std::sync::OnceLock;

/// Reason why a text is not a p4info.
#[derive(Debug)]
pub struct TextError(String);

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a p4info in text form: {}", self.0)
    }
}

impl std::error::Error for TextError {}

/// Reads a p4info in protobuf's text form, as p4c writes it.
///
/// # Errors
/// The text has a fault, or a field that P4Runtime 1.4 does not know.
pub fn p4info_from_text(text: &str) -> Result<P4Info, TextError> {
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    let definitions = POOL.get_or_init(|| DescriptorPool::decode(DEFINITIONS).ok());
    let message = definitions.as_ref().and_then(|all| all.get_message_by_name("p4.config.v1.P4Info"));
    let message = message.ok_or_else(|| TextError("the definitions are damaged".to_owned()))?;
    let message = DynamicMessage::parse_text_format(message, text).map_err(|e| TextError(e.to_string()))?;
    message.transcode_to().map_err(|e| TextError(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::p4::config::v1::match_field::{Match, MatchType};

    #[test]
    fn a_table_is_read_from_text() {
        let text = r#"
            pkg_info { name: "gatun" arch: "pna" }
            tables {
              preamble { id: 33554433 name: "flows4" alias: "flows4" }
              match_fields { id: 1 name: "src" bitwidth: 32 match_type: EXACT }
              action_refs { id: 16777217 }
              size: 1024
            }
        "#;
        let info = p4info_from_text(text).unwrap();
        assert_eq!(info.pkg_info.unwrap().name, "gatun");
        let table = &info.tables[0];
        assert_eq!((table.preamble.as_ref().unwrap().id, table.size), (0x0200_0001, 1024));
        assert_eq!(table.match_fields[0].r#match, Some(Match::MatchType(MatchType::Exact.into())));
    }

    #[test]
    fn a_fault_of_a_text_is_named() {
        for (text, fault) in [("tables {", "expected"), ("tabels { }", "tabels"), ("tables { size: x }", "x")]
        {
            let error = p4info_from_text(text).unwrap_err().to_string();
            assert!(error.starts_with("not a p4info in text form: ") && error.contains(fault), "{error}");
        }
    }
}
