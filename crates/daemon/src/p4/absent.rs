//! P4 switches in a daemon that was built without DPDK: there are none, as their ports need it.

use crate::ports::Ports;
use crate::sandbox::Sandbox;
use crate::{Event, Settings};
use gatun_api::types::{self, Name};
use gatun_config::Offload;
use gatun_control::EarlierTranslator;
use gatun_nat::reconfigure::Outline;
use gatun_offload::FlowFilter;
use gatun_worker::Handle;
use std::sync::mpsc::Sender;

/// No switches.
pub(crate) struct P4Manager;

/// Orders to nobody.
#[derive(Clone)]
pub(crate) enum P4Orders {}

impl P4Manager {
    /// # Errors
    /// None.
    pub(crate) fn start(
        _: &Settings,
        _: &Ports,
        _: (bool, &Sandbox, &Sender<Event>),
    ) -> anyhow::Result<P4Manager> {
        Ok(P4Manager)
    }

    pub(crate) fn idents(&self) -> usize {
        0
    }

    pub(crate) fn wait_cleared(&self) -> Option<String> {
        None
    }

    pub(crate) fn begin(&self, _: Vec<Handle>) {}

    pub(crate) fn orders(&self) -> Option<P4Orders> {
        None
    }

    pub(crate) fn status(&self) -> impl Fn() -> types::Offload + Send + Sync + 'static {
        types::Offload::default
    }

    pub(crate) fn stop(&self) {}
}

impl P4Orders {
    pub(crate) fn pause(&self) {
        match *self {}
    }

    pub(crate) fn exclude(&self, _: Option<FlowFilter>) -> EarlierTranslator {
        match *self {}
    }

    pub(crate) fn set(&self, _: &Settings, _: &Outline) {
        match *self {}
    }

    pub(crate) fn opened(&self) -> &Offload {
        match *self {}
    }

    pub(crate) fn translator_of(&self, _: &types::Session) -> String {
        match *self {}
    }

    pub(crate) fn stateless_translator(&self, _: &Name) -> Option<String> {
        match *self {}
    }

    pub(crate) fn set_gone(&self, _: &str) -> Result<(), String> {
        match *self {}
    }
}
