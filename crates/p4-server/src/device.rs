//! A switch as controllers see it: pipeline, entries, counters, meters, packets. It knows no network.

use crate::pipeline::{PacketHeader, Pipeline};
use crate::refusal::Refusal;
use crate::store::{self, Store};
use crate::target::Target;
use crate::values::{bytes, number, pack, unpack};
use gatun_p4runtime::p4::v1::get_forwarding_pipeline_config_request::ResponseType;
use gatun_p4runtime::p4::v1::set_forwarding_pipeline_config_request::Action;
use gatun_p4runtime::p4::v1::{
    ForwardingPipelineConfig, MeterConfig, PacketIn, PacketMetadata, PacketOut,
    SetForwardingPipelineConfigRequest,
};
use std::collections::HashMap;
use tonic::Code;

/// Switch with the state that its controllers gave it.
pub struct Device {
    pub(crate) target: Box<dyn Target>,
    pub(crate) pipeline: Pipeline,
    /// Entries of each table of the pipeline.
    pub(crate) stores: Vec<Store>,
    /// Number of the pipeline, which tells whether a read began with an earlier one.
    pub(crate) generation: u64,
    /// Configuration of each cell of a meter that has a limit, by the meter's number and the index.
    pub(crate) meter_configs: HashMap<(u32, u32), MeterConfig>,
    config: Option<ForwardingPipelineConfig>,
    saved: Option<ForwardingPipelineConfig>,
}

impl Device {
    /// Device of a switch. A controller has to give it a pipeline first.
    pub fn new(target: impl Target) -> Device {
        Device {
            target: Box::new(target),
            pipeline: Pipeline::default(),
            stores: Vec::new(),
            generation: 0,
            meter_configs: HashMap::new(),
            config: None,
            saved: None,
        }
    }

    /// Sets, checks or saves a pipeline.
    ///
    /// # Errors
    /// The program or the p4info is wrong, or one does not belong to the other. The previous pipeline stays.
    pub fn set_config(&mut self, request: &SetForwardingPipelineConfigRequest) -> Result<(), Refusal> {
        let action = Action::try_from(request.action).unwrap_or(Action::Unspecified);
        let config = match (action, &request.config) {
            (Action::Commit, None) => {
                self.saved.clone().ok_or_else(|| precondition("no configuration has been saved"))?
            }
            (Action::Commit, Some(_)) => {
                return Err(Refusal::invalid("COMMIT takes the saved configuration"));
            }
            (_, Some(config)) => config.clone(),
            (_, None) => return Err(Refusal::invalid("the configuration is missing")),
        };
        match action {
            Action::Unspecified => Err(Refusal::invalid("the action is missing")),
            Action::Verify => self.verify(&config).map(drop),
            Action::VerifyAndSave => {
                self.verify(&config)?;
                self.saved = Some(config);
                Ok(())
            }
            Action::VerifyAndCommit | Action::Commit => self.commit(config),
            Action::ReconcileAndCommit => self.reconcile(config),
        }
    }

    /// Part of the active configuration.
    ///
    /// # Errors
    /// There is none.
    pub fn config(&self, part: ResponseType) -> Result<ForwardingPipelineConfig, Refusal> {
        let all = self.config.as_ref().ok_or_else(no_pipeline)?;
        let has_info = matches!(part, ResponseType::All | ResponseType::P4infoAndCookie);
        let has_program = matches!(part, ResponseType::All | ResponseType::DeviceConfigAndCookie);
        Ok(ForwardingPipelineConfig {
            p4info: all.p4info.as_ref().filter(|_| has_info).cloned(),
            p4_device_config: if has_program { all.p4_device_config.clone() } else { Vec::new() },
            cookie: all.cookie,
        })
    }

    fn verify(&mut self, config: &ForwardingPipelineConfig) -> Result<Pipeline, Refusal> {
        let p4info = config.p4info.as_ref().ok_or_else(|| Refusal::invalid("the p4info is missing"))?;
        let program = self.target.check(&config.p4_device_config)?;
        Pipeline::new(p4info, &program).map_err(Refusal::invalid)
    }

    fn commit(&mut self, config: ForwardingPipelineConfig) -> Result<(), Refusal> {
        let pipeline = self.verify(&config)?;
        self.target.load()?;
        self.generation += 1;
        self.stores = pipeline.tables.iter().map(|table| store::with_room(table.size)).collect();
        self.meter_configs.clear();
        self.pipeline = pipeline;
        self.config = Some(config);
        for meter in &self.pipeline.meters {
            for index in 0..meter.size {
                self.target.set_meter(&meter.array, index, None)?;
            }
        }
        Ok(())
    }

    /// Keeps all entries if program and p4info are those that are active.
    fn reconcile(&mut self, config: ForwardingPipelineConfig) -> Result<(), Refusal> {
        match &mut self.config {
            None => self.commit(config),
            Some(old) if old.p4info == config.p4info && old.p4_device_config == config.p4_device_config => {
                old.cookie = config.cookie;
                Ok(())
            }
            Some(_) => Err(Refusal::invalid(
                "entries cannot be kept with another program or p4info: use VERIFY_AND_COMMIT",
            )),
        }
    }

    /// Checks that there is a pipeline.
    pub(crate) fn check_pipeline(&self) -> Result<(), Refusal> {
        self.config.as_ref().map(drop).ok_or_else(no_pipeline)
    }

    /// Sends a packet of a controller.
    ///
    /// # Errors
    /// There is no pipeline, the metadata are not those of the p4info, or the switch cannot take it.
    pub fn packet_out(&mut self, packet: &PacketOut) -> Result<(), Refusal> {
        self.check_pipeline()?;
        let none = PacketHeader::default();
        let header = self.pipeline.packet_out.as_ref().unwrap_or(&none);
        let value = |(id, bits): &(u32, u32)| {
            let given = packet.metadata.iter().find(|one| one.metadata_id == *id);
            let value = given.and_then(|one| number(&one.value, *bits));
            value.map(|value| (value, *bits)).ok_or_else(|| {
                Refusal::invalid(format!("metadata {id} of packet_out is missing, or wider than {bits} bits"))
            })
        };
        let values = header.fields.iter().map(value).collect::<Result<Vec<_>, _>>()?;
        if packet.metadata.len() != values.len() {
            return Err(Refusal::invalid(format!("packet_out has {} metadata", values.len())));
        }
        let mut frame = pack(values.into_iter());
        frame.extend_from_slice(&packet.payload);
        Ok(self.target.send(frame)?)
    }

    /// Packet for the controller of a frame that the program sent to it. `None`: there is no pipeline, or the
    /// frame is shorter than the header of the p4info.
    pub fn packet_in(&self, frame: &[u8]) -> Option<PacketIn> {
        self.config.as_ref()?;
        let none = PacketHeader::default();
        let header = self.pipeline.packet_in.as_ref().unwrap_or(&none);
        let (head, payload) = frame.split_at_checked(header.len())?;
        let values = unpack(head, header.fields.iter().map(|(_, bits)| *bits));
        let metadata = header
            .fields
            .iter()
            .zip(values)
            .map(|((id, _), value)| PacketMetadata { metadata_id: *id, value: bytes(value) });
        Some(PacketIn { payload: payload.to_vec(), metadata: metadata.collect() })
    }
}

fn precondition(message: &str) -> Refusal {
    Refusal::new(Code::FailedPrecondition, message)
}

fn no_pipeline() -> Refusal {
    precondition("no forwarding pipeline config is set yet: use SetForwardingPipelineConfig")
}
