use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

fn text(text: &str) -> Arc<str> {
    text.into()
}

fn state(version: u64, content: u8) -> State {
    State {
        uid: "u".into(),
        version,
        hash: [content; 32],
        on_delete: rules(&["ns/rule"]),
    }
}

fn rules(names: &[&str]) -> RuleNames {
    names.iter().map(|name| text(name)).collect()
}

/// As [`Mirror::unwanted`] and [`Mirror::absent`] answer.
fn verdict(on_delete: Option<RuleNames>) -> Verdict {
    on_delete.map_or(Verdict::Known, |_| DELETE)
}

/// A mirror of one namespace.
#[derive(Default)]
struct One(Mirror);

impl One {
    fn sees(&mut self, name: &str, state: State) -> Verdict {
        self.0
            .wanted(FIRST_LOOK, &text("ns"), &text(name), state, true)
    }

    fn misses(&mut self, name: &str, state: State) -> Verdict {
        self.0
            .wanted(FIRST_LOOK, &text("ns"), &text(name), state, false)
    }

    fn loses(&mut self, name: &str, version: u64) -> Verdict {
        verdict(self.0.unwanted(&text("ns"), &text(name), version))
    }

    fn is_absent(&mut self, name: &str, asked: u64) -> Verdict {
        verdict(self.0.absent(&text("ns"), &text(name), asked))
    }

    /// What a complete list of these leaves out: gone, and doubtful.
    fn lists(&mut self, watch: u64, names: &[&str]) -> (Vec<String>, Vec<String>) {
        let absent = self.0.listed(watch, |_, name| names.contains(&name));
        let gone = absent.gone.into_iter().map(|gone| gone.name.to_string());
        let doubtful = absent
            .doubtful
            .into_iter()
            .map(|(_, name)| name.to_string());
        (gone.collect(), doubtful.collect())
    }
}

const CREATE: Verdict = Verdict::Tell(Operation::Create);
const UPDATE: Verdict = Verdict::Tell(Operation::Update);
const DELETE: Verdict = Verdict::Tell(Operation::Delete);

/// S82, S83, S86, S87: only an update may be left out, and only one that says nothing new.
#[test]
fn what_the_sink_has_decides_the_operation() {
    let mut one = One::default();
    assert_eq!(one.sees("a", state(1, 1)), CREATE);
    assert_eq!(one.sees("a", state(2, 1)), Verdict::Known);
    assert_eq!(one.sees("a", state(3, 2)), UPDATE);
    assert_eq!(one.loses("a", 4), DELETE);
    assert_eq!(one.sees("a", state(5, 2)), CREATE);
    // Another object of that name with equal content is another object.
    let other = State {
        uid: "v".into(),
        ..state(7, 2)
    };
    assert_eq!(one.sees("a", other), UPDATE);
    assert_eq!(one.loses("b", 8), Verdict::Known);
}

/// S77, S152: what is being deleted is gone once.
#[test]
fn an_object_goes_once() {
    let mut one = One::default();
    one.sees("a", state(1, 1));
    assert_eq!(one.loses("a", 2), DELETE);
    assert_eq!(one.loses("a", 3), Verdict::Known);
}

/// S85: one name in two namespaces is two objects.
#[test]
fn namespaces_are_kept_apart() {
    let mut mirror = Mirror::new();
    for namespace in ["a", "b"] {
        let told = mirror.wanted(1, &text(namespace), &text("x"), state(1, 1), true);
        assert_eq!(told, CREATE, "{namespace}");
    }
    assert!(mirror.unwanted(&text("a"), &text("x"), 2).is_some());
    assert!(mirror.has(&text("b"), &text("x")));
    assert_eq!(mirror.len(), 1);
}

#[test]
fn states_of_an_older_watch_change_nothing() {
    let mut one = One::default();
    one.sees("a", state(5, 2));
    assert_eq!(one.sees("a", state(4, 1)), Verdict::Known);
    assert_eq!(one.loses("a", 3), Verdict::Known);
    assert!(!one.0.is_empty());
}

/// S71, S72, C142: what changed or went while nobody looked is found by the next list.
#[test]
fn a_list_tells_what_is_gone_and_only_that() {
    let mut one = One::default();
    one.0.listing(1);
    for name in ["a", "b", "c"] {
        assert_eq!(one.sees(name, state(1, 1)), CREATE);
    }
    assert_eq!(one.lists(1, &["a", "b", "c"]), (vec![], vec![]));
    one.0.listing(1);
    assert_eq!(one.sees("b", state(2, 2)), UPDATE);
    assert_eq!(one.sees("c", state(1, 1)), Verdict::Known);
    assert_eq!(one.lists(1, &["b", "c"]), (vec!["a".to_owned()], vec![]));
    // A list that began before anybody listened says nothing.
    assert_eq!(one.lists(9, &[]), (vec![], vec![]));
    assert_eq!(one.0.len(), 2);
}

/// While one watch takes the place of another, the list of the new one may be older than what the
/// old one has shown.
#[test]
fn what_another_watch_has_shown_since_a_list_began_is_doubtful() {
    let mut one = One::default();
    one.0.listing(2);
    assert_eq!(one.sees("new", state(9, 1)), CREATE);
    assert_eq!(one.lists(2, &[]), (vec![], vec!["new".to_owned()]));
    let asked = one.0.count();
    // Read, and not there; or seen once more meanwhile.
    assert_eq!(one.is_absent("new", asked - 1), Verdict::Known);
    assert_eq!(one.is_absent("new", asked), DELETE);
    assert_eq!(one.is_absent("new", asked), Verdict::Known);
}

#[test]
fn a_list_from_before_a_deletion_does_not_bring_the_object_back() {
    let mut one = One::default();
    one.sees("a", state(1, 1));
    one.0.listing(2);
    assert_eq!(one.loses("a", 5), DELETE);
    assert_eq!(one.sees("a", state(1, 1)), Verdict::Known);
    assert_eq!(one.lists(2, &["a"]), (vec![], vec![]));
    assert!(one.0.is_empty());
    assert_eq!(one.sees("a", state(6, 1)), CREATE);
}

#[test]
fn what_finds_no_room_is_found_again() {
    let mut one = One::default();
    assert_eq!(one.misses("a", state(1, 1)), Verdict::Missed);
    assert_eq!(one.sees("b", state(1, 1)), CREATE);
    assert_eq!(one.misses("b", state(2, 2)), Verdict::Missed);
    one.0.listing(7);
    assert_eq!(one.sees("a", state(1, 1)), CREATE);
    assert_eq!(one.sees("b", state(2, 2)), UPDATE);
    assert_eq!(one.lists(7, &["a", "b"]), (vec![], vec![]));
    // Nothing is ever missed that the sink has.
    assert_eq!(one.misses("b", state(3, 2)), Verdict::Known);
}

#[test]
fn what_the_sink_had_in_an_earlier_life_is_compared() {
    let mut one = One::default();
    for (name, content) in [("same", 1), ("changed", 1), ("gone", 1)] {
        one.0.restore(text("ns"), text(name), state(0, content));
    }
    one.0.listing(1);
    assert_eq!(one.sees("same", state(3, 1)), Verdict::Known);
    assert_eq!(one.sees("changed", state(4, 2)), UPDATE);
    assert_eq!(one.sees("new", state(5, 2)), CREATE);
    let listed = one.lists(1, &["same", "changed", "new"]);
    assert_eq!(listed, (vec!["gone".to_owned()], vec![]));
}

#[test]
fn lists_that_are_given_up_are_forgotten() {
    let mut one = One::default();
    one.sees("a", state(1, 1));
    for watch in 0..100 {
        one.0.listing(watch);
    }
    assert_eq!(one.lists(0, &[]), (vec![], vec![]), "forgotten");
    assert_eq!(one.lists(99, &[]), (vec!["a".to_owned()], vec![]));
}

/// What is gone often says no more what it was like: who hears of it was decided before.
#[test]
fn who_hears_of_the_end_is_kept_with_the_object() {
    let mut one = One::default();
    let of = |version, names: &[&str]| State {
        on_delete: rules(names),
        ..state(version, 1)
    };
    one.0.listing(1);
    for name in ["deleted", "absent", "unlisted"] {
        assert_eq!(one.sees(name, of(1, &["a"])), CREATE);
        assert_eq!(one.sees(name, of(2, &["a", "b"])), Verdict::OtherRules);
        assert_eq!(one.sees(name, of(3, &["a", "b"])), Verdict::Known);
    }
    let (ns, both) = (text("ns"), rules(&["a", "b"]));
    let deleted = one.0.unwanted(&ns, &text("deleted"), 4);
    assert_eq!(deleted, Some(both.clone()));
    let asked = one.0.count();
    assert_eq!(
        one.0.absent(&ns, &text("absent"), asked),
        Some(both.clone())
    );
    one.0.listing(2);
    let gone = Gone {
        namespace: ns,
        name: text("unlisted"),
        on_delete: both,
    };
    assert_eq!(one.0.listed(2, |_, _| false).gone, [gone]);
}

// Pending.

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        resource: Resource::new("", "v1", "configmaps"),
        namespace: text("ns"),
        name: text(name),
    }
}

fn event(name: &str, operation: Operation, object: &str) -> Event {
    Event {
        sequence: 0,
        key: key(name),
        kind: text("ConfigMap"),
        operation,
        uid: text("u"),
        version: 1,
        object: (operation != Operation::Delete).then(|| text(object)),
        rules: rules(&["ns/rule"]),
        has: (operation != Operation::Delete).then(|| state(1, 1)),
        seen: Timestamp::UNIX_EPOCH,
    }
}

fn names(events: &[Event]) -> String {
    let names = events.iter().map(|event| {
        let object = event.object.as_deref().unwrap_or("-");
        format!("{} {} {object}", event.operation, event.key.name)
    });
    names.collect::<Vec<_>>().join(", ")
}

fn room(events: usize, bytes: usize) -> Pending {
    Pending::new(Room { events, bytes })
}

/// S88, S89.
#[test]
fn events_leave_in_order_each_with_its_sequence() {
    let mut pending = Pending::new(Room::default());
    for n in 0..1000 {
        pending.push(event(&format!("load-{n}"), Operation::Create, "{}"));
    }
    let first = pending.take(600, usize::MAX);
    assert_eq!((first.len(), &*first[0].key.name), (600, "load-0"));
    pending.done(u64::MAX);
    // Told late, it takes off only what it is about.
    let rest = pending.take(600, usize::MAX);
    assert!(pending.done(600).is_empty());
    assert_eq!(rest.last().unwrap().key.name, text("load-999"));
    let sequences = first.iter().chain(&rest).map(|event| event.sequence);
    assert!(sequences.eq(1..=1000));
    pending.done(u64::MAX);
    assert!(pending.is_empty());
    assert_eq!(pending.oldest(), None);
}

#[test]
fn what_a_sink_did_not_take_is_taken_again_first() {
    let mut pending = room(10, 1_000);
    pending.push(event("a", Operation::Create, "1"));
    pending.push(event("a", Operation::Update, "2"));
    assert_eq!(names(&pending.take(1, 100)), "CREATE a 1");
    pending.push(event("a", Operation::Update, "3"));
    pending.again();
    assert_eq!(
        names(&pending.take(9, 100)),
        "CREATE a 1, UPDATE a 2, UPDATE a 3"
    );
    assert_eq!(pending.len(), 3);
}

#[test]
fn batches_are_bounded_and_never_empty() {
    let mut pending = room(10, 1_000);
    for name in ["a", "b", "c"] {
        pending.push(event(name, Operation::Create, "12345"));
    }
    assert_eq!(pending.take(9, 10).len(), 2);
    pending.done(u64::MAX);
    assert_eq!(pending.take(9, 1).len(), 1);
}

/// S90: with room every event is told; without, one for an object takes the place of the one
/// before; and what is new has to be looked for later.
#[test]
fn when_it_gets_tight_an_object_has_one_event() {
    let mut pending = room(4, 1_000);
    pending.push(event("a", Operation::Create, "1"));
    pending.push(event("a", Operation::Update, "2"));
    pending.push(event("b", Operation::Create, "1"));
    assert!(!pending.has_ease());
    pending.push(event("a", Operation::Update, "3"));
    pending.push(event("b", Operation::Update, "2"));
    pending.push(event("c", Operation::Update, "1"));
    assert_eq!(pending.len(), 4);
    assert!(pending.has_room(&key("c"), 1) && !pending.has_room(&key("d"), 1));
    // A deletion has no object and is taken all the same.
    pending.push(event("d", Operation::Delete, ""));
    pending.push(event("c", Operation::Delete, ""));
    pending.push(event("c", Operation::Create, "2"));
    let told = "CREATE a 1, UPDATE a 3, CREATE b 2, UPDATE c 2, DELETE d -";
    let taken = pending.take(9, 1_000);
    assert_eq!(names(&taken), told);
    // Whoever drops what is not newer than the last drops nothing.
    assert!(taken.is_sorted_by_key(|event| event.sequence));
    pending.done(u64::MAX);
    assert!(pending.has_ease());
}

/// What need not be told is remembered once what waits has been told, and not before.
#[test]
fn what_is_not_told_is_remembered_in_its_turn() {
    let mut pending = room(10, 1_000);
    let record = |name: &str, content: u8| Record {
        key: key(name),
        has: Some(state(0, content)),
    };
    let other = record("other", 1);
    assert_eq!(pending.settle(other.clone()), Some(other), "nothing waits");
    pending.push(event("a", Operation::Create, "1"));
    pending.push(event("b", Operation::Create, "1"));
    pending.push(event("a", Operation::Update, "2"));
    pending.take(2, 100);
    assert_eq!(pending.settle(record("a", 7)), None, "it waits");
    assert_eq!(pending.settle(record("b", 8)), None, "it is being told");
    let first = [
        Record {
            key: key("a"),
            has: Some(state(1, 1)),
        },
        record("b", 8),
    ];
    // Put back, it is found as well.
    pending.again();
    let last = Record {
        key: key("b"),
        has: None,
    };
    pending.take(2, 100);
    assert_eq!(pending.done(u64::MAX), first);
    pending.push(event("b", Operation::Update, "2"));
    pending.take(1, 100);
    pending.again();
    assert_eq!(pending.settle(last.clone()), None);
    pending.take(9, 100);
    assert_eq!(pending.done(u64::MAX), [record("a", 7), last]);
    assert!(pending.is_empty());

    pending.push(event("a", Operation::Create, "1"));
    pending.push(event("c", Operation::Create, "1"));
    pending.take(1, 100);
    pending.clear();
    assert!(pending.is_empty() && pending.has_ease());
    assert!(pending.settle(record("a", 1)).is_some());
}

/// Two events that become one are for the rules of both: each may want one of the operations only.
#[test]
fn an_event_in_the_place_of_another_is_for_the_rules_of_both() {
    let mut pending = room(1, 1_000);
    let of = |names: &[&str], operation| Event {
        rules: rules(names),
        ..event("a", operation, "1")
    };
    pending.push(of(&["create", "all"], Operation::Create));
    pending.push(of(&["all", "update"], Operation::Update));
    pending.push(of(&["all"], Operation::Update));
    let told = pending.take(9, 100);
    assert_eq!(names(&told), "CREATE a 1");
    let mut named: Vec<&str> = told[0].rules.iter().map(|rule| &**rule).collect();
    named.sort_unstable();
    assert_eq!(named, ["all", "create", "update"]);
}

#[test]
fn bytes_count_and_one_event_always_has_room() {
    let mut pending = room(10, 8);
    assert!(pending.has_room(&key("a"), 1_000));
    pending.push(event("a", Operation::Create, "123456"));
    assert!(pending.has_room(&key("b"), 2) && !pending.has_room(&key("b"), 3));
    assert!(!pending.has_ease());
    pending.push(event("a", Operation::Update, "1"));
    assert!(pending.has_ease() && pending.has_room(&key("b"), 7));
    pending.take(9, 100);
    pending.done(u64::MAX);
    assert!(pending.has_room(&key("b"), 1_000));
}

/// A store of objects with a history, and watches that list it and follow it with a delay.
struct World {
    /// What has happened: name, and content or `None` for a deletion. The version is the index + 1.
    history: Vec<(usize, Option<u8>)>,
}

impl World {
    fn at(&self, version: usize) -> BTreeMap<usize, (u64, u8)> {
        let mut objects = BTreeMap::new();
        for (index, (name, content)) in self.history[..version].iter().enumerate() {
            match content {
                Some(content) => objects.insert(*name, (index as u64 + 1, *content)),
                None => objects.remove(name),
            };
        }
        objects
    }
}

/// What a sink has, as it is told; refuses what makes no sense.
#[derive(Default)]
struct Sink(BTreeMap<usize, u8>);

impl Sink {
    fn hears(&mut self, name: usize, content: Option<u8>, verdict: Verdict) {
        let Verdict::Tell(operation) = verdict else {
            return;
        };
        let before = match (operation, content) {
            (Operation::Delete, _) => self.0.remove(&name),
            (_, Some(content)) => self.0.insert(name, content),
            (_, None) => panic!("{operation} without an object"),
        };
        assert_eq!(
            before.is_none(),
            operation == Operation::Create,
            "{operation} of {name}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Watches are replaced again and again, the old one lagging behind the list of the new one and
    /// ending at any point; and sometimes there is no room. In the end the sink has what is there,
    /// and on the way each thing that it is told makes sense.
    #[test]
    fn a_sink_ends_with_what_is_there(
        history in prop::collection::vec((0_usize..4, prop::option::weighted(0.7, 0_u8..3)), 1..60),
        steps in prop::collection::vec((0_u8..5, 0_usize..6), 0..80),
        (last, late) in (0_usize..60, 0_usize..20),
    ) {
        let world = World { history };
        let names: Vec<Arc<str>> = (0..4).map(|n| text(&n.to_string())).collect();
        let ns = text("ns");
        let (mut mirror, mut sink) = (Mirror::new(), Sink::default());
        let mut now = 0;
        // Watches: number, and up to which version they have told.
        let mut watches: Vec<(u64, usize)> = Vec::new();
        let mut next = 1;
        let show = |mirror: &mut Mirror, sink: &mut Sink, now: usize, watch: u64, name: usize, version: u64, content: Option<u8>, room: bool| {
            let told = |mirror: &mut Mirror, watch: u64, version: u64, content: Option<u8>| match content {
                Some(content) => mirror.wanted(watch, &ns, &names[name], state(version, content), room),
                None => verdict(mirror.unwanted(&ns, &names[name], version)),
            };
            let mut content = content;
            let mut verdict = told(mirror, watch, version, content);
            if verdict == Verdict::Doubtful {
                // It is read.
                let there = world.at(now).get(&name).copied();
                let Some((version, there)) = there else { return };
                content = Some(there);
                verdict = told(mirror, FIRST_LOOK, version, content);
            }
            sink.hears(name, content, verdict);
        };
        let all: Vec<(u8, usize)> = steps.into_iter()
            // In the end: a last watch lists, then it tells of everything that happens, and the others
            // of something before they end.
            .chain([(0, last), (3, 0), (0, 100), (5, late), (4, 0)]).collect();
        for (step, amount) in all {
            match step {
                0 => now = (now + amount).min(world.history.len()),
                1 | 2 => for (watch, told) in &mut watches {
                    // The older one may be the slower one.
                    for _ in 0..amount {
                        if *told == now { break; }
                        let (name, content) = world.history[*told];
                        *told += 1;
                        let room = step == 1 || amount % 2 == 0;
                        show(&mut mirror, &mut sink, now, *watch, name, *told as u64, content, room);
                    }
                },
                5 => for (index, (watch, told)) in watches.iter_mut().rev().enumerate() {
                    let amount = if index == 0 { now } else { amount };
                    for _ in 0..amount {
                        if *told == now { break; }
                        let (name, content) = world.history[*told];
                        *told += 1;
                        show(&mut mirror, &mut sink, now, *watch, name, *told as u64, content, true);
                    }
                },
                3 => {
                    // A new watch lists; the old one tells some more between its items.
                    let watch = next;
                    next += 1;
                    mirror.listing(watch);
                    let listed_at = now;
                    let objects = world.at(listed_at);
                    for (name, (version, content)) in &objects {
                        for (watch, told) in &mut watches {
                            if *told < now && amount > 2 {
                                let (name, content) = world.history[*told];
                                *told += 1;
                                show(&mut mirror, &mut sink, now, *watch, name, *told as u64, content, true);
                            }
                        }
                        show(&mut mirror, &mut sink, now, watch, *name, *version, Some(*content), true);
                    }
                    let absent = mirror.listed(watch, |_, name| {
                        objects.contains_key(&name.parse::<usize>().unwrap())
                    });
                    for gone in absent.gone {
                        sink.hears(gone.name.parse().unwrap(), None, Verdict::Tell(Operation::Delete));
                    }
                    for (_, name) in absent.doubtful {
                        let asked = mirror.count();
                        let index: usize = name.parse().unwrap();
                        match world.at(now).get(&index) {
                            Some((version, content)) => {
                                show(&mut mirror, &mut sink, now, FIRST_LOOK, index, *version, Some(*content), true);
                            }
                            None => sink.hears(index, None, verdict(mirror.absent(&ns, &name, asked))),
                        }
                    }
                    watches.push((watch, listed_at));
                }
                // The old ones end wherever they are.
                _ => drop(watches.drain(..watches.len().saturating_sub(1))),
            }
        }
        let there: BTreeMap<usize, u8> = world.at(now).into_iter()
            .map(|(name, (_, content))| (name, content)).collect();
        prop_assert_eq!(sink.0, there);
    }
}
