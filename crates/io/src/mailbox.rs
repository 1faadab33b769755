//! Mailbox: messages from any thread to one thread that reads them between bursts.
//!
//! Used for requests to workers, events of devices, neighbour updates, and new settings of ports.

mod queue;

/// Synchronisation types of [`queue`]. Tests replace them with those of a model checker.
pub(crate) mod sync {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(crate) use std::sync::{Arc, Mutex};
}

pub use queue::{Mailbox, PutError};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_in_order_and_marked_as_done() {
        let reader = Mailbox::new(10);
        let writer = reader.clone();
        assert!(!reader.has_any() && reader.next().is_none());
        let first = writer.put("down").unwrap();
        let second = writer.put("up").unwrap();
        assert!(reader.has_any() && !writer.is_done(first));
        assert_eq!((reader.next(), reader.next(), reader.next()), (Some("down"), Some("up"), None));
        assert!(!reader.has_any());
        reader.done(1);
        assert!(writer.is_done(first) && !writer.is_done(second));
        reader.done(1);
        assert!(writer.is_done(second));
    }

    #[test]
    fn a_full_or_closed_mailbox_returns_the_message() {
        let mailbox = Mailbox::new(2);
        assert!(mailbox.put(1).is_ok() && mailbox.put(2).is_ok());
        assert_eq!(mailbox.put(3), Err(PutError::Full(3)));
        assert_eq!(mailbox.next(), Some(1));
        assert!(mailbox.put(3).is_ok());
        mailbox.close();
        assert_eq!((mailbox.next(), mailbox.put(4)), (None, Err(PutError::Closed(4))));
    }

    #[test]
    fn closing_a_mailbox_drops_waiting_messages() {
        let (mailbox, message) = (Mailbox::new(1), std::sync::Arc::new(()));
        mailbox.put(message.clone()).unwrap();
        mailbox.close();
        assert_eq!(std::sync::Arc::strong_count(&message), 1);
    }
}
