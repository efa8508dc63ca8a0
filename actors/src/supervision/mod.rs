//! What the runtime owes to every actor: restart, bounded mail, ordered stop, a way to look inside.
//!
//! actix alone gives none of these: an actor that panics is gone, `do_send` ignores the mailbox
//! limit, an actor with a timer outlives its addresses, and lifecycle calls at system stop are not
//! dependable. `docs/adr/0002-supervision.md` has the observations behind this module.
//!
//! | Piece | Gives |
//! |---|---|
//! | [`Registry`] | starts actors under supervision; counters; `/debug/actors`; leak check |
//! | [`tell()`] | bounded, counted fire-and-forget |
//! | [`Outbox`] | keeps what [`tell()`] refused, newest per key, until it is taken |
//! | [`Stop`], [`stop()`] | ordered shutdown: ask, flush, wait until the actor has really ended |
//! | [`Io`] | futures on the worker threads, cancelled with the actor that waits for them |
//! | [`Health`] | liveness of long streams, for readiness |
//! | [`watch_threads`] | who holds a thread for too long |
//! | [`Backoff`] | one retry policy for restarts and streams |

mod backoff;
mod health;
mod io;
pub(crate) mod metrics;
mod registry;
mod stalls;
mod supervise;
mod tell;
#[cfg(test)]
mod tests;

pub use backoff::{Backoff, BackoffPolicy};
pub use health::{Health, StreamHealth, StreamReport, StreamState};
pub use io::{Io, IoError, Running};
pub use metrics::METRICS;
pub use registry::{ActorReport, Registry, Snapshot};
pub use stalls::{STALL_LIMIT, stalled, watch_threads};
pub(crate) use supervise::panic_text;
pub use tell::{Outbox, Refused, Stop, stop, tell};
