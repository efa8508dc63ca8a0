//! Whose turn it is, over all placements of a set.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::facts::{Pause, WorkFacts};
use super::{Replan, ReplicaSet, WorkKey};
use crate::rollout::{Groups, Report, Rollout, Tally, Turn, cluster_state, is_refused};

impl ReplicaSet {
    /// What is not to be written for now.
    pub fn set_pause(&mut self, pause: Pause) {
        let before = std::mem::replace(&mut self.pause, pause);
        let changed: Vec<String> = before
            .clusters
            .symmetric_difference(&self.pause.clusters)
            .cloned()
            .collect();
        for cluster in changed {
            let held = self.pause.clusters.contains(&cluster);
            for (name, placement) in &mut self.placements {
                if placement.selects(&cluster) || placement.works.contains_key(&cluster) {
                    self.dirty.insert((name.clone(), cluster.clone()));
                }
                if let Some(rollout) = placement.rollout_mut() {
                    rollout.hold(&cluster, held);
                }
            }
        }
    }

    /// Lets time pass: soaks and deadlines end.
    pub fn tick(&mut self, now: Timestamp) {
        self.now = now;
        for rollout in self.placements.values_mut().filter_map(|p| p.rollout_mut()) {
            rollout.tick(now);
        }
    }

    /// When [`ReplicaSet::tick`] will change something, if nothing else happens.
    pub fn wake_at(&self) -> Option<Timestamp> {
        let rollouts = self.placements.values().filter_map(|p| p.rollout());
        rollouts.filter_map(Rollout::wake_at).min()
    }

    /// Where a cluster stands in the rollout of the current template; `None` for a cluster that is
    /// not selected, or whose placement cannot roll out.
    pub fn turn(&self, cluster: &str) -> Option<Turn> {
        self.lead(cluster)?.rollout()?.turn(cluster)
    }

    /// When the deadline of a cluster was over that did not succeed in time.
    pub fn timed_out_at(&self, cluster: &str) -> Option<Timestamp> {
        self.lead(cluster)?.rollout()?.timed_out_at(cluster)
    }

    /// Numbers of clusters by where they stand.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for rollout in self.placements.values().filter_map(|p| p.rollout()) {
            tally.add(&rollout.tally());
        }
        tally
    }

    /// How many clusters were told to begin and could not apply the template.
    pub(super) fn refused(&self) -> u32 {
        let rollouts = self.placements.values().filter_map(|p| p.rollout());
        rollouts.map(Rollout::refused).sum()
    }

    /// The placement that decides about a cluster: the first that selects it.
    fn lead(&self, cluster: &str) -> Option<&super::Placement> {
        let names = self
            .template
            .iter()
            .flat_map(|template| &template.placements);
        names
            .filter_map(|reference| self.placements.get(&reference.name))
            .find(|placement| placement.selects(cluster))
    }

    pub(super) fn held(&self, cluster: &str) -> bool {
        self.pause.clusters.contains(cluster)
    }

    /// Lets clusters begin whose turn it is.
    pub(super) fn advance(&mut self) {
        if self.pause.all {
            return;
        }
        let mut begun = Vec::new();
        for rollout in self.placements.values_mut().filter_map(|p| p.rollout_mut()) {
            begun.extend(std::iter::from_fn(|| rollout.next(self.now)));
        }
        for cluster in begun {
            for (name, placement) in &self.placements {
                if placement.selects(&cluster) {
                    self.dirty.insert((name.clone(), cluster.to_string()));
                }
            }
        }
    }

    /// Builds the rollouts anew, if something asks for that.
    pub(super) fn plan(&mut self) {
        let (Some(current), Some(replan)) = (&self.template, self.replan) else {
            return;
        };
        self.replan = None;
        let mut taken: BTreeSet<Arc<str>> = BTreeSet::new();
        for reference in &current.placements {
            let Some(placement) = self.placements.get_mut(&reference.name) else {
                continue;
            };
            let before = placement.rollout.take();
            let Some(facts) = &placement.facts else {
                continue;
            };
            let planned = match &reference.strategy {
                Err(error) => Err(format!("rolloutStrategy.{error}")),
                Ok(strategy) => facts.groups_for(strategy).map(|mut groups: Groups| {
                    for clusters in groups.values_mut() {
                        clusters.retain(|cluster| !taken.contains(cluster));
                    }
                    groups.retain(|_, clusters| !clusters.is_empty());
                    Rollout::new(strategy, &groups)
                }),
            };
            taken.extend(facts.clusters.iter().cloned());
            placement.rollout = Some(planned);
            let Some(rollout) = placement.rollout.as_mut().and_then(|r| r.as_mut().ok()) else {
                continue;
            };
            for cluster in &self.pause.clusters {
                rollout.hold(cluster, true);
            }
            if let (Some(Ok(before)), Replan::Clusters) = (&before, replan) {
                rollout.succeed(before);
            }
            for (cluster, names) in &placement.works {
                let first = names.iter().find_map(|name| {
                    let key = WorkKey {
                        cluster: cluster.clone(),
                        name: name.clone(),
                    };
                    let work = self.works.get(&key)?;
                    (!work.facts.deleting).then_some(&work.facts)
                });
                let says = first
                    .filter(|work| work.spec_hash == current.spec_hash)
                    .map(|work| says(work, self.now));
                tell(rollout, cluster, says, self.now);
            }
        }
    }
}

/// What a work with the current template says of its cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Says {
    report: Report,
    refused: bool,
}

pub(super) fn says(work: &WorkFacts, now: Timestamp) -> Says {
    let (state, since) = cluster_state(work.generation, &work.conditions);
    Says {
        report: Report {
            state,
            // A clock that goes fast must not hold the others up.
            since: since.map(|since| since.min(now)),
            started: work.started,
        },
        refused: is_refused(work.generation, &work.conditions),
    }
}

/// Tells a rollout what the work of a cluster says; `None` while none has the current template.
pub(super) fn tell(rollout: &mut Rollout, cluster: &str, says: Option<Says>, now: Timestamp) {
    rollout.report(cluster, says.map(|says| says.report), now);
    rollout.refuse(cluster, says.is_some_and(|says| says.refused));
}
