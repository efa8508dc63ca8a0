//! Resources and their status as CloudEvents.
//!
//! A **source** owns what is wanted and sends it to **agents**, one for each cluster; they send back
//! what is. [`SourceClient`](client::SourceClient) and [`AgentClient`](client::AgentClient) do that
//! over a [`Bus`](bus::Bus), for any resource: see `examples/greetings.rs`. Below them are what such
//! events are and say, without a connection.
//!
//! | Module | What |
//! |---|---|
//! | [`client`] | the clients of sources and agents |
//! | [`document`], [`memory`] | resources that are plain data, and a store for them |
//! | [`bus`] | what carries messages: MQTT 5, or memory |
//! | [`event`] | an event, its attributes and extensions |
//! | [`event_type`] | what an event is about |
//! | [`binding`] | how an event travels in an MQTT 5 message |
//! | [`topics`] | where it goes, in the two dialects |
//! | [`access`] | who may publish and read what |
//! | [`resync`] | what one side may have missed |
//! | [`protocol`] | what a source and an agent say and hear |
//! | [`presence`] | whether an agent is there |
//! | [`sequence`] | which of two statuses is newer |
//! | [`canonical`] | the text that a status is hashed by |
//! | [`work`] | ManifestWorks as events |
//!
//! The wire format is that of Open Cluster Management's `sdk-go`, checked against captures of it
//! (`tests/wire`), and that of the design text from which it came.

pub mod access;
pub mod binding;
pub mod bus;
pub mod canonical;
pub mod client;
pub mod document;
pub mod event;
pub mod event_type;
pub mod memory;
pub mod presence;
pub mod protocol;
pub mod resync;
pub mod sequence;
pub mod topics;
pub mod work;

pub use access::{Access, Principal, Rights};
pub use binding::{BindingError, Message};
pub use event::{Event, ExtensionError, Stamp, extension};
pub use event_type::{Action, DataType, EventType, SubResource, TypeError};
pub use protocol::{Agent, Codec, Dropped, Outgoing, SendError, Source, ToAgent, ToSource};
pub use topics::{Dialect, TopicError, Topics};
