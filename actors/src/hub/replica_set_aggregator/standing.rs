//! The set in the metric that counts sets.

use muster_core::replicaset::{Standing, StatusDraft, SummaryDraft};
use tokio::time::Instant;

use super::super::metrics;
use super::ReplicaSetAggregator;

/// How the set is counted. One that goes, or whose actor begins anew, is not counted any more.
#[derive(Debug)]
pub(super) struct Counted {
    standing: Option<Standing>,
    summary: SummaryDraft,
    /// When the summary last changed.
    since: Instant,
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            standing: None,
            summary: SummaryDraft::default(),
            since: Instant::now(),
        }
    }
}

impl Counted {
    fn change(&mut self, standing: Option<Standing>) {
        if self.standing == standing {
            return;
        }
        if let Some(before) = self.standing {
            metrics::set_is_no_more(before);
        }
        if let Some(now) = standing {
            metrics::set_is(now);
        }
        self.standing = standing;
    }

    pub(super) fn follow(&mut self, status: &StatusDraft) {
        if self.summary != status.summary {
            self.summary = status.summary;
            self.since = Instant::now();
        }
        let standing = Standing::of(status, self.since.elapsed());
        self.change(Some(standing));
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.change(None);
    }
}

impl ReplicaSetAggregator {
    /// That nothing happens is no event, so it is looked for now and then.
    pub(super) fn look_at_standing(&mut self) {
        if self.complete() {
            let status = self.draft();
            self.counted.follow(&status);
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;
    use muster_api::replicaset::ReplicaSetPhase;
    use muster_core::replicaset::{ReplicaSet, STALLED_AFTER};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_set_is_counted_where_it_stands_until_it_goes() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let _recording = ::metrics::set_default_local_recorder(&recorder);
        let counts = |phase: &str, number: u32| {
            let text = recorder.handle().render();
            let line = format!("muster_mwrs_sets{{phase=\"{phase}\"}} {number}\n");
            assert!(text.contains(&line), "no {line}in {text}");
        };
        let mut status = ReplicaSet::new("ns", "a").status();
        let (mut one, mut other) = (Counted::default(), Counted::default());
        one.follow(&status);
        other.follow(&status);
        counts("Empty", 2);
        status.phase = Some(ReplicaSetPhase::Progressing);
        one.follow(&status);
        one.follow(&status);
        counts("Empty", 1);
        counts("Progressing", 1);

        tokio::time::advance(STALLED_AFTER).await;
        one.follow(&status);
        counts("Progressing", 0);
        counts("Stalled", 1);
        status.summary.updated += 1;
        one.follow(&status);
        counts("Progressing", 1);
        drop(one);
        counts("Progressing", 0);
        counts("Stalled", 0);
        counts("Empty", 1);
    }
}
