//! The actors of muster: who does what
