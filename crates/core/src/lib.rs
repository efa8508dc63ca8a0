//! The decisions of muster, without input or output
