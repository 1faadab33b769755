//! Requests that read or change the configuration: each becomes an order ([`crate::configure`]), and its
//! outcome a response.

use crate::Control;
use crate::configure::{ApplyOptions, MapsBody, Order, OrderResult, RefusalKind, Refused};
use crate::query::{BadRequest, Query};
use crate::response::{Answer, ApiRequest, Refusal, json};
use crate::worker_requests::WorkerError;
use gatun_api::paths::Operation;
use gatun_api::request;
use gatun_api::types as api;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Longest time to confirm a configuration, seconds.
const CONFIRM_MAX_S: u32 = 86_400;

impl Control {
    /// The running configuration or an earlier one.
    pub(crate) async fn config(&self, query: &Query) -> Result<api::Config, Refusal> {
        let facts = self.setup.facts.get();
        match query.get("revision") {
            Some(revision) if !facts.config.revision.starts_with(revision) || revision.is_empty() => {
                match self.order(Order::Past(revision.to_owned())).await? {
                    OrderResult::Past(config) => Ok(config),
                    _ => Err(WorkerError::Silent.into()),
                }
            }
            _ => {
                let unconfirmed = facts.unconfirmed.as_ref().map(|(until, before)| api::Unconfirmed {
                    seconds_left: until.saturating_duration_since(Instant::now()).as_secs(),
                    before: before.clone(),
                });
                Ok(api::Config { unconfirmed, ..facts.config.clone() })
            }
        }
    }

    /// Changes or previews the configuration.
    pub(crate) async fn configure(
        &self,
        what: Operation,
        query: &Query,
        body: Vec<u8>,
        asked: &ApiRequest<'_>,
    ) -> Result<Answer, Refusal> {
        let who = || asked.who.to_owned();
        let maps =
            |replaces, json| MapsBody { instance: query.get("instance").map(str::to_owned), replaces, json };
        let revision = || query.get("revision").unwrap_or_default().to_owned();
        let instead = || {
            let confirm = confirm_seconds(query)?;
            let confirm = confirm.map(|seconds| Duration::from_secs(seconds.into()));
            Ok::<_, BadRequest>(ApplyOptions { revision: revision(), confirm, who: who() })
        };
        let order = match what {
            Operation::PlanConfig => Order::Plan(text_of(&body)?),
            Operation::ApplyConfig => Order::Apply(instead()?, text_of(&body)?),
            Operation::ConfirmConfig => Order::Confirm { revision: revision(), who: who() },
            Operation::RollBackConfig => Order::RollBack(instead()?, query.get("to").map(str::to_owned)),
            Operation::PlanReplaceMaps => Order::PlanMaps(maps(true, body)),
            Operation::PlanEditMaps => Order::PlanMaps(maps(false, body)),
            Operation::ReplaceMaps => Order::ChangeMaps(instead()?, maps(true, body)),
            Operation::EditMaps => Order::ChangeMaps(instead()?, maps(false, body)),
            _ => Order::History,
        };
        Ok(match self.order(order).await? {
            OrderResult::Planned(plan) => json(&plan),
            OrderResult::Applied(applied) => json(&applied),
            OrderResult::History(past) => json(&past),
            OrderResult::Past(config) => json(&config),
            OrderResult::Kept | OrderResult::Maps { .. } => return Err(WorkerError::Silent.into()),
        })
    }

    pub(crate) async fn order(&self, order: Order) -> Result<OrderResult, Refusal> {
        let Some(orders) = &self.setup.configure else {
            return Err(Refusal::Configure(Refused::new(
                RefusalKind::Failed,
                "this daemon cannot change its configuration",
                "",
            )));
        };
        let (sender, answer) = oneshot::channel();
        if !orders(order, Box::new(move |done| drop(sender.send(done)))) {
            return Err(WorkerError::Silent.into());
        }
        answer.await.map_err(|_| WorkerError::Silent)?.map_err(Refusal::Configure)
    }
}

/// Time within which a change will be confirmed, s.
pub(crate) fn confirm_seconds(query: &Query) -> Result<Option<u32>, BadRequest> {
    let confirm = query.parse::<u32>("confirm_seconds", "a number of seconds")?;
    match confirm.filter(|seconds| !(1..=CONFIRM_MAX_S).contains(seconds)) {
        Some(seconds) => {
            let what = format!("confirm_seconds: {seconds} is not from 1 to {CONFIRM_MAX_S}");
            Err(BadRequest::new(what, ""))
        }
        None => Ok(confirm),
    }
}

pub(crate) fn text_of(body: &[u8]) -> Result<String, BadRequest> {
    let read = request::read(body);
    read.map(|api::ConfigText { text }| text)
        .map_err(|error| BadRequest::new(format!("invalid body: {error}"), "send {\"text\": ...}"))
}
