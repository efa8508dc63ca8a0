//! The actors of muster: who does what.

pub mod agent;
pub mod hub;
pub mod supervision;
pub mod watching;
