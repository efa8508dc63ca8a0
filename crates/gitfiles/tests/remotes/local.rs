//! Repositories of this machine that are not simply bare.

use std::fs;
use std::path::PathBuf;

use muster_gitfiles::{Branch, GitErrorKind};

use crate::lab::{Lab, Way, assert_sound, count, git, ls, set, tip};

fn with_work_tree(lab: &Lab) -> PathBuf {
    let path = lab.root().join("tree");
    git(
        lab.folder.path(),
        &["init", "-q", "-b", "main", path.to_str().unwrap()],
    );
    fs::write(path.join("a"), "1").unwrap();
    git(&path, &["add", "-A"]);
    git(&path, &["commit", "-q", "-m", "first"]);
    path
}

#[test]
fn a_branch_that_is_checked_out_is_not_written() {
    let Some(lab) = Lab::new() else { return };
    let path = with_work_tree(&lab);
    let before = tip(&path, "main");
    for name in ["tree", "tree/.git"] {
        let branch = lab.open(Way::Path, name);
        let error = branch.commit(&[set("b", "1")], "x").unwrap_err();
        assert!(matches!(error.kind, GitErrorKind::CheckedOut), "{error}");
        assert!(error.to_string().contains("checked out"), "{error}");
    }
    assert_eq!(tip(&path, "main"), before);
    // Another branch of it can be written, until it is checked out somewhere.
    let branch = Branch::open(lab.config(Way::Path, "tree", "ours")).unwrap();
    branch.commit(&[set("b", "1")], "x").unwrap();
    assert_eq!(ls(&path, "ours"), ["a", "b"]);
    let linked = lab.folder.path().join("linked");
    git(
        &path,
        &["worktree", "add", "-q", linked.to_str().unwrap(), "ours"],
    );
    let error = branch.commit(&[set("c", "1")], "x").unwrap_err();
    assert!(matches!(error.kind, GitErrorKind::CheckedOut), "{error}");
    let mut config = lab.config(Way::Path, "tree", "ours");
    config.url = linked.display().to_string();
    let error = Branch::open(config).unwrap().files().unwrap_err();
    assert!(
        matches!(error.kind, GitErrorKind::Unsupported { .. }),
        "{error}"
    );
    assert_sound(&path);
}

#[test]
fn the_server_says_so_where_a_branch_is_checked_out() {
    let Some(lab) = Lab::new() else { return };
    let path = with_work_tree(&lab);
    git(&path, &["config", "http.receivepack", "true"]);
    for way in [Way::Daemon, Way::Http] {
        let error = lab
            .open(way, "tree/.git")
            .commit(&[set("b", "1")], "x")
            .unwrap_err();
        assert!(
            matches!(error.kind, GitErrorKind::Refused { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("checked out"), "{error}");
    }
}

#[test]
fn packed_references_and_objects_are_read() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    lab.other_pushes(&bare, "main", &[("a", "1"), ("d/b", "2")]);
    git(&bare, &["gc", "-q"]);
    git(&bare, &["pack-refs", "--all"]);
    let branch = lab.open(Way::Path, "r.git");
    branch.commit(&[set("d/c", "3")], "x").unwrap();
    assert_eq!(ls(&bare, "main"), ["a", "d/b", "d/c"]);
    git(&bare, &["gc", "-q"]);
    branch.commit(&[set("e", "3")], "x").unwrap();
    assert_eq!(count(&bare, "main"), 3);
    assert_sound(&bare);
}

#[test]
fn a_url_of_a_file_is_a_path() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    let mut config = lab.config(Way::Path, "r.git", "main");
    config.url = format!("file://{}", bare.display());
    Branch::open(config)
        .unwrap()
        .commit(&[set("a", "1")], "x")
        .unwrap();
    assert_eq!(ls(&bare, "main"), ["a"]);
}

#[test]
fn a_lock_that_nobody_gives_back_is_told() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    lab.other_pushes(&bare, "main", &[("a", "1")]);
    let lock = bare.join("refs/heads/main.lock");
    fs::write(&lock, "").unwrap();
    let branch = lab.open(Way::Path, "r.git");
    let error = branch.commit(&[set("b", "1")], "x").unwrap_err();
    assert!(
        matches!(error.kind, GitErrorKind::Refused { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("lock"), "{error}");
    fs::remove_file(&lock).unwrap();
    branch.commit(&[set("b", "1")], "x").unwrap();
    assert_eq!(count(&bare, "main"), 2);
}

#[test]
fn other_formats_are_not_supported() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    git(&bare, &["config", "extensions.refStorage", "reftable"]);
    let error = lab.open(Way::Path, "r.git").files().unwrap_err();
    assert!(
        matches!(error.kind, GitErrorKind::Unsupported { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("reftable"), "{error}");
    fs::write(bare.join("config"), "[core\n").unwrap();
    let error = lab.open(Way::Path, "r.git").files().unwrap_err();
    assert!(
        matches!(error.kind, GitErrorKind::NotARepository { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("config"), "{error}");
}
