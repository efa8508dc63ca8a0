//! Where each cluster stands, for people who look at a set.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;

use super::{ReplicaSet, Value, WorkFacts, WorkKey};
use crate::rollout::{Truth, Turn, cluster_state};

/// How a cluster stands in a rollout, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stand {
    /// It did not succeed in time.
    TimedOut,
    /// It failed, and has time left to succeed.
    Failed,
    /// Its agent could not apply the template.
    NotApplied,
    /// Its agent is away, so what it said last may not hold any more.
    Away,
    /// It is applied, and not available yet.
    Progressing,
    /// It was told to begin, and has not answered yet.
    Started,
    /// It succeeded, and has to stay so for a while.
    Soaking,
    /// Somebody paused it before its turn.
    Held,
    /// It has not had its turn, or the placement cannot roll out.
    Waiting,
    /// There.
    Succeeded,
}

/// One cluster of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterStanding<'a> {
    /// Its name.
    pub cluster: &'a str,
    /// How it stands.
    pub stand: Stand,
    /// Since when it stands so, where that is known.
    pub since: Option<Timestamp>,
    /// Its work: the first by name, if there is one.
    pub work: Option<&'a WorkFacts>,
}

impl<'a> ClusterStanding<'a> {
    /// The values that its work reports, as `resource/name`, name of the value, and value.
    pub fn values(&self) -> impl Iterator<Item = (String, &'a str, &'a Value)> {
        let resources = self
            .work
            .into_iter()
            .flat_map(|work| work.report.resources());
        resources.flat_map(|(resource, values)| {
            let object = format!("{}/{}", resource.resource, resource.name);
            values.map(move |(name, value)| (object.clone(), name, value))
        })
    }
}

impl ReplicaSet {
    /// Every selected cluster, the worst first, and by name within that. Costs O(clusters log clusters).
    pub fn standings(&self) -> Vec<ClusterStanding<'_>> {
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        let references = self
            .template
            .iter()
            .flat_map(|template| &template.placements);
        for reference in references {
            let Some((placement, facts)) = self
                .placements
                .get(&reference.name)
                .and_then(|placement| Some((placement, placement.facts.as_ref()?)))
            else {
                continue;
            };
            for cluster in facts
                .clusters
                .iter()
                .filter(|cluster| seen.insert(&***cluster))
            {
                let turn = placement
                    .rollout()
                    .and_then(|rollout| rollout.turn(cluster));
                let names = placement.works.get(&**cluster).into_iter().flatten();
                let work = names.filter_map(|name| {
                    let key = WorkKey {
                        cluster: cluster.to_string(),
                        name: name.clone(),
                    };
                    self.work(&key).filter(|work| !work.deleting)
                });
                all.push(self.standing(cluster, turn, work.into_iter().next()));
            }
        }
        all.sort_by_key(|standing| (standing.stand, standing.cluster));
        all
    }

    fn standing<'a>(
        &'a self,
        cluster: &'a str,
        turn: Option<Turn>,
        work: Option<&'a WorkFacts>,
    ) -> ClusterStanding<'a> {
        let of_now = |work: &&WorkFacts| self.template_hash() == Some(work.spec_hash);
        let current = work.filter(of_now);
        let refused = current.and_then(|work| {
            let applied = work.conditions.applied?;
            let seen = applied.observed_generation;
            let says = seen.is_none_or(|seen| seen == work.generation);
            (says && applied.status == Truth::False).then_some(applied.transition)
        });
        let since = current.and_then(|work| cluster_state(work.generation, &work.conditions).1);
        let (stand, since) = match turn {
            Some(Turn::TimedOut) => (Stand::TimedOut, self.timed_out_at(cluster)),
            Some(Turn::Failed) => (Stand::Failed, since),
            _ if refused.is_some() => (Stand::NotApplied, refused),
            // One that nothing was sent to is no worse off for being away.
            Some(Turn::Waiting) | None => (Stand::Waiting, None),
            Some(Turn::Held) => (Stand::Held, None),
            _ if self.away.contains_key(cluster) => (Stand::Away, self.away.get(cluster).copied()),
            Some(Turn::Started) => (Stand::Started, current.and_then(|work| work.started)),
            Some(Turn::Progressing) => (Stand::Progressing, since),
            Some(Turn::Soaking) => (Stand::Soaking, since),
            Some(Turn::Succeeded) => (Stand::Succeeded, since),
        };
        ClusterStanding {
            cluster,
            stand,
            since,
            work,
        }
    }
}
