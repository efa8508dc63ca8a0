//! What executors may do on the cluster: asks its API server, and remembers the answers for as
//! long as nothing about rights changes.
//!
//! Answers are kept only while [`AccessWatch`](super::AccessWatch) sees all RBAC objects of the
//! cluster, and any change there forgets all of them: which rights a changed role gives to whom
//! is the API server's affair.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use muster_core::executor::{Denial, Executor, RETRY_SECONDS, Verb, could_escalate};
use muster_core::ownership::ObjectId;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::calls::ApiError;
use super::metrics::{self, Review};
use super::spoke::{Spoke, Target};

/// How long a permission is believed. The watch sees what RBAC gives and takes; other
/// authorizers of the API server (webhooks) can change their mind unseen.
const ALLOWED_FOR: Duration = Duration::from_secs(300);

/// How long a refusal is believed: until the manifest is tried again.
const DENIED_FOR: Duration = Duration::from_secs(RETRY_SECONDS - 5);

/// From this many answers on, the outdated are looked for and dropped. Ten thousand objects under
/// executors have 50,000; each takes about 150 bytes.
const SWEEP_FROM: usize = 1_000;

/// The answers of one cluster.
#[derive(Debug, Default)]
pub(super) struct Access(Mutex<Answers>);

#[derive(Debug, Default)]
struct Answers {
    /// Moves with every change of rights; an answer to a question asked before is not kept.
    epoch: u64,
    /// Whether changes of rights are seen.
    watched: bool,
    known: HashMap<Box<str>, Answer>,
    sweep_from: usize,
}

#[derive(Debug, Clone)]
struct Answer {
    allowed: Result<(), Denial>,
    until: Instant,
}

impl Access {
    /// Says whether changes of rights are seen from now on.
    pub(super) fn watched(&self, watched: bool) {
        let mut answers = self.lock();
        answers.watched = watched;
        answers.forget();
    }

    /// Rights have changed: nothing is known any more.
    pub(super) fn changed(&self) {
        self.lock().forget();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The remembered answer, or the epoch to give with a new one.
    fn find(&self, question: &str) -> Result<Result<(), Denial>, u64> {
        let answers = self.lock();
        match answers.known.get(question) {
            Some(answer) if answer.until > Instant::now() => Ok(answer.allowed.clone()),
            _ => Err(answers.epoch),
        }
    }

    fn keep(&self, epoch: u64, question: String, allowed: &Result<(), Denial>) {
        let mut answers = self.lock();
        if !answers.watched || answers.epoch != epoch {
            return;
        }
        let now = Instant::now();
        if answers.known.len() >= answers.sweep_from.max(SWEEP_FROM) {
            answers.known.retain(|_, answer| answer.until > now);
            // Twice what is in use, so that a full table is not swept at every question.
            answers.sweep_from = answers.known.len() * 2;
        }
        let lasts = if allowed.is_ok() {
            ALLOWED_FOR
        } else {
            DENIED_FOR
        };
        let answer = Answer {
            allowed: allowed.clone(),
            until: now + lasts,
        };
        answers.known.insert(question.into(), answer);
    }
}

impl Answers {
    fn forget(&mut self) {
        self.epoch += 1;
        self.known.clear();
    }
}

/// Questions about one executor and one object.
pub(super) struct Questions<'a> {
    pub(super) spoke: &'a Spoke,
    pub(super) access: &'a Access,
    pub(super) executor: &'a Executor,
    pub(super) target: Target<'a>,
}

impl Questions<'_> {
    fn object(&self) -> ObjectId<'_> {
        ObjectId {
            group: self.target.group,
            resource: self.target.resource,
            namespace: self.target.namespace,
            name: self.target.name,
        }
    }

    fn question(&self, what: &str) -> String {
        let Target {
            group,
            version,
            resource,
            namespace,
            name,
        } = self.target;
        let user = self.executor.user();
        format!("{user} {what} {group}/{version}/{resource}/{namespace}/{name}")
    }

    /// Whether the executor may do all of this; the first refusal ends it.
    pub(super) async fn may(&self, verbs: &[Verb]) -> Result<Result<(), Denial>, ApiError> {
        for verb in verbs {
            let question = self.question(verb.as_str());
            let allowed = match self.access.find(&question) {
                Ok(allowed) => allowed,
                Err(epoch) => {
                    let review = self
                        .executor
                        .review(*verb, self.object(), self.target.version);
                    let review: SubjectAccessReview = self.spoke.review(&review).await?;
                    let allowed = match review.status {
                        Some(status) if status.allowed => Ok(()),
                        _ => Err(Denial::Verb(*verb)),
                    };
                    metrics::reviewed(Review::Access, allowed.is_ok());
                    self.access.keep(epoch, question, &allowed);
                    allowed
                }
            };
            if allowed.is_err() {
                return Ok(allowed);
            }
        }
        Ok(Ok(()))
    }

    /// Whether the executor could write this object itself, if it is of a kind that gives rights.
    ///
    /// The API server lets nobody give away rights that he does not have. A dry run in the
    /// executor's name finds out; that the object exists already is found out after that.
    pub(super) async fn may_grant(&self, manifest: &Value) -> Result<Result<(), Denial>, ApiError> {
        if !could_escalate(self.object()) {
            return Ok(Ok(()));
        }
        let role = rights_of(manifest, self.target);
        let mut hasher = DefaultHasher::new();
        role.to_string().hash(&mut hasher);
        let question = self.question(&format!("grant {:x}", hasher.finish()));
        let epoch = match self.access.find(&question) {
            Ok(allowed) => return Ok(allowed),
            Err(epoch) => epoch,
        };
        let account = self.executor.user();
        let tried = self.spoke.try_create_as(self.target, &role, &account);
        let tried = tried.await;
        let allowed = match tried {
            Ok(()) => Ok(()),
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) if error.is_forbidden() => Err(Denial::Escalation(error.to_string())),
            // A malformed role fails for everybody; the write itself tells why.
            Err(error) if error.is_invalid() => return Ok(Ok(())),
            Err(error) => return Err(error),
        };
        metrics::reviewed(Review::Grant, allowed.is_ok());
        self.access.keep(epoch, question, &allowed);
        Ok(allowed)
    }
}

/// The part of a role or binding that gives rights, as an object of its own.
fn rights_of(manifest: &Value, target: Target<'_>) -> Value {
    let mut role: Map<String, Value> = manifest.as_object().cloned().unwrap_or_default();
    let mut metadata = json!({"name": target.name});
    if !target.namespace.is_empty() {
        metadata["namespace"] = target.namespace.into();
    }
    role.insert("metadata".to_owned(), metadata);
    role.remove("status");
    Value::Object(role)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied() -> Result<(), Denial> {
        Err(Denial::Verb(Verb::Get))
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_remembered_while_nobody_watches() {
        let access = Access::default();
        access.keep(0, "q".to_owned(), &Ok(()));
        assert_eq!(access.find("q"), Err(0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_lasts_until_rights_change_or_it_is_too_old() {
        let access = Access::default();
        access.watched(true);
        let epoch = access.find("q").unwrap_err();
        access.keep(epoch, "q".to_owned(), &Ok(()));
        access.keep(epoch, "r".to_owned(), &denied());
        assert_eq!(access.find("q"), Ok(Ok(())));
        assert_eq!(access.find("r"), Ok(denied()));
        tokio::time::advance(Duration::from_secs(56)).await;
        assert_eq!(access.find("q"), Ok(Ok(())));
        assert!(
            access.find("r").is_err(),
            "refusals are asked again soonest"
        );
        access.changed();
        assert_eq!(access.find("q"), Err(epoch + 1));
        access.keep(epoch + 1, "q".to_owned(), &Ok(()));
        tokio::time::advance(ALLOWED_FOR).await;
        assert!(access.find("q").is_err());
    }

    /// The answer may be from before the change.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_on_its_way_when_rights_changed_is_not_kept() {
        let access = Access::default();
        access.watched(true);
        let epoch = access.find("q").unwrap_err();
        access.changed();
        access.keep(epoch, "q".to_owned(), &Ok(()));
        assert!(access.find("q").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn answers_nobody_asks_for_any_more_are_dropped() {
        let access = Access::default();
        access.watched(true);
        let epoch = access.find("q").unwrap_err();
        for n in 0..SWEEP_FROM {
            access.keep(epoch, n.to_string(), &Ok(()));
        }
        tokio::time::advance(ALLOWED_FOR).await;
        access.keep(epoch, "q".to_owned(), &Ok(()));
        assert_eq!(access.lock().known.len(), 1);
    }

    /// C094: entries come and go from many threads at once, and none is lost.
    #[test]
    fn many_threads_share_the_answers() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _context = runtime.enter();
        let access = Access::default();
        access.watched(true);
        let epoch = access.find("q").unwrap_err();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (access, runtime) = (&access, &runtime);
                scope.spawn(move || {
                    let _context = runtime.enter();
                    for n in 0..1_250 {
                        let question = format!("{thread}/{n}");
                        access.keep(epoch, question.clone(), &Ok(()));
                        assert_eq!(access.find(&question), Ok(Ok(())));
                    }
                });
            }
        });
        assert_eq!(access.lock().known.len(), 10_000);
        access.changed();
        assert_eq!(access.lock().known.len(), 0);
    }
}
