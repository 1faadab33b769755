//! Switches of the rules, for the proof that each is needed.

/// Rules that are in force. The model leaves out one at a time, and finds a counterexample. The daemon always
/// has all of them, but refuses changes of static mappings that would need the last two (decision 0106).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Only the owner assigns ports of the shared range.
    pub owner_assigns: bool,
    /// A member never assigns ports of the other one's range.
    pub own_range: bool,
    /// A member without its state sends and assigns nothing before it has read the other's state.
    pub wait_for_state: bool,
    /// A freed port waits until the other member has acknowledged its end.
    pub wait_for_release: bool,
    /// A beginning that crossed an end on its way does not undo the end.
    pub end_wins: bool,
    /// An end that a beginning has crossed is told again: the other member may have sent the beginning as an
    /// answer to an earlier report of the end.
    pub end_again: bool,
    /// An acknowledgement follows the answers to what it acknowledges.
    pub answer_first: bool,
    /// Records of an earlier connection are refused.
    pub one_connection: bool,
    /// Records of a stream are accepted in their order, each once.
    pub in_order: bool,
    /// A record of an older epoch does not replace or end a mapping of a newer one.
    pub newer_epoch_wins: bool,
    /// A member that is told that the other one is gone waits for the end of its kernel's lease.
    pub wait_for_kernel: bool,
    /// A member that is told that the other one is gone closes its connection: records on their way are those
    /// of a member without state.
    pub close_with_word: bool,
    /// An owner in a cluster assigns shared ports only with a lease or a promise.
    pub lease: bool,
    /// An owner without lease and promise ends shared mappings that were not acknowledged.
    pub revoke: bool,
    /// A claim waits for the end of the owner's lease and a margin.
    pub margin: bool,
    /// A member that has promised to assign nothing keeps the promise as an owner, too.
    pub keep_promise: bool,
    /// A static mapping of another revision begins after the other member has ended the former one.
    pub agree: bool,
    /// Members agree to a revision only by a report that knows of the other's revision.
    pub agree_in_turn: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            owner_assigns: true,
            own_range: true,
            wait_for_state: true,
            wait_for_release: true,
            end_wins: true,
            end_again: true,
            answer_first: true,
            one_connection: true,
            in_order: true,
            newer_epoch_wins: true,
            wait_for_kernel: true,
            close_with_word: true,
            lease: true,
            revoke: true,
            margin: true,
            keep_promise: true,
            agree: true,
            agree_in_turn: true,
        }
    }
}

impl Rules {
    /// Names of all rules.
    pub const NAMES: [&str; 18] = [
        "owner_assigns",
        "own_range",
        "wait_for_state",
        "wait_for_release",
        "end_wins",
        "end_again",
        "answer_first",
        "one_connection",
        "in_order",
        "newer_epoch_wins",
        "wait_for_kernel",
        "close_with_word",
        "lease",
        "revoke",
        "margin",
        "keep_promise",
        "agree",
        "agree_in_turn",
    ];

    /// Returns all rules except one, or `None` if no rule has this name.
    pub fn without(name: &str) -> Option<Rules> {
        let mut rules = Rules::default();
        let rule = match name {
            "owner_assigns" => &mut rules.owner_assigns,
            "own_range" => &mut rules.own_range,
            "wait_for_state" => &mut rules.wait_for_state,
            "wait_for_release" => &mut rules.wait_for_release,
            "end_wins" => &mut rules.end_wins,
            "end_again" => &mut rules.end_again,
            "answer_first" => &mut rules.answer_first,
            "one_connection" => &mut rules.one_connection,
            "in_order" => &mut rules.in_order,
            "newer_epoch_wins" => &mut rules.newer_epoch_wins,
            "wait_for_kernel" => &mut rules.wait_for_kernel,
            "close_with_word" => &mut rules.close_with_word,
            "lease" => &mut rules.lease,
            "revoke" => &mut rules.revoke,
            "margin" => &mut rules.margin,
            "keep_promise" => &mut rules.keep_promise,
            "agree" => &mut rules.agree,
            "agree_in_turn" => &mut rules.agree_in_turn,
            _ => return None,
        };
        *rule = false;
        Some(rules)
    }
}
