//! Who owns whom, and what follows from a change. Pure.

use std::collections::{HashMap, HashSet};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// An object, as far as deleting it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectRef {
    /// `deployments.apps`
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// An owner reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: String,
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    /// The owner's foreground deletion waits for this dependent.
    pub(super) blocks: bool,
}

/// One object of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) object: ObjectRef,
    pub(super) owners: Vec<Owner>,
    pub(super) deleting: bool,
    pub(super) finalizers: Vec<String>,
}

/// What the collector has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Delete an object that no owner holds any more.
    Delete(ObjectRef),
    /// Ask whether an owner exists that was never seen; if not, delete the dependent.
    Verify { dependent: ObjectRef, owner: Owner },
    /// Remove the reference to an owner.
    Orphan {
        dependent: ObjectRef,
        owner_uid: String,
    },
    /// Let an owner go.
    RemoveFinalizer {
        object: ObjectRef,
        finalizer: &'static str,
    },
}

/// All objects by uid, and the dependents of each.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<String, Node>,
    dependents: HashMap<String, HashSet<String>>,
    /// Every type has been listed once: an owner that is not here does not exist.
    complete: bool,
}

impl Graph {
    /// An object is there or has changed.
    pub(super) fn apply(&mut self, node: Node) -> Vec<Action> {
        let uid = node.object.uid.clone();
        if let Some(old) = self.nodes.get(&uid) {
            let old_owners = old.owners.clone();
            let new: HashSet<&str> = node.owners.iter().map(|n| n.uid.as_str()).collect();
            for gone in old_owners.iter().filter(|o| !new.contains(o.uid.as_str())) {
                self.unlink(&gone.uid, &uid);
            }
        }
        for owner in &node.owners {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(uid.clone());
        }
        let former_owners: Vec<String> = self
            .nodes
            .get(&uid)
            .map(|n| n.owners.iter().map(|o| o.uid.clone()).collect())
            .unwrap_or_default();
        self.nodes.insert(uid.clone(), node);
        let mut actions = Vec::new();
        if self.complete {
            actions.extend(self.check_owners(&uid));
        }
        actions.extend(self.check_deletion(&uid));
        for owner in former_owners {
            actions.extend(self.check_deletion(&owner));
        }
        actions
    }

    /// An object is gone.
    pub(super) fn remove(&mut self, uid: &str) -> Vec<Action> {
        let Some(node) = self.nodes.remove(uid) else {
            return Vec::new();
        };
        let mut actions = Vec::new();
        for owner in &node.owners {
            self.unlink(&owner.uid, uid);
        }
        for owner in &node.owners {
            actions.extend(self.check_deletion(&owner.uid));
        }
        for dependent in self.sorted_dependents(uid) {
            if !self.is_held(&dependent) && !dependent.deleting {
                actions.push(Action::Delete(dependent.object));
            }
        }
        actions
    }

    /// A list of a type is through: what it did not show is gone.
    pub(super) fn keep_only(&mut self, resource: &str, present: &HashSet<String>) -> Vec<Action> {
        let gone: Vec<String> = self
            .nodes
            .values()
            .filter(|n| n.object.resource == resource && !present.contains(&n.object.uid))
            .map(|n| n.object.uid.clone())
            .collect();
        gone.iter().flat_map(|uid| self.remove(uid)).collect()
    }

    /// Every type has been listed.
    pub(super) fn all_listed(&mut self) -> Vec<Action> {
        if self.complete {
            return Vec::new();
        }
        self.complete = true;
        let mut uids: Vec<String> = self.nodes.keys().cloned().collect();
        uids.sort();
        uids.iter()
            .filter_map(|uid| self.check_owners(uid))
            .collect()
    }

    /// A type is no longer served: its objects are neither owners nor dependents now.
    pub(super) fn forget_type(&mut self, resource: &str) {
        let gone: Vec<Node> = self
            .nodes
            .values()
            .filter(|n| n.object.resource == resource)
            .cloned()
            .collect();
        for node in gone {
            self.nodes.remove(&node.object.uid);
            for owner in &node.owners {
                self.unlink(&owner.uid, &node.object.uid);
            }
        }
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    fn sorted_dependents(&self, uid: &str) -> Vec<Node> {
        let mut found: Vec<Node> = self
            .dependents
            .get(uid)
            .into_iter()
            .flatten()
            .filter_map(|uid| self.nodes.get(uid).cloned())
            .collect();
        found.sort_by(|a, b| a.object.uid.cmp(&b.object.uid));
        found
    }

    /// True while one of the owners exists.
    fn is_held(&self, node: &Node) -> bool {
        node.owners.iter().any(|o| self.nodes.contains_key(&o.uid))
    }

    fn check_owners(&self, uid: &str) -> Option<Action> {
        let node = self.nodes.get(uid)?;
        if node.deleting || node.owners.is_empty() || self.is_held(node) {
            return None;
        }
        let owner = node.owners.first()?.clone();
        Some(Action::Verify {
            dependent: node.object.clone(),
            owner,
        })
    }

    /// What an object's own deletion asks for.
    fn check_deletion(&self, uid: &str) -> Vec<Action> {
        let Some(node) = self.nodes.get(uid).filter(|n| n.deleting) else {
            return Vec::new();
        };
        let has = |finalizer: &str| node.finalizers.iter().any(|f| f == finalizer);
        let dependents = self.sorted_dependents(uid);
        if has(ORPHAN) {
            if dependents.is_empty() {
                let object = node.object.clone();
                return vec![Action::RemoveFinalizer {
                    object,
                    finalizer: ORPHAN,
                }];
            }
            return dependents
                .into_iter()
                .map(|d| Action::Orphan {
                    dependent: d.object,
                    owner_uid: uid.to_owned(),
                })
                .collect();
        }
        if !has(FOREGROUND) {
            return Vec::new();
        }
        let blocking = dependents
            .iter()
            .any(|d| d.owners.iter().any(|o| o.uid == uid && o.blocks));
        if !blocking {
            let object = node.object.clone();
            return vec![Action::RemoveFinalizer {
                object,
                finalizer: FOREGROUND,
            }];
        }
        dependents
            .into_iter()
            .filter(|d| !d.deleting)
            .filter(|d| {
                d.owners
                    .iter()
                    .all(|o| o.uid == uid || !self.nodes.contains_key(&o.uid))
            })
            .map(|d| Action::Delete(d.object))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(uid: &str) -> ObjectRef {
        ObjectRef {
            resource: "things".to_owned(),
            namespace: "a".to_owned(),
            name: uid.to_owned(),
            uid: uid.to_owned(),
        }
    }

    fn node(uid: &str, owners: &[&str]) -> Node {
        Node {
            object: object(uid),
            owners: owners
                .iter()
                .map(|o| Owner {
                    uid: (*o).to_owned(),
                    api_version: "v1".to_owned(),
                    kind: "Thing".to_owned(),
                    name: (*o).to_owned(),
                    blocks: true,
                })
                .collect(),
            deleting: false,
            finalizers: Vec::new(),
        }
    }

    fn deleting(uid: &str, finalizer: &str) -> Node {
        Node {
            deleting: true,
            finalizers: vec![finalizer.to_owned()],
            ..node(uid, &[])
        }
    }

    #[test]
    fn dependents_go_when_their_last_owner_goes() {
        let mut graph = Graph::default();
        for n in [node("a", &[]), node("b", &[]), node("c", &["a", "b"])] {
            assert_eq!(graph.apply(n), []);
        }
        assert_eq!(graph.remove("a"), []);
        assert_eq!(graph.remove("b"), [Action::Delete(object("c"))]);
    }

    #[test]
    fn foreground_deletion_takes_dependents_first() {
        let mut graph = Graph::default();
        graph.apply(node("a", &[]));
        graph.apply(node("b", &["a"]));
        assert_eq!(
            graph.apply(deleting("a", FOREGROUND)),
            [Action::Delete(object("b"))]
        );
        let done = Action::RemoveFinalizer {
            object: object("a"),
            finalizer: FOREGROUND,
        };
        assert_eq!(graph.remove("b"), [done]);
    }

    #[test]
    fn orphaning_cuts_dependents_loose_first() {
        let mut graph = Graph::default();
        graph.apply(node("a", &[]));
        graph.apply(node("b", &["a"]));
        let cut = Action::Orphan {
            dependent: object("b"),
            owner_uid: "a".to_owned(),
        };
        assert_eq!(graph.apply(deleting("a", ORPHAN)), [cut]);
        let done = Action::RemoveFinalizer {
            object: object("a"),
            finalizer: ORPHAN,
        };
        assert_eq!(graph.apply(node("b", &[])), [done]);
        assert_eq!(graph.remove("a"), []);
    }

    #[test]
    fn unknown_owners_are_verified_once_all_types_are_listed() {
        let mut graph = Graph::default();
        assert_eq!(graph.apply(node("b", &["gone"])), []);
        let owner = node("b", &["gone"]).owners.remove(0);
        let verify = |dependent: &str| Action::Verify {
            dependent: object(dependent),
            owner: owner.clone(),
        };
        assert_eq!(graph.all_listed(), [verify("b")]);
        assert_eq!(graph.apply(node("c", &["gone"])), [verify("c")]);
    }

    #[test]
    fn objects_missing_from_a_list_are_gone() {
        let mut graph = Graph::default();
        graph.apply(node("a", &[]));
        graph.apply(node("b", &["a"]));
        let present = HashSet::from(["b".to_owned()]);
        assert_eq!(
            graph.keep_only("things", &present),
            [Action::Delete(object("b"))]
        );
    }
}
