//! Dispatch of requests, and their answers.

use crate::cleared::{LogTreatment, SUMMED_UP_FOR};
use crate::configure;
use crate::conversion::{self, Names};
use crate::lists::{Addresses, Bindings, Blocks, Cursor, List, ListScope, Sessions, Subscribers};
use crate::metrics::{self, Scrape};
use crate::query::{BadRequest, LIMIT_MAX, Query, address4, transport};
use crate::response::{Answer, ApiRequest, Refusal, json};
use crate::troubles;
use crate::worker_requests::WorkerError;
use crate::{Control, Facts, Planned};
use gatun_api::paths::{self, ClusterOperation, Endpoint, Operation};
use gatun_api::request;
use gatun_api::types as api;
use gatun_nat::inspect::Selection;
use gatun_nat::plan::{Net4, Net6};
use gatun_nat::{ClearCursor, Cleared, Extent, Instant, Nat, SessionKey};
use gatun_wire::text::counted;
use gatun_worker::Snapshot;
use gatun_worker::jobs::{Clear, EndSessions, Job};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::mpsc;

/// Parts of a stream that wait for the reader.
const STREAM_WAITING: usize = 2;
/// Most sessions and bindings in an answer to `who` or `where`.
const TOLD_MAX: usize = 100;

/// Finds the pool of a public address.
struct PoolOf {
    address: Ipv4Addr,
    pool: Option<usize>,
}

impl Job for PoolOf {
    fn step(&mut self, nat: &mut Nat, _: Instant, _: usize) -> bool {
        self.pool = nat.pools().iter().position(|pool| pool.address_ix(self.address).is_some());
        true
    }
}

impl Control {
    /// Longest body of a request that has one.
    pub(crate) fn body_max(asked: &ApiRequest<'_>) -> Option<usize> {
        let endpoint = paths::find(asked.method, asked.path).ok().filter(|endpoint| endpoint.has_body())?;
        Some(match endpoint.what {
            Operation::PlanConfig | Operation::ApplyConfig | Operation::Cluster(ClusterOperation::Apply) => {
                configure::BODY_MAX
            }
            Operation::ReplaceMaps
            | Operation::EditMaps
            | Operation::PlanReplaceMaps
            | Operation::PlanEditMaps => configure::MAPS_BODY_MAX,
            _ => configure::SHORT_BODY_MAX,
        })
    }

    /// Performs a request.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        asked: &ApiRequest<'_>,
        body: Vec<u8>,
    ) -> Result<Answer, Refusal> {
        let endpoint = paths::find(asked.method, asked.path).map_err(Refusal::NoEndpoint)?;
        let query = Query::read(endpoint, asked.query)?;
        let facts = self.setup.facts.get();
        Ok(match endpoint.what {
            Operation::Status => json(&self.status().await),
            Operation::Health => json(&(self.setup.health)()),
            Operation::History => json(&self.history.answer()),
            Operation::Ports => json(&facts.ports),
            Operation::Workers => json(&self.worker_list().await),
            Operation::Instances => json(&self.instances(&facts).await?),
            Operation::Pools => {
                json(&self.total().await?.pools.iter().map(conversion::pool).collect::<Vec<_>>())
            }
            Operation::Counters => json(&conversion::counters(&self.total().await?)),
            Operation::Drops => json(&conversion::drops(&self.total().await?)),
            Operation::Access => json(&access(asked)),
            Operation::Config => json(&self.config(&query).await?),
            Operation::ConfigHistory
            | Operation::PlanConfig
            | Operation::ApplyConfig
            | Operation::ConfirmConfig
            | Operation::RollBackConfig
            | Operation::ReplaceMaps
            | Operation::EditMaps
            | Operation::PlanReplaceMaps
            | Operation::PlanEditMaps => self.configure(endpoint.what, &query, body, asked).await?,
            Operation::Maps => self.maps(&query).await?,
            Operation::Addresses => self.list(&query, Addresses).await?,
            Operation::Blocks => self.list(&query, Blocks).await?,
            Operation::Subscribers => self.list(&query, Subscribers).await?,
            Operation::Bindings => self.list(&query, Bindings).await?,
            Operation::Sessions => self.list(&query, Sessions).await?,
            Operation::Who => json(&self.who(&query).await?),
            Operation::WhoAt => json(&self.who_at(&query, asked).await?),
            Operation::Where => json(&self.host_ports(&query).await?),
            Operation::Explain => json(&self.explain(&query).await?),
            Operation::Top => json(&self.top(&query).await?),
            Operation::Events => Answer::Lines(self.events()?),
            Operation::Trace => Answer::Lines(self.trace(&query).await?),
            Operation::Drain => json(&self.drain(&query, true, asked).await?),
            Operation::Undrain => json(&self.drain(&query, false, asked).await?),
            Operation::ClearSessions => json(&self.clear(endpoint, &query, Extent::Session, asked).await?),
            Operation::ClearBindings => json(&self.clear(endpoint, &query, Extent::Binding, asked).await?),
            Operation::EndSessions => json(&self.end(&body, asked).await?),
            Operation::Exports => json(&conversion::exports(&(self.setup.figures)())),
            Operation::FastPath => json(&(self.setup.fastpath)()),
            Operation::Offload | Operation::SwitchGone => json(&self.offload(&query, asked).await?),
            Operation::Peer => json(&(self.setup.peer.state)()),
            Operation::PeerRelease | Operation::PeerTakeover => {
                json(&self.peer_request(endpoint.what, asked).await?)
            }
            Operation::Cluster(what) => self.cluster_answer(what, &query, &body, asked).await?,
            Operation::Log => json(&conversion::log_store(&(self.setup.figures)())),
            Operation::LogLevel => json(&api::LogLevelSetting { level: self.setup.level.get() }),
            Operation::SetLogLevel => json(&self.set_level(&query, asked)?),
            Operation::Metrics => self.metrics(asked.openmetrics).await,
            Operation::OpenApi => json(&gatun_api::openapi::document()),
        })
    }

    /// The instances, with the packets of all workers.
    async fn instances(&self, facts: &Facts) -> Result<Vec<api::Instance>, WorkerError> {
        let all = self.total().await?.instances;
        Ok(all.iter().map(|stats| conversion::instance(stats, &facts.selectors)).collect())
    }

    /// The metrics of all workers that answer.
    pub(crate) async fn metrics(&self, openmetrics: bool) -> Answer {
        let scrape = Scrape {
            version: self.setup.version,
            uptime_seconds: self.began.elapsed().as_secs(),
            facts: self.setup.facts.get(),
            workers: self.snapshots().await,
            figures: (self.setup.figures)(),
            fastpath: (self.setup.fastpath)(),
            offload: (self.setup.offload)(),
            health: (self.setup.health)(),
            peer: (self.setup.peer.state)(),
            cluster: (self.setup.cluster.state)(),
            clients_refused: self
                .setup
                .remote_access
                .iter()
                .flat_map(|remote_access| remote_access.all_refused())
                .collect(),
            subscribers: self.subscribers().await,
        };
        let kind = match openmetrics {
            true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            false => "text/plain; version=0.0.4; charset=utf-8",
        };
        Answer::Text(kind, metrics::render(&scrape, openmetrics))
    }

    /// The figures of subscribers, if all workers answer.
    async fn subscribers(&self) -> Option<metrics::Subscribers> {
        let (names, totals) = (self.names().await.ok()?, self.subscriber_totals().await.ok()?);
        Some(metrics::Subscribers { names, totals })
    }

    async fn status(&self) -> api::Status {
        let all = self.snapshots().await;
        let silent = all.iter().filter(|snapshot| snapshot.is_none()).count();
        let total = sum(all.iter().flatten());
        let [sessions, bindings, subscribers] = conversion::state_of(&total);
        let engine = &total.engine;
        let facts = self.setup.facts.get();
        let packets_accounted = all.iter().flatten().all(Snapshot::conserved);
        api::Status {
            version: self.setup.version.to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.began.elapsed().as_secs(),
            config_file: facts.config.file.clone(),
            workers: u32::try_from(all.len()).unwrap_or(u32::MAX),
            workers_silent: u32::try_from(silent).unwrap_or(u32::MAX),
            sandbox: self.setup.sandbox.clone(),
            pages: facts.pages.clone(),
            sessions,
            sessions_waiting: total.restore.left,
            sessions_max: facts.sessions_max,
            bindings,
            subscribers,
            received: conversion::count(engine.rx),
            forwarded: conversion::count(engine.forwarded),
            fast_path: self.fast_path(),
            offloaded: conversion::count(engine.offloaded),
            refused_by_device: all.iter().flatten().map(conversion::refused_by_device).sum(),
            echo_replies: conversion::count(engine.echoes()),
            passed: conversion::count(engine.passed),
            dropped: conversion::count(engine.refused()),
            rejected: conversion::count(engine.rejected()),
            dropped_silently: conversion::count(engine.dropped),
            held: engine.held,
            redirected: conversion::count(engine.redirected),
            redirected_outside: total.worker.redirect_outside,
            packets_accounted,
            troubles: troubles::of(
                all.len(),
                (silent, packets_accounted),
                &(self.setup.figures)(),
                self.other_troubles(),
            ),
        }
    }

    /// Troubles beside those of workers, log and collectors.
    fn other_troubles(&self) -> Vec<api::Trouble> {
        let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut found = troubles::of_peer(&(self.setup.peer.state)(), now_s);
        found.extend(troubles::of_cluster(&(self.setup.cluster.state)(), now_s));
        found.extend((self.setup.troubles)());
        found
    }

    async fn worker_list(&self) -> Vec<api::Worker> {
        let all = self.snapshots().await;
        all.iter().enumerate().map(|(n, snapshot)| conversion::worker(n, snapshot.as_ref())).collect()
    }

    /// The counters of all workers, or an error if one does not answer.
    pub(crate) async fn total(&self) -> Result<Snapshot, WorkerError> {
        let all = self.snapshots().await;
        match all.iter().all(Option::is_some) {
            true => Ok(sum(all.iter().flatten())),
            false => Err(WorkerError::Silent),
        }
    }

    /// Names of instances and pools.
    pub(crate) async fn names(&self) -> Result<Names, WorkerError> {
        let all = self.snapshots().await;
        all.iter().flatten().next().map(Names::of).ok_or(WorkerError::Silent)
    }

    async fn list<L: List>(
        self: &Arc<Self>,
        query: &Query,
        make: impl Fn(ListScope) -> L,
    ) -> Result<Answer, Refusal> {
        let names = self.names().await?;
        let which = query.selection(&names)?;
        let list = make(ListScope { which, names });
        let wrong = || BadRequest::new("cursor: not a cursor of this list", "give `next` of the page before");
        let cursor = query.get("cursor").map(|text| text.parse::<Cursor>().map_err(|()| wrong()));
        let cursor = cursor.transpose()?.unwrap_or_default();
        let limit = query.limit()?;
        if query.is_stream()? {
            let (out, lines) = mpsc::channel(STREAM_WAITING);
            tokio::spawn(Arc::clone(self).stream(list, cursor, out));
            return Ok(Answer::Lines(lines));
        }
        Ok(json(&self.page(&list, cursor, limit).await?))
    }

    async fn who(&self, query: &Query) -> Result<api::PortHolder, Refusal> {
        let names = self.names().await?;
        let address = address4(query.get("address").unwrap_or_default())?;
        let port = query.parse("port", "a port")?.unwrap_or_default();
        let which = Selection {
            outside: Net4::new(address, 32),
            outside_port: Some(port),
            transport: query.protocol()?,
            ..Selection::default()
        };
        let pools = self.all(|| PoolOf { address, pool: None }).await?;
        let of = || ListScope { which, names: names.clone() };
        let sessions = self.page(&Sessions(of()), Cursor::default(), TOLD_MAX).await?;
        let blocks = self.page(&Blocks(of()), Cursor::default(), TOLD_MAX).await?.items;
        let bindings = self.page(&Bindings(of()), Cursor::default(), TOLD_MAX).await?.items;
        let has_state = !(blocks.is_empty() && bindings.is_empty() && sessions.items.is_empty());
        let (planned, unknown) = match has_state {
            true => Planned::default(),
            false => {
                self.setup.facts.get().planned.of(address, port, which.transport.map(conversion::protocol))
            }
        };
        let outcome = match (has_state || !planned.is_empty(), unknown.is_empty()) {
            (true, _) => api::Outcome::Who,
            (false, true) => api::Outcome::Nobody,
            (false, false) => api::Outcome::Unknown,
        };
        Ok(api::PortHolder {
            outcome,
            unknown,
            address,
            port,
            pool: pools.iter().find_map(|job| job.pool).map(|pool| names.pool(pool)),
            blocks,
            bindings,
            more_sessions: sessions.next.is_some(),
            sessions: sessions.items,
            planned,
        })
    }

    async fn host_ports(&self, query: &Query) -> Result<api::HostPorts, Refusal> {
        let names = self.names().await?;
        let address: IpAddr = query.parse("address", "an address")?.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        let inside = match address {
            IpAddr::V6(address) => address,
            IpAddr::V4(address) => address.to_ipv6_mapped(),
        };
        let which = Selection { inside: Net6::new(inside, 128), ..Selection::default() };
        let of = || ListScope { which, names: names.clone() };
        let bindings = self.page(&Bindings(of()), Cursor::default(), TOLD_MAX).await?;
        Ok(api::HostPorts {
            address,
            subscribers: self.page(&Subscribers(of()), Cursor::default(), TOLD_MAX).await?.items,
            blocks: self.page(&Blocks(of()), Cursor::default(), LIMIT_MAX).await?.items,
            more_bindings: bindings.next.is_some(),
            bindings: bindings.items,
        })
    }

    async fn clear(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        query: &Query,
        extent: Extent,
        asked: &ApiRequest<'_>,
    ) -> Result<api::Cleared, Refusal> {
        let which = query.selection(&self.names().await?)?;
        let all = query.parse("all", "true or false")?.unwrap_or(false);
        if which == Selection::default() && !all {
            let names: Vec<_> = endpoint.all_parameters().map(|parameter| parameter.name).collect();
            let hint = format!("filter by {}, or pass all=true", names.join(", "));
            return Err(BadRequest::new("no filter given", hint).into());
        }
        let clear = || Clear { which, extent, at: ClearCursor::default(), cleared: Cleared::default() };
        let cleared = sum_cleared(self.all(clear).await?.iter().map(|job| job.cleared));
        let what = if extent == Extent::Session { "sessions" } else { "bindings" };
        self.log_cleared(asked, &format!("{what} of '{}'", asked.query), &cleared);
        Ok(cleared)
    }

    async fn end(self: &Arc<Self>, body: &[u8], asked: &ApiRequest<'_>) -> Result<api::Cleared, Refusal> {
        let named: api::SessionKeys = request::read(body)
            .map_err(|error| BadRequest::new(format!("the body is not a list of sessions: {error}"), ""))?;
        let names = self.names().await?;
        let mut keys = Vec::with_capacity(named.sessions.len());
        for session in &named.sessions {
            let instance = names.stateful().position(|name| *name == session.instance);
            let Some(instance) = instance.and_then(|number| u8::try_from(number).ok()) else {
                return Err(BadRequest::new(
                    format!("there is no stateful instance '{}'", session.instance),
                    "",
                )
                .into());
            };
            let inside = match session.inside {
                IpAddr::V6(address) => address,
                IpAddr::V4(address) => address.to_ipv6_mapped(),
            };
            keys.push(SessionKey {
                instance,
                transport: transport(session.protocol)?,
                inside: (inside, session.inside_port),
                remote: (session.remote, session.remote_port),
            });
        }
        let done =
            self.all(|| EndSessions { keys: keys.clone(), next: 0, cleared: Cleared::default() }).await?;
        let cleared = sum_cleared(done.iter().map(|job| job.cleared));
        self.log_cleared(asked, &format!("{} by a list", counted(keys.len() as u64, "session")), &cleared);
        Ok(cleared)
    }

    fn set_level(&self, query: &Query, asked: &ApiRequest<'_>) -> Result<api::LogLevelSetting, Refusal> {
        let level = query.get("level").unwrap_or_default().parse::<api::LogLevel>();
        let level = level.map_err(|what| BadRequest::new(format!("level: {what}"), ""))?;
        (self.setup.log)(&format!("api: {} sets the log level to {level}", asked.who));
        self.setup.level.set(level);
        Ok(api::LogLevelSetting { level })
    }

    fn fast_path(&self) -> api::FastPathPlace {
        if (self.setup.offload)().state != api::FastPathState::Off {
            api::FastPathPlace::Switches
        } else if (self.setup.fastpath)().state != api::FastPathState::Off {
            api::FastPathPlace::Kernel
        } else {
            api::FastPathPlace::None
        }
    }

    /// The P4 switches, after one was declared gone if the request names it.
    async fn offload(
        self: &Arc<Self>,
        query: &Query,
        asked: &ApiRequest<'_>,
    ) -> Result<api::Offload, Refusal> {
        let Some(name) = query.get("switch").map(str::to_owned) else { return Ok((self.setup.offload)()) };
        (self.setup.log)(&format!("api: {} declares switch {name} gone", asked.who));
        let control = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || (control.setup.switch_gone)(&name)).await;
        done.unwrap_or_else(|error| Err(error.to_string())).map_err(|why| BadRequest::new(why, ""))?;
        Ok((self.setup.offload)())
    }

    fn log_cleared(self: &Arc<Self>, asked: &ApiRequest<'_>, what: &str, cleared: &api::Cleared) {
        let each = self.setup.level.has(api::LogLevel::Debug);
        match self.cleared.note(asked.who, what, cleared, each) {
            LogTreatment::Line(line) => (self.setup.log)(&line),
            LogTreatment::LineAndMore(line) => {
                (self.setup.log)(&line);
                tokio::spawn(Arc::clone(self).log_more_cleared());
            }
            LogTreatment::Summed => {}
        }
    }

    /// Logs what was cleared in each second until a second passes without any.
    async fn log_more_cleared(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SUMMED_UP_FOR).await;
            let lines = self.cleared.sums();
            lines.iter().for_each(|line| (self.setup.log)(line));
            if lines.is_empty() {
                return;
            }
        }
    }
}

/// Identity and rights of the client.
fn access(asked: &ApiRequest<'_>) -> api::Access {
    let (may_write, may_audit) = (asked.may_write, asked.may_audit);
    api::Access { name: asked.who.to_owned(), may_write, may_audit }
}

fn sum<'s>(all: impl Iterator<Item = &'s Snapshot>) -> Snapshot {
    let mut total = Snapshot::default();
    all.for_each(|snapshot| total += snapshot);
    total
}

fn sum_cleared(all: impl Iterator<Item = Cleared>) -> api::Cleared {
    all.fold(api::Cleared { sessions: 0, bindings: 0 }, |sum, some| api::Cleared {
        sessions: sum.sessions + some.sessions,
        bindings: sum.bindings + some.bindings,
    })
}
