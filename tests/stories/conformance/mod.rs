//! What upstream's own integration tests assert of the work agent, told of muster's.
//!
//! Each story names the rows that it tells, and each file has a table from row to story. Inputs
//! and expected values are those of the rows, with two differences. Upstream waits some seconds
//! to see that something stays as it is; here the agent looks at the work a number of times. And
//! upstream has one API server for hub and cluster; here they are two.

pub(crate) mod basic;
pub(crate) mod deletion;
pub(crate) mod eviction;
pub(crate) mod executor;
pub(crate) mod feedback;
pub(crate) mod jobs;
pub(crate) mod loops;
pub(crate) mod rules;
pub(crate) mod takeover;
pub(crate) mod ttl;

use crate::support::Story;

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = Vec::new();
    stories.extend(basic::stories());
    stories.extend(deletion::stories());
    stories.extend(eviction::stories());
    stories.extend(executor::stories());
    stories.extend(feedback::stories());
    stories.extend(jobs::stories());
    stories.extend(loops::stories());
    stories.extend(rules::stories());
    stories.extend(takeover::stories());
    stories.extend(takeover::stories_with_apply());
    stories.extend(ttl::stories());
    stories
}
