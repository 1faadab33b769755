//! Rules of nf_tables for forwarded packets, read in order to tell if a packet that opens a connection can
//! pass. iptables-nft sets the same rules. Nothing is changed.
//!
//! ```text
//!   rule      attributes TABLE, CHAIN, EXPRESSIONS; each expression has a name and data
//! ```
//! Numbers are those of `linux/netfilter/nf_tables.h`.

use crate::raw::{self, attributes, value};
use netlink_sys::protocols::NETLINK_NETFILTER;
use std::io;

/// `NFNL_SUBSYS_NFTABLES` in the upper byte of a message's type.
const NFTABLES: u16 = 10 << 8;
const NEWCHAIN: u16 = NFTABLES | 3;
const GETCHAIN: u16 = NFTABLES | 4;
const NEWRULE: u16 = NFTABLES | 6;
const GETRULE: u16 = NFTABLES | 7;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// `NF_INET_FORWARD`.
const FORWARD: u32 = 2;

/// IP versions of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// Both.
    Inet,
}

impl Family {
    fn of(number: u8) -> Option<Family> {
        match number {
            1 => Some(Family::Inet),
            2 => Some(Family::Ip),
            10 => Some(Family::Ip6),
            _ => None,
        }
    }

    /// Returns the name used by `nft`.
    pub fn name(self) -> &'static str {
        match self {
            Family::Ip => "ip",
            Family::Ip6 => "ip6",
            Family::Inet => "inet",
        }
    }
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// IP versions of its table.
    pub family: Family,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// True if forwarded packets enter it directly, not from another chain.
    pub forward: bool,
    /// True if its policy is to drop.
    pub drops: bool,
}

/// A condition on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceMatch {
    /// True if it is about the outgoing interface of a packet.
    pub out: bool,
    /// True if it must be this interface, false if it must not.
    pub is: bool,
    interface: Named,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    /// Its number.
    Index(u32),
    /// Its name, or the beginning of it.
    Name { bytes: Vec<u8>, whole: bool },
}

impl InterfaceMatch {
    /// Returns true if an interface satisfies it.
    pub fn matches(&self, index: u32, name: &str) -> bool {
        let same = match &self.interface {
            Named::Index(number) => *number == index,
            Named::Name { bytes, whole: true } => bytes == name.as_bytes(),
            Named::Name { bytes, whole: false } => name.as_bytes().starts_with(bytes),
        };
        same == self.is
    }

    /// Returns true if this is the only interface that satisfies it.
    pub fn is_only(&self, index: u32, name: &str) -> bool {
        let is_whole = !matches!(self.interface, Named::Name { whole: false, .. });
        self.is && is_whole && self.matches(index, name)
    }
}

/// Verdict of a rule for packets that match it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They continue with the next rule.
    Continue,
    /// They are accepted by this chain.
    Accept,
    /// They are dropped or rejected.
    Drop,
    /// Another chain decides.
    Chain(String),
    /// A map or a program decides.
    Unknown,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// IP versions of its table.
    pub family: Family,
    /// Its table.
    pub table: String,
    /// Its chain.
    pub chain: String,
    /// Conditions on interfaces.
    pub interfaces: Vec<InterfaceMatch>,
    /// True if it matches packets of known connections only.
    pub established: bool,
    /// True if it has further conditions.
    pub other_conditions: bool,
    /// Verdict of the rule.
    pub outcome: Outcome,
}

/// Chains and rules of this network namespace.
#[derive(Clone, Debug, Default)]
pub struct Ruleset {
    /// All chains.
    pub chains: Vec<Chain>,
    /// All rules, those of a chain in order.
    pub rules: Vec<Rule>,
}

impl Ruleset {
    /// Reads all chains and rules. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// Returns an error if the kernel has no nf_tables, or the privilege is missing.
    pub fn read() -> io::Result<Ruleset> {
        let mut ruleset = Ruleset::default();
        dump(GETCHAIN, |kind, family, attributes| {
            if kind == NEWCHAIN {
                ruleset.chains.extend(chain(family, attributes));
            }
        })?;
        // Most machines have no such rules.
        if ruleset.chains.iter().any(|chain| chain.forward) {
            dump(GETRULE, |kind, family, attributes| {
                if kind == NEWRULE {
                    ruleset.rules.extend(rule(family, attributes));
                }
            })?;
        }
        Ok(ruleset)
    }
}

/// Requests all objects of one kind.
fn dump(kind: u16, mut each: impl FnMut(u16, Family, &[u8])) -> io::Result<()> {
    // The nfgenmsg of a request: any family.
    raw::request(NETLINK_NETFILTER, (kind, DUMP), [0; 4], &[], |kind, [family, ..], attributes| {
        if let Some(family) = Family::of(family) {
            each(kind, family, attributes);
        }
    })
}

fn number(bytes: &[u8], kind: u16) -> Option<u32> {
    Some(u32::from_be_bytes(*value(bytes, kind)?.first_chunk()?))
}

fn text(bytes: &[u8], kind: u16) -> Option<String> {
    let value = value(bytes, kind)?;
    let len = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    Some(String::from_utf8_lossy(value.get(..len)?).into_owned())
}

fn chain(family: Family, bytes: &[u8]) -> Option<Chain> {
    // Table, name, hook and policy.
    let hook = value(bytes, 4).and_then(|hook| number(hook, 1));
    let (table, name) = (text(bytes, 1)?, text(bytes, 3)?);
    Some(Chain { family, table, name, forward: hook == Some(FORWARD), drops: number(bytes, 5) == Some(0) })
}

fn rule(family: Family, bytes: &[u8]) -> Option<Rule> {
    // Table, chain and expressions.
    let mut rule = Rule {
        family,
        table: text(bytes, 1)?,
        chain: text(bytes, 2)?,
        interfaces: Vec::new(),
        established: false,
        other_conditions: false,
        outcome: Outcome::Continue,
    };
    let mut registers = Vec::new();
    for (_, expression) in attributes(value(bytes, 4).unwrap_or_default()) {
        let (Some(name), data) = (text(expression, 1), value(expression, 2).unwrap_or_default()) else {
            continue;
        };
        rule.obey(&name, data, &mut registers);
    }
    Some(rule)
}

/// Last value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loaded {
    Index {
        out: bool,
    },
    Name {
        out: bool,
    },
    /// State of the packet's connection, limited by a mask.
    State(u32),
}

/// State of a connection's first packet (`NF_CT_STATE_BIT(IP_CT_NEW)`).
const NEW: u32 = 8;

impl Rule {
    /// Applies an expression to the first packet of a connection.
    fn obey(&mut self, name: &str, data: &[u8], registers: &mut Vec<(u32, Loaded)>) {
        let loaded = |registers: &[(u32, Loaded)], from| {
            let found = registers.iter().rev().find(|(register, _)| Some(*register) == from);
            found.map(|(_, loaded)| *loaded)
        };
        match name {
            "meta" => {
                let what = match number(data, 2) {
                    Some(4) => Loaded::Index { out: false },
                    Some(5) => Loaded::Index { out: true },
                    Some(6) => Loaded::Name { out: false },
                    Some(7) => Loaded::Name { out: true },
                    _ => return registers.clear(),
                };
                registers.extend(number(data, 1).map(|register| (register, what)));
            }
            "ct" if number(data, 2) == Some(0) => {
                registers.extend(number(data, 1).map(|register| (register, Loaded::State(u32::MAX))));
            }
            "bitwise" => {
                let mask = value(data, 4).and_then(|mask| value(mask, 1)).and_then(|mask| mask.first_chunk());
                if let (Some(Loaded::State(_)), Some(mask)) = (loaded(registers, number(data, 1)), mask) {
                    let state = Loaded::State(u32::from_ne_bytes(*mask));
                    registers.extend(number(data, 2).map(|register| (register, state)));
                }
            }
            "cmp" => self.compare(loaded(registers, number(data, 1)), data),
            "lookup" => {
                self.other_conditions = true;
                // Sets of states name those of known connections; maps mostly have verdicts for these only.
                self.established |= matches!(loaded(registers, number(data, 2)), Some(Loaded::State(_)));
                if number(data, 3) == Some(0) {
                    self.outcome = Outcome::Unknown;
                }
            }
            "match" => {
                self.other_conditions = true;
                self.established |= matches!(text(data, 1).as_deref(), Some("conntrack" | "state"));
            }
            "immediate" => self.end(data),
            "reject" => self.outcome = Outcome::Drop,
            "queue" => self.outcome = Outcome::Unknown,
            "counter" | "log" | "notrack" | "last" | "target" => {}
            // It may load another value into a known register.
            _ => {
                self.other_conditions = true;
                registers.clear();
            }
        }
    }

    fn compare(&mut self, loaded: Option<Loaded>, data: &[u8]) {
        let is = number(data, 2) == Some(0);
        let bytes = value(data, 3).and_then(|data| value(data, 1)).unwrap_or_default();
        let number = bytes.first_chunk().map(|n| u32::from_ne_bytes(*n));
        match (loaded, number) {
            (Some(Loaded::Index { out }), Some(index)) => {
                self.interfaces.push(InterfaceMatch { out, is, interface: Named::Index(index) });
            }
            (Some(Loaded::Name { out }), _) => {
                let len = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
                // A whole name is compared including its final zero.
                let (whole, bytes) = (len < bytes.len(), bytes.get(..len).unwrap_or_default().to_vec());
                self.interfaces.push(InterfaceMatch { out, is, interface: Named::Name { bytes, whole } });
            }
            // After a mask, zero means that the state is none of the mask's.
            (Some(Loaded::State(mask)), _) => {
                self.established |= (mask & NEW != 0) == is;
                self.other_conditions = true;
            }
            _ => self.other_conditions = true,
        }
    }

    /// Applies the verdict of an `immediate` expression.
    fn end(&mut self, data: &[u8]) {
        let Some(verdict) = value(data, 2).and_then(|data| value(data, 2)) else { return };
        self.outcome = match (number(verdict, 1).map(u32::cast_signed), text(verdict, 2)) {
            (Some(0), _) => Outcome::Drop,
            (Some(1), _) => Outcome::Accept,
            (Some(-3 | -4), Some(chain)) => Outcome::Chain(chain),
            (Some(3), _) => Outcome::Unknown,
            _ => Outcome::Continue,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::attribute;

    #[test]
    fn truncated_attributes_end_the_list() {
        let bytes = [attribute(1, b"filter\0"), attribute(3, &[0, 0, 0, 7])].concat();
        assert_eq!((text(&bytes, 1).as_deref(), number(&bytes, 3)), (Some("filter"), Some(7)));
        for len in 0..bytes.len() {
            assert_eq!(number(&bytes[..len], 3), None, "{len}");
        }
        // An attribute of length zero would never end.
        assert_eq!(attributes(&[0; 64]).count(), 0);
    }

    #[test]
    fn a_name_is_compared_whole_or_as_a_prefix() {
        let named = |bytes: &[u8], whole, is| InterfaceMatch {
            out: false,
            is,
            interface: Named::Name { bytes: bytes.to_vec(), whole },
        };
        assert!(named(b"gatun0", true, true).matches(3, "gatun0"));
        assert!(!named(b"gatun0", true, true).matches(3, "gatun00"));
        assert!(named(b"gatun0", true, true).is_only(3, "gatun0"));
        assert!(!named(b"gatun", false, true).is_only(3, "gatun0"));
        assert!(named(b"gatun", false, true).matches(3, "gatun7"));
        assert!(named(b"docker0", true, false).matches(3, "gatun0"));
    }
}
