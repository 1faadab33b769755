//! Mailbox under all interleavings of two threads: no message is lost, and none is done before it is read.

#[expect(unreachable_pub, reason = "the file of a public module")]
#[path = "../src/mailbox/queue.rs"]
mod queue;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Arc, Mutex};
}

use queue::{Mailbox, PutError};

/// Reads until this many messages have arrived.
fn read(mailbox: &Mailbox<u32>, count: usize) -> Vec<u32> {
    let mut read = Vec::new();
    while read.len() < count {
        match mailbox.next() {
            Some(message) => {
                read.push(message);
                mailbox.done(1);
            }
            None => loom::thread::yield_now(),
        }
    }
    read
}

#[test]
fn no_message_put_during_a_read_is_lost() {
    loom::model(|| {
        let mailbox = Mailbox::new(4);
        let writer = mailbox.clone();
        let thread = loom::thread::spawn(move || {
            writer.put(1).unwrap();
            writer.put(2).unwrap()
        });
        assert_eq!(read(&mailbox, 2), [1, 2]);
        assert!(mailbox.is_done(thread.join().unwrap()));
        assert!(!mailbox.has_any());
    });
}

#[test]
fn a_message_is_done_only_once_it_was_read() {
    loom::model(|| {
        let mailbox = Mailbox::new(4);
        let (writer, told) = (mailbox.clone(), sync::Arc::new(sync::AtomicU64::new(0)));
        let seen = told.clone();
        let thread = loom::thread::spawn(move || {
            let number = writer.put(7_u32).unwrap();
            if writer.is_done(number) {
                // A thread that sees the message as done also sees its effects.
                assert_eq!(seen.load(sync::Ordering::Relaxed), 7);
            }
        });
        if let Some(message) = mailbox.next() {
            told.store(message.into(), sync::Ordering::Relaxed);
            mailbox.done(1);
        }
        thread.join().unwrap();
        assert!(mailbox.is_done(1) != mailbox.has_any(), "waits or is done, and not both");
    });
}

#[test]
fn a_closing_mailbox_reads_or_returns_each_message() {
    loom::model(|| {
        let mailbox = Mailbox::new(1);
        let (writer, message) = (mailbox.clone(), std::sync::Arc::new(()));
        let kept = message.clone();
        let thread = loom::thread::spawn(move || !matches!(writer.put(message), Err(PutError::Closed(_))));
        mailbox.close();
        let _ = thread.join().unwrap();
        assert_eq!(std::sync::Arc::strong_count(&kept), 1);
    });
}

#[test]
fn two_writers_cannot_overfill_a_mailbox() {
    loom::model(|| {
        let mailbox = Mailbox::new(1);
        let writer = mailbox.clone();
        let thread = loom::thread::spawn(move || writer.put(1).is_ok());
        let second = mailbox.put(2).is_ok();
        assert!(thread.join().unwrap() != second);
        assert!(mailbox.next().is_some() && mailbox.next().is_none());
    });
}
