//! An embedded Kubernetes API server and a workload simulator.
//!
//! The server speaks the Kubernetes API well enough that controllers, `kube` and kubectl do not
//! notice a difference for what it serves; it runs in process behind a [`kube::Client`], without
//! a socket, and over HTTPS when asked.

mod admission;
mod authz;
mod builtin;
mod builtin_schema;
mod connections;
mod crd;
mod decode;
mod discovery;
mod establish;
mod http;
mod managed;
mod mirror;
mod object;
mod openapi;
mod patch;
mod registry;
mod schema;
mod selector;
mod serve;
mod server;
mod simulator;
mod stats;
mod status;
mod store;
mod strategy;
mod table;
mod tls;
mod validation;
mod verbs;

pub use admission::{Admission, AdmissionRequest, Operation};
pub use authz::{Authorization, Authorize, Decision, UserInfo};
pub use connections::{ConnectionCounts, ConnectionLimits, Connections, Visitor};
pub use mirror::{Mirror, MirrorError};
pub use serve::{ServeError, ServeOptions, Serving};
pub use server::{ApiServer, ApiServerBuilder, BuildError, Storage};
pub use simulator::{Failure, FailureRule, SimulatorOptions, WorkloadSimulator};
pub use stats::Stats;
pub use store::durable::OpenError;
pub use table::age;
pub use tls::IdentityError;
