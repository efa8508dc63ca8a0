//! How many topics each principal has on which the broker keeps a message.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mqtt5::broker::router::MessageRouter;
use muster_cloudevents::access::Principal;
use tokio::time::Instant;

/// How long a message may be on its way to where it is kept.
const ON_ITS_WAY: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(crate) struct Retained {
    /// Of one principal that is not an operator.
    share: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    of: HashMap<String, (Principal, Instant)>,
    counts: HashMap<Principal, usize>,
}

impl Kept {
    fn remove(&mut self, topic: &str) {
        let Some((by, _)) = self.of.remove(topic) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&by) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&by);
            }
        }
    }

    fn insert(&mut self, topic: &str, by: &Principal) {
        self.remove(topic);
        *self.counts.entry(by.clone()).or_default() += 1;
        self.of
            .insert(topic.to_owned(), (by.clone(), Instant::now()));
    }
}

impl Retained {
    pub(crate) fn new(share: usize) -> Self {
        Self {
            share,
            kept: Mutex::default(),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A principal has a message kept, or replaced. Whether its share allows that.
    pub(crate) fn keep(&self, topic: &str, by: &Principal) -> bool {
        if *by == Principal::Everything {
            return true;
        }
        let mut kept = self.kept();
        let has = kept.of.get(topic).is_some_and(|(owner, _)| owner == by);
        let count = kept.counts.get(by).copied().unwrap_or_default();
        let allowed = has || count < self.share;
        if allowed {
            kept.insert(topic, by);
        }
        allowed
    }

    /// A principal's will is kept, which nobody can refuse any more: there are no more than sessions.
    pub(crate) fn keep_will(&self, topic: &str, by: &Principal) {
        self.kept().insert(topic, by);
    }

    /// Nothing is kept on this topic any more.
    pub(crate) fn forget(&self, topic: &str) {
        self.kept().remove(topic);
    }

    /// Forgets what has expired.
    pub(crate) async fn prune(&self, router: &MessageRouter) {
        let old: Vec<String> = {
            let kept = self.kept();
            let old = kept.of.iter();
            old.filter(|(_, (_, since))| since.elapsed() > ON_ITS_WAY)
                .map(|(topic, _)| topic.clone())
                .collect()
        };
        for topic in old {
            if !router.has_retained_message(&topic).await {
                self.forget(&topic);
            }
        }
    }

    /// The most that one principal has.
    pub(crate) fn most(&self) -> usize {
        self.kept()
            .counts
            .values()
            .copied()
            .max()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> Principal {
        Principal::Agent(name.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_is_of_topics_not_of_messages() {
        let retained = Retained::new(2);
        for topic in ["a", "b", "a", "b"] {
            assert!(retained.keep(topic, &agent("c1")), "{topic}");
        }
        assert!(!retained.keep("c", &agent("c1")));
        assert!(retained.keep("c", &agent("c2")));
        retained.forget("a");
        assert!(retained.keep("d", &agent("c1")));
        retained.keep_will("e", &agent("c1"));
        assert_eq!(retained.most(), 3);
        for topic in 0..10 {
            assert!(retained.keep(&topic.to_string(), &Principal::Everything));
        }
        // What has not come is on its way, or has expired.
        let router = MessageRouter::new();
        retained.prune(&router).await;
        assert_eq!(retained.most(), 3);
        tokio::time::advance(ON_ITS_WAY * 2).await;
        retained.prune(&router).await;
        assert_eq!(retained.most(), 0);
        assert!(retained.keep("f", &agent("c1")));
    }
}
