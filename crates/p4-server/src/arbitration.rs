//! Arbitration between controllers (P4Runtime 1.4, 5): the primary one may write.
//!
//! The primary is the connected controller whose election number is at least the highest that any controller
//! ever had here. If it leaves, there is none until a controller comes with such a number.

use crate::refusal::Refusal;
use gatun_p4runtime::google::rpc::Status;
use gatun_p4runtime::p4::v1::{MasterArbitrationUpdate, Role, Uint128};
use std::collections::BTreeMap;
use tonic::Code;

/// Controllers at a time.
pub const CONTROLLERS_MAX: usize = 16;

/// Number of a controller's stream.
pub type StreamId = u64;

/// Messages for controllers.
pub type Notices = Vec<(StreamId, MasterArbitrationUpdate)>;

/// State of the arbitration.
#[derive(Clone, Debug, Default)]
pub struct Arbitration {
    device: u64,
    /// Highest election number so far. Zero: none.
    highest: u128,
    /// Election number of each controller. Zero: it does not want to be the primary.
    controllers: BTreeMap<StreamId, u128>,
    primary: Option<StreamId>,
}

impl Arbitration {
    /// Arbitration for a device.
    pub fn new(device: u64) -> Arbitration {
        Arbitration { device, ..Arbitration::default() }
    }

    /// Receives an arbitration message of a controller.
    ///
    /// # Errors
    /// Another device, a role, an election number of another controller, too many controllers. The stream
    /// ends.
    pub fn update(&mut self, from: StreamId, update: &MasterArbitrationUpdate) -> Result<Notices, Refusal> {
        self.check_device(update.device_id)?;
        check_role(update.role.as_ref())?;
        let election = number(update.election_id.as_ref());
        let is_taken =
            |(stream, other): (&StreamId, &u128)| *stream != from && election != 0 && *other == election;
        if self.controllers.iter().any(is_taken) {
            return Err(Refusal::invalid("the election ID is already used by another controller"));
        }
        if !self.controllers.contains_key(&from) && self.controllers.len() >= CONTROLLERS_MAX {
            let message = format!("{CONTROLLERS_MAX} controllers are connected: no more are accepted");
            return Err(Refusal::new(Code::ResourceExhausted, message));
        }
        self.controllers.insert(from, election);
        let before = (self.primary, self.highest);
        if election != 0 && election >= self.highest {
            self.highest = election;
            self.primary = Some(from);
        } else if self.primary == Some(from) {
            self.primary = None;
        }
        Ok(match before == (self.primary, self.highest) {
            true => vec![(from, self.notice(from))],
            false => self.notices(),
        })
    }

    /// Forgets a controller.
    pub fn leave(&mut self, stream: StreamId) -> Notices {
        self.controllers.remove(&stream);
        if self.primary != Some(stream) {
            return Vec::new();
        }
        self.primary = None;
        self.notices()
    }

    /// Stream of the primary controller.
    pub fn primary(&self) -> Option<StreamId> {
        self.primary
    }

    /// Whether the controller of this stream has sent an arbitration message.
    pub fn has(&self, stream: StreamId) -> bool {
        self.controllers.contains_key(&stream)
    }

    /// Checks that a request comes from the primary controller.
    ///
    /// # Errors
    /// Another device, a role, or another election number.
    pub fn check(&self, device: u64, role: &str, election: Option<&Uint128>) -> Result<(), Refusal> {
        self.check_device(device)?;
        if !role.is_empty() {
            return Err(Refusal::new(Code::PermissionDenied, NO_ROLES));
        }
        match self.primary.is_some() && number(election) == self.highest {
            true => Ok(()),
            false => Err(Refusal::new(Code::PermissionDenied, "only the primary controller may do this")),
        }
    }

    /// Checks the device of a request.
    ///
    /// # Errors
    /// Another device.
    pub fn check_device(&self, device: u64) -> Result<(), Refusal> {
        match device == self.device {
            true => Ok(()),
            false => Err(Refusal::not_found(format!("device {device}: this is device {}", self.device))),
        }
    }

    fn notices(&self) -> Notices {
        self.controllers.keys().map(|stream| (*stream, self.notice(*stream))).collect()
    }

    fn notice(&self, to: StreamId) -> MasterArbitrationUpdate {
        let (code, message) = match self.primary {
            Some(primary) if primary == to => (Code::Ok, "you are the primary controller"),
            Some(_) => (Code::AlreadyExists, "another controller is the primary one"),
            None => (Code::NotFound, "there is no primary controller"),
        };
        let election = Uint128 { high: (self.highest >> 64) as u64, low: self.highest as u64 };
        MasterArbitrationUpdate {
            device_id: self.device,
            role: None,
            election_id: (self.highest != 0).then_some(election),
            status: Some(Status { code: code.into(), message: message.to_owned(), details: Vec::new() }),
        }
    }
}

const NO_ROLES: &str = "this switch has no roles: leave the role out";

#[allow(deprecated)]
fn check_role(role: Option<&Role>) -> Result<(), Refusal> {
    match role {
        Some(role) if *role != Role::default() => Err(Refusal::unimplemented(NO_ROLES)),
        _ => Ok(()),
    }
}

fn number(election: Option<&Uint128>) -> u128 {
    election.map_or(0, |id| u128::from(id.high) << 64 | u128::from(id.low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(election: u64) -> MasterArbitrationUpdate {
        let election_id = Some(Uint128 { high: 0, low: election });
        MasterArbitrationUpdate { device_id: 1, election_id, ..MasterArbitrationUpdate::default() }
    }

    fn codes(notices: Notices) -> Vec<(StreamId, Code)> {
        let code = |update: &MasterArbitrationUpdate| Code::from(update.status.as_ref().unwrap().code);
        notices.iter().map(|(stream, update)| (*stream, code(update))).collect()
    }

    #[test]
    fn the_highest_election_number_is_the_primary() {
        let mut all = Arbitration::new(1);
        assert_eq!(codes(all.update(1, &update(5)).unwrap()), [(1, Code::Ok)]);
        assert_eq!(codes(all.update(2, &update(3)).unwrap()), [(2, Code::AlreadyExists)]);
        assert_eq!(codes(all.update(3, &update(7)).unwrap()).len(), 3);
        assert_eq!(all.primary(), Some(3));
        let id = |low| Some(Uint128 { high: 0, low });
        assert!(all.check(1, "", id(7).as_ref()).is_ok());
        assert_eq!(all.check(1, "", id(5).as_ref()).unwrap_err().code, Code::PermissionDenied);
        assert_eq!(all.check(2, "", id(7).as_ref()).unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn after_the_primary_left_a_lower_number_does_not_follow() {
        let mut all = Arbitration::new(1);
        all.update(1, &update(5)).unwrap();
        all.update(2, &update(3)).unwrap();
        assert_eq!(codes(all.leave(1)), [(2, Code::NotFound)]);
        assert_eq!(codes(all.update(2, &update(4)).unwrap()), [(2, Code::NotFound)]);
        assert!(all.check(1, "", Some(&Uint128 { high: 0, low: 5 })).is_err());
        assert_eq!(codes(all.update(3, &update(5)).unwrap()), [(2, Code::AlreadyExists), (3, Code::Ok)]);
    }

    #[test]
    fn a_number_of_another_controller_a_role_and_another_device_are_refused() {
        let mut all = Arbitration::new(1);
        all.update(1, &update(5)).unwrap();
        assert_eq!(all.update(2, &update(5)).unwrap_err().code, Code::InvalidArgument);
        let role = Role { name: "a".into(), ..Role::default() };
        let with_role = MasterArbitrationUpdate { role: Some(role), ..update(6) };
        assert_eq!(all.update(2, &with_role).unwrap_err().code, Code::Unimplemented);
        let other = MasterArbitrationUpdate { device_id: 2, ..update(6) };
        assert_eq!(all.update(2, &other).unwrap_err().code, Code::NotFound);
        assert_eq!(all.primary(), Some(1));
    }

    #[test]
    fn a_controller_without_a_number_is_never_the_primary() {
        let mut all = Arbitration::new(1);
        let none = MasterArbitrationUpdate { device_id: 1, ..MasterArbitrationUpdate::default() };
        assert_eq!(codes(all.update(1, &none).unwrap()), [(1, Code::NotFound)]);
        assert!(all.check(1, "", None).is_err());
    }

    #[test]
    fn the_number_of_controllers_has_a_limit() {
        let mut all = Arbitration::new(1);
        for stream in 0..CONTROLLERS_MAX as u64 {
            all.update(stream, &update(0)).unwrap();
        }
        assert_eq!(all.update(99, &update(9)).unwrap_err().code, Code::ResourceExhausted);
    }
}
