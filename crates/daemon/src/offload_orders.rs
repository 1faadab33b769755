//! Orders of a reload to the fast path of the daemon, and differences of `[[offload]]`.

use crate::Settings;
use crate::fastpath::FastPathOrders;
use crate::p4::P4Orders;
use gatun_config::Offload;
use gatun_control::{EarlierTranslator, PacketTranslation};
use gatun_nat::reconfigure::Outline;
use gatun_offload::FlowFilter;
use std::sync::Arc;

/// Orders to the thread of the daemon's fast path: an engine has at most one.
#[derive(Clone)]
pub(crate) enum OffloadOrders {
    /// All sessions are in the engines.
    None,
    /// To the manager of the kernel's table.
    Kernel(FastPathOrders),
    /// To the manager of P4 switches.
    P4(P4Orders),
}

impl OffloadOrders {
    /// Returns whether sessions can be outside the engines.
    pub(crate) fn has_any(&self) -> bool {
        !matches!(self, OffloadOrders::None)
    }

    /// Keeps sessions with the engines from now on, before another plan is applied.
    pub(crate) fn pause(&self) {
        match self {
            OffloadOrders::None => {}
            OffloadOrders::Kernel(orders) => orders.pause(),
            OffloadOrders::P4(orders) => orders.pause(),
        }
    }

    /// Leaves flows that match to the engines, and all stateless packets, until it is called with `None`.
    /// Returns what translated their packets before.
    pub(crate) fn exclude(&self, filter: Option<FlowFilter>) -> EarlierTranslator {
        match self {
            OffloadOrders::P4(orders) => orders.exclude(filter),
            OffloadOrders::Kernel(orders) => orders.exclude(filter),
            OffloadOrders::None => Arc::new(|_| None),
        }
    }

    /// Declares a P4 switch gone: its sessions are released.
    ///
    /// # Errors
    /// Returns an error that says why not.
    pub(crate) fn set_gone(&self, name: &str) -> Result<(), String> {
        match self {
            OffloadOrders::P4(orders) => orders.set_gone(name),
            _ => {
                Err("there are no P4 switches: the configuration had no [[offload]] at the start".to_owned())
            }
        }
    }

    /// Says what translates the packets of an offloaded session, or of a stateless instance outside the
    /// engines.
    pub(crate) fn translator_of(&self, of: &PacketTranslation) -> Option<String> {
        match (self, of) {
            (OffloadOrders::P4(orders), PacketTranslation::Session(session)) => {
                Some(orders.translator_of(session))
            }
            (OffloadOrders::P4(orders), PacketTranslation::Stateless(name)) => {
                orders.stateless_translator(name)
            }
            (OffloadOrders::Kernel(orders), PacketTranslation::Session(_)) => Some(orders.translator()),
            (OffloadOrders::Kernel(orders), PacketTranslation::Stateless(name)) => {
                orders.stateless_translator(name)
            }
            (OffloadOrders::None, PacketTranslation::Session(_)) => {
                Some("Gatun translates its packets".to_owned())
            }
            (OffloadOrders::None, PacketTranslation::Stateless(_)) => None,
        }
    }

    /// Sets another configuration after its plan was applied. `outline` is that of an engine that has it.
    pub(crate) fn set(&self, settings: &Settings, outline: &Outline) {
        match self {
            OffloadOrders::None => {}
            OffloadOrders::Kernel(orders) => orders.set(&settings.fastpath, &settings.plan, outline),
            OffloadOrders::P4(orders) => orders.set(settings, outline),
        }
    }
}

/// Lists differences between two configurations of P4 switches that need a restart. `opened` is the section
/// with which the daemon started.
pub fn restarts(opened: Option<&Offload>, new: Option<&Offload>) -> Vec<String> {
    let what = match (opened, new) {
        (None, Some(_)) => "[[offload]]: its first switches",
        (Some(opened), Some(new)) if opened.fixed() != new.fixed() => {
            "[[offload]]: switches, certificates, program, election, timeout, controller_rate or packets, or \
             MTUs of instances"
        }
        _ => return Vec::new(),
    };
    vec![what.to_owned()]
}

/// Lists differences that a running daemon applies.
pub fn changes(old: Option<&Offload>, new: Option<&Offload>) -> Vec<String> {
    match (old, new) {
        (Some(_), None) => vec!["[[offload]]: off".to_owned()],
        (None, Some(_)) => vec!["[[offload]]: on".to_owned()],
        (Some(old), Some(new)) if old != new && old.fixed() == new.fixed() => {
            vec!["[[offload]]: name, sessions_max, on_stop or the instances in the switches".to_owned()]
        }
        _ => Vec::new(),
    }
}
