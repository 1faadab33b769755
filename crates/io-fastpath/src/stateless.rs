//! Mappings of stateless instances (SIIT), as the program's tries hold them.
//!
//! A trie has one entry for an address: the longest. The engine has an order of its own: what it keeps for
//! itself, then the instances, and in each the mappings before the prefixes. [`Tries::of`] therefore leaves
//! out every rule inside a network that has precedence.

use crate::layout::{BY_PREFIX, MAPPED, Mapping4, Mapping6, TrieKey4, TrieKey6};
use gatun_wire::{Prefix64, Settings};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Network: its first address, and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network<A> {
    /// First address.
    pub address: A,
    /// Bits of the prefix.
    pub len: u8,
}

/// Explicit address mapping (RFC 7757). The IPv6 suffix is at least as long as the IPv4 suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// IPv4 side.
    pub v4: Network<Ipv4Addr>,
    /// IPv6 side.
    pub v6: Network<Ipv6Addr>,
}

/// Packets of a stateless instance that the program translates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ways {
    /// Packets in both directions.
    #[default]
    Both,
    /// IPv6 packets: for an instance with simple hairpins (RFC 7757 4.2.1), or with a mapped own address.
    FromIpv6,
    /// None.
    None,
}

/// A stateless instance.
#[derive(Clone, Debug)]
pub struct Stateless {
    /// Packets that the program translates.
    pub ways: Ways,
    /// Header translation.
    pub settings: Settings,
    /// Translation prefixes. The first one is for IPv4 addresses without a mapping.
    pub pool6: Vec<Prefix64>,
    /// Explicit mappings.
    pub mappings: Vec<Mapping>,
    /// False: 64:ff9b::/96 must not represent addresses that are not global (RFC 6052 3.1).
    pub well_known_non_global: bool,
}

/// All stateless instances, in the engine's order: an instance has precedence over later ones.
#[derive(Clone, Debug, Default)]
pub struct StatelessPlan {
    /// The instances, 255 at most.
    pub instances: Vec<Stateless>,
    /// Addresses that the engine keeps for itself: own addresses and the one that represents the own IPv6
    /// address, addresses of pools, inside networks of NAT44, denied addresses. Illegal addresses need not be
    /// listed.
    pub left4: Vec<Network<Ipv4Addr>>,
    /// The same: the own address, prefixes of NAT64 instances, denied addresses.
    pub left6: Vec<Network<Ipv6Addr>>,
}

/// Addresses that are illegal in a packet, or not global: the engine decides about them.
const ILLEGAL4: [([u8; 4], u8); 5] =
    [([0; 4], 8), ([127, 0, 0, 0], 8), ([169, 254, 0, 0], 16), ([224, 0, 0, 0], 4), ([255; 4], 32)];
const ILLEGAL6: [(u128, u8); 3] = [(0, 127), (0xfe80 << 112, 10), (0xff << 120, 8)];
const NOT_GLOBAL4: [([u8; 4], u8); 14] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

/// Result of replacing all stateless instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatelessSet {
    /// Mappings that the program has.
    pub mappings: usize,
    /// Mappings that the engine keeps, because they overlap with something that it keeps for itself.
    pub left: usize,
}

/// Entries of the tries.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    pub(crate) keys4: Vec<TrieKey4>,
    pub(crate) values4: Vec<Mapping4>,
    pub(crate) keys6: Vec<TrieKey6>,
    pub(crate) values6: Vec<Mapping6>,
    /// Mappings that the engine keeps.
    pub(crate) left: usize,
}

/// Meaning of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Left,
    /// A mapping of an instance, by their numbers.
    Mapped(u8, u32),
    /// A prefix of an instance.
    Prefix(u8, Prefix64),
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    /// The first address; IPv4 addresses are the highest 32 bits.
    start: u128,
    len: u8,
    /// The lower one has precedence.
    level: u16,
    meaning: Meaning,
}

/// Level of what the engine keeps for itself.
const KEPT: u16 = 0;

fn level_of(instance: u8, meaning: Meaning) -> u16 {
    1 + 2 * u16::from(instance) + u16::from(!matches!(meaning, Meaning::Mapped(..)))
}

fn start4(address: Ipv4Addr) -> u128 {
    u128::from(u32::from(address)) << 96
}

impl Rule {
    fn kept(start: u128, len: u8) -> Rule {
        Rule { start: start & mask(len), len, level: KEPT, meaning: Meaning::Left }
    }

    fn contains(&self, other: &Rule) -> bool {
        self.len <= other.len && (self.start ^ other.start) & mask(self.len) == 0
    }
}

fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0)
}

/// Leaves out the rules inside a network with precedence, and doubles. Marks mappings that have something of
/// the engine's in them, or the other way round.
fn reduce(mut rules: Vec<Rule>, touched: &mut [Vec<bool>]) -> Vec<Rule> {
    rules.sort_unstable_by_key(|rule| (rule.start, rule.len, rule.level));
    let mut kept: Vec<Rule> = Vec::with_capacity(rules.len());
    // Networks that the present one is in, with the lowest level among them.
    let mut around: Vec<(Rule, u16)> = Vec::new();
    let mut touch = |meaning: Meaning| {
        if let Meaning::Mapped(instance, number) = meaning {
            touched[usize::from(instance)][number as usize] = true;
        }
    };
    for rule in rules {
        while around.pop_if(|(outer, _)| !outer.contains(&rule)).is_some() {}
        let lowest = around.last().map_or(u16::MAX, |(_, lowest)| *lowest);
        let is_double = around.last().is_some_and(|(outer, _)| {
            (outer.start, outer.len, outer.level) == (rule.start, rule.len, rule.level)
        });
        if rule.level == KEPT {
            around.iter().for_each(|(outer, _)| touch(outer.meaning));
        } else if lowest == KEPT {
            touch(rule.meaning);
        }
        if lowest >= rule.level && !is_double {
            kept.push(rule);
        }
        around.push((rule, lowest.min(rule.level)));
    }
    kept
}

impl Tries {
    pub(crate) fn of(plan: &StatelessPlan) -> Tries {
        let mut rules4: Vec<Rule> = Vec::new();
        let mut rules6: Vec<Rule> = Vec::new();
        rules4.extend(plan.left4.iter().map(|net| Rule::kept(start4(net.address), net.len)));
        rules6.extend(plan.left6.iter().map(|net| Rule::kept(net.address.into(), net.len)));
        rules4.extend(ILLEGAL4.map(|(address, len)| Rule::kept(start4(address.into()), len)));
        rules6.extend(ILLEGAL6.map(|(address, len)| Rule::kept(address, len)));
        rules4.extend(represented(plan, &rules6));
        let mut touched: Vec<Vec<bool>> =
            plan.instances.iter().map(|instance| vec![false; instance.mappings.len()]).collect();
        for (number, instance) in (0u8..).zip(&plan.instances) {
            instance.add(number, &mut rules4, &mut rules6);
        }
        let [rules4, rules6] = [rules4, rules6].map(|rules| reduce(rules, &mut touched));
        let mut tries = Tries::default();
        for rule in &rules4 {
            tries.keys4.push(TrieKey4 { len: rule.len.into(), address: octets4(rule.start) });
            tries.values4.push(plan.value4(rule.meaning, &touched));
        }
        for rule in &rules6 {
            tries.keys6.push(TrieKey6 { len: rule.len.into(), address: rule.start.to_be_bytes() });
            tries.values6.push(plan.value6(rule.meaning, &touched));
        }
        tries.left = touched.iter().flatten().filter(|touched| **touched).count();
        tries
    }
}

fn octets4(start: u128) -> [u8; 4] {
    ((start >> 96) as u32).to_be_bytes()
}

/// IPv4 addresses whose IPv6 addresses by the first prefix of an instance the engine keeps for itself.
fn represented(plan: &StatelessPlan, kept6: &[Rule]) -> Vec<Rule> {
    let mut rules = Vec::new();
    for prefix in plan.instances.iter().filter_map(|instance| instance.pool6.first()) {
        let whole =
            Rule { start: prefix.address().into(), len: prefix.len(), level: KEPT, meaning: Meaning::Left };
        for rule in kept6.iter().filter(|rule| whole.contains(rule) || rule.contains(&whole)) {
            let len = match (rule.len, prefix.len()) {
                (128, _) => 32,
                (len, 96) => len.saturating_sub(96),
                _ => 0,
            };
            rules.push(Rule::kept(start4(prefix.extract_unchecked(rule.start.into())), len));
        }
    }
    rules
}

impl Stateless {
    fn add(&self, number: u8, rules4: &mut Vec<Rule>, rules6: &mut Vec<Rule>) {
        let rule = |start: u128, len: u8, meaning| {
            let level = level_of(number, meaning);
            Rule { start: start & mask(len), len, level, meaning }
        };
        for (index, mapping) in (0u32..).zip(&self.mappings) {
            let meaning = Meaning::Mapped(number, index);
            rules4.push(rule(start4(mapping.v4.address), mapping.v4.len, meaning));
            rules6.push(rule(mapping.v6.address.into(), mapping.v6.len, meaning));
        }
        for prefix in &self.pool6 {
            let meaning = Meaning::Prefix(number, *prefix);
            rules6.push(rule(prefix.address().into(), prefix.len(), meaning));
        }
        if let Some(first) = self.pool6.first() {
            rules4.push(rule(0, 0, Meaning::Prefix(number, *first)));
        }
        if self.pool6.contains(&Prefix64::WELL_KNOWN) && !self.well_known_non_global {
            let level = level_of(number, Meaning::Left);
            rules4.extend(NOT_GLOBAL4.map(|(address, len)| Rule {
                start: start4(address.into()),
                len,
                level,
                meaning: Meaning::Left,
            }));
        }
    }
}

impl StatelessPlan {
    /// The mapping, if the program uses it.
    fn mapping(&self, instance: u8, number: u32, touched: &[Vec<bool>]) -> Option<&Mapping> {
        let (instance, number) = (usize::from(instance), number as usize);
        (!touched[instance][number]).then(|| &self.instances[instance].mappings[number])
    }

    fn ways(&self, instance: u8) -> Ways {
        self.instances[usize::from(instance)].ways
    }

    fn value4(&self, meaning: Meaning, touched: &[Vec<bool>]) -> Mapping4 {
        match meaning {
            Meaning::Mapped(instance, number) if self.ways(instance) == Ways::Both => {
                self.mapping(instance, number, touched).map_or(Mapping4::default(), |mapping| Mapping4 {
                    kind: MAPPED,
                    instance,
                    shift: mapping.shift(),
                    one_way: 0,
                    mask: mapping.mask().to_be_bytes(),
                    six: (u128::from(mapping.v6.address) & mask(mapping.v6.len)).to_be_bytes(),
                })
            }
            // Without a way from IPv4, only the look-up of what a prefix leads to comes here.
            Meaning::Prefix(instance, prefix) if self.ways(instance) != Ways::None => Mapping4 {
                kind: BY_PREFIX,
                instance,
                shift: prefix.len(),
                one_way: u8::from(self.ways(instance) == Ways::FromIpv6),
                mask: [255; 4],
                six: prefix.address().octets(),
            },
            _ => Mapping4::default(),
        }
    }

    fn value6(&self, meaning: Meaning, touched: &[Vec<bool>]) -> Mapping6 {
        match meaning {
            Meaning::Mapped(instance, number) if self.ways(instance) != Ways::None => {
                self.mapping(instance, number, touched).map_or(Mapping6::default(), |mapping| Mapping6 {
                    kind: MAPPED,
                    instance,
                    shift: mapping.shift(),
                    spare: 0,
                    mask: mapping.mask().to_be_bytes(),
                    four: (u32::from(mapping.v4.address) & !mapping.mask()).to_be_bytes(),
                })
            }
            Meaning::Prefix(instance, prefix) if self.ways(instance) != Ways::None => Mapping6 {
                kind: BY_PREFIX,
                instance,
                shift: prefix.len(),
                spare: 0,
                mask: [255; 4],
                four: [0; 4],
            },
            _ => Mapping6::default(),
        }
    }
}

impl Mapping {
    /// Bits of the IPv4 suffix.
    fn mask(&self) -> u32 {
        u32::MAX.checked_shr(self.v4.len.into()).unwrap_or(0)
    }

    /// Bits behind the IPv4 suffix in the IPv6 address.
    fn shift(&self) -> u8 {
        let suffix = 32 - self.v4.len.min(32);
        (128 - self.v6.len.min(128)).saturating_sub(suffix).min(127)
    }
}
