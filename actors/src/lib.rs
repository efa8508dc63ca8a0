//! The actors of muster: who does what.

pub mod agent;
pub mod supervision;
pub mod watching;
