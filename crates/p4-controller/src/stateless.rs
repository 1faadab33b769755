//! Stateless instances (SIIT) as entries of the program's tables with masks.
//!
//! Such a table has one order, by priority. The engine has another: what it keeps for itself, then the
//! instances, and in each the longest mapping before the prefixes. So the place in that order is the greater
//! part of an entry's priority, and the length of its prefix the lesser one. An address behind a prefix can
//! be one that the engine keeps, or that has a mapping. Entries of the embedded addresses give those packets
//! to the engine.

use crate::entry::{COUNTER, KeyField, StaticEntry};
use gatun_nat::Plan;
use gatun_nat::plan::{Eam, Siit};
use gatun_nat::special::NON_GLOBAL;
use gatun_wire::Prefix64;
use std::net::{IpAddr, Ipv4Addr};

/// Maximum number of entries of a table: the size of the program's tables.
pub const ENTRIES_MAX: usize = 4096;

/// Addresses that are illegal in a packet: the engine decides about them.
const ILLEGAL4: [([u8; 4], u8); 5] =
    [([0; 4], 8), ([127, 0, 0, 0], 8), ([169, 254, 0, 0], 16), ([224, 0, 0, 0], 4), ([255; 4], 32)];
const ILLEGAL6: [(u128, u8); 3] = [(0, 127), (0xfe80 << 112, 10), (0xff << 120, 8)];

/// Parts of the engine's order: in each instance prefixes, what is excepted from them, and mappings.
const BY_PREFIX: u16 = 0;
const EXCEPTED: u16 = 1;
const MAPPED: u16 = 2;
const PARTS: u16 = 3;
/// Part of what the engine keeps for itself.
const KEPT: u16 = PARTS * 256;

/// Plan and settings of the entries.
#[derive(Clone, Copy, Debug)]
pub struct StatelessView<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Stateless instances that stay with the engines, by number.
    pub excluded: &'a [u8],
    /// Addresses of the Ethernet host.
    pub host: &'a [IpAddr],
    /// Largest packet of the ports, bytes.
    pub mtu: u32,
    /// Smallest path MTU that an engine knows.
    pub smallest_path: Option<u16>,
}

/// Entries of the stateless instances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatelessEntries {
    /// The entries. None if there are more than the tables have room for.
    pub entries: Vec<StaticEntry>,
    /// Mappings that the switch has.
    pub mappings: usize,
    /// Mappings that the engine keeps, because they overlap with something that it keeps for itself, or
    /// because there are too many.
    pub left: usize,
}

#[derive(Clone, Copy)]
enum Meaning {
    /// The engine has these packets.
    Engine,
    /// A mapping of an instance.
    Mapped(u8, Eam),
    /// A prefix of an instance.
    Prefix(u8, Prefix64),
}

/// Network of IPv4 addresses.
#[derive(Clone, Copy)]
struct Rule4 {
    bits: u32,
    len: u8,
    part: u16,
    meaning: Meaning,
}

/// Network of IPv6 addresses: bits under a mask.
#[derive(Clone, Copy)]
struct Rule6 {
    bits: u128,
    mask: u128,
    len: u8,
    part: u16,
    meaning: Meaning,
}

/// Rules of all addresses.
#[derive(Default)]
struct Rules {
    four: Vec<Rule4>,
    six: Vec<Rule6>,
    mappings: usize,
    left: usize,
}

fn mask4(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0)
}

fn mask6(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0)
}

fn halves(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}

/// The lowest bits.
fn low(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Part of an instance in the engine's order. The first instance has precedence.
fn part_of(instance: u8, part: u16) -> u16 {
    PARTS * u16::from(u8::MAX - instance) + part
}

/// P4Runtime's lowest priority is 1.
fn priority(part: u16, len: u8) -> i32 {
    i32::from(part) << 8 | (i32::from(len) + 1)
}

impl Rule4 {
    fn new(address: Ipv4Addr, len: u8, part: u16, meaning: Meaning) -> Rule4 {
        Rule4 { bits: u32::from(address) & mask4(len), len, part, meaning }
    }

    fn kept(address: Ipv4Addr, len: u8) -> Rule4 {
        Rule4::new(address, len, KEPT, Meaning::Engine)
    }

    fn overlaps(&self, other: &Rule4) -> bool {
        (self.bits ^ other.bits) & mask4(self.len.min(other.len)) == 0
    }
}

impl Rule6 {
    fn new(bits: u128, len: u8, part: u16, meaning: Meaning) -> Rule6 {
        let mask = mask6(len);
        Rule6 { bits: bits & mask, mask, len, part, meaning }
    }

    fn kept(bits: u128, len: u8) -> Rule6 {
        Rule6::new(bits, len, KEPT, Meaning::Engine)
    }

    fn overlaps(&self, other: &Rule6) -> bool {
        (self.bits ^ other.bits) & self.mask & other.mask == 0
    }

    /// The rule of an IPv4 network behind a prefix.
    fn embedded(prefix: &Prefix64, rule: &Rule4, part: u16) -> Rule6 {
        let zero = u128::from(prefix.embed(Ipv4Addr::UNSPECIFIED));
        let network = u128::from(prefix.embed(rule.bits.into()));
        let mask = u128::from(prefix.embed(mask4(rule.len).into())) ^ zero | mask6(prefix.len());
        Rule6 { bits: network & mask, mask, len: rule.len, part, meaning: Meaning::Engine }
    }
}

/// Networks that the engine keeps for itself.
fn kept(view: &StatelessView<'_>) -> (Vec<Rule4>, Vec<Rule6>) {
    let (plan4, plan6) = view.plan.kept_from_siit();
    let mut four: Vec<Rule4> = ILLEGAL4.map(|(address, len)| Rule4::kept(address.into(), len)).into();
    four.extend(plan4.iter().map(|net| Rule4::kept(net.addr, net.len)));
    let mut six: Vec<Rule6> = ILLEGAL6.map(|(bits, len)| Rule6::kept(bits, len)).into();
    six.extend(plan6.iter().map(|net| Rule6::kept(net.addr.into(), net.len)));
    for address in view.host {
        match *address {
            IpAddr::V4(address) => four.push(Rule4::kept(address, 32)),
            IpAddr::V6(address) => six.push(Rule6::kept(address.into(), 128)),
        }
    }
    let firsts: Vec<&Prefix64> = view.plan.siit.iter().filter_map(|siit| siit.pool6.first()).collect();
    four.extend(firsts.into_iter().flat_map(|prefix| represented(prefix, &six)).collect::<Vec<_>>());
    (four, six)
}

/// IPv4 addresses whose IPv6 addresses by a prefix the engine keeps for itself.
fn represented(prefix: &Prefix64, kept: &[Rule6]) -> Vec<Rule4> {
    let whole = Rule6::kept(prefix.address().into(), prefix.len());
    let of = |rule: &Rule6| {
        let len = match (rule.len, prefix.len()) {
            (128, _) => 32,
            (len, 96) => len.saturating_sub(96),
            _ => 0,
        };
        Rule4::kept(prefix.extract_unchecked(rule.bits.into()), len)
    };
    kept.iter().filter(|rule| rule.overlaps(&whole)).map(of).collect()
}

impl Rules {
    /// Rules of all instances. `None` if there are too many.
    fn of(view: &StatelessView<'_>) -> Option<Rules> {
        let (four, six) = kept(view);
        let mut rules = Rules { four: four.clone(), six: six.clone(), ..Rules::default() };
        for (number, siit) in (0..=u8::MAX).zip(&view.plan.siit) {
            rules.add(view, (number, siit), (&four, &six));
            if rules.four.len().max(rules.six.len()) > ENTRIES_MAX {
                return None;
            }
        }
        Some(rules)
    }

    fn add(
        &mut self,
        view: &StatelessView<'_>,
        (number, siit): (u8, &Siit),
        (kept4, kept6): (&[Rule4], &[Rule6]),
    ) {
        if self.four.len() + siit.eamt.len() > ENTRIES_MAX {
            self.four.resize(ENTRIES_MAX + 1, Rule4::kept(Ipv4Addr::UNSPECIFIED, 0));
            return;
        }
        let ways = Ways::of(view, (number, siit));
        let part = |part| part_of(number, part);
        let mut excepted: Vec<Rule4> = kept4.to_vec();
        for eam in &siit.eamt {
            let mapped = Meaning::Mapped(number, *eam);
            let four = Rule4::new(eam.v4.addr, eam.v4.len, part(MAPPED), mapped);
            let six = Rule6::new(eam.v6.addr.into(), eam.v6.len, part(MAPPED), mapped);
            let is_kept = kept4.iter().any(|kept| kept.overlaps(&four))
                || kept6.iter().any(|kept| kept.overlaps(&six))
                || ways == Ways::None;
            let of = |is_used| if is_used && !is_kept { mapped } else { Meaning::Engine };
            *(if is_kept { &mut self.left } else { &mut self.mappings }) += 1;
            self.four.push(Rule4 { meaning: of(ways == Ways::Both), ..four });
            self.six.push(Rule6 { meaning: of(true), ..six });
            excepted.push(four);
        }
        if siit.pool6.contains(&Prefix64::WELL_KNOWN) && !siit.wkp_non_global {
            let rule =
                |(address, len)| Rule4::new(Ipv4Addr::from(address), len, part(EXCEPTED), Meaning::Engine);
            let rules = NON_GLOBAL.map(rule);
            self.four.extend(&rules);
            excepted.extend(rules);
        }
        for prefix in &siit.pool6 {
            let embedded = excepted.iter().map(|rule| Rule6::embedded(prefix, rule, part(EXCEPTED)));
            self.six.extend(embedded);
            let meaning = if ways == Ways::None { Meaning::Engine } else { Meaning::Prefix(number, *prefix) };
            self.six.push(Rule6::new(prefix.address().into(), prefix.len(), part(BY_PREFIX), meaning));
        }
        if let Some(first) = siit.pool6.first() {
            let meaning = if ways == Ways::Both { Meaning::Prefix(number, *first) } else { Meaning::Engine };
            self.four.push(Rule4::new(Ipv4Addr::UNSPECIFIED, 0, part(BY_PREFIX), meaning));
        }
    }
}

/// Packets of an instance that the switch translates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ways {
    Both,
    /// IPv6 packets alone.
    FromIpv6,
    None,
}

impl Ways {
    fn of(view: &StatelessView<'_>, (number, siit): (u8, &Siit)) -> Ways {
        match view.plan.is_only_from_ipv6(siit) {
            _ if view.excluded.contains(&number) => Ways::None,
            true => Ways::FromIpv6,
            false => Ways::Both,
        }
    }
}

/// Arguments for an address of IPv4:
/// `base | ((high << left) >> right) & mask_hi | (low >> shift) & mask_lo`.
fn to4(meaning: Meaning) -> Option<Vec<(&'static str, u64)>> {
    let values = match meaning {
        Meaning::Engine => return None,
        Meaning::Mapped(_, eam) => {
            let suffix = 32 - u32::from(eam.v4.len);
            let shift = 128 - u32::from(eam.v6.len) - suffix;
            let (base, mask) = (u64::from(u32::from(eam.v4.addr) & mask4(eam.v4.len)), low(suffix));
            match shift {
                64.. => [base, 0, u64::from(shift) - 64, mask, 0, 0],
                0 => [base, 0, 0, 0, 0, mask],
                _ => {
                    let of_low = mask & low(64 - shift);
                    [base, 64 - u64::from(shift), 0, mask & !of_low, shift.into(), of_low]
                }
            }
        }
        Meaning::Prefix(_, prefix) => match u32::from(prefix.len()) {
            96.. => [0, 0, 0, 0, 0, low(32)],
            64 => [0, 0, 0, 0, 24, low(32)],
            len => {
                let high = 64 - len; // bits of the address in the first half
                let of_low = low(32 - high);
                [0, u64::from(32 - high), 0, low(32) & !of_low, (24 + high).into(), of_low]
            }
        },
    };
    Some(["base", "left", "right", "mask_hi", "shift", "mask_lo"].into_iter().zip(values).collect())
}

/// Arguments for an address of IPv6: `high = base_hi | ((four & mask_hi) << left) >> right`,
/// `low = base_lo | (four & mask_lo) << shift`.
fn to6(meaning: Meaning) -> Option<Vec<(&'static str, u64)>> {
    let values = match meaning {
        Meaning::Engine => return None,
        Meaning::Mapped(_, eam) => {
            let suffix = 32 - u32::from(eam.v4.len);
            let shift = 128 - u32::from(eam.v6.len) - suffix;
            let [high, lower] = halves(u128::from(eam.v6.addr) & mask6(eam.v6.len));
            let mask = low(suffix);
            match shift {
                64.. => [high, mask, u64::from(shift) - 64, 0, lower, 0, 0],
                0 => [high, 0, 0, 0, lower, mask, 0],
                _ => [high, mask, 0, 64 - u64::from(shift), lower, mask, shift.into()],
            }
        }
        Meaning::Prefix(_, prefix) => {
            let [high, lower] = halves(prefix.address().into());
            match u32::from(prefix.len()) {
                96.. => [high, 0, 0, 0, lower, low(32), 0],
                64 => [high, 0, 0, 0, lower, low(32), 24],
                len => {
                    let of_high = 64 - len;
                    let of_low = low(32 - of_high);
                    [high, low(32) & !of_low, 0, (32 - of_high).into(), lower, of_low, (24 + of_high).into()]
                }
            }
        }
    };
    let names = ["base_hi", "mask_hi", "left", "right", "base_lo", "mask_lo", "shift"];
    Some(names.into_iter().zip(values).collect())
}

/// Number of the instance of a rule. The program knows 0 as none.
fn instance(meaning: Meaning) -> (usize, [(&'static str, u64); 1]) {
    let number = match meaning {
        Meaning::Mapped(number, _) | Meaning::Prefix(number, _) => number,
        Meaning::Engine => 0,
    };
    (number.into(), [("instance", u64::from(number) + 1)])
}

/// Limits, TOS and counter of a direction.
fn limits(without_df: u32, max: u32, tos: Option<u8>, counter: usize) -> [(&'static str, u64); 5] {
    // The program keeps some bits of a packet's byte, and sets others.
    let [keep, set] = tos.map_or([0xff, 0], |tos| [0, tos.into()]);
    let [without_df, max] = [without_df, max].map(|limit| limit.min(u16::MAX.into()).into());
    [
        ("max_len", without_df),
        ("max_len_df", max),
        ("tos_keep", keep),
        ("tos_set", set),
        (COUNTER, counter as u64),
    ]
}

fn entry(
    table: &'static str,
    key: Vec<(&'static str, KeyField)>,
    priority: i32,
    (action, arguments): (&'static str, Option<Vec<(&'static str, u64)>>),
) -> StaticEntry {
    let (action, arguments) = arguments.map_or(("controller", Vec::new()), |arguments| (action, arguments));
    StaticEntry { table, key, priority, action, arguments }
}

impl StatelessView<'_> {
    /// Entries of all stateless instances. There are none without such instances.
    pub fn entries(&self) -> StatelessEntries {
        if self.plan.siit.is_empty() {
            return StatelessEntries::default();
        }
        let Some(rules) = Rules::of(self) else {
            let left = self.plan.siit.iter().map(|siit| siit.eamt.len()).sum();
            return StatelessEntries { left, ..StatelessEntries::default() };
        };
        let six = rules.six.iter().flat_map(|rule| self.of_six(rule));
        let four = rules.four.iter().flat_map(|rule| self.of_four(rule));
        let mut entries: Vec<StaticEntry> = six.chain(four).collect();
        // Some networks are kept for several reasons.
        entries.sort_unstable_by(|a, b| a.place().cmp(&b.place()));
        entries.dedup_by(|a, b| a.place() == b.place());
        StatelessEntries { entries, mappings: rules.mappings, left: rules.left }
    }

    fn of_six(&self, rule: &Rule6) -> [StaticEntry; 2] {
        let key = |names: [&'static str; 2]| {
            let fields = halves(rule.bits).into_iter().zip(halves(rule.mask));
            let fields = fields.map(|(value, mask)| KeyField::Ternary { value, mask });
            names.into_iter().zip(fields).collect()
        };
        let (number, instance) = instance(rule.meaning);
        let settings = self.plan.siit.get(number).map(|siit| siit.settings).unwrap_or_default();
        let mtu4 = settings.mtu4.min(self.mtu);
        let without_df = self.smallest_path.map_or(mtu4, |smallest| mtu4.min(smallest.into()));
        let limits = limits(without_df, mtu4, settings.tos_6to4, 2 * number);
        let (dst, src) = (key(["dst_hi", "dst_lo"]), key(["src_hi", "src_lo"]));
        let arguments = to4(rule.meaning);
        let of_dst = arguments.clone().map(|address| [&address[..], &limits, &instance].concat());
        let of_src = arguments.map(|address| [&address[..], &instance].concat());
        let priority = priority(rule.part, rule.len);
        [
            entry("mapped_dst6", dst, priority, ("dst_by6", of_dst)),
            entry("mapped_src6", src, priority, ("src_by6", of_src)),
        ]
    }

    fn of_four(&self, rule: &Rule4) -> [StaticEntry; 2] {
        let field = KeyField::Ternary { value: rule.bits.into(), mask: mask4(rule.len).into() };
        let (number, instance) = instance(rule.meaning);
        let settings = self.plan.siit.get(number).map(|siit| siit.settings).unwrap_or_default();
        let mtu6 = settings.mtu6.min(self.mtu);
        let without_df = mtu6.min(settings.lowest_ipv6_mtu);
        let limits = limits(without_df, mtu6, settings.traffic_class_4to6, 2 * number + 1);
        let arguments = to6(rule.meaning);
        let of_dst = arguments.clone().map(|address| [&address[..], &limits, &instance].concat());
        let of_src = arguments.map(|address| [&address[..], &instance].concat());
        let priority = priority(rule.part, rule.len);
        [
            entry("mapped_dst4", vec![("dst", field)], priority, ("dst_by4", of_dst)),
            entry("mapped_src4", vec![("src", field)], priority, ("src_by4", of_src)),
        ]
    }
}
