//! The muster program as a library: settings, telemetry and the HTTP end points.

pub mod http;
pub mod settings;
pub mod telemetry;
