//! Prediction for a packet, in the API's types and in sentences. State and counters do not change.

use crate::Control;
use crate::conversion::{self, Names};
use crate::flow::Flow;
use crate::query::{self, BadRequest, Query};
use crate::response::Refusal;
use crate::rules;
use crate::worker_requests::WorkerError;
use gatun_api::types as api;
use gatun_api::types::{Fate as Outcome, PortFrom};
use gatun_nat::explain::{self as nat, Explanation, Fate, Opening, PortSource, Rule};
use gatun_nat::redirect::Place;
use gatun_nat::{Instant, Nat};
use gatun_wire::text::{counted, group};
use gatun_wire::{DropReason, HEADROOM, Ipv4View, Ipv6View, L4, Packet, Prefix64, TAILROOM};
use gatun_worker::PacketOwner;
use gatun_worker::jobs::Job;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Job that asks an engine about a packet; afterwards the buffer holds the translated one.
struct ExplainJob {
    buffer: Vec<u8>,
    len: usize,
    realm: u8,
    told: Option<(Explanation, Vec<u8>)>,
}

impl Job for ExplainJob {
    fn step(&mut self, nat: &mut Nat, _: Instant, _: usize) -> bool {
        if let Some(mut packet) = Packet::new(&mut self.buffer, HEADROOM, self.len) {
            packet.realm = self.realm;
            let explanation = nat.explain(&mut packet);
            self.told = Some((explanation, packet.bytes().to_vec()));
        }
        true
    }
}

/// Job that finds the prefix of an IPv4 destination and the realm of an instance's packets.
struct FlowOriginJob {
    instance: Option<u8>,
    prefix: Option<Prefix64>,
    realm: u8,
}

impl Job for FlowOriginJob {
    fn step(&mut self, nat: &mut Nat, _: Instant, _: usize) -> bool {
        self.prefix = nat.first_pool6(self.instance);
        self.realm = self.instance.map_or(0, |instance| nat.realm_of(instance));
        true
    }
}

impl Control {
    pub(crate) async fn explain(self: &Arc<Self>, query: &Query) -> Result<api::Explanation, Refusal> {
        let mut flow = Flow::read(query)?;
        let names = self.names().await?;
        let instance = query.selection(&names)?.instance;
        let origin = FlowOriginJob { instance, prefix: None, realm: 0 };
        let FlowOriginJob { prefix, realm, .. } = self.hand_in(0, origin)?.done().await?;
        if flow.needs_prefix() {
            let hint = "give the destination as an IPv6 address in a translation prefix";
            let prefix = prefix.ok_or_else(|| BadRequest::new("there is no nat64 instance", hint))?;
            flow.put_behind(&prefix);
        }
        let packet = flow.packet()?;
        let owner = self.owner(packet.clone(), realm).await?;
        let worker = owner.worker.unwrap_or_default();
        let mut buffer = vec![0; HEADROOM];
        buffer.extend(&packet);
        buffer.resize(buffer.len() + TAILROOM, 0);
        let ask = ExplainJob { buffer, len: packet.len(), realm, told: None };
        let told = self.hand_in(worker, ask)?.done().await?.told;
        let (explanation, after) = told.ok_or(WorkerError::Silent)?;
        let (explanation, node) = (at(owner.place, explanation), owner.node.as_deref());
        let worker = u32::try_from(worker).unwrap_or(u32::MAX);
        let translator = &self.translator(&names, &explanation).await;
        let named = NamedExplanation { names: &names, e: &explanation, translator, node };
        Ok(named.whole(&packet, &after, worker))
    }

    /// Says what translates such packets outside the engine; empty if nothing does.
    async fn translator(self: &Arc<Self>, names: &Names, e: &Explanation) -> String {
        let is_engines = e.session.as_ref().is_some_and(|session| !session.is_offloaded);
        let Some(of) = names.translation(e).filter(|_| !is_engines) else { return String::new() };
        let control = Arc::clone(self);
        let told = tokio::task::spawn_blocking(move || (control.setup.translator_of)(&of)).await;
        told.ok().flatten().unwrap_or_default()
    }

    /// Worker and node that own a packet.
    async fn owner(&self, packet: Vec<u8>, realm: u8) -> Result<PacketOwner, WorkerError> {
        let first = self.setup.workers.first().ok_or(WorkerError::Silent)?;
        let (sender, answer) = oneshot::channel();
        first.request_owner(packet, realm, move |owner| {
            let _ = sender.send(owner);
        });
        let answered = tokio::time::timeout(crate::worker_requests::SNAPSHOT_MAX, answer).await;
        answered.ok().and_then(Result::ok).ok_or(WorkerError::Silent)
    }
}

/// Returns what an explanation says about a packet that is translated in this place. The state of the engine
/// counts here only.
pub(crate) fn at(place: Place, e: Explanation) -> Explanation {
    let fate = match place {
        Place::Here => return e,
        Place::Node(_) => Fate::Untold,
        Place::Nowhere => Fate::Drop(DropReason::ShardNowhere, None),
    };
    let Explanation { direction, instance, rule, pool, shard, .. } = e;
    Explanation {
        direction,
        instance,
        rule,
        pool,
        shard,
        subscriber: None,
        session: None,
        binding: None,
        opening: None,
        hairpinned: false,
        mtu: None,
        path_mtu: None,
        fate,
    }
}

/// Source, destination, protocol and ports of a packet, if it parses.
pub(crate) fn ends(packet: &[u8]) -> Option<api::PacketEndpoints> {
    let (source, destination, l4): (IpAddr, IpAddr, L4) = match packet.first()? >> 4 {
        4 => {
            let view = Ipv4View::parse(packet).ok()?;
            (view.src.into(), view.dst.into(), view.l4(packet).ok()?)
        }
        _ => {
            let view = Ipv6View::parse(packet).ok()?;
            (view.src.into(), view.dst.into(), view.l4(packet).ok()?)
        }
    };
    let (protocol, source_port, destination_port) = match l4 {
        L4::Tcp { src_port, dst_port, .. } => (api::Protocol::Tcp, src_port, dst_port),
        L4::Udp { src_port, dst_port, .. } => (api::Protocol::Udp, src_port, dst_port),
        L4::Echo { id, .. } => (api::Protocol::Icmp, id, id),
        _ => return None,
    };
    Some(api::PacketEndpoints {
        protocol,
        source,
        source_port: Some(source_port),
        destination,
        destination_port: Some(destination_port),
        bytes: u32::try_from(packet.len()).unwrap_or(u32::MAX),
    })
}

/// An explanation, and the names of its numbers.
pub(crate) struct NamedExplanation<'e> {
    pub(crate) names: &'e Names,
    pub(crate) e: &'e Explanation,
    /// Translator of such packets outside the engine; empty without one.
    pub(crate) translator: &'e str,
    /// Node of the cluster that translates the packet, if it is another one.
    pub(crate) node: Option<&'e str>,
}

impl NamedExplanation<'_> {
    pub(crate) fn whole(&self, packet: &[u8], after: &[u8], worker: u32) -> api::Explanation {
        let e = self.e;
        let no_packet = || api::PacketEndpoints {
            protocol: api::Protocol::Udp,
            source: IpAddr::from([0, 0, 0, 0]),
            source_port: None,
            destination: IpAddr::from([0, 0, 0, 0]),
            destination_port: None,
            bytes: 0,
        };
        let packet = ends(packet).unwrap_or_else(no_packet);
        let (fate, reason, answer) = match e.fate {
            _ if self.node.is_some() => (Outcome::Redirected, None, None),
            Fate::Forward { .. } => (Outcome::Forwarded, None, None),
            Fate::Pass => (Outcome::Passed, None, None),
            Fate::Echo => (Outcome::Echo, None, None),
            Fate::Held => (Outcome::Held, None, None),
            Fate::Drop(reason, answer) => (Outcome::Dropped, Some(reason), answer),
            Fate::Untold => (Outcome::Unknown, None, None),
        };
        let cut_to = match e.fate {
            Fate::Forward { cut_to } => cut_to,
            _ => None,
        };
        let instance = e.instance.and_then(|number| self.names.any_instance(number));
        let mut told = api::Explanation {
            becomes: self.becomes(after).filter(|_| fate == Outcome::Forwarded),
            fate,
            reason: reason.map(|reason| reason.name().to_owned()),
            help: reason.map(|reason| reason.help().to_owned()),
            rule: reason.and_then(rules::of).map(str::to_owned),
            answer: answer.map(icmp_error),
            kind: instance.map(|(kind, _)| conversion::kind(kind)),
            instance: instance.map(|(_, name)| name.clone()),
            worker,
            shard: e.shard.map(u32::from),
            node: self.node.map(|node| api::Name(node.into())),
            pool: e.pool.map(|pool| self.names.pool(pool)),
            subscriber: e.subscriber.map(|usage| self.usage(&usage, packet.protocol)),
            session: e.session.map(|session| self.names.session(&session)),
            binding: e.binding.map(|binding| self.names.binding(&binding)),
            opening: e.opening.map(opening),
            hairpinned: e.hairpinned,
            mtu: e.mtu,
            path_mtu: e.path_mtu.map(u32::from),
            cut_to,
            why: Vec::new(),
            packet,
        };
        told.why = self.sentences(&told);
        told
    }

    /// The packet as it leaves; a port chosen at random is left out.
    fn becomes(&self, after: &[u8]) -> Option<api::PacketEndpoints> {
        let mut ends = ends(after)?;
        let by_chance = matches!(self.e.opening, Some(Opening::Port(port)) if port.port.is_none());
        if by_chance {
            ends.source_port = None;
            ends.destination_port = ends.destination_port.filter(|_| ends.protocol != api::Protocol::Icmp);
        }
        Some(ends)
    }

    fn usage(&self, s: &nat::SubscriberUsage, protocol: api::Protocol) -> api::SubscriberUsage {
        let transport = query::transport(protocol).ok();
        api::SubscriberUsage {
            subscriber: conversion::network(s.network),
            known: s.is_known,
            address: s.address,
            sessions: s.sessions,
            sessions_max: s.sessions_max,
            ports: s.ports.iter().copied().map(u32::from).sum(),
            ports_max: s.ports_max,
            ports_of_protocol: transport.map_or(0, |t| s.ports[t as usize].into()),
            ports_of_protocol_max: transport.map_or(0, |t| s.ports_max_by[t as usize].min(s.ports_max)),
            blocks: s.blocks,
            blocks_max: s.blocks_max,
        }
    }

    /// Steps of the decision in order.
    fn sentences(&self, told: &api::Explanation) -> Vec<String> {
        let mut why = vec![self.rule(told)];
        if let Some(shard) = told.shard {
            why.push(format!("its state is in shard {shard} of the cluster"));
        }
        if let Some(s) = &told.subscriber {
            why.push(subscriber(s));
        }
        why.extend(self.state(told));
        if told.hairpinned {
            why.push(
                "its destination is one of Gatun's public addresses: it is hairpinned to an inside host"
                    .into(),
            );
        }
        if let Some(mtu) = told.mtu {
            why.push(format!("largest packet without fragmentation: {}", counted(mtu.into(), "byte")));
        }
        if let Some(path) = told.path_mtu {
            why.push(format!(
                "a router reported a path MTU of {}: larger packets are fragmented",
                counted(path.into(), "byte")
            ));
        }
        why.extend(fate(told));
        why
    }

    fn rule(&self, told: &api::Explanation) -> String {
        let instance = match (&told.kind, &told.instance) {
            (Some(kind), Some(name)) => format!("{kind} '{name}'"),
            _ => "nobody".to_owned(),
        };
        match self.e.rule {
            Rule::Nobody => "no prefix, pool, inside network or mapping covers it".to_owned(),
            Rule::Own => "it is sent to Gatun's own address".to_owned(),
            Rule::Pool6(prefix, v4) => format!(
                "its destination is in {}/{} of {instance} and embeds {v4}",
                prefix.address(),
                prefix.len()
            ),
            Rule::Inside => format!("its source is in an inside network of {instance}"),
            Rule::Exempt => format!("{instance} exempts it from translation"),
            Rule::Pool(pool) => {
                format!("its destination is a public address of pool '{}'", self.names.pool(pool))
            }
            Rule::Stateless => format!("its destination is in a prefix or mapping of {instance}"),
        }
    }

    fn state(&self, told: &api::Explanation) -> Option<String> {
        if let Some(s) = &told.session {
            let seconds = s.expires_ms / 1000;
            let elsewhere = match self.translator {
                "" => String::new(),
                who => format!("; {who}, except SYN, FIN, RST, fragments and those with options"),
            };
            return Some(format!(
                "it belongs to a session: {}, {} port {} mapped to {} port {}, expires in {seconds} s without traffic{elsewhere}",
                s.state, s.inside, s.inside_port, s.outside, s.outside_port
            ));
        }
        if let Some(o) = &told.opening {
            return Some(format!("it opens a session {}", opens(o)));
        }
        if told.kind == Some(api::Kind::Siit) {
            return Some(self.translator).filter(|who| !who.is_empty()).map(str::to_owned);
        }
        let b = told.binding.as_ref()?;
        Some(format!(
            "a binding exists, {} port {} mapped to {} port {}, but no session",
            b.inside, b.inside_port, b.outside, b.outside_port
        ))
    }
}

fn subscriber(s: &api::SubscriberUsage) -> String {
    let mut text = format!("it counts for subscriber {}, ", s.subscriber);
    if !s.known {
        text += "which has no state yet: ";
    }
    text += &format!(
        "{} of {}, {} of {}",
        group(s.sessions.into()),
        counted(s.sessions_max.into(), "session"),
        group(s.ports.into()),
        counted(s.ports_max.into(), "port")
    );
    if s.ports_of_protocol_max < s.ports_max {
        text += &format!(
            " (of this protocol {} of {})",
            group(s.ports_of_protocol.into()),
            group(s.ports_of_protocol_max.into())
        );
    }
    if s.blocks_max > 0 {
        text += &format!(", {} of {}", group(s.blocks.into()), counted(s.blocks_max.into(), "port block"));
    }
    if let Some(address) = s.address {
        text += &format!(", paired with {address}");
    }
    text
}

fn opens(o: &api::Opening) -> String {
    let api::Opening { address, port, free, .. } = o;
    let free = group((*free).into());
    let port = port.map_or_else(String::new, |port| format!(" port {port}"));
    let block = match (o.first_port, o.last_port) {
        (Some(first), Some(last)) => format!("ports {first}-{last} of {address}"),
        _ => address.to_string(),
    };
    match o.from {
        PortFrom::Binding => format!("through the binding of its inside endpoint, {address}{port}"),
        PortFrom::SharedPort => format!("through {address}{port}, which it shares with other flows"),
        PortFrom::Address | PortFrom::Other => format!("on {address}, random port ({free} free)"),
        PortFrom::OwnBlock => format!("in the subscriber's own block, {block}, {free} free"),
        PortFrom::Block => format!("in a further block of the subscriber, {block}, {free} free"),
        PortFrom::NewBlock => format!("in a new block of {address}, chosen at random ({free} free)"),
        PortFrom::HeldSyn => format!("on {address}{port}, where a SYN of the remote host waits for it"),
    }
}

fn opening(opening: Opening) -> api::Opening {
    let of_binding = |from, b: gatun_nat::inspect::BindingInfo| api::Opening {
        from,
        address: b.outside.0,
        port: Some(b.outside.1),
        first_port: None,
        last_port: None,
        free: 0,
    };
    match opening {
        Opening::Binding(binding) => of_binding(PortFrom::Binding, binding),
        Opening::Shared(binding) => of_binding(PortFrom::SharedPort, binding),
        Opening::Port(port) => api::Opening {
            from: match port.source {
                PortSource::Address => PortFrom::Address,
                PortSource::OwnBlock => PortFrom::OwnBlock,
                PortSource::Block => PortFrom::Block,
                PortSource::NewBlock => PortFrom::NewBlock,
                PortSource::HeldSyn => PortFrom::HeldSyn,
            },
            address: port.address,
            port: port.port,
            first_port: port.block.map(|(first, _)| first),
            last_port: port.block.map(|(_, last)| last),
            free: port.free,
        },
    }
}

fn icmp_error(message: nat::Message) -> api::IcmpError {
    // Packet Too Big, or Fragmentation Needed.
    let tells_mtu = message.kind == 2 || (message.kind, message.code) == (3, 4);
    api::IcmpError { kind: message.kind, code: message.code, mtu: tells_mtu.then_some(message.word) }
}

/// Sentences about the outcome.
fn fate(told: &api::Explanation) -> Vec<String> {
    match told.fate {
        Outcome::Forwarded => told
            .cut_to
            .map(|max| format!("it is fragmented into packets of up to {}", counted(max.into(), "byte")))
            .into_iter()
            .collect(),
        Outcome::Passed => vec!["it is passed on without translation".into()],
        Outcome::Echo => vec!["it is a ping to Gatun itself, which answers".into()],
        Outcome::Held => vec![
            "it waits six seconds for the inside host to open the connection itself (RFC 6146 3.5.2.2)"
                .into(),
        ],
        Outcome::Redirected => {
            let node = told.node.as_ref().map_or_else(String::new, ToString::to_string);
            vec![format!("node '{node}' of the cluster translates it")]
        }
        Outcome::Unknown | Outcome::Other => {
            vec!["the outcome depends on a random choice, or packets of this kind are not predicted".into()]
        }
        Outcome::Dropped => {
            let (reason, help) = (told.reason.as_deref(), told.help.as_deref());
            let mut all =
                vec![format!("it is dropped ({}): {}", reason.unwrap_or_default(), help.unwrap_or_default())];
            all.extend(told.rule.clone());
            all.push(match &told.answer {
                Some(e) => {
                    let mtu = e.mtu.map_or_else(String::new, |mtu| format!(", MTU {mtu}"));
                    format!("its sender gets an ICMP error: type {} code {}{mtu}", e.kind, e.code)
                }
                None => "no ICMP error is sent".into(),
            });
            all
        }
    }
}
