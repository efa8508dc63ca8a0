//! Others push to the same branch.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use muster_gitfiles::{Branch, Branches, Config, FilePath, GitErrorKind};

use crate::lab::{
    Lab, WAYS, Way, assert_sound, count, delete, git, ls, path, push_by_git, set, tip,
};

/// The other pushes at this request: before the branch is looked at for the push, and after that,
/// where only the server can notice.
const BETWEEN: [&str; 2] = [
    "GET /r.git/info/refs?service=git-receive-pack",
    "POST /r.git/git-receive-pack",
];

#[test]
fn a_commit_is_built_anew_on_what_another_pushed() {
    for (between, packs_sent) in BETWEEN.into_iter().zip([1, 2]) {
        let Some(lab) = Lab::new() else { return };
        let bare = lab.bare("r.git");
        lab.other_pushes(&bare, "main", &[("a", "1"), ("b", "1")]);
        let branch = lab.open(Way::Http, "r.git");
        let (clones, there) = (lab.folder.path().join("clones"), bare.clone());
        lab.http.before_first(between, move || {
            push_by_git(&clones, &there, "main", &[("a", "2"), ("theirs", "2")]);
        });
        let done = branch
            .commit(&[set("b", "3"), set("ours", "3")], "ours")
            .unwrap();
        assert_eq!(
            (done.changed, done.pushed, done.tries),
            (2, true, 2),
            "{between}"
        );
        assert_eq!(done.commit, tip(&bare, "main"));
        let sent = lab.http.take_served().into_iter();
        let sent = sent
            .filter(|(method, target, _)| method == "POST" && target.ends_with("git-receive-pack"));
        assert_eq!(sent.count(), packs_sent);
        assert_eq!(ls(&bare, "main"), ["a", "b", "ours", "theirs"]);
        assert_eq!(git(&bare, &["show", "main:a"]), "2");
        assert_eq!(git(&bare, &["show", "main:b"]), "3");
        // One line of history, without a merge.
        assert_eq!(count(&bare, "main"), 3);
        assert_eq!(git(&bare, &["rev-list", "--merges", "main"]), "");
        assert_sound(&bare);
        assert_eq!(
            *lab.pace.waited.lock().unwrap(),
            [Duration::from_millis(150)]
        );
    }
}

#[test]
fn nothing_is_left_to_do_if_another_did_the_same() {
    for between in BETWEEN {
        let Some(lab) = Lab::new() else { return };
        let bare = lab.bare("r.git");
        lab.other_pushes(&bare, "main", &[("a", "1")]);
        let branch = lab.open(Way::Http, "r.git");
        let (clones, there) = (lab.folder.path().join("clones"), bare.clone());
        lab.http.before_first(between, move || {
            push_by_git(&clones, &there, "main", &[("a", "2")]);
        });
        let done = branch.commit(&[set("a", "2")], "ours").unwrap();
        assert_eq!((done.commit, done.changed, done.tries), (None, 0, 2));
        assert_eq!(count(&bare, "main"), 2);
    }
}

#[test]
fn another_may_create_the_branch_first() {
    for between in BETWEEN {
        let Some(lab) = Lab::new() else { return };
        let bare = lab.bare("r.git");
        let branch = lab.open(Way::Http, "r.git");
        let (clones, there) = (lab.folder.path().join("clones"), bare.clone());
        lab.http.before_first(between, move || {
            push_by_git(&clones, &there, "main", &[("theirs", "2")]);
        });
        assert_eq!(branch.commit(&[set("ours", "1")], "ours").unwrap().tries, 2);
        assert_eq!(ls(&bare, "main"), ["ours", "theirs"]);
        assert_eq!(count(&bare, "main"), 2);
    }
}

#[test]
fn one_who_always_loses_gives_up_and_can_begin_again() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    lab.other_pushes(&bare, "main", &[("a", "0")]);
    let mut config = lab.config(Way::Http, "r.git", "main");
    config.limits.tries = 3;
    let branch = Branch::open(config).unwrap();
    let pushed = Arc::new(AtomicUsize::new(0));
    let (counter, clones, there) = (
        pushed.clone(),
        lab.folder.path().join("clones"),
        bare.clone(),
    );
    lab.http.intercept(move |method, target| {
        if method == "POST" && target.ends_with("git-receive-pack") {
            let n = counter.fetch_add(1, Ordering::SeqCst);
            push_by_git(
                &clones,
                &there,
                "main",
                &[("a", &format!("by another {n}"))],
            );
        }
        None
    });
    let error = branch.commit(&[set("b", "1")], "x").unwrap_err();
    assert!(
        matches!(error.kind, GitErrorKind::UnknownCommits { tries: 3 }),
        "{error}"
    );
    assert!(error.is_transient());
    let text = error.to_string();
    assert!(
        text.contains(&lab.url(Way::Http, "r.git")) && text.contains("branch main"),
        "{text}"
    );
    assert_eq!(pushed.load(Ordering::SeqCst), 3);
    let waits: Vec<u128> = lab
        .pace
        .waited
        .lock()
        .unwrap()
        .iter()
        .map(Duration::as_millis)
        .collect();
    assert_eq!(waits, [150, 300]);
    assert_eq!(ls(&bare, "main"), ["a"]);

    lab.http.intercept(|_, _| None);
    assert_eq!(branch.commit(&[set("b", "1")], "x").unwrap().tries, 1);
    assert_eq!(count(&bare, "main"), 5);
    assert_sound(&bare);
}

#[test]
fn three_writers_at_once_all_succeed() {
    let Some(lab) = Lab::new() else { return };
    for way in WAYS {
        let name = format!("{way:?}.git");
        let bare = lab.bare(&name);
        lab.other_pushes(&bare, "main", &[("a", "1")]);
        // Each with a clone of its own, as three processes have.
        let writers: Vec<Branch> = (0..3).map(|_| lab.open(way, &name)).collect();
        std::thread::scope(|scope| {
            for (n, writer) in writers.iter().enumerate() {
                scope.spawn(move || {
                    let file = format!("by/{n}");
                    writer
                        .commit(&[set(&file, "1"), set("all", &file)], "x")
                        .unwrap();
                });
            }
        });
        assert_eq!(count(&bare, "main"), 1 + 3, "{way:?}");
        assert_eq!(
            ls(&bare, "main"),
            ["a", "all", "by/0", "by/1", "by/2"],
            "{way:?}"
        );
        assert_sound(&bare);
    }
}

#[test]
fn a_branch_that_vanishes_is_told_once_and_then_begun_anew() {
    let Some(lab) = Lab::new() else { return };
    for way in WAYS {
        let name = format!("{way:?}.git");
        let bare = lab.bare(&name);
        lab.other_pushes(&bare, "main", &[("a", "1")]);
        let branch = Branch::open(lab.config(way, &name, "ours")).unwrap();
        branch.commit(&[set("b", "1")], "x").unwrap();
        git(&bare, &["branch", "-D", "ours"]);
        let error = branch.commit(&[set("c", "1")], "x").unwrap_err();
        assert!(
            matches!(error.kind, GitErrorKind::BranchVanished),
            "{error}"
        );
        let text = error.to_string();
        assert!(
            text.contains("branch ours of") && text.contains("vanished"),
            "{text}"
        );
        assert_eq!(tip(&bare, "ours"), None);
        branch.commit(&[set("c", "1")], "x").unwrap();
        assert_eq!(ls(&bare, "ours"), ["a", "c"]);
    }
}

/// Each writer has had files there.
#[test]
fn every_writer_is_told_that_its_branch_has_vanished() {
    let Some(lab) = Lab::new() else { return };
    for way in WAYS {
        let name = format!("{way:?}.git");
        let bare = lab.bare(&name);
        let branches = Branches::default();
        let open = |base: &str, was_there| {
            let config = Config {
                base: Some(FilePath::new(base).unwrap()),
                was_there,
                ..lab.config(way, &name, "ours")
            };
            branches.open(config).unwrap()
        };
        let vanished = |branch: &Branch, path: &str| {
            let error = branch.commit(&[set(path, "1")], "x").unwrap_err();
            assert!(
                matches!(error.kind, GitErrorKind::BranchVanished),
                "{error}"
            );
        };
        let (one, two) = (open("one", false), open("two", false));
        one.commit(&[set("a", "1")], "x").unwrap();
        two.commit(&[set("a", "1")], "x").unwrap();
        git(&bare, &["branch", "-D", "ours"]);
        vanished(&one, "b");
        one.commit(&[set("b", "1")], "x").unwrap();
        // It is there again, and not with what the other had.
        vanished(&two, "b");
        two.commit(&[set("b", "1")], "x").unwrap();
        // Who comes later has had nothing, unless it says so.
        drop((one, two));
        git(&bare, &["branch", "-D", "ours"]);
        let (new, old) = (open("new", false), open("old", true));
        vanished(&old, "b");
        old.commit(&[set("b", "1")], "x").unwrap();
        vanished(&new, "b");
        new.commit(&[set("b", "1")], "x").unwrap();
        assert_eq!(ls(&bare, "ours"), ["new/b", "old/b"]);
    }
}

#[test]
fn a_branch_may_vanish_between_fetch_and_push() {
    for between in BETWEEN {
        let Some(lab) = Lab::new() else { return };
        let bare = lab.bare("r.git");
        lab.other_pushes(&bare, "main", &[("a", "1")]);
        let branch = Branch::open(lab.config(Way::Http, "r.git", "ours")).unwrap();
        branch.commit(&[set("b", "1")], "x").unwrap();
        let there = bare.clone();
        lab.http.before_first(between, move || {
            git(&there, &["branch", "-D", "ours"]);
        });
        let error = branch.commit(&[set("c", "1")], "x").unwrap_err();
        assert!(
            matches!(error.kind, GitErrorKind::BranchVanished),
            "{between}: {error}"
        );
        assert_eq!(tip(&bare, "ours"), None);
        branch.commit(&[set("c", "1")], "x").unwrap();
        assert_eq!(ls(&bare, "ours"), ["a", "c"]);
    }
}

#[test]
fn history_may_be_rewritten_by_others() {
    let Some(lab) = Lab::new() else { return };
    for way in WAYS {
        let name = format!("{way:?}.git");
        let bare = lab.bare(&name);
        lab.other_pushes(&bare, "main", &[("a", "1")]);
        let first = tip(&bare, "main").unwrap();
        let branch = lab.open(way, &name);
        branch.commit(&[set("b", "1"), delete("a")], "x").unwrap();
        branch.commit(&[set("c", "1")], "x").unwrap();
        git(&bare, &["update-ref", "refs/heads/main", &first]);
        // Back to a commit that this machine may have had, and does not have the tree of.
        branch.commit(&[set("d", "1")], "x").unwrap();
        assert_eq!(ls(&bare, "main"), ["a", "d"], "{way:?}");
        assert_eq!(count(&bare, "main"), 2);
        assert_sound(&bare);
    }
}

#[test]
fn a_reference_that_is_locked_just_then_is_tried_again() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    lab.other_pushes(&bare, "main", &[("a", "1")]);
    let branch = lab.open(Way::Http, "r.git");
    let lock = bare.join("refs/heads/main.lock");
    let mut pushes = 0;
    lab.http.intercept(move |method, target| {
        if method == "POST" && target.ends_with("git-receive-pack") {
            pushes += 1;
            if pushes == 1 {
                fs::write(&lock, "").unwrap();
            }
        } else if target.ends_with("service=git-upload-pack") && lock.exists() {
            fs::remove_file(&lock).unwrap();
        }
        None
    });
    assert_eq!(branch.commit(&[set("b", "1")], "x").unwrap().tries, 2);
    assert_eq!(count(&bare, "main"), 2);
}

#[test]
fn another_may_take_back_what_was_before_the_first_look() {
    let Some(lab) = Lab::new() else { return };
    for way in WAYS {
        let name = format!("{way:?}.git");
        let bare = lab.bare(&name);
        lab.other_pushes(&bare, "main", &[("d/a", "old")]);
        lab.other_pushes(&bare, "main", &[("d/a", "new")]);
        git(&bare, &["repack", "-q", "-a", "-d", "-b"]);
        let branch = lab.open(way, &name);
        assert_eq!(branch.files().unwrap(), [path("d/a")]);
        // Tree and blob are those of the history that was not fetched.
        lab.other_pushes(&bare, "main", &[("d/a", "old")]);
        branch.commit(&[set("d/b", "1")], "x").unwrap();
        assert_eq!(
            branch.read(&path("d/a")).unwrap().as_deref(),
            Some(&b"old"[..])
        );
        assert_eq!(ls(&bare, "main"), ["d/a", "d/b"]);
        assert_sound(&bare);
    }
}
