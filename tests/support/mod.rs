//! What the stories stand on: real servers, one way to wait, one way to register.
//!
//! A story asks its [`World`] for what it needs, and the world starts it on first use:
//! `world.hub()`, `world.spoke()`, `world.mosquitto()`. A part that this machine does not
//! have makes the story skipped, with the reason in its line (`parts.rs`).

pub(crate) mod agent;
pub(crate) mod ages;
mod api_server;
pub(crate) mod broker_hub;
pub(crate) mod browser;
mod cluster;
mod definitions;
pub(crate) mod docs;
pub(crate) mod door;
mod embedded;
mod etcd;
mod harness;
pub(crate) mod live;
mod mosquitto;
pub(crate) mod muster;
pub(crate) mod namespaces;
mod objects;
pub(crate) mod own_process;
pub(crate) mod parts;
pub(crate) mod pod;
mod ports;
pub(crate) mod process;
mod prometheus;
mod rest;
pub(crate) mod rights;
pub(crate) mod systemd;
pub(crate) mod typed;
mod waiting;
pub(crate) mod works;
mod world;

pub(crate) use api_server::RealApiServer;
pub(crate) use cluster::{Cluster, client_of, kubectl_at, unique_name};
pub(crate) use definitions::install_definitions;
pub(crate) use embedded::EmbeddedApiServer;
pub(crate) use harness::{Story, run};
pub(crate) use mosquitto::{Mosquitto, MosquittoConf};
pub(crate) use ports::on_free_ports;
pub(crate) use prometheus::Prometheus;
pub(crate) use rest::{Answer, Rest, Watch};
pub(crate) use waiting::{eventually, within};
pub(crate) use world::{Backend, OwnCluster, Servers, World};
