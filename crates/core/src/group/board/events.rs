//! The events, actions and answers of the board.

use std::{collections::BTreeMap, sync::Arc};

use crate::group::GroupKey;

/// The nodes of members, by the uid of the member.
pub type Places = BTreeMap<Arc<str>, Arc<str>>;

/// A pod of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The pod's uid.
    pub uid: Arc<str>,
    /// The pod's name.
    pub name: Arc<str>,
    /// The pod's priority.
    pub priority: i32,
    /// The time of creation, in seconds since the Unix epoch.
    pub created_unix: i64,
    /// True if the API server has a node for the pod.
    pub bound: bool,
}

/// An event that changes groups.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The watch or the filter shows a member. A bound member stays bound: a later `Seen` without a
    /// node is out of date.
    Seen {
        /// The member's group.
        group: GroupKey,
        /// The pod.
        member: Member,
    },
    /// A member was deleted, is finished, or is not selected any more.
    Gone {
        /// The member's group.
        group: GroupKey,
        /// The member's uid.
        uid: Arc<str>,
    },
    /// The offer or the owner states the minimum.
    Minimum {
        /// The group.
        group: GroupKey,
        /// The number of members that are placed together. `None` if it is not known yet.
        minimum: Option<u32>,
    },
    /// The planner found a place for each member that the plan asked for.
    Planned {
        /// The group.
        group: GroupKey,
        /// The number of the plan.
        number: u64,
        /// The places of all members of the plan.
        places: Places,
    },
    /// The planner found no complete plan.
    NoRoom {
        /// The group.
        group: GroupKey,
        /// The number of the plan.
        number: u64,
        /// The number of members in the largest part that fits.
        placed: usize,
        /// The reason that stops the rest.
        why: String,
    },
    /// kube-scheduler does not offer a member its place. The first time the member is woken: a
    /// scheduler that looks at some of the nodes only may not have known the place. The second time
    /// the place is lost.
    Lost {
        /// The member's group.
        group: GroupKey,
        /// The member's uid.
        uid: Arc<str>,
        /// The reason.
        why: String,
    },
    /// The bind of a member has made a step.
    Bind {
        /// The member's group.
        group: GroupKey,
        /// The member's uid.
        uid: Arc<str>,
        /// The step.
        step: Step,
    },
    /// Time passes.
    Tick,
}

/// A step of a member's bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// kube-scheduler asks for the bind, which waits at the barrier. A repetition of it while the
    /// bind waits is the same bind.
    Came,
    /// The providers have reserved.
    Reserved,
    /// The API server has the binding.
    Written,
    /// The reservation or the write failed, and the bind has ended.
    Failed(String),
    /// kube-scheduler does not wait any more, and the bind has ended. It is ignored once the bind
    /// may write, as the outcome of the write counts.
    Left,
}

/// An action for the caller, to be done in the order of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Plan these members; the bound members of the group are fixed. Only one plan runs at a time.
    Plan {
        /// The group.
        group: GroupKey,
        /// The number of the plan, which the result repeats.
        number: u64,
        /// The uids of the members, the oldest first. All of them must be placed.
        members: Vec<Arc<str>>,
    },
    /// The places count as taken from now on, until `Free`, or until the API server shows the
    /// member on a node.
    Hold {
        /// The group.
        group: GroupKey,
        /// The places.
        places: Places,
    },
    /// The held places of these members are free. It has no effect on a member that the API server
    /// has bound in the meantime.
    Free {
        /// The group.
        group: GroupKey,
        /// The uids of the members.
        uids: Vec<Arc<str>>,
    },
    /// kube-scheduler shall try these members again.
    Wake {
        /// The group.
        group: GroupKey,
        /// The uids of the members.
        uids: Vec<Arc<str>>,
    },
    /// A waiting bind goes on.
    Proceed {
        /// The member's uid.
        uid: Arc<str>,
        /// The step that the bind may do now.
        step: Next,
    },
    /// A waiting bind ends without a binding.
    Fail {
        /// The member's uid.
        uid: Arc<str>,
        /// The reason.
        why: String,
    },
}

/// The step that a bind may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Reserve at the providers.
    Reserve,
    /// Write the binding to the API server.
    Write,
}

/// The filter's answer for a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The pod is placed as an ordinary pod.
    Alone,
    /// The group is not complete, or the pod came after the plan whose places are held.
    Waiting {
        /// The number of members that exist.
        exist: usize,
        /// The minimum, if it is known.
        minimum: Option<u32>,
    },
    /// The group is planned, or will be.
    Planning,
    /// The last plan found no room.
    NoRoom {
        /// The number of members in the largest part that fits.
        placed: usize,
        /// The number of members that were planned.
        of: usize,
        /// The reason that stops the rest.
        why: Arc<str>,
    },
    /// The pod's node in the plan.
    Place(Arc<str>),
}

/// The phase of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Members are missing, or the minimum is not known.
    Waiting,
    /// The group waits for its turn to be planned.
    Queued,
    /// The planner works on the group.
    Planning,
    /// The last plan found no room.
    NoRoom,
    /// The places are held.
    Held,
    /// The bindings are written.
    Writing,
    /// The minimum is met but for one member at most, so that each further pod is placed alone.
    Bound,
}

/// The state of a group, for metrics and pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupState {
    /// The phase.
    pub phase: Phase,
    /// The number of members that exist.
    pub exist: usize,
    /// The number of members that are bound.
    pub bound: usize,
    /// The minimum, if it is known.
    pub minimum: Option<u32>,
    /// The number of places that are held.
    pub held: usize,
    /// The number of failed barriers since the group was last bound.
    pub failures: u32,
    /// The reason of the last failure, or of the last plan without room.
    pub why: Option<Arc<str>>,
}
