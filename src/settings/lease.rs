//! Times of the leases, which agents and hubs have alike.

use std::time::Duration;

use super::problem::Conflict;
use super::{Agent, Hub, HubApi};

/// How much longer than the time between two tries a pause between them may be.
pub const LEASE_JITTER: f64 = 1.2;

/// When a lease is tried for, and when it is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimes {
    /// How long others wait for a holder that does not renew.
    pub duration: Duration,
    /// How long a holder that cannot renew goes on.
    pub renew_deadline: Duration,
    /// Time between two tries to take or renew.
    pub retry_period: Duration,
}

/// The keys of the times in one section.
struct Keys {
    all: &'static [&'static str],
    duration: &'static str,
    renew_deadline: &'static str,
    retry_period: &'static str,
}

const AGENT: Keys = Keys {
    all: &[
        "agent.lease_duration",
        "agent.lease_renew_deadline",
        "agent.lease_retry_period",
    ],
    duration: "agent.lease_duration",
    renew_deadline: "agent.lease_renew_deadline",
    retry_period: "agent.lease_retry_period",
};

const HUB: Keys = Keys {
    all: &[
        "hub.lease_duration",
        "hub.lease_renew_deadline",
        "hub.lease_retry_period",
    ],
    duration: "hub.lease_duration",
    renew_deadline: "hub.lease_renew_deadline",
    retry_period: "hub.lease_retry_period",
};

impl LeaseTimes {
    /// The rules of client-go's leader election: a holder gives up before another may take over,
    /// and gets more than one try to renew.
    fn conflicts(&self, keys: &Keys) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        if self.duration <= self.renew_deadline {
            conflicts.push(Conflict {
                key: keys.duration,
                found: format!("{:?}", self.duration),
                rule: format!(
                    "must be more than {}, {:?}",
                    keys.renew_deadline, self.renew_deadline
                ),
                others: keys.all,
            });
        }
        if self.renew_deadline <= self.retry_period.mul_f64(LEASE_JITTER) {
            conflicts.push(Conflict {
                key: keys.renew_deadline,
                found: format!("{:?}", self.renew_deadline),
                rule: format!(
                    "must be more than {LEASE_JITTER} times {}, {:?}",
                    keys.retry_period, self.retry_period
                ),
                others: keys.all,
            });
        }
        conflicts
    }
}

impl Agent {
    /// The times of the agents' lease.
    pub const fn lease_times(&self) -> LeaseTimes {
        LeaseTimes {
            duration: self.lease_duration,
            renew_deadline: self.lease_renew_deadline,
            retry_period: self.lease_retry_period,
        }
    }

    pub(super) fn lease_conflicts(&self) -> Vec<Conflict> {
        self.lease_times().conflicts(&AGENT)
    }
}

impl Hub {
    /// The times of the hub's lease.
    pub const fn lease_times(&self) -> LeaseTimes {
        LeaseTimes {
            duration: self.lease_duration,
            renew_deadline: self.lease_renew_deadline,
            retry_period: self.lease_retry_period,
        }
    }

    pub(super) fn lease_conflicts(&self) -> Vec<Conflict> {
        let mut conflicts = self.lease_times().conflicts(&HUB);
        // Who asks for a lease means to run several processes, which cannot share these objects.
        if self.api == HubApi::Embedded && self.leader_election == Some(true) {
            conflicts.push(Conflict {
                key: "hub.leader_election",
                found: "true".to_owned(),
                rule: "needs hub.api = \"kubeconfig\": the objects of an embedded API server \
                       belong to one process"
                    .to_owned(),
                others: &["hub.api"],
            });
        }
        conflicts
    }
}
