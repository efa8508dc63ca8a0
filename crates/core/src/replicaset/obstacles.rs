//! What stands in the way of a rollout, in words.

use jiff::Timestamp;
use muster_api::constants as names;

use super::ReplicaSet;
use super::troubles::one_line;
use crate::rollout::{Rollout, Stopped, Tally, Turn};

/// How the rollout goes.
#[derive(Default)]
pub(super) struct Turns<'a> {
    tally: Tally,
    /// Somebody paused the whole set.
    paused: bool,
    /// The first cluster that is left out since somebody paused it.
    held: Option<&'a str>,
    stopped: Option<Stopped<'a>>,
    /// The first cluster that did not succeed in time.
    timed_out: Option<&'a str>,
    /// The cluster that has been under way longest, and since when.
    longest: Option<(Timestamp, &'a str)>,
    /// The next cluster that has been well for long enough, and when that will be.
    proven: Option<(Timestamp, &'a str)>,
    /// Clusters that were told to begin and could not apply the template.
    refused: u32,
    /// Time alone will change something.
    wakes: bool,
}

/// `1 cluster`, `3 clusters`.
fn clusters<N: std::fmt::Display + PartialEq + From<u8> + Copy>(number: N) -> String {
    let s = if number == N::from(1) { "" } else { "s" };
    format!("{number} cluster{s}")
}

impl Turns<'_> {
    /// Nothing will happen by itself, save that a soak ends.
    const fn rests(&self) -> bool {
        self.tally.started + self.tally.progressing == 0
    }

    /// Every cluster has answered, and nothing changes by itself.
    pub(super) const fn is_over(&self) -> bool {
        let Tally {
            waiting,
            held,
            started,
            progressing,
            ..
        } = self.tally;
        waiting + held + started + progressing == self.refused && !self.wakes && !self.paused
    }

    /// `, timed out in 2, first c1`; empty if no cluster has.
    pub(super) fn timed_out(&self) -> String {
        self.timed_out.map_or_else(String::new, |first| {
            format!(", timed out in {}, first {first}", self.tally.timed_out)
        })
    }

    /// Over, and not well.
    pub(super) const fn failed(&self) -> bool {
        let over = self.rests() && self.tally.waiting == 0;
        self.stopped.is_some() || over && self.tally.timed_out > 0
    }

    /// Why the rollout rests, if it does; `None` where it is only at its end.
    pub(super) fn why_paused(&self) -> Option<String> {
        if self.paused {
            return Some(format!(
                "Rollout is paused by annotation {}",
                names::PAUSED_ANNOTATION
            ));
        }
        if !self.rests() {
            return None;
        }
        if let Some(stopped) = self.why_stopped() {
            return Some(format!("Rollout is stopped: {stopped}"));
        }
        if self.tally.waiting > 0 {
            return Some("Rollout is paused to wait for progressive rules".to_owned());
        }
        let held = self.held.filter(|_| self.tally.held > 0)?;
        Some(format!(
            "Rollout is paused in {}, first {held}",
            clusters(self.tally.held)
        ))
    }

    /// The cluster that others wait for, which has to stay well for a while, and until when.
    fn soak(&self) -> Option<(Timestamp, &str)> {
        let waits = self.tally.waiting > 0 && self.rests() && !self.paused;
        self.proven.filter(|_| waits && self.stopped.is_none())
    }

    fn why_stopped(&self) -> Option<String> {
        let stopped = self.stopped.as_ref()?;
        let group = match stopped.group {
            Some(group) if group.name.is_empty() => format!(" in group {}", group.index),
            Some(group) => format!(" in group {}", group.name),
            None => String::new(),
        };
        Some(format!(
            "{} failed{group}, first {}, and maxFailures allows {}",
            clusters(stopped.failures),
            stopped.first,
            stopped.allowed
        ))
    }

    /// What stands in the way, for the line that people read. Says since when, and not for how
    /// long, so that it stays the same while nothing changes.
    pub(super) fn obstacles(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.paused {
            all.push(format!("paused by annotation {}", names::PAUSED_ANNOTATION));
        }
        if let Some(held) = self.held.filter(|_| self.tally.held > 0) {
            all.push(format!(
                "paused in {}, first {held}",
                clusters(self.tally.held)
            ));
        }
        if let Some(stopped) = self.why_stopped() {
            all.push(format!("stopped: {stopped}"));
        } else if let Some(first) = self.timed_out {
            all.push(format!(
                "timed out in {}, first {first}",
                self.tally.timed_out
            ));
        }
        if let (Some((since, cluster)), true) = (self.longest, self.tally.waiting > 0) {
            let since = second(since);
            let wait = if self.tally.waiting == 1 {
                "waits"
            } else {
                "wait"
            };
            all.push(format!(
                "{} {wait}, {cluster} is under way since {since}",
                clusters(self.tally.waiting)
            ));
        }
        if let Some((until, cluster)) = self.soak() {
            all.push(format!(
                "paused until {}, when {cluster} has been well for minSuccessTime",
                second(until)
            ));
        }
        all
    }
}

/// A time as messages have it: in whole seconds.
pub(super) fn second(time: Timestamp) -> impl std::fmt::Display {
    time.strftime("%Y-%m-%dT%H:%M:%SZ")
}

impl ReplicaSet {
    /// Why no further cluster begins: more failed than may. `None` while they may.
    pub fn why_stopped(&self) -> Option<String> {
        self.turns().why_stopped()
    }

    /// What the deletion of this set waits for: how many works, and the first of them with what its
    /// agent says of it. `None` once all are gone. Costs O(works).
    pub fn deletion_waits_for(&self) -> Option<String> {
        let first = self.work_keys().min_by_key(|key| {
            let says = self.work(key).is_some_and(|work| work.waits_for.is_some());
            // The first that says why; else one whose agent is away, which is why.
            (!says, !self.away.contains_key(&key.cluster), *key)
        })?;
        let mut text = format!(
            "deletion waits for {} ManifestWorks, first {}/{}",
            self.works.len(),
            first.cluster,
            first.name
        );
        let why = self.work(first).and_then(|work| work.waits_for.as_deref());
        if let Some(why) = why {
            text = format!("{text}: {}", one_line(why));
        }
        // The hub may have said so in the work already.
        if let Some(since) = self.away.get(&first.cluster)
            && !text.contains("is away since")
        {
            let (cluster, since) = (&first.cluster, second(*since));
            text = format!("{text}, the agent of {cluster} is away since {since}");
        }
        Some(text)
    }

    /// Costs O(placements + paused clusters).
    pub(super) fn turns(&self) -> Turns<'_> {
        let rollouts = || self.placements.values().filter_map(|p| p.rollout());
        let held = self.pause.clusters.iter().map(String::as_str);
        Turns {
            tally: self.tally(),
            paused: self.pause.all,
            held: held
                .filter(|cluster| self.turn(cluster) == Some(Turn::Held))
                .min(),
            stopped: rollouts().find_map(Rollout::stopped),
            timed_out: rollouts().flat_map(Rollout::timed_out).next(),
            longest: rollouts().filter_map(Rollout::longest_under_way).min(),
            proven: rollouts().filter_map(Rollout::next_proven).min(),
            refused: self.refused(),
            wakes: self.wake_at().is_some(),
        }
    }
}
