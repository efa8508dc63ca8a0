//! The actors of muster: who does what.

pub mod hub;
pub mod supervision;
pub mod watching;
