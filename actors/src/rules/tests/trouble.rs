//! Connections and rights that come and go, on a paused clock.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cluster::{HISTORY, MAPS_OF_A, Ruled, Start, item};
use super::eventually;
use super::warnings::Warnings;
use crate::watch::RestartAreas;
use crate::watch::tests::{Fault, Gate, Trouble};

/// C145: a connection that neither end knows to be dead holds up nothing for longer than 90 s.
#[actix::test]
async fn a_connection_that_has_fallen_silent_is_given_up() {
    let ruled = Ruled::with_maps().await;
    let lists = ruled.gate.asked(MAPS_OF_A, false).len();
    ruled.gate.trouble(Trouble::Silent);
    let before = Instant::now();
    ruled.write("a", "x", "1", json!({})).await;
    ruled.hears("one", &["CREATE x"]).await;
    assert!(before.elapsed() < Duration::from_secs(90));
    assert_eq!(ruled.gate.asked(MAPS_OF_A, false).len(), lists);
    ruled.end().await;
}

/// C142, S71, S72, S81: what happens while a watch is cut and the server away is told once, whether
/// the watch can go on from where it was or has to list.
#[actix::test]
async fn a_watch_that_is_cut_tells_what_happened_meanwhile() {
    for too_old in [false, true] {
        let ruled = Ruled::with_maps().await;
        for name in ["a", "b", "c"] {
            ruled.write("a", name, "1", json!({})).await;
        }
        let mut told = vec!["CREATE a", "CREATE b", "CREATE c"];
        ruled.hears("one", &told).await;
        let lists = ruled.gate.asked(MAPS_OF_A, false).len();
        ruled.gate.refuse(MAPS_OF_A, 503);
        ruled.gate.trouble(Trouble::Cut);
        ruled.delete("a", "a").await;
        ruled.write("a", "b", "2", json!({})).await;
        if too_old {
            crowd(&ruled).await;
        }
        sleep(Duration::from_secs(10)).await;
        ruled.hears("one", &told).await;
        ruled.gate.allow();
        // A list says what is there before it can say what is not.
        told.extend(["DELETE a", "UPDATE b"]);
        if too_old {
            told[3..].reverse();
        }
        ruled.hears("one", &told).await;
        sleep(Duration::from_secs(100)).await;
        ruled.hears("one", &told).await;
        let lists = ruled.gate.asked(MAPS_OF_A, false).len() - lists;
        assert_eq!(lists, usize::from(too_old));
        ruled.end().await;
    }
}

/// So many changes elsewhere that the server does not know any more what was before.
async fn crowd(ruled: &Ruled) {
    for value in 0..=HISTORY {
        ruled
            .write("b", "busy", &value.to_string(), json!({}))
            .await;
    }
}

/// C147: where nothing happens, bookmarks say how far the watch has come, and nothing is listed again
/// although the server has long forgotten the last change.
#[actix::test]
async fn a_quiet_type_is_listed_once() {
    let ruled = Ruled::with_maps().await;
    ruled.write("a", "x", "1", json!({})).await;
    ruled.hears("one", &["CREATE x"]).await;
    let lists = ruled.gate.asked(MAPS_OF_A, false).len();
    let watches = || ruled.gate.asked(MAPS_OF_A, true);
    for _ in 0..5 {
        let before = watches().len();
        crowd(&ruled).await;
        eventually(|| watches().len(), |now| *now > before).await;
    }
    sleep(Duration::from_secs(1_800)).await;
    ruled.write("a", "x", "2", json!({})).await;
    ruled.hears("one", &["CREATE x", "UPDATE x"]).await;
    assert_eq!(ruled.gate.asked(MAPS_OF_A, false).len(), lists);
    let watches = watches();
    assert!((20..40).contains(&watches.len()), "{watches:?}");
    assert!(
        watches
            .iter()
            .all(|it| it.contains("allowWatchBookmarks=true"))
    );
    ruled.end().await;
}

/// L13: what a list does not name that fails half-way is not gone.
#[actix::test]
async fn a_list_that_fails_half_way_deletes_nothing() {
    let ruled = Ruled::start().await;
    let names: Vec<String> = (0..600).map(|n| format!("n{n:03}")).collect();
    for name in &names {
        ruled.write("a", name, "1", json!({})).await;
    }
    let told = || ruled.ears["one"].told();
    let all_are_told = || eventually(|| told().len(), |told| *told == 600);
    // The first list of a watch, one that takes the place of another, and one for a new rule.
    ruled.gate.fail_next("continue=", Fault::Broken);
    ruled
        .put("maps", "one", json!([item(&["configmaps"])]))
        .await;
    all_are_told().await;
    ruled.gate.fail_next("continue=", Fault::Broken);
    ruled.watches.send(RestartAreas).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    ruled.gate.fail_next("continue=", Fault::Broken);
    ruled
        .put("more", "one", json!([item(&["configmaps"])]))
        .await;
    sleep(Duration::from_secs(30)).await;
    assert!(!ruled.gate.has_faults());
    assert_eq!(told().len(), 600);
    ruled.delete("a", "n599").await;
    let told = eventually(told, |told| told.len() > 600).await;
    assert_eq!(told[600..], ["DELETE n599"]);
    ruled.end().await;
}

#[actix::test]
async fn a_status_whose_write_is_not_answered_is_written_again() {
    let ruled = Ruled::start().await;
    let before = Instant::now();
    ruled.gate.fail_next("/wrong/status", Fault::Unanswered);
    ruled.put("wrong", "one", near("Near")).await;
    ruled.reason_is("wrong", "InvalidRule").await;
    assert!(!ruled.gate.has_faults());
    assert!(before.elapsed() < Duration::from_secs(20));
    ruled.end().await;
}

/// A rule that does not read.
fn near(operator: &str) -> Value {
    json!([{"resources": ["configmaps"], "labelSelector":
        {"matchExpressions": [{"key": "tier", "operator": operator}]}}])
}

/// C160: the status is that of the last edit, also of one that means nothing.
#[actix::test]
async fn a_status_follows_each_edit() {
    let ruled = Ruled::start().await;
    ruled.put("wrong", "one", near("Near")).await;
    ruled.reason_is("wrong", "InvalidRule").await;
    let edits = [
        (near("Nearer"), "Nearer"),
        (json!([item(&["configmaps"])]), "1 watch"),
        (json!([item(&["ConfigMaps"])]), "1 watch"),
    ];
    for (generation, (edit, message)) in (2..).zip(edits) {
        let before = Instant::now();
        ruled.put("wrong", "one", edit).await;
        loop {
            let status = ruled.status("wrong").await;
            let ready = status.conditions.first().unwrap();
            if status.observed_generation == Some(generation) && ready.message.contains(message) {
                assert_eq!(ready.observed_generation, Some(generation));
                break;
            }
            assert!(before.elapsed() < Duration::from_secs(5), "{status:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }
    ruled.end().await;
}

/// S69, S144: what is wrong with one type is told as what it is, and holds up no other.
#[actix::test]
async fn a_reason_says_what_is_wrong() {
    let ruled = Ruled::start().await;
    for (code, reason) in [
        (403, "Forbidden"),
        (404, "TypeUnknown"),
        (405, "NotWatchable"),
        (500, "WatchFailed"),
    ] {
        ruled.gate.refuse("/namespaces/a/secrets", code);
        ruled
            .put("both", "one", json!([item(&["configmaps", "secrets"])]))
            .await;
        let message = ruled.reason_is("both", reason).await;
        assert!(message.starts_with("secrets.v1 in a: "), "{message}");
        assert!(message.contains("no watch of /api/v1/"), "{message}");
        let before = Instant::now();
        ruled.write("a", "x", &code.to_string(), json!({})).await;
        let told = ruled.ears["one"].told().len();
        eventually(|| ruled.ears["one"].told().len(), |now| *now > told).await;
        assert!(before.elapsed() < Duration::from_secs(5));
        ruled.gate.allow();
        ruled.reason_is("both", "Watching").await;
        ruled.remove("both").await;
        ruled.open(&[]).await;
    }
    ruled.end().await;
}

/// A watch that was there and fails from then on is not taken for one that works; one that is cut and
/// goes on is.
#[actix::test]
async fn a_watch_that_keeps_failing_says_so() {
    let ruled = Ruled::with_maps().await;
    ruled.gate.trouble(Trouble::Cut);
    for _ in 0..20 {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(ruled.status("maps").await.conditions[0].reason, "Watching");
    }
    ruled.gate.refuse(MAPS_OF_A, 500);
    ruled.gate.trouble(Trouble::Cut);
    let message = ruled.reason_is("maps", "WatchFailed").await;
    assert!(message.starts_with("configmaps.v1 in a: "), "{message}");
    ruled.gate.allow();
    ruled.reason_is("maps", "Watching").await;
    ruled.end().await;
}

/// C136: whatever is tried meanwhile, a right that is missing is told once, and a right that is given
/// is used within half a minute.
#[actix::test]
async fn a_right_that_is_missing_is_told_once_and_used_soon_after_it_is_given() {
    let ruled = Ruled::start().await;
    let warnings = Warnings::listen();
    ruled.gate.refuse(MAPS_OF_A, 403);
    ruled
        .put("maps", "one", json!([item(&["configmaps"])]))
        .await;
    ruled.reason_is("maps", "Forbidden").await;
    sleep(Duration::from_secs(120)).await;
    assert_eq!(warnings.of("configmaps").len(), 1);
    ruled.gate.allow();
    let before = Instant::now();
    ruled.open(&[MAPS_OF_A]).await;
    assert!(before.elapsed() < Duration::from_secs(30));
    ruled.reason_is("maps", "Watching").await;
    ruled.write("a", "x", "1", json!({})).await;
    ruled.hears("one", &["CREATE x"]).await;
    ruled.end().await;
}

/// L35: without the right to watch CRDs types that come later are found at the next beat; it is not
/// worth a warning at each try.
#[actix::test]
async fn a_right_to_watch_crds_that_is_missing_is_told_once() {
    let warnings = Warnings::listen();
    let ruled = Ruled::start_as(Start {
        gate: {
            let gate = Gate::default();
            gate.refuse("/customresourcedefinitions", 403);
            gate
        },
        ..Start::default()
    })
    .await;
    sleep(Duration::from_secs(300)).await;
    let of_crds = warnings.of("customresourcedefinitions");
    assert_eq!(of_crds.len(), 1, "{of_crds:?}");
    ruled.gate.allow();
    sleep(Duration::from_secs(60)).await;
    ruled.gate.refuse("/customresourcedefinitions", 403);
    ruled.gate.trouble(Trouble::Cut);
    sleep(Duration::from_secs(300)).await;
    assert_eq!(warnings.of("customresourcedefinitions").len(), 2);
    ruled.end().await;
}
