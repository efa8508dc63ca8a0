//! What the router and the aggregators say to each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use actix::Message;
use jiff::Timestamp;
use muster_core::replicaset::{PlacementFacts, WorkFacts, WorkKey};

use super::views::{ObjectName, SetView};

/// A fact about one replica set.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub(super) enum Fact {
    /// The set itself.
    Set(Arc<SetView>),
    /// What a placement of its namespace selects; `None` when there is no such placement.
    Placement(String, Option<Arc<PlacementFacts>>),
    /// One of its works; `None` when it is gone.
    Work(WorkKey, Option<Box<WorkFacts>>),
    /// Clusters whose agents are away, and since when.
    Away(Arc<BTreeMap<String, Timestamp>>),
    /// Clusters in which nothing is to be written.
    Paused(Arc<BTreeSet<String>>),
    /// Everything that exists has been told: from now on absence means something.
    Complete,
}

/// What a held [`Fact`] is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum About {
    Set,
    Placement(String),
    Work(WorkKey),
    Away,
    Paused,
    Complete,
}

impl Fact {
    pub(super) fn about(&self) -> About {
        match self {
            Self::Set(_) => About::Set,
            Self::Placement(name, _) => About::Placement(name.clone()),
            Self::Work(key, _) => About::Work(key.clone()),
            Self::Away(_) => About::Away,
            Self::Paused(_) => About::Paused,
            Self::Complete => About::Complete,
        }
    }
}

/// An aggregator that came back from a panic asks for what the router keeps.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub(super) struct TellAgain(pub(super) ObjectName);
