//! Kinds of events, and the sets of kinds that a plan chooses.

macro_rules! event_kinds {
    ($($variant:ident, $name:literal, $help:literal;)*) => {
        /// Kind of an event. Logs and settings use its name, so the name is stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum EventKind { $(#[doc = $help] $variant,)* }

        impl EventKind {
            /// All kinds, in the order of their numbers.
            pub const ALL: &'static [EventKind] = &[$(EventKind::$variant,)*];

            /// Name in logs and settings.
            pub const fn name(self) -> &'static str {
                match self { $(EventKind::$variant => $name,)* }
            }
        }
    };
}

event_kinds! {
    SessionCreated, "session_created", "A session began.";
    SessionDeleted, "session_deleted", "A session ended.";
    BindingCreated, "binding_created", "An inside address and port got an outside address and port.";
    BindingDeleted, "binding_deleted", "An outside address and port returned to the pool.";
    BlockAssigned, "block_assigned", "A subscriber got a block of ports.";
    BlockReleased, "block_released", "A subscriber returned a block of ports.";
    BlockKept, "block_kept", "A subscriber keeps a block of ports that it had before a restart.";
    BindingKept, "binding_kept", "An inside address and port keeps its outside one from before a restart.";
    QuotaHit, "quota_hit", "A limit of a subscriber refused it a session or a port.";
    PoolExhausted, "pool_exhausted", "A pool had no free port for a subscriber.";
    ThresholdHigh, "threshold_high", "A pool or table has become fuller than its threshold.";
    ThresholdLow, "threshold_low", "A pool or table has fallen a tenth below its threshold.";
    EventsLost, "events_lost", "Events were lost because the ring was full.";
}

/// Set of event kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventKinds(u16);

impl EventKinds {
    /// Empty set.
    pub const NONE: EventKinds = EventKinds(0);
    /// Kinds that a log of port blocks needs, and kinds that an operator has to know.
    pub const FEW: EventKinds = EventKinds::NONE
        .with(EventKind::BlockAssigned)
        .with(EventKind::BlockReleased)
        .with(EventKind::QuotaHit)
        .with(EventKind::PoolExhausted)
        .with(EventKind::ThresholdHigh)
        .with(EventKind::ThresholdLow);

    /// Adds a kind.
    pub const fn with(self, kind: EventKind) -> EventKinds {
        EventKinds(self.0 | 1 << kind as u8)
    }

    /// Kinds that record the allocation of ports and the refusal of more. They have a ring of their own.
    pub const STATE: EventKinds = EventKinds::NONE
        .with(EventKind::BindingCreated)
        .with(EventKind::BindingDeleted)
        .with(EventKind::BindingKept)
        .with(EventKind::BlockAssigned)
        .with(EventKind::BlockReleased)
        .with(EventKind::BlockKept)
        .with(EventKind::QuotaHit);

    /// Removes the kinds of another set.
    pub const fn without(self, others: EventKinds) -> EventKinds {
        EventKinds(self.0 & !others.0)
    }

    /// Adds the kinds of another set.
    pub const fn and(self, others: EventKinds) -> EventKinds {
        EventKinds(self.0 | others.0)
    }

    /// Returns whether the set contains a kind.
    #[inline(always)]
    pub const fn has(self, kind: EventKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the kinds in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = EventKind> {
        EventKind::ALL.iter().copied().filter(move |&kind| self.has(kind))
    }
}
