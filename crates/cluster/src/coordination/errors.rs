//! Errors of etcd, by what was asked: reads that work must not hide writes that are refused.

use super::Purpose;
use crate::store::{Answer, StoreError};
use std::mem::{Discriminant, discriminant};

/// Shortest time for which an error counts that nothing of its kind has ended, ms, and that in leases.
const KEPT_MS: (u64, u64) = (10_000, 4);

/// The last error of each kind of request.
#[derive(Debug, Default)]
pub(super) struct Errors(Vec<(Discriminant<Purpose>, StoreError, u64)>);

impl Errors {
    /// Notes an answer. Returns the error if it is another one than those that are known.
    pub(super) fn answered(
        &mut self,
        now_ms: u64,
        asked: &Purpose,
        answer: &Result<Answer, StoreError>,
    ) -> Option<StoreError> {
        let kind = discriminant(asked);
        let Err(error) = answer else {
            // A coordinator that answers can be reached, but may refuse other requests.
            let stays = |error: &StoreError| {
                matches!(error, StoreError::Refused(_) | StoreError::Unknown(_) | StoreError::Old(_))
            };
            self.0.retain(|(of, error, _)| *of != kind && stays(error));
            return None;
        };
        let is_new = self.0.iter().all(|(_, known, _)| known != error);
        match self.0.iter_mut().find(|(of, _, _)| *of == kind) {
            Some(known) => (known.1, known.2) = (error.clone(), now_ms),
            None => self.0.push((kind, error.clone(), now_ms)),
        }
        is_new.then(|| error.clone())
    }

    /// Forgets errors of requests that nobody has repeated for long.
    pub(super) fn forget(&mut self, now_ms: u64, lease_ms: u32) {
        let (least, leases) = KEPT_MS;
        let kept_ms = least.max(leases * u64::from(lease_ms));
        self.0.retain(|(_, _, at)| now_ms < at + kept_ms);
    }

    pub(super) fn first(&self) -> Option<&StoreError> {
        self.0.first().map(|(_, error, _)| error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_writes_stay_an_error_while_reads_work() {
        let mut errors = Errors::default();
        let refused = StoreError::Refused("no permission".to_owned());
        let done = Ok(Answer::Written(true, 1));
        assert_eq!(errors.answered(0, &Purpose::Register, &Err(refused.clone())), Some(refused.clone()));
        for at in 1..5 {
            assert_eq!(errors.answered(at, &Purpose::Read, &done), None);
            assert_eq!(errors.first(), Some(&refused));
            assert_eq!(errors.answered(at, &Purpose::Register, &Err(refused.clone())), None);
        }
        assert_eq!(errors.answered(5, &Purpose::Register, &done), None);
        assert_eq!(errors.first(), None);
        // Any answer shows that it can be reached again.
        let away = StoreError::Unreachable("no answer".to_owned());
        errors.answered(6, &Purpose::Write(1), &Err(away.clone()));
        assert_eq!(errors.answered(6, &Purpose::Read, &Err(away.clone())), None);
        assert_eq!(errors.first(), Some(&away));
        errors.answered(7, &Purpose::Read, &done);
        assert_eq!(errors.first(), None);
        // Somebody else has made the change meanwhile.
        errors.answered(8, &Purpose::Write(1), &Err(refused.clone()));
        errors.forget(10_007, 1_000);
        assert_eq!(errors.first(), Some(&refused));
        errors.forget(10_008, 1_000);
        assert_eq!(errors.first(), None);
    }
}
