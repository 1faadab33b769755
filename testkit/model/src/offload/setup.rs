//! Setup of a world.

use gatun_offload::Rules;
use gatun_p4_controller::SwitchRules;

/// Rules that a world follows, and its target.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Rules of the manager.
    pub rules: Rules,
    /// Number of switches that are the target, and the rules of their account.
    pub switches: Option<(u8, SwitchRules)>,
}

impl From<Rules> for Setup {
    fn from(rules: Rules) -> Setup {
        Setup { rules, switches: None }
    }
}
