//! What upstream's own integration tests assert of the work agent, told of muster's.
//!
//! Each story names the rows that it tells, and each file has a table from row to story. Inputs
//! and expected values are those of the rows, with two differences. Upstream waits some seconds
//! to see that something stays as it is; here the agent looks at the work a number of times. And
//! upstream has one API server for hub and cluster; here they are two.

pub(crate) mod basic;
