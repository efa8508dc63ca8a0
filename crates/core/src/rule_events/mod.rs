//! From states of objects to events for a sink: each change once, in order, and none lost.
//!
//! ```text
//!  states, deletions, ┌────────┐ create, update, delete ┌─────────┐ batches
//!  complete lists ───►│ Mirror ├───────────────────────►│ Pending ├────────► sink
//!  (one or two        │ what   │◄─ no room: not known, ─│ what    │◄─ taken, or
//!   watches at a time)│ it has │   found again later    │ waits   │   once more
//!                     └────────┘                        └─────────┘
//! ```
//!
//! Watch events do not tell what a sink has to hear: a list shows what the sink has had long ago,
//! two watches that overlap show everything twice, and nothing shows what vanished between two
//! watches. So the operation is decided by what the sink is known to have ([`Mirror`]).
//!
//! What a sink cannot take at once waits ([`Pending`]). Its room is bounded; what finds none is not
//! remembered as had, so that a later look at the objects finds it again. Nobody is ever made to
//! wait: the watches serve others, too.

mod mirror;
mod pending;

use std::fmt;
use std::sync::Arc;

pub use mirror::{Absent, FIRST_LOOK, Gone, Mirror, State, Verdict};
pub use pending::{Event, Pending, Record, Room};

use crate::watch_plan::Resource;
pub use crate::watch_rules::{Operation, RuleNames};

/// Identifies an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its type.
    pub resource: Resource,
    /// Its namespace; empty for an object without one.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

/// For people: `apps/v1/deployments default/web`.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = &self.resource;
        if !resource.group().is_empty() {
            write!(f, "{}/", resource.group())?;
        }
        write!(f, "{}/{} ", resource.version(), resource.resource())?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests;
