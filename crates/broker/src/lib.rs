//! An MQTT broker inside muster, for installations that have none.
//!
//! It is the broker of the crate `mqtt5` behind a door of our own, which knows who is who, what
//! each may publish and read ([`muster_cloudevents::access`]), and how much.
//!
//! | Module | What |
//! |---|---|
//! | [`broker`] | starts and stops it |
//! | [`identity`] | who a client is: users, certificates, anonymous |
//! | [`password`] | hashes of passwords |
//! | [`tls`] | certificates and keys in files |
//! | [`limits`] | how much a client may take |
//! | `client_ids` | who may use which client id |
//! | `verifier` | verifies passwords, with a queue that has an end |
//! | `sessions`, `retained` | who has which sessions and retained topics, and how many |
//! | `peers` | connections of each address, and those without a login |
//! | `gate` | one client's checks, from CONNECT on |
//! | `frames`, `stream` | packets on their way to mqtt5, and answers on their way back |
//! | `refusals` | log lines about refused clients |
//! | `door` | accepts connections, cleans up after them |
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use muster_broker::{Broker, BrokerSettings, Identities, Limits, hash_password};
//! use muster_cloudevents::Dialect;
//! use muster_cloudevents::access::{Access, Principal};
//!
//! let agent = Principal::Agent("c1".to_owned());
//! let broker = Broker::start(BrokerSettings {
//!     listen: "127.0.0.1:0".parse()?,
//!     tls: None,
//!     identities: Identities::default().user("c1", &hash_password("secret"), agent)?,
//!     access: Access { dialect: Dialect::Enhancement },
//!     limits: Limits::default(),
//! })
//! .await?;
//! println!("{}", broker.address());
//! broker.stop().await;
//! # Ok(())
//! # }
//! ```

pub mod broker;
mod client_ids;
mod door;
mod frames;
mod gate;
pub mod identity;
pub mod limits;
mod metrics;
pub mod password;
mod peers;
mod refusals;
mod retained;
mod sessions;
mod stream;
pub mod tls;
mod verifier;

pub use broker::{Broker, BrokerError, BrokerSettings};
pub use identity::{Identities, IdentityError};
pub use limits::Limits;
pub use metrics::METRICS;
pub use password::hash_password;
pub use tls::{TlsError, TlsFiles};
