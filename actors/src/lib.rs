//! The actors of muster: who does what.

pub mod supervision;
pub mod watching;
