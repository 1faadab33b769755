//! Gatun's P4 program as a switch describes it (p4info): numbers of its tables, actions and counters, and
//! entries in the form of P4Runtime.

use crate::entry::COUNTERS;
use crate::flow::{Direction, Key, delta, key, translated};
use crate::link::{Counted, FlowEntry, Found, ProgramCounts};
use gatun_nat::counters::Count;
use gatun_nat::feed::{Flow, SessionId};
use gatun_nat::plan::Transport;
use gatun_offload::OffloadedFlow;
use gatun_p4runtime::p4::config::v1 as config;
use gatun_p4runtime::p4::v1::{
    Action, CounterData, CounterEntry, FieldMatch, Index, MeterConfig, MeterEntry, TableAction, TableEntry,
    action, field_match, table_action,
};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ethernet header in bytes, which counters of BMv2 include and Gatun's do not.
const ETHERNET: u64 = 14;
/// Number of the program's counters of identifications.
const IDENTS: u64 = 2048;
/// Identification is kept.
const NO_IDENT: u64 = 0xffff;
/// Begin of the metadata of an entry: Gatun's, in this form.
const METADATA: [u8; 2] = [b'G', 1];

/// Counters of the program itself, as [`ProgramCounts`] has them.
const OWN_COUNTERS: [&str; 3] = ["to_controller", "over_limit", "dropped"];
/// Maximum number of their reasons.
const REASONS_MAX: u64 = 256;

const KEY6: [&str; 7] = ["src_hi", "src_lo", "dst_hi", "dst_lo", "sport", "dport", "proto"];
const KEY4: [&str; 5] = ["src", "dst", "sport", "dport", "proto"];
const TO_IPV4: [&str; 12] = [
    "src",
    "dst",
    "sport",
    "dport",
    "delta",
    "max_len",
    "ident",
    "tos_keep",
    "tos_set",
    "pending",
    "next_hop",
    "counter_index",
];
const TO_IPV6: [&str; 14] = [
    "src_hi",
    "src_lo",
    "dst_hi",
    "dst_lo",
    "sport",
    "dport",
    "delta",
    "max_len",
    "max_len_df",
    "tos_keep",
    "tos_set",
    "pending",
    "next_hop",
    "counter_index",
];
const NAT44: [&str; 10] =
    ["src", "dst", "sport", "dport", "delta", "max_len", "ident", "pending", "next_hop", "counter_index"];

/// Reason why a program is not Gatun's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramError(String);

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the switch does not run Gatun's program: {}", self.0)
    }
}

impl std::error::Error for ProgramError {}

/// Constant TOS byte and traffic class of translated packets. `None`: the one of the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConstantTos {
    /// Of IPv4 packets.
    pub to_ipv4: Option<u8>,
    /// Of IPv6 packets.
    pub to_ipv6: Option<u8>,
}

/// Limits and settings that entries contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest IPv4 packet in bytes.
    pub mtu4: u16,
    /// Largest IPv6 packet in bytes.
    pub mtu6: u16,
    /// Largest IPv6 packet in bytes that an IPv4 packet without DF becomes.
    pub mtu6_without_df: u16,
    /// TOS bytes of NAT64 instances, by number.
    pub tos: Vec<ConstantTos>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { mtu4: 1500, mtu6: 1500, mtu6_without_df: 1280, tos: Vec::new() }
    }
}

/// Numbers of a table or an action, and of its fields.
#[derive(Clone, Copy, Debug)]
struct FieldNumbers<const N: usize> {
    id: u32,
    fields: [u32; N],
}

/// Gatun's program in a switch.
pub struct Program {
    info: config::P4Info,
    flows6: FieldNumbers<7>,
    flows4: FieldNumbers<5>,
    to_ipv4: FieldNumbers<12>,
    to_ipv6: FieldNumbers<14>,
    nat44: FieldNumbers<10>,
    counter: u32,
    /// First counter of stateless instances, behind those of the flows.
    first_stateless: u64,
    /// Numbers of the counters of the program itself: to the controller, over the limit, dropped.
    own_counters: [Option<u32>; 3],
    capacity: u32,
    /// Bytes of each packet that the counters include and Gatun does not count.
    overhead: u64,
    limits: Limits,
    hasher: RandomState,
}

fn is_named(preamble: Option<&config::Preamble>, name: &str) -> bool {
    preamble.is_some_and(|of| of.alias == name || of.name == name || of.name.rsplit('.').next() == Some(name))
}

fn table<'a>(info: &'a config::P4Info, name: &str) -> Result<&'a config::Table, ProgramError> {
    let found = info.tables.iter().find(|table| is_named(table.preamble.as_ref(), name));
    found.ok_or_else(|| ProgramError(format!("it has no table `{name}`")))
}

fn action<'a>(info: &'a config::P4Info, name: &str) -> Result<&'a config::Action, ProgramError> {
    let found = info.actions.iter().find(|action| is_named(action.preamble.as_ref(), name));
    found.ok_or_else(|| ProgramError(format!("it has no action `{name}`")))
}

fn id(preamble: Option<&config::Preamble>) -> u32 {
    preamble.map_or(0, |preamble| preamble.id)
}

fn field(of: &config::Table, name: &str) -> Result<u32, ProgramError> {
    let found = of.match_fields.iter().find(|field| field.name == name);
    let table = of.preamble.as_ref().map_or("", |preamble| &preamble.name);
    let lacks = || ProgramError(format!("the key of table `{table}` has no field `{name}`"));
    found.map(|field| field.id).ok_or_else(lacks)
}

fn param(of: &config::Action, name: &str) -> Result<u32, ProgramError> {
    let found = of.params.iter().find(|param| param.name == name);
    let action = of.preamble.as_ref().map_or("", |preamble| &preamble.alias);
    let lacks =
        || ProgramError(format!("action `{action}` is of another version: it has no argument `{name}`"));
    found.map(|param| param.id).ok_or_else(lacks)
}

/// Numbers of a table, which has to have exactly these fields.
fn table_ids<const N: usize>(
    info: &config::P4Info,
    name: &str,
    fields: [&str; N],
) -> Result<FieldNumbers<N>, ProgramError> {
    let of = table(info, name)?;
    let mut ids = FieldNumbers { id: id(of.preamble.as_ref()), fields: [0; N] };
    for (id, name) in ids.fields.iter_mut().zip(fields) {
        *id = field(of, name)?;
    }
    match of.match_fields.len() == N {
        true => Ok(ids),
        false => Err(ProgramError(format!("the key of table `{name}` has {} fields", of.match_fields.len()))),
    }
}

fn action_ids<const N: usize>(
    info: &config::P4Info,
    name: &str,
    params: [&str; N],
) -> Result<FieldNumbers<N>, ProgramError> {
    let of = action(info, name)?;
    let mut ids = FieldNumbers { id: id(of.preamble.as_ref()), fields: [0; N] };
    for (id, name) in ids.fields.iter_mut().zip(params) {
        *id = param(of, name)?;
    }
    match of.params.len() == N {
        true => Ok(ids),
        false => {
            let arguments = of.params.len();
            Err(ProgramError(format!("action `{name}` is of another version: it has {arguments} arguments")))
        }
    }
}

/// Number of a meter's cells, each of a reason.
fn meter_size(meter: &config::Meter) -> i64 {
    meter.size.clamp(0, REASONS_MAX as i64)
}

/// Change of the transport checksum as the program needs it: zero is written as all ones.
fn sum_delta(flow: &OffloadedFlow, direction: Direction) -> u64 {
    match delta(flow, direction).0 {
        0 => 0xffff,
        delta => delta.into(),
    }
}

/// The shortest form of a value (P4Runtime 8.4).
pub(crate) fn shortest(value: u64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let zeroes = (value.leading_zeros() / 8).min(7) as usize;
    bytes[zeroes..].to_vec()
}

fn number(bytes: &[u8]) -> Option<u64> {
    let bytes = &bytes[bytes.iter().take_while(|&&byte| byte == 0).count()..];
    let mut value = [0; 8];
    value.get_mut(8usize.checked_sub(bytes.len())?..)?.copy_from_slice(bytes);
    Some(u64::from_be_bytes(value))
}

fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

fn address6(high: u64, low: u64) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))
}

fn address4(value: u64) -> Option<Ipv4Addr> {
    u32::try_from(value).ok().map(Ipv4Addr::from_bits)
}

/// Numbers of an address: one for IPv4, two for IPv6.
fn values_of(address: IpAddr) -> Vec<u64> {
    match address {
        IpAddr::V4(address) => vec![address.to_bits().into()],
        IpAddr::V6(address) => halves(address).to_vec(),
    }
}

fn protocol(transport: Transport, is_six: bool) -> u64 {
    match transport {
        Transport::Tcp => 6,
        Transport::Udp => 17,
        Transport::Icmp if is_six => 58,
        Transport::Icmp => 1,
    }
}

fn transport(number: u64, is_six: bool) -> Option<Transport> {
    [Transport::Tcp, Transport::Udp, Transport::Icmp].into_iter().find(|&of| protocol(of, is_six) == number)
}

fn exact<const N: usize>(ids: &FieldNumbers<N>, values: &[u64]) -> Vec<FieldMatch> {
    let of = |(id, value): (&u32, &u64)| FieldMatch {
        field_id: *id,
        field_match_type: Some(field_match::FieldMatchType::Exact(field_match::Exact {
            value: shortest(*value),
        })),
    };
    ids.fields.iter().zip(values).map(of).collect()
}

fn call<const N: usize>(ids: &FieldNumbers<N>, values: &[u64]) -> Option<TableAction> {
    let of = |(id, value): (&u32, &u64)| action::Param { param_id: *id, value: shortest(*value) };
    let params = ids.fields.iter().zip(values).map(of).collect();
    Some(TableAction { r#type: Some(table_action::Type::Action(Action { action_id: ids.id, params })) })
}

/// Values of an entry's key, in the order of the names.
fn key_values<const N: usize>(ids: &FieldNumbers<N>, entry: &TableEntry) -> Option<[u64; N]> {
    let mut values = [0; N];
    for (value, id) in values.iter_mut().zip(ids.fields) {
        let found = entry.r#match.iter().find(|field| field.field_id == id)?;
        let Some(field_match::FieldMatchType::Exact(exact)) = &found.field_match_type else { return None };
        *value = number(&exact.value)?;
    }
    Some(values)
}

/// Arguments of an action, in the order of the names.
fn arguments<const N: usize>(ids: &FieldNumbers<N>, action: &Action) -> Option<[u64; N]> {
    let mut values = [0; N];
    for (value, id) in values.iter_mut().zip(ids.fields) {
        *value = number(&action.params.iter().find(|param| param.param_id == id)?.value)?;
    }
    (action.action_id == ids.id).then_some(values)
}

impl Program {
    /// Finds Gatun's tables in a program.
    ///
    /// # Errors
    /// Returns the first table, action, field or counter that the program lacks.
    pub fn new(info: config::P4Info, limits: Limits) -> Result<Program, ProgramError> {
        let flows6 = table_ids(&info, "flows6", KEY6)?;
        let flows4 = table_ids(&info, "flows4", KEY4)?;
        let to_ipv4 = action_ids(&info, "to_ipv4", TO_IPV4)?;
        let to_ipv6 = action_ids(&info, "to_ipv6", TO_IPV6)?;
        let nat44 = action_ids(&info, "nat44", NAT44)?;
        let counter = info.counters.iter().find(|of| is_named(of.preamble.as_ref(), "entry_packets"));
        let counter = counter.ok_or_else(|| ProgramError("it has no counter `entry_packets`".to_owned()))?;
        let counters = counter.size;
        let counter = id(counter.preamble.as_ref());
        let named = |name| info.counters.iter().find(|of| is_named(of.preamble.as_ref(), name));
        let own_counters = OWN_COUNTERS.map(|name| Some(id(named(name)?.preamble.as_ref())));
        let first_stateless = u64::try_from(counters).unwrap_or(0).saturating_sub(COUNTERS);
        let of_flows = i64::try_from(first_stateless / 2).unwrap_or(0);
        let sizes = [table(&info, "flows6")?.size, table(&info, "flows4")?.size, of_flows];
        let capacity = sizes.into_iter().min().and_then(|size| u32::try_from(size).ok()).unwrap_or(0);
        let is_bmv2 = info.pkg_info.as_ref().is_some_and(|package| package.arch == "v1model");
        let overhead = if is_bmv2 { ETHERNET } else { 0 };
        let hasher = RandomState::new();
        Ok(Program {
            info,
            flows6,
            flows4,
            to_ipv4,
            to_ipv6,
            nat44,
            counter,
            first_stateless,
            own_counters,
            capacity,
            overhead,
            limits,
            hasher,
        })
    }

    /// Number of flows that the tables have room for.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Description of the program.
    pub fn info(&self) -> &config::P4Info {
        &self.info
    }

    /// Number of a table by name.
    pub(crate) fn table_id(&self, name: &str) -> Result<u32, ProgramError> {
        Ok(id(table(&self.info, name)?.preamble.as_ref()))
    }

    /// Number and size of a table by name. `None` if the program has no such table.
    pub(crate) fn table_size(&self, name: &str) -> Option<(u32, i64)> {
        let table = table(&self.info, name).ok()?;
        Some((id(table.preamble.as_ref()), table.size))
    }

    /// Number of a field of a table's key.
    pub(crate) fn field_id(&self, of: &str, name: &str) -> Result<u32, ProgramError> {
        field(table(&self.info, of)?, name)
    }

    /// Number of an action by name.
    pub(crate) fn action_id(&self, name: &str) -> Result<u32, ProgramError> {
        Ok(id(action(&self.info, name)?.preamble.as_ref()))
    }

    /// Number of an argument of an action.
    pub(crate) fn param_id(&self, of: &str, name: &str) -> Result<u32, ProgramError> {
        param(action(&self.info, of)?, name)
    }

    /// Numbers of the tables of flows.
    pub(crate) fn flow_tables(&self) -> [u32; 2] {
        [self.flows6.id, self.flows4.id]
    }

    fn of_key(&self, key: &Key) -> TableEntry {
        let is_six = key.source.0.is_ipv6();
        let mut values = values_of(key.source.0);
        values.extend(values_of(key.destination.0));
        values.extend([key.source.1.into(), key.destination.1.into(), protocol(key.transport, is_six)]);
        let (table_id, r#match) = match is_six {
            true => (self.flows6.id, exact(&self.flows6, &values)),
            false => (self.flows4.id, exact(&self.flows4, &values)),
        };
        TableEntry { table_id, r#match, ..TableEntry::default() }
    }

    /// The entry with a key, to be deleted.
    pub fn entry_of_key(&self, key: &Key) -> TableEntry {
        self.of_key(key)
    }

    /// The entry for a direction of a flow.
    pub fn entry(&self, of: &FlowEntry) -> TableEntry {
        TableEntry {
            action: self.action(of),
            metadata: metadata(&of.flow),
            ..self.of_key(&key(&of.flow, of.direction))
        }
    }

    fn action(&self, FlowEntry { slot, direction, flow, pending }: &FlowEntry) -> Option<TableAction> {
        let direction = *direction;
        let [(source, sport), (destination, dport)] = translated(flow, direction);
        let mut values = values_of(source);
        values.extend(values_of(destination));
        values.extend([sport.into(), dport.into(), sum_delta(flow, direction)]);
        let counter = u64::from(*slot) << 1 | direction.index() as u64;
        let mtu4 = self.limits.mtu4.min(flow.path_mtu.unwrap_or(u16::MAX)).into();
        // The last arguments of each action: pending, next hop, counter.
        let last = [u64::from(*pending), 0, counter];
        let tos = self.limits.tos.get(usize::from(flow.session.flow.instance)).copied().unwrap_or_default();
        // The program keeps some bits of a packet's byte, and sets others.
        let [to_ipv4, to_ipv6] =
            [tos.to_ipv4, tos.to_ipv6].map(|set| set.map_or([0xff, 0], |set| [0, set.into()]));
        match (flow.remote6.is_some(), direction) {
            (true, Direction::Outbound) => {
                values.extend([mtu4, self.ident(flow)]);
                values.extend(to_ipv4);
                values.extend(last);
                call(&self.to_ipv4, &values)
            }
            (true, Direction::Inbound) => {
                let limits = [self.limits.mtu6_without_df, self.limits.mtu6];
                values.extend(limits.map(u64::from));
                values.extend(to_ipv6);
                values.extend(last);
                call(&self.to_ipv6, &values)
            }
            (false, direction) => {
                let ident = match direction {
                    Direction::Outbound => self.ident(flow),
                    Direction::Inbound => NO_IDENT,
                };
                values.extend([mtu4, ident]);
                values.extend(last);
                call(&self.nat44, &values)
            }
        }
    }

    /// Counter of identifications. Remote hosts cannot choose flows that share one.
    fn ident(&self, flow: &OffloadedFlow) -> u64 {
        let of = &flow.session.flow;
        self.hasher.hash_one((of.outside.0, of.remote.0, of.transport as u8)) % IDENTS
    }

    /// Reads an entry of the tables of flows. `None` if it is of another table, or has no readable key.
    pub fn found(&self, entry: &TableEntry) -> Option<Found> {
        let (source, destination, ports) = if entry.table_id == self.flows6.id {
            let [src_hi, src_lo, dst_hi, dst_lo, sport, dport, proto] = key_values(&self.flows6, entry)?;
            let ends = [address6(src_hi, src_lo), address6(dst_hi, dst_lo)].map(IpAddr::V6);
            (ends[0], ends[1], [sport, dport, proto])
        } else if entry.table_id == self.flows4.id {
            let [src, dst, sport, dport, proto] = key_values(&self.flows4, entry)?;
            (IpAddr::V4(address4(src)?), IpAddr::V4(address4(dst)?), [sport, dport, proto])
        } else {
            return None;
        };
        let (sport, dport) = (u16::try_from(ports[0]).ok()?, u16::try_from(ports[1]).ok()?);
        let transport = transport(ports[2], source.is_ipv6())?;
        let key = Key { source: (source, sport), destination: (destination, dport), transport };
        Some(Found { key, entry: self.read(&key, entry) })
    }

    /// The flow of an entry that has exactly the form in which it would be written now, pending or not.
    fn read(&self, key: &Key, entry: &TableEntry) -> Option<FlowEntry> {
        let Some(table_action::Type::Action(action)) = &entry.action.as_ref()?.r#type else { return None };
        let to4 =
            arguments(&self.to_ipv4, action).map(|[src, dst, sport, dport, .., pending, _, counter]| {
                (address4(src), address4(dst), [sport, dport, pending, counter])
            });
        let of44 = arguments(&self.nat44, action).map(|[src, dst, sport, dport, .., pending, _, counter]| {
            (address4(src), address4(dst), [sport, dport, pending, counter])
        });
        let to6 = arguments(&self.to_ipv6, action);
        let (source, destination, [sport, dport, pending, counter]) = match (to4.or(of44), to6) {
            (Some((source, destination, numbers)), _) => {
                (IpAddr::V4(source?), IpAddr::V4(destination?), numbers)
            }
            (None, Some([src_hi, src_lo, dst_hi, dst_lo, sport, dport, .., pending, _, counter])) => {
                let ends = [address6(src_hi, src_lo), address6(dst_hi, dst_lo)].map(IpAddr::V6);
                (ends[0], ends[1], [sport, dport, pending, counter])
            }
            (None, None) => return None,
        };
        let new = [(source, u16::try_from(sport).ok()?), (destination, u16::try_from(dport).ok()?)];
        let direction = Direction::ALL[(counter & 1) as usize];
        let slot = u32::try_from(counter >> 1).ok()?;
        let pending = u8::try_from(pending).ok()?;
        let flow = flow_of(key, new, direction, &entry.metadata)?;
        let found = FlowEntry { slot, direction, flow, pending };
        let wanted = self.action(&found)?;
        (crate::flow::key(&flow, direction) == *key && self.is_same(&wanted, action)).then_some(found)
    }

    /// Compares the arguments of two actions, except for the counter of identifications.
    fn is_same(&self, wanted: &TableAction, found: &Action) -> bool {
        let Some(table_action::Type::Action(wanted)) = &wanted.r#type else { return false };
        let idents = [self.to_ipv4.fields[6], self.nat44.fields[6]];
        let is_ident = |param: u32| {
            let position = [self.to_ipv4.id, self.nat44.id].iter().position(|&id| id == wanted.action_id);
            position.is_some_and(|position| idents[position] == param)
        };
        let find = |id: u32| found.params.iter().find(|param| param.param_id == id);
        wanted.action_id == found.action_id
            && wanted.params.iter().all(|param| {
                is_ident(param.param_id)
                    || find(param.param_id).and_then(|other| number(&other.value)) == number(&param.value)
            })
    }

    /// Requests of the counters of a flow.
    pub(crate) fn counters_of(&self, slot: u32) -> [CounterEntry; 2] {
        Direction::ALL.map(|direction| CounterEntry {
            counter_id: self.counter,
            index: Some(Index { index: i64::from(slot) << 1 | direction.index() as i64 }),
            data: None,
        })
    }

    /// Limits of the packets to the controller, packets per second: one for each reason. A burst may have as
    /// many as a tenth of a second. A program without such a meter has none.
    pub(crate) fn controller_limits(&self, limit: Option<u32>) -> Vec<MeterEntry> {
        let meter = self.info.meters.iter().find(|of| is_named(of.preamble.as_ref(), "controller_limit"));
        let config = limit.map(|limit| {
            let (rate, burst) = (limit.into(), (limit / 10).max(1).into());
            MeterConfig { cir: rate, cburst: burst, pir: rate, pburst: burst, ..MeterConfig::default() }
        });
        let entry = |meter: &config::Meter, index| MeterEntry {
            meter_id: id(meter.preamble.as_ref()),
            index: Some(Index { index }),
            config,
            ..MeterEntry::default()
        };
        let all = |meter| (0..meter_size(meter)).map(move |index| entry(meter, index)).collect();
        meter.map_or_else(Vec::new, all)
    }

    /// First counter of stateless instances.
    pub(crate) fn first_stateless_counter(&self) -> u64 {
        self.first_stateless
    }

    /// Requests of counters of stateless instances, from the first one.
    pub(crate) fn stateless_counters(&self, numbers: impl Iterator<Item = u32>) -> Vec<CounterEntry> {
        let entry = |number: u32| CounterEntry {
            counter_id: self.counter,
            index: Some(Index { index: (self.first_stateless + u64::from(number)) as i64 }),
            data: None,
        };
        numbers.map(entry).collect()
    }

    /// A counter of a stateless instance, from the first one. `None` if it is another one.
    pub fn stateless_counted(&self, entry: &CounterEntry) -> Option<(u32, Count)> {
        let (index, count) = self.entry_counted(entry)?;
        Some((u32::try_from(index.checked_sub(self.first_stateless)?).ok()?, count))
    }

    /// Requests of the counters of the program itself.
    pub(crate) fn own_counters(&self) -> impl Iterator<Item = CounterEntry> {
        let entry = |counter_id| CounterEntry { counter_id, ..CounterEntry::default() };
        self.own_counters.into_iter().flatten().map(entry)
    }

    /// Takes note of a counter of the program itself.
    pub fn own_counted(&self, entry: &CounterEntry, counts: &mut ProgramCounts) {
        let Some(which) = self.own_counters.iter().position(|id| *id == Some(entry.counter_id)) else {
            return;
        };
        let of = [&mut counts.to_controller, &mut counts.over_limit, &mut counts.dropped];
        let (Some(index), Some(data)) = (entry.index, entry.data) else { return };
        let [Ok(index), Ok(packets)] = [index.index, data.packet_count].map(u64::try_from) else { return };
        let (Some(counts), true) = (of.into_iter().nth(which), index < REASONS_MAX) else { return };
        let index = index as usize;
        counts.resize(counts.len().max(index + 1), 0);
        counts[index] = packets;
    }

    /// A counter of a flow. `None` if it is another one.
    pub fn counted(&self, entry: &CounterEntry) -> Option<Counted> {
        let (index, count) = self.entry_counted(entry)?;
        let slot = u32::try_from(index >> 1).ok()?;
        Some(Counted { slot, direction: Direction::ALL[(index & 1) as usize], count })
    }

    /// Place and value of a counter of entries.
    fn entry_counted(&self, entry: &CounterEntry) -> Option<(u64, Count)> {
        let index = entry.index.filter(|_| entry.counter_id == self.counter)?.index;
        let CounterData { packet_count, byte_count } = entry.data?;
        let packets = u64::try_from(packet_count).ok()?;
        let overhead = packets.saturating_mul(self.overhead);
        let bytes = u64::try_from(byte_count).ok()?.saturating_sub(overhead);
        Some((u64::try_from(index).ok()?, Count { packets, bytes }))
    }
}

/// Metadata of an entry, for the next controller that reads it.
fn metadata(flow: &OffloadedFlow) -> Vec<u8> {
    let mut bytes = METADATA.to_vec();
    bytes.extend([flow.worker, flow.session.flow.instance]);
    bytes.extend(flow.epoch.to_be_bytes());
    bytes.extend(flow.session.record.to_be_bytes());
    bytes.extend(flow.path_mtu.unwrap_or(0).to_be_bytes());
    bytes
}

/// The flow of an entry with this key, whose packets get these addresses and ports.
fn flow_of(
    key: &Key,
    [source, destination]: [(IpAddr, u16); 2],
    direction: Direction,
    metadata: &[u8],
) -> Option<OffloadedFlow> {
    let [b0, b1, worker, instance, e0, e1, r0, r1, r2, r3, m0, m1] = *metadata.as_array::<12>()?;
    if [b0, b1] != METADATA {
        return None;
    }
    // Inside and remote host as the inside sees them, and outside and remote host as the outside sees them.
    let (inside, remote_inside, outside, remote) = match direction {
        Direction::Outbound => (key.source, key.destination, source, destination),
        Direction::Inbound => (destination, source, key.destination, key.source),
    };
    let (IpAddr::V4(outside4), IpAddr::V4(remote4)) = (outside.0, remote.0) else { return None };
    let (host, remote6) = match (inside.0, remote_inside.0) {
        (IpAddr::V6(host), IpAddr::V6(remote6)) => (host, Some(remote6)),
        (IpAddr::V4(host), IpAddr::V4(_)) => (host.to_ipv6_mapped(), None),
        _ => return None,
    };
    let flow = Flow {
        inside: (host, inside.1),
        outside: (outside4, outside.1),
        remote: (remote4, remote.1),
        transport: key.transport,
        instance,
    };
    Some(OffloadedFlow {
        session: SessionId { record: u32::from_be_bytes([r0, r1, r2, r3]), flow },
        worker,
        epoch: u16::from_be_bytes([e0, e1]),
        remote6,
        path_mtu: Some(u16::from_be_bytes([m0, m1])).filter(|mtu| *mtu > 0),
    })
}
