use std::sync::{Arc, Mutex};

use super::*;

fn ready() -> RuleStoreState {
    let mut store = RuleStoreState::default();
    store.replace_all(RuleKind::WatchRule, []);
    store.replace_all(RuleKind::ClusterWatchRule, []);
    store
}

fn pods(name: &str) -> CompiledRule {
    rule("default", name, json!([{"resources": ["pods"]}]))
}

fn nodes(name: &str) -> CompiledRule {
    cluster_rule(name, json!([{"scope": "Cluster", "resources": ["nodes"]}]))
}

/// S30, S31, S35, S62.
#[test]
fn only_a_change_gives_a_revision() {
    let mut store = ready();
    let revision = |store: &RuleStoreState| store.snapshot().unwrap().revision;
    let first = revision(&store);
    let old = pods("test-rule");
    assert!(store.put(old.clone()));
    assert_eq!(revision(&store), first + 1);

    // The same again, under a new generation: no news, and the store knows the generation.
    let mut again = old.clone();
    again.generation = 2;
    assert!(!store.put(again));
    assert_eq!(revision(&store), first + 1);
    let stored = &store.snapshot().unwrap().rules[&old.name];
    assert_eq!(stored.generation, 2);

    let mut new = old.clone();
    new.destination = "develop".into();
    assert!(store.put(new.clone()));
    assert_eq!(revision(&store), first + 2);
    let rules = store.snapshot().unwrap();
    assert_eq!(rules.rules.len(), 1);
    assert_eq!(*rules.rules[&old.name], new);

    assert!(store.put(nodes("all")));
    for unknown in [pods("unknown").name, nodes("unknown").name] {
        assert!(!store.remove(&unknown));
    }
    assert_eq!(revision(&store), first + 3);
    // A rule of the other kind with an equal name is another rule.
    let mut namesake = old.name.clone();
    namesake.namespace = None;
    assert!(!store.remove(&namesake));
    assert!(store.remove(&nodes("all").name));
    assert!(store.remove(&old.name));
    assert!(!store.remove(&old.name));
    assert_eq!(revision(&store), first + 5);
    assert!(store.snapshot().unwrap().rules.is_empty());
}

#[test]
fn a_full_list_leaves_nothing_else_of_its_kind() {
    let mut store = ready();
    store.put(pods("a"));
    store.put(pods("b"));
    store.put(nodes("c"));
    let revision = store.snapshot().unwrap().revision;
    assert!(!store.replace_all(RuleKind::WatchRule, [pods("b"), pods("a")]));
    assert_eq!(store.snapshot().unwrap().revision, revision);
    assert!(store.replace_all(RuleKind::WatchRule, [pods("b"), pods("d")]));
    let names = |store: &RuleStoreState| -> Vec<String> {
        let rules = store.snapshot().unwrap();
        rules.rules.keys().map(ToString::to_string).collect()
    };
    assert_eq!(names(&store), ["c", "default/b", "default/d"]);
    assert!(store.replace_all(RuleKind::ClusterWatchRule, []));
    assert_eq!(names(&store), ["default/b", "default/d"]);
    assert!(store.snapshot().unwrap().revision > revision);
}

/// S32.
#[test]
fn a_snapshot_never_changes() {
    let mut store = ready();
    store.put(pods("a"));
    let before = store.snapshot().unwrap();
    let copy = RuleSnapshot::clone(&before);
    store.put(pods("b"));
    store.remove(&pods("a").name);
    assert_eq!(*before, copy);
    let mut own = RuleSnapshot::clone(&before);
    own.rules.clear();
    assert_eq!(store.snapshot().unwrap().rules.len(), 1);
}

/// S34, C137. That nothing is there is news, too: from then on it may be acted on.
#[test]
fn there_is_no_snapshot_before_both_kinds_are_listed() {
    let mut store = RuleStoreState::default();
    assert!(!store.ready() && store.snapshot().is_none());
    assert!(store.put(pods("early")));
    assert!(store.snapshot().is_none());
    assert!(!store.replace_all(RuleKind::WatchRule, [pods("early")]));
    assert!(!store.ready() && store.snapshot().is_none());
    assert!(store.replace_all(RuleKind::ClusterWatchRule, []));
    assert!(store.ready());
    let rules = store.snapshot().unwrap();
    assert_eq!(rules.rules.len(), 1);
    assert_eq!(rules.revision, 2);
    assert!(!store.replace_all(RuleKind::ClusterWatchRule, []));
    assert_eq!(store.snapshot().unwrap().revision, 2);
}

/// S33.
#[test]
fn writers_and_readers_see_whole_states() {
    let store = Arc::new(Mutex::new(ready()));
    let start = store.lock().unwrap().snapshot().unwrap().revision;
    std::thread::scope(|scope| {
        for n in 0..100 {
            let store = &store;
            scope.spawn(move || store.lock().unwrap().put(pods(&format!("r{n}"))));
            scope.spawn(move || {
                let rules = store.lock().unwrap().snapshot().unwrap();
                assert_eq!(rules.rules.len() as u64, rules.revision - start);
            });
        }
    });
    assert_eq!(store.lock().unwrap().snapshot().unwrap().rules.len(), 100);
}
