//! `muster status --watch`: the fleet as it changes.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::ResourceExt;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use muster_core::explain::{Verdict, agent_verdict};
use muster_core::fleet::{Fleet, Id, SetLine, WorkLine};

use super::board::Board;
use super::{Apis, set_line, work_line};
use crate::cli::error::{CommandError, watch_error, watch_refusal};
use crate::cli::pages::{Notes, PAGE, optional};
use crate::print;

/// How long changes are gathered before they are shown: as long as an eye takes to see one.
const GATHER: Duration = Duration::from_millis(200);

/// What a watch says of a part of the fleet.
enum Seen {
    Set(watcher::Result<Event<(Id, SetLine)>>),
    Work(watcher::Result<Event<(Id, WorkLine)>>),
    Cluster(watcher::Result<Event<(String, Verdict)>>),
}

/// Objects of a kind as a watch tells of them, reduced to lines.
struct Mirror<K, V> {
    live: BTreeMap<K, V>,
    /// The list that is under way.
    incoming: BTreeMap<K, V>,
    /// A list has been complete, or there will be none.
    listed: bool,
}

impl<K, V> Default for Mirror<K, V> {
    fn default() -> Self {
        Self {
            live: BTreeMap::new(),
            incoming: BTreeMap::new(),
            listed: false,
        }
    }
}

impl<K: Ord, V> Mirror<K, V> {
    fn take(&mut self, event: Event<(K, V)>) {
        match event {
            Event::Init => self.incoming.clear(),
            Event::InitApply((key, line)) => {
                self.incoming.insert(key, line);
            }
            Event::InitDone => {
                self.live = std::mem::take(&mut self.incoming);
                self.listed = true;
            }
            Event::Apply((key, line)) => {
                self.live.insert(key, line);
            }
            Event::Delete((key, _)) => {
                self.live.remove(&key);
            }
        }
    }
}

/// Shows the fleet whenever it changes. Ends only with an error.
pub(super) async fn follow(
    apis: &Apis,
    namespace: Option<&str>,
    board: &mut Board,
) -> Result<(), CommandError> {
    let mut events = pin!(events(apis));
    let mut sets = Mirror::default();
    let mut works = Mirror::default();
    let mut clusters = Mirror::default();
    let mut notes = Notes::new();
    let mut trouble = Trouble::default();
    let mut gathered = pin!(tokio::time::sleep(GATHER));
    let mut due = false;
    loop {
        tokio::select! {
            event = events.next() => {
                match event {
                    None => return Err(CommandError::Refused("the watches ended".to_owned())),
                    Some(Seen::Set(Ok(event))) => sets.take(event),
                    Some(Seen::Work(Ok(event))) => works.take(event),
                    Some(Seen::Cluster(Ok(event))) => clusters.take(event),
                    Some(Seen::Set(Err(error))) => {
                        trouble.tell("ManifestWorkReplicaSets", &error)?;
                        continue;
                    }
                    Some(Seen::Work(Err(error))) => {
                        trouble.tell("ManifestWorks", &error)?;
                        continue;
                    }
                    // Clusters need not be there to be read.
                    Some(Seen::Cluster(Err(error))) => {
                        let Some(refusal) = watch_refusal(&error) else {
                            trouble.tell("ManagedClusters", &error)?;
                            continue;
                        };
                        if std::mem::replace(&mut clusters.listed, true) {
                            continue;
                        }
                        optional(Err::<(), _>(refusal), "ManagedClusters", &mut notes)?;
                    }
                }
                if !due && sets.listed && works.listed && clusters.listed {
                    due = true;
                    gathered.as_mut().reset(tokio::time::Instant::now() + GATHER);
                }
            }
            () = &mut gathered, if due => {
                due = false;
                let fleet = Fleet {
                    sets: sets.live.clone(),
                    works: works.live.clone(),
                    clusters: clusters.live.clone(),
                };
                board.show(&fleet.report(namespace), &notes)?;
            }
        }
    }
}

/// What happens to the fleet.
fn events(apis: &Apis) -> impl Stream<Item = Seen> + use<> {
    let config = || watcher::Config::default().page_size(PAGE);
    let sets = watch(apis.sets.clone(), config()).default_backoff();
    let works = watch(apis.works.clone(), config()).default_backoff();
    let clusters = watch(apis.clusters.clone(), config()).default_backoff();
    let sets = sets.map(|event| Seen::Set(event.map(|event| map(event, |set| set_line(&set)))));
    let works =
        works.map(|event| Seen::Work(event.map(|event| map(event, |work| work_line(&work)))));
    let clusters = clusters.map(|event| {
        let line = |cluster: muster_api::cluster::ManagedCluster| {
            (cluster.name_any(), agent_verdict(&cluster))
        };
        Seen::Cluster(event.map(|event| map(event, line)))
    });
    stream::select_all([sets.boxed(), works.boxed(), clusters.boxed()])
}

fn map<K, L>(event: Event<K>, line: impl FnOnce(K) -> L) -> Event<L> {
    match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(object) => Event::InitApply(line(object)),
        Event::Apply(object) => Event::Apply(line(object)),
        Event::Delete(object) => Event::Delete(line(object)),
    }
}

/// What is wrong with watches, each told once.
#[derive(Default)]
struct Trouble(BTreeMap<&'static str, String>);

impl Trouble {
    fn tell(&mut self, what: &'static str, error: &watcher::Error) -> Result<(), CommandError> {
        if let Some(source) = watch_refusal(error) {
            return Err(CommandError::Api {
                what: format!("watch {what}"),
                source,
            });
        }
        let now = watch_error(error);
        if self.0.get(what) != Some(&now) {
            print::note(format_args!("failed to watch {what}, retrying: {now}"));
            self.0.insert(what, now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_is_what_the_last_list_had_and_what_changed_since() {
        let mut mirror = Mirror::default();
        let keys = |mirror: &Mirror<u8, u8>| mirror.live.keys().copied().collect::<Vec<_>>();
        for event in [
            Event::Init,
            Event::InitApply((1, 0)),
            Event::InitApply((2, 0)),
        ] {
            mirror.take(event);
        }
        assert_eq!((keys(&mirror), mirror.listed), (vec![], false));
        mirror.take(Event::InitDone);
        assert_eq!((keys(&mirror), mirror.listed), (vec![1, 2], true));
        mirror.take(Event::Apply((3, 0)));
        mirror.take(Event::Delete((1, 0)));
        assert_eq!(keys(&mirror), [2, 3]);
        // What went while nobody watched is gone with the next list, and not before.
        mirror.take(Event::Init);
        mirror.take(Event::InitApply((3, 1)));
        assert_eq!(keys(&mirror), [2, 3]);
        mirror.take(Event::InitDone);
        assert_eq!(keys(&mirror), [3]);
    }
}
