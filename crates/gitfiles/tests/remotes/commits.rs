//! What a commit does, on every way to a repository.

use std::fs;

use muster_gitfiles::{Branch, Branches, Config, GitErrorKind, Outcome};

use crate::lab::{
    Lab, WAYS, Way, assert_sound, count, delete, git, git_with_input, ls, path, set, tip,
};

#[test]
fn the_first_commit_creates_the_branch_of_an_empty_repository() {
    let Some(lab) = Lab::new() else { return };
    for way in WAYS {
        let name = format!("{way:?}.git");
        let bare = lab.bare(&name);
        let branch = lab.open(way, &name);
        assert_eq!(branch.files().unwrap(), []);
        assert_eq!(branch.read(&path("a")).unwrap(), None);
        let done = branch
            .commit(
                &[set("v1/a.yaml", "a: 1\n"), set("b", "")],
                "First\n\nof all",
            )
            .unwrap();
        assert_eq!(
            (done.changed, done.pushed, done.tries),
            (2, true, 1),
            "{way:?}"
        );
        assert_eq!(done.commit, tip(&bare, "main"));
        assert_eq!(ls(&bare, "main"), ["b", "v1/a.yaml"]);
        assert_eq!(git(&bare, &["show", "main:v1/a.yaml"]), "a: 1");
        assert_eq!(
            git(&bare, &["log", "-1", "--format=%B", "main"]),
            "First\n\nof all"
        );
        assert_eq!(
            git(
                &bare,
                &["log", "-1", "--format=%an %ae %at %cn %ce %ct", "main"]
            ),
            "Ann ann@example.com 1700000000 Ann ann@example.com 1700000000"
        );
        assert_eq!(count(&bare, "main"), 1);
        assert_sound(&bare);
        assert_eq!(branch.files().unwrap(), [path("b"), path("v1/a.yaml")]);
        assert_eq!(
            branch.read(&path("v1/a.yaml")).unwrap().as_deref(),
            Some(&b"a: 1\n"[..])
        );
        assert_eq!(branch.read(&path("v1")).unwrap(), None);
        assert_eq!(branch.read(&path("b/c")).unwrap(), None);
    }
}

#[test]
fn what_is_as_wanted_makes_no_commit_and_no_push() {
    let Some(lab) = Lab::new() else { return };
    for way in WAYS {
        let name = format!("{way:?}.git");
        let bare = lab.bare(&name);
        lab.other_pushes(&bare, "main", &[("a", "1"), ("d/b", "2")]);
        let before = tip(&bare, "main");
        let branch = lab.open(way, &name);
        lab.http.take_served();
        for changes in [
            vec![],
            vec![set("a", "1"), set("d/b", "2")],
            vec![delete("c"), delete("a/b"), delete("x/y"), delete("d")],
            vec![set("a", "5"), set("a", "1")],
        ] {
            let done = branch.commit(&changes, "nothing").unwrap();
            let nothing = Outcome {
                tries: 1,
                ..Outcome::default()
            };
            assert_eq!(done, nothing, "{way:?} {changes:?}");
        }
        assert_eq!(tip(&bare, "main"), before);
        let asked = lab.http.take_served();
        assert!(
            asked
                .iter()
                .all(|(_, target, _)| !target.contains("receive-pack")),
            "{asked:?}"
        );
        assert_eq!(
            asked.iter().any(|(method, _, _)| method == "POST"),
            way == Way::Http
        );
    }
}

#[test]
fn a_new_branch_starts_from_the_default_branch() {
    let Some(lab) = Lab::new() else { return };
    for way in WAYS {
        let name = format!("{way:?}.git");
        let bare = lab.bare(&name);
        lab.other_pushes(&bare, "main", &[("a", "1")]);
        let before = tip(&bare, "main");
        let branch = Branch::open(lab.config(way, &name, "clusters/c1")).unwrap();
        assert_eq!(branch.files().unwrap(), [path("a")]);
        branch.commit(&[set("b", "2")], "new").unwrap();
        assert_eq!(ls(&bare, "clusters/c1"), ["a", "b"]);
        assert_eq!(tip(&bare, "main"), before);
        assert_eq!(git(&bare, &["rev-parse", "clusters/c1^"]), before.unwrap());
        assert_sound(&bare);
    }
}

#[test]
fn files_outside_the_base_folder_are_never_touched() {
    let Some(lab) = Lab::new() else { return };
    for way in WAYS {
        let name = format!("{way:?}.git");
        let bare = lab.bare(&name);
        lab.other_pushes(
            &bare,
            "main",
            &[
                ("a", "1"),
                ("base/a", "2"),
                ("base2/a", "3"),
                ("x/base/a", "4"),
            ],
        );
        let mut config = lab.config(way, &name, "main");
        config.base = Some(path("base"));
        let branch = Branch::open(config).unwrap();
        assert_eq!(branch.files().unwrap(), [path("a")]);
        assert_eq!(branch.read(&path("a")).unwrap().as_deref(), Some(&b"2"[..]));
        let done = branch.commit(&[delete("a"), set("n/m", "5")], "x").unwrap();
        assert_eq!(done.changed, 2);
        assert_eq!(ls(&bare, "main"), ["a", "base/n/m", "base2/a", "x/base/a"]);
        // Deletes that empty a folder take it along, up to and with the base.
        branch.commit(&[delete("n/m")], "x").unwrap();
        assert_eq!(ls(&bare, "main"), ["a", "base2/a", "x/base/a"]);
        assert_eq!(
            git(&bare, &["ls-tree", "--name-only", "main"]),
            "a\nbase2\nx"
        );
        assert_eq!(branch.files().unwrap(), []);
        assert_sound(&bare);
    }
}

#[test]
fn the_last_file_can_go() {
    let Some(lab) = Lab::new() else { return };
    for way in WAYS {
        let name = format!("{way:?}.git");
        let bare = lab.bare(&name);
        let branch = lab.open(way, &name);
        branch.commit(&[set("a/b/c", "1")], "x").unwrap();
        branch.commit(&[delete("a/b/c")], "y").unwrap();
        assert_eq!(ls(&bare, "main"), [""; 0]);
        assert_eq!(count(&bare, "main"), 2);
        branch.commit(&[set("d", "1")], "z").unwrap();
        assert_eq!(ls(&bare, "main"), ["d"]);
        assert_sound(&bare);
    }
}

#[test]
fn files_and_folders_make_way_for_each_other() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    let branch = lab.open(Way::Http, "r.git");
    // Git sorts a.b before a/ and a/ before a0.
    branch
        .commit(&[set("a", "1"), set("a.b", "2"), set("a0", "3")], "x")
        .unwrap();
    branch.commit(&[delete("a"), set("a/b", "4")], "y").unwrap();
    assert_eq!(ls(&bare, "main"), ["a.b", "a/b", "a0"]);
    branch.commit(&[set("a", "5"), delete("a/b")], "z").unwrap();
    assert_eq!(ls(&bare, "main"), ["a", "a.b", "a0"]);
    assert_sound(&bare);
    let error = branch
        .commit(&[set("q", "1"), set("q/r", "2")], "x")
        .unwrap_err();
    assert!(
        matches!(error.kind, GitErrorKind::Occupied { .. }),
        "{error}"
    );
    let error = branch.commit(&[set("a/b", "2")], "x").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("a/b cannot be written: a file is in the way"),
        "{error}"
    );
    assert_eq!(ls(&bare, "main"), ["a", "a.b", "a0"]);
}

#[test]
fn entries_of_others_are_left_as_they_are() {
    let Some(lab) = Lab::new() else { return };
    for way in WAYS {
        let name = format!("{way:?}.git");
        let bare = lab.bare(&name);
        let blob = git(&bare, &["hash-object", "-w", "--stdin"]);
        let sub = "1".repeat(40);
        let clone = tempfile::tempdir_in(lab.folder.path()).unwrap();
        git(clone.path(), &["clone", "-q", bare.to_str().unwrap(), "."]);
        for (mode, id, at) in [
            ("100755", &blob, "d/run"),
            ("120000", &blob, "d/link"),
            ("160000", &sub, "d/sub"),
            ("100644", &blob, "d/file"),
        ] {
            git(clone.path(), &["fetch", "-q"]);
            std::fs::create_dir_all(clone.path().join(".git/objects/info")).unwrap();
            let alternates = format!("{}\n", bare.join("objects").display());
            std::fs::write(
                clone.path().join(".git/objects/info/alternates"),
                alternates,
            )
            .unwrap();
            git(
                clone.path(),
                &[
                    "update-index",
                    "--add",
                    "--cacheinfo",
                    &format!("{mode},{id},{at}"),
                ],
            );
        }
        git(clone.path(), &["commit", "-q", "-m", "odd"]);
        git(clone.path(), &["push", "-q", "origin", "HEAD:main"]);
        let branch = lab.open(way, &name);
        assert_eq!(branch.files().unwrap(), [path("d/file"), path("d/run")]);
        assert_eq!(branch.read(&path("d/link")).unwrap(), None);
        branch
            .commit(&[set("d/new", "1"), set("d/run", "2")], "x")
            .unwrap();
        let listed = git(&bare, &["ls-tree", "-r", "main"]);
        let modes: Vec<_> = listed
            .lines()
            .map(|line| (&line[..6], line.split('\t').nth(1).unwrap()))
            .collect();
        assert_eq!(
            modes,
            [
                ("100644", "d/file"),
                ("120000", "d/link"),
                ("100644", "d/new"),
                ("100755", "d/run"),
                ("160000", "d/sub"),
            ]
        );
        assert!(listed.contains(&sub));
        for (change, by) in [
            (set("d/link", "1"), "a symbolic link"),
            (set("d/sub/x", "1"), "a submodule"),
            (set("d/link/x", "1"), "a symbolic link"),
            (set("d", "1"), "a folder"),
        ] {
            let error = branch.commit(&[set("n", "1"), change], "x").unwrap_err();
            assert!(error.to_string().contains(by), "{error}");
        }
        // A link is not the file, and nothing of ours is below a submodule.
        let done = branch
            .commit(&[delete("d/link"), delete("d/sub/x"), delete("d/sub")], "x")
            .unwrap();
        assert_eq!(done.changed, 0);
        assert_eq!(count(&bare, "main"), 2);
    }
}

#[test]
fn names_that_could_not_have_been_written_are_not_listed() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    lab.other_pushes(
        &bare,
        "main",
        &[("a:b", "1"), ("ok", "2"), ("con/x", "3"), ("ü", "4")],
    );
    let branch = lab.open(Way::Daemon, "r.git");
    assert_eq!(branch.files().unwrap(), [path("ok"), path("ü")]);
    branch.commit(&[delete("ok")], "x").unwrap();
    assert_eq!(
        git(
            &bare,
            &[
                "-c",
                "core.quotePath=false",
                "ls-tree",
                "-r",
                "--name-only",
                "main"
            ]
        ),
        "a:b\ncon/x\nü"
    );
}

#[test]
fn writers_of_one_branch_take_turns() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    let branches = Branches::default();
    let config = |base: &str| Config {
        base: Some(path(base)),
        work_dir: lab.folder.path().join("work"),
        ..lab.config(Way::Http, "r.git", "main")
    };
    let writers: Vec<_> = (0..4)
        .map(|n| branches.open(config(&format!("w{n}"))).unwrap())
        .collect();
    assert_eq!(branches.count(), 1);
    std::thread::scope(|scope| {
        for writer in &writers {
            scope.spawn(move || {
                let done = writer.commit(&[set("a", "1")], "x").unwrap();
                assert_eq!(done.tries, 1);
            });
        }
    });
    assert_eq!(count(&bare, "main"), 4);
    assert_eq!(ls(&bare, "main"), ["w0/a", "w1/a", "w2/a", "w3/a"]);
}

#[test]
fn bad_messages_are_refused() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    let branch = lab.open(Way::Path, "r.git");
    for message in ["", " \n", "a\0b"] {
        let error = branch
            .commit(&[set("a", "1")], message)
            .unwrap_err()
            .to_string();
        assert!(error.contains("message cannot be used"), "{error}");
    }
    assert_eq!(tip(&bare, "main"), None);
}

#[test]
fn an_empty_folder_of_others_stays() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    // The git program makes none, but it keeps them.
    let empty = git(&bare, &["mktree"]);
    let tree = format!("040000 tree {empty}\te\n");
    fs::write(lab.folder.path().join("tree"), tree).unwrap();
    let root = git_with_input(&bare, &["mktree"], &lab.folder.path().join("tree"));
    let commit = git(&bare, &["commit-tree", "-m", "x", &root]);
    git(&bare, &["update-ref", "refs/heads/main", &commit]);
    let branch = lab.open(Way::Path, "r.git");
    let done = branch.commit(&[set("a", "1"), delete("e/x")], "x").unwrap();
    assert_eq!(done.changed, 1);
    assert_eq!(git(&bare, &["ls-tree", "--name-only", "main"]), "a\ne");
}
