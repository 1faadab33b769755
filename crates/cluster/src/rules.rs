//! Switches of the rules, for the proof that each is needed.

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Rules that are in force. A node always has all of them; the model leaves out one at a time, and
        /// finds a counterexample.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct ClusterRules {
            $($(#[$doc])* pub $name: bool,)*
        }

        impl Default for ClusterRules {
            fn default() -> ClusterRules {
                ClusterRules { $($name: true,)* }
            }
        }

        impl ClusterRules {
            /// Names of all rules.
            pub const NAMES: &[&str] = &[$(stringify!($name),)*];

            /// Returns all rules except one, or `None` if no rule has this name.
            pub fn without(name: &str) -> Option<ClusterRules> {
                let mut rules = ClusterRules::default();
                match name {
                    $(stringify!($name) => rules.$name = false,)*
                    _ => return None,
                }
                Some(rules)
            }
        }
    };
}

rules! {
    /// A record is written only if nobody has changed it since it was read.
    compare,
    /// A node takes rights away only from a node whose registration is absent, which the write compares.
    absent,
    /// It also waits for the margin of kernels and clocks.
    margin,
    /// Only a ready backup claims.
    ready,
    /// A backup is ready when both have acknowledged each other's whole state.
    synced,
    /// An owner with a ready backup assigns shared ports only with a lease or a promise.
    right,
    /// An owner without this right ends the shared mappings that its backup has not acknowledged.
    revoke,
    /// A node respects its promises, also after a restart.
    promise,
    /// Only who knows the other holder as the owner promises not to claim.
    promise_to_owner,
    /// A holder translates only for a time after the last sign of the coordinator or of the other holder.
    hold,
    /// A holder whose record says that it has become one later drops what it has.
    since,
    /// An owner that has lost its state keeps its backup.
    state_first,
    /// A backup leaves only when it has dropped everything.
    drop_first,
    /// An owner releases only when it assigns nothing and the backup has acknowledged everything.
    told_first,
    /// An owner lowers its right to ports before it sends its state to a new backup.
    lower_first,
    /// The engine stops at the end of a right even if nobody tells it to.
    fence,
}
