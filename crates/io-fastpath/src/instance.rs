//! Settings of instances.

use crate::layout::InstanceSettings;
use gatun_wire::Settings;

/// Settings of an instance that the program needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance(InstanceSettings);

impl Instance {
    /// Of a NAT64 or stateless instance.
    pub fn nat64(settings: &Settings) -> Instance {
        let constant = |value: Option<u8>| value.map_or(-1, i16::from);
        Instance(InstanceSettings {
            mtu4: settings.mtu4,
            mtu6: settings.mtu6,
            mtu6_without_df: settings.lowest_ipv6_mtu.min(settings.mtu6).max(1280),
            tos: constant(settings.tos_6to4),
            traffic_class: constant(settings.traffic_class_4to6),
        })
    }

    pub(crate) fn settings(self) -> InstanceSettings {
        self.0
    }

    /// Of a NAT44 instance with this MTU.
    pub fn nat44(mtu: u32) -> Instance {
        Instance(InstanceSettings { mtu4: mtu, mtu6: 0, mtu6_without_df: 0, tos: -1, traffic_class: -1 })
    }
}
