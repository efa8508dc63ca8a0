//! The Lease object: what it says, and the requests that change it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::time::Instant;

use super::LeaseSettings;

/// The lease as it was last seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    lease: Option<Lease>,
    /// When this process first saw it say so.
    since: Option<Instant>,
}

/// Whose the lease is after a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Taken, or renewed.
    Mine,
    /// Another's.
    Others(String),
}

impl Known {
    /// Takes in what was read at `now`. Only another spec counts as a sign of life.
    pub(super) fn saw(&mut self, lease: Lease, now: Instant) {
        let before = self.lease.as_ref().map(|lease| &lease.spec);
        if before != Some(&lease.spec) || self.since.is_none() {
            self.since = Some(now);
        }
        self.lease = Some(lease);
    }

    fn spec(&self) -> Option<&LeaseSpec> {
        self.lease.as_ref()?.spec.as_ref()
    }

    /// Who has it, valid or not.
    pub(super) fn holder(&self) -> Option<&str> {
        let holder = self.spec()?.holder_identity.as_deref();
        holder.filter(|holder| !holder.is_empty())
    }

    /// The other that has to be waited for.
    fn held_by_other(&self, me: &str, now: Instant) -> Option<&str> {
        let holder = self.holder().filter(|holder| *holder != me)?;
        let seconds = self.spec()?.lease_duration_seconds.unwrap_or_default();
        let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        (now < self.since? + duration).then_some(holder)
    }

    /// The lease in the hands of `settings.identity`.
    fn taken(&self, settings: &LeaseSettings, wall: Timestamp) -> Lease {
        let mut lease = self.lease.clone().unwrap_or_default();
        let before = lease.spec.take();
        let renewal = self.holder() == Some(&settings.identity);
        let now = Some(MicroTime(wall));
        let transitions = before.as_ref().and_then(|spec| spec.lease_transitions);
        let spec = LeaseSpec {
            holder_identity: Some(settings.identity.clone()),
            lease_duration_seconds: i32::try_from(settings.duration.as_secs()).ok(),
            acquire_time: match &before {
                Some(spec) if renewal => spec.acquire_time.clone(),
                _ => now.clone(),
            },
            renew_time: now,
            lease_transitions: Some(match (&before, renewal) {
                (None, _) => 0,
                (Some(_), true) => transitions.unwrap_or_default(),
                (Some(_), false) => transitions.unwrap_or_default().saturating_add(1),
            }),
            // Not ours: they belong to coordinated leader election.
            ..before.unwrap_or_default()
        };
        lease.metadata = ObjectMeta {
            name: Some(settings.name.clone()),
            namespace: Some(settings.namespace.clone()),
            ..lease.metadata
        };
        lease.spec = Some(spec);
        lease
    }
}

/// Takes or renews the lease unless another has it. Gives what is known then, which is of use after
/// an error, too.
pub(super) async fn take_or_renew(
    leases: &Api<Lease>,
    settings: &LeaseSettings,
    mut known: Known,
) -> (Known, Result<Outcome, kube::Error>) {
    let outcome = attempt(leases, settings, &mut known).await;
    (known, outcome)
}

async fn attempt(
    leases: &Api<Lease>,
    settings: &LeaseSettings,
    known: &mut Known,
) -> Result<Outcome, kube::Error> {
    let params = PostParams::default();
    // A holder knows its lease: one request. If that is not what the server has, it says so.
    if known.holder() == Some(&settings.identity) {
        let wanted = known.taken(settings, Timestamp::now());
        match leases.replace(&settings.name, &params, &wanted).await {
            Ok(lease) => {
                known.saw(lease, Instant::now());
                return Ok(Outcome::Mine);
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    let Some(lease) = leases.get_opt(&settings.name).await? else {
        *known = Known::default();
        let lease = leases
            .create(&params, &known.taken(settings, Timestamp::now()))
            .await?;
        known.saw(lease, Instant::now());
        return Ok(Outcome::Mine);
    };
    known.saw(lease, Instant::now());
    if let Some(holder) = known.held_by_other(&settings.identity, Instant::now()) {
        return Ok(Outcome::Others(holder.to_owned()));
    }
    let wanted = known.taken(settings, Timestamp::now());
    let lease = leases.replace(&settings.name, &params, &wanted).await?;
    known.saw(lease, Instant::now());
    Ok(Outcome::Mine)
}

/// Gives the lease back, so that others need not wait until it lapses: no holder, one second, as
/// client-go does.
pub(super) async fn release(
    leases: &Api<Lease>,
    settings: &LeaseSettings,
) -> Result<(), kube::Error> {
    let Some(mut lease) = leases.get_opt(&settings.name).await? else {
        return Ok(());
    };
    let Some(spec) = &mut lease.spec else {
        return Ok(());
    };
    if spec.holder_identity.as_ref() != Some(&settings.identity) {
        return Ok(());
    }
    let now = Some(MicroTime(Timestamp::now()));
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time.clone_from(&now);
    spec.renew_time = now;
    let params = PostParams::default();
    leases.replace(&settings.name, &params, &lease).await?;
    Ok(())
}
