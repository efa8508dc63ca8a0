//! Watches of objects on a cluster, shared by all who want to know of them, under a cap.
//!
//! ```text
//!  subscribers ──subscribe──► Watches (table) ──wanted objects──► WatchSupervisor (1 per cluster)
//!      ▲                         ▲                                   │ plan: which watches
//!      │ states of their         │ every state                       ▼
//!      └─ objects ───────────────┴────────────────────────── WatchedResource (1 per open watch)
//! ```
//!
//! | File | What |
//! |---|---|
//! | `table` | who wants to know of which object |
//! | `area` | who wants to know of everything in a namespace, or in the cluster |
//! | `watch_supervisor` | actor: which watches there are |
//! | `watched_resource` | actor: one open watch |
//! | `object` | an object as a watch gives it |
//! | `metrics` | what operators see |
//!
//! Which watches serve the wanted objects best is decided in `muster_core::watch_plan`.

mod area;
mod metrics;
mod object;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod watch_supervisor;
mod watched_resource;

pub use area::{Area, AreaListener, AreaSubscription};
pub use metrics::METRICS;
pub use object::WatchedObject;
pub use table::{
    Coverage, Denial, Listed, ObjectPath, Subscriber, Subscription, Unwatched, Watches,
};
pub use watch_supervisor::{
    ChangeLimits, RestartAreas, RestartWatches, WatchSupervisor, WatchSupervisorState,
};
pub(crate) use watched_resource::api_of;
pub use watched_resource::{WatchNews, WatchedResource, WatchedResourceState, api_version};
