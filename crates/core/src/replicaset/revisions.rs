//! Revisions of a replica set: the templates that its works were given, one ControllerRevision
//! each, numbered as Kubernetes numbers those of Deployments.
//!
//! | The set's template | What becomes of its revision |
//! |---|---|
//! | is new | it gets one, with the next number |
//! | is one it had before | the revision of then gets the next number; there are never two of one template |
//! | is the newest | nothing, save that a changed cause is copied |
//! | while the set is paused | nothing: no work has this template yet |
//!
//! Beside the newest one as many old ones are kept as the set asks for, those with the highest
//! numbers.

use k8s_openapi::api::apps::v1::ControllerRevision;
use muster_api::constants as names;
use serde_json::Value;

use crate::apply::canonical_spec_hash;

/// Old revisions that are kept where the set does not say how many; as with Deployments.
pub const DEFAULT_HISTORY_LIMIT: usize = 10;

/// A template that works of a set were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Name of the ControllerRevision.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// Its number: the higher, the later works were given the template.
    pub number: i64,
    /// Hash of the template; `None` where the data is none.
    pub template: Option<[u8; 32]>,
    /// Why the template was changed, as far as somebody said.
    pub cause: Option<String>,
}

impl Revision {
    /// What a ControllerRevision says.
    pub fn read(object: &ControllerRevision) -> Self {
        let meta = &object.metadata;
        let annotations = meta.annotations.as_ref();
        let template = revised_template(object);
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            number: object.revision.unwrap_or_default(),
            template: template.and_then(|template| canonical_spec_hash(template).ok()),
            cause: annotations
                .and_then(|all| all.get(names::CHANGE_CAUSE_ANNOTATION))
                .cloned(),
        }
    }

    fn is_of(&self, wanted: &Wanted<'_>) -> bool {
        // The name says the same as the hash, and goes on to do so where another version of this
        // program reads a template in another way.
        self.name == wanted.name || self.template == Some(wanted.template)
    }
}

/// The template in the data of a ControllerRevision.
pub fn revised_template(object: &ControllerRevision) -> Option<&Value> {
    object.data.0.pointer("/spec/manifestWorkTemplate")
}

/// Whether the object of this uid controls a ControllerRevision.
pub fn is_controlled_by(object: &ControllerRevision, uid: &str) -> bool {
    let owners = object.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.any(|owner| owner.uid == uid)
}

/// An annotation [`names::REVISION_HISTORY_LIMIT_ANNOTATION`] that is no number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "annotation {} is {found:?} and not a number of revisions: {DEFAULT_HISTORY_LIMIT} are kept",
    names::REVISION_HISTORY_LIMIT_ANNOTATION
)]
pub struct HistoryLimitError {
    found: String,
}

/// How many old revisions are kept, by the annotation of the set.
///
/// # Errors
///
/// A text that is no number; [`DEFAULT_HISTORY_LIMIT`] is then meant.
pub fn history_limit(annotation: Option<&str>) -> Result<usize, HistoryLimitError> {
    let Some(text) = annotation else {
        return Ok(DEFAULT_HISTORY_LIMIT);
    };
    let number = text.trim().parse::<u32>().ok();
    let number = number.and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| HistoryLimitError {
        found: text.to_owned(),
    })
}

/// What the revisions of a set are to be.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Name of the current template's revision.
    pub name: &'a str,
    /// Hash of the current template.
    pub template: [u8; 32],
    /// Why it was changed, if the set says so; if not, a revision keeps what it says.
    pub cause: Option<&'a str>,
    /// Works are not given the template for now.
    pub paused: bool,
    /// Old revisions that are kept.
    pub limit: usize,
}

/// A write of a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RevisionWrite {
    /// Make one of the current template.
    Create {
        /// Its name.
        name: String,
        /// Its number.
        number: i64,
    },
    /// Give one that exists its number, and the cause if there is one.
    Update {
        /// Its name.
        name: String,
        /// Its resource version, that it must still have.
        version: String,
        /// Its number.
        number: i64,
    },
    /// Delete one.
    Delete {
        /// Its name.
        name: String,
        /// Its uid, that it must still have.
        uid: String,
    },
}

/// The writes after which the revisions are as wanted, in the order in which they are to be made:
/// none is deleted before the current template has its own.
pub fn plan_revisions(known: &[Revision], wanted: &Wanted<'_>) -> Vec<RevisionWrite> {
    let mut writes = Vec::new();
    let by_age = |revision: &&Revision| (revision.number, revision.name.clone());
    let current = known
        .iter()
        .filter(|revision| revision.is_of(wanted))
        .max_by_key(by_age);
    let is_current = |revision: &Revision| current.is_some_and(|c| c.name == revision.name);
    let (twins, mut old): (Vec<&Revision>, Vec<&Revision>) = known
        .iter()
        .filter(|revision| !is_current(revision))
        .partition(|revision| revision.is_of(wanted));
    old.sort_by_key(by_age);
    let newest = twins.iter().chain(&old).map(|revision| revision.number);
    let newest = newest.max().unwrap_or(0);
    let mut kept = wanted.limit;
    match current {
        // The works still have what the newest one says.
        None if wanted.paused => kept = kept.saturating_add(1),
        None => writes.push(RevisionWrite::Create {
            name: wanted.name.to_owned(),
            number: newest.saturating_add(1),
        }),
        Some(_) if wanted.paused => {}
        Some(current) => {
            let number = if current.number > newest {
                current.number
            } else {
                newest.saturating_add(1)
            };
            let recaused = wanted
                .cause
                .is_some_and(|cause| current.cause.as_deref() != Some(cause));
            if number != current.number || recaused {
                writes.push(RevisionWrite::Update {
                    name: current.name.clone(),
                    version: current.version.clone(),
                    number,
                });
            }
        }
    }
    let too_many = old.len().saturating_sub(kept);
    let deleted = twins.iter().chain(&old[..too_many]);
    writes.extend(deleted.map(|revision| RevisionWrite::Delete {
        name: revision.name.clone(),
        uid: revision.uid.clone(),
    }));
    writes
}

/// What going back comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo<'a> {
    /// The set is to get the template of this revision.
    To(&'a Revision),
    /// The set has the template of this revision already.
    Already(&'a Revision),
}

/// Why a set cannot go back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UndoError {
    /// There is none.
    #[error("there are no revisions")]
    NoRevisions,
    /// There is none but that of the template which the set has.
    #[error("there is only one revision, {0}, and it is the current one")]
    OnlyOne(i64),
    /// There is none of that number.
    #[error("revision {wanted} not found (there are {})", join(.existing))]
    NotFound {
        /// The number asked for.
        wanted: i64,
        /// Numbers of those that there are.
        existing: Vec<i64>,
    },
}

fn join(numbers: &[i64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(", ")
}

/// Where a set with the template of this hash goes back to: revision `to`, or else the newest one
/// of another template.
///
/// # Errors
///
/// There is no such revision.
pub fn undo<'a>(
    known: &'a [Revision],
    template: &[u8; 32],
    to: Option<i64>,
) -> Result<Undo<'a>, UndoError> {
    let readable = || known.iter().filter(|revision| revision.template.is_some());
    let has = |revision: &Revision| revision.template.as_ref() == Some(template);
    if let Some(wanted) = to {
        let mut existing: Vec<i64> = readable().map(|revision| revision.number).collect();
        existing.sort_unstable();
        let found = readable().find(|revision| revision.number == wanted);
        return match found {
            Some(revision) if has(revision) => Ok(Undo::Already(revision)),
            Some(revision) => Ok(Undo::To(revision)),
            None if existing.is_empty() => Err(UndoError::NoRevisions),
            None => Err(UndoError::NotFound { wanted, existing }),
        };
    }
    let before = readable().filter(|revision| !has(revision));
    if let Some(revision) = before.max_by_key(|revision| revision.number) {
        return Ok(Undo::To(revision));
    }
    Err(readable().next().map_or(UndoError::NoRevisions, |only| {
        UndoError::OnlyOne(only.number)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
    use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
    use proptest::prelude::*;
    use serde_json::json;

    fn name(template: u8) -> String {
        format!("web-{template}")
    }

    fn revision(template: u8, number: i64) -> Revision {
        Revision {
            name: name(template),
            uid: format!("uid-{template}"),
            version: number.to_string(),
            number,
            template: Some([template; 32]),
            cause: None,
        }
    }

    /// What a set with this template, ten old revisions and no cause wants.
    fn plan(known: &[Revision], template: u8) -> Vec<RevisionWrite> {
        plan_with(known, template, |_| ())
    }

    fn plan_with(
        known: &[Revision],
        template: u8,
        change: impl FnOnce(&mut Wanted<'_>),
    ) -> Vec<RevisionWrite> {
        let name = name(template);
        let mut wanted = Wanted {
            name: &name,
            template: [template; 32],
            cause: None,
            paused: false,
            limit: DEFAULT_HISTORY_LIMIT,
        };
        change(&mut wanted);
        plan_revisions(known, &wanted)
    }

    fn create(template: u8, number: i64) -> RevisionWrite {
        let name = name(template);
        RevisionWrite::Create { name, number }
    }

    fn update(before: &Revision, number: i64) -> RevisionWrite {
        RevisionWrite::Update {
            name: before.name.clone(),
            version: before.version.clone(),
            number,
        }
    }

    fn delete(template: u8) -> RevisionWrite {
        RevisionWrite::Delete {
            name: name(template),
            uid: format!("uid-{template}"),
        }
    }

    #[test]
    fn a_new_template_gets_the_next_number() {
        assert_eq!(plan(&[], 1), [create(1, 1)]);
        assert_eq!(plan(&[revision(1, 4)], 2), [create(2, 5)]);
        assert_eq!(plan(&[revision(1, 4), revision(2, 5)], 2), []);
    }

    #[test]
    fn a_template_of_before_moves_its_revision() {
        let known = [revision(1, 1), revision(2, 2), revision(3, 3)];
        assert_eq!(plan(&known, 1), [update(&known[0], 4)]);
    }

    #[test]
    fn a_cause_is_copied_and_none_takes_none_away() {
        let mut known = [revision(1, 1), revision(2, 2)];
        let with = |known: &[Revision], cause| {
            plan_with(known, 2, |wanted: &mut Wanted<'_>| wanted.cause = cause)
        };
        assert_eq!(with(&known, Some("why")), [update(&known[1], 2)]);
        known[1].cause = Some("why".to_owned());
        assert_eq!(with(&known, Some("why")), []);
        assert_eq!(with(&known, None), []);
    }

    #[test]
    fn old_ones_beyond_the_limit_go_and_the_current_one_never() {
        let known: Vec<Revision> = (1..=4).map(|n| revision(n, n.into())).collect();
        let limited = |template, limit| {
            plan_with(&known, template, |wanted: &mut Wanted<'_>| {
                wanted.limit = limit;
            })
        };
        assert_eq!(limited(4, 3), []);
        assert_eq!(limited(4, 1), [delete(1), delete(2)]);
        assert_eq!(limited(4, 0), [delete(1), delete(2), delete(3)]);
        assert_eq!(
            limited(1, 0),
            [update(&known[0], 5), delete(2), delete(3), delete(4)]
        );
        assert_eq!(
            limited(5, 2),
            [create(5, 5), delete(1), delete(2)],
            "the new one comes first"
        );
    }

    #[test]
    fn a_pause_records_nothing_and_keeps_what_the_works_have() {
        let known: Vec<Revision> = (1..=3).map(|n| revision(n, n.into())).collect();
        let paused = |template, limit| {
            plan_with(&known, template, |wanted: &mut Wanted<'_>| {
                (wanted.paused, wanted.limit, wanted.cause) = (true, limit, Some("why"));
            })
        };
        assert_eq!(paused(9, 10), []);
        assert_eq!(paused(1, 10), []);
        assert_eq!(paused(9, 0), [delete(1), delete(2)]);
    }

    #[test]
    fn a_twin_goes_and_a_revision_that_does_not_read_grows_old() {
        let mut twin = revision(2, 1);
        twin.name = "web-older-way-to-hash".to_owned();
        let mut odd = revision(7, 9);
        odd.template = None;
        let known = [twin, revision(2, 3), odd];
        assert_eq!(
            plan(&known, 2),
            [
                update(&known[1], 10),
                RevisionWrite::Delete {
                    name: "web-older-way-to-hash".to_owned(),
                    uid: "uid-2".to_owned()
                }
            ]
        );
    }

    #[test]
    fn the_highest_number_stays() {
        let known = [revision(1, i64::MAX), revision(2, i64::MAX)];
        assert_eq!(plan(&known, 1), []);
        assert_eq!(plan(&known, 3), [create(3, i64::MAX)]);
    }

    #[test]
    fn limits_are_numbers() {
        assert_eq!(history_limit(None), Ok(10));
        assert_eq!(history_limit(Some(" 3 ")), Ok(3));
        assert_eq!(history_limit(Some("0")), Ok(0));
        for text in ["", "many", "-1", "1.5"] {
            let error = history_limit(Some(text)).unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "annotation muster.dev/revision-history-limit is {text:?} and not a number of \
                     revisions: 10 are kept"
                )
            );
        }
    }

    #[test]
    fn going_back_finds_the_newest_other_template() {
        let known = [revision(1, 5), revision(2, 3), revision(3, 4)];
        assert_eq!(undo(&known, &[1; 32], None), Ok(Undo::To(&known[2])));
        // The hub has not seen the set's newest template yet.
        assert_eq!(undo(&known, &[9; 32], None), Ok(Undo::To(&known[0])));
        assert_eq!(undo(&known, &[1; 32], Some(3)), Ok(Undo::To(&known[1])));
        assert_eq!(
            undo(&known, &[1; 32], Some(5)),
            Ok(Undo::Already(&known[0]))
        );
        let missing = undo(&known, &[1; 32], Some(7)).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "revision 7 not found (there are 3, 4, 5)"
        );
        let only = undo(&known[..1], &[1; 32], None).unwrap_err();
        assert_eq!(
            only.to_string(),
            "there is only one revision, 5, and it is the current one"
        );
        for to in [None, Some(1)] {
            let none = undo(&[], &[1; 32], to).unwrap_err();
            assert_eq!(none.to_string(), "there are no revisions");
        }
    }

    #[test]
    fn a_controller_revision_is_read() {
        let template = json!({"workload": {"manifests": [{"kind": "ConfigMap"}]}});
        let owner = |uid: &str, controller| OwnerReference {
            uid: uid.to_owned(),
            controller,
            ..Default::default()
        };
        let mut object = ControllerRevision {
            metadata: ObjectMeta {
                name: Some("web-1".to_owned()),
                annotations: Some([(names::CHANGE_CAUSE_ANNOTATION.into(), "why".into())].into()),
                owner_references: Some(vec![owner("a", None), owner("b", Some(true))]),
                ..Default::default()
            },
            data: RawExtension(json!({"spec": {"manifestWorkTemplate": template}})),
            revision: Some(3),
        };
        let read = Revision::read(&object);
        assert_eq!((read.number, read.cause.as_deref()), (3, Some("why")));
        assert_eq!(read.template, canonical_spec_hash(&template).ok());
        assert!(is_controlled_by(&object, "b") && !is_controlled_by(&object, "a"));
        object.data = RawExtension(json!({"spec": {"manifestWorkTemplate": 5}}));
        assert_eq!(Revision::read(&object).template, None);
        object.data = RawExtension::default();
        assert_eq!(Revision::read(&object).template, None);
    }

    /// What an API server makes of a write.
    fn carry_out(known: &mut Vec<Revision>, write: &RevisionWrite, template: u8) {
        match write {
            RevisionWrite::Create { name, number } => {
                assert!(known.iter().all(|revision| revision.name != *name));
                known.push(revision(template, *number));
            }
            RevisionWrite::Update { name, number, .. } => {
                let known = known.iter_mut().find(|revision| revision.name == *name);
                known.unwrap().number = *number;
            }
            RevisionWrite::Delete { name, uid } => {
                let before = known.len();
                known.retain(|revision| revision.name != *name || revision.uid != *uid);
                assert_eq!(known.len() + 1, before);
            }
        }
    }

    proptest! {
        /// Whatever templates a set is given: each has one revision at most, the current one has
        /// the highest number, the old ones that stay are the latest, in their order, and nothing
        /// is left to be written.
        #[test]
        fn history_is_kept(
            steps in prop::collection::vec((0_u8..8, 0_usize..5, prop::bool::weighted(0.2)), 1..40),
        ) {
            let mut known: Vec<Revision> = Vec::new();
            // Templates as works were given them, the latest last.
            let mut given: Vec<u8> = Vec::new();
            for (template, limit, paused) in steps {
                let plan = |known: &[Revision]| {
                    plan_with(known, template, |wanted: &mut Wanted<'_>| {
                        (wanted.limit, wanted.paused) = (limit, paused);
                    })
                };
                for write in plan(&known) {
                    carry_out(&mut known, &write, template);
                }
                prop_assert_eq!(plan(&known), []);
                if !paused {
                    given.retain(|other| *other != template);
                    given.push(template);
                }
                let is_current = |other: &u8| *other == template;
                let (current, old): (Vec<u8>, Vec<u8>) = given.iter().partition(|o| is_current(o));
                // While nothing of the template is known, the works have that of the last one.
                let kept = limit + usize::from(current.is_empty());
                let gone = &old[..old.len().saturating_sub(kept)];
                given.retain(|other| !gone.contains(other));
                known.sort_by_key(|revision| revision.number);
                let left: Vec<u8> = known.iter().map(|r| r.template.unwrap()[0]).collect();
                prop_assert_eq!(&left, &given);
                prop_assert!(known.windows(2).all(|pair| pair[0].number < pair[1].number));
            }
        }
    }
}
