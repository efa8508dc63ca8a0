//! Many files, many commits, and what is kept on this machine.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use muster_gitfiles::{Branch, Change, Config};

use crate::lab::{Lab, WAYS, Way, assert_sound, count, git, isolate, ls, noise, path, set, tip};

/// 100 folders with 100 files each.
fn name(n: usize) -> String {
    format!(
        "apps/v1/deployments/ns-{:02}/app-{:02}.yaml",
        n / 100,
        n % 100
    )
}

fn import(bare: &Path, files: usize) {
    let mut stream =
        "commit refs/heads/main\ncommitter Bob <bob@example.com> 0 +0000\ndata 1\nx\n".to_owned();
    for n in 0..files {
        let content = format!("replicas: {n}\n");
        write!(
            stream,
            "M 644 inline {}\ndata {}\n{content}\n",
            name(n),
            content.len()
        )
        .unwrap();
    }
    let mut command = Command::new("git");
    isolate(&mut command);
    let mut child = command
        .args(["fast-import", "--quiet"])
        .current_dir(bare)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(stream.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
}

fn new_objects(bare: &Path, before: &str) -> usize {
    git(
        bare,
        &["rev-list", "--objects", "main", &format!("^{before}")],
    )
    .lines()
    .count()
}

#[test]
fn a_commit_costs_what_changes_and_not_what_is_there() {
    let Some(lab) = Lab::new() else { return };
    for way in WAYS {
        let repository = format!("{way:?}.git");
        let bare = lab.bare(&repository);
        import(&bare, 10_000);
        let branch = lab.open(way, &repository);
        assert_eq!(branch.files().unwrap().len(), 10_000);
        let before = tip(&bare, "main").unwrap();
        // One in each folder: all 100 folders, and the four above them.
        let changes: Vec<Change> = (0..100).map(|n| set(&name(n * 100), "changed")).collect();
        assert_eq!(branch.commit(&changes, "x").unwrap().changed, 100);
        let written = new_objects(&bare, &before);
        // The content is the same everywhere: a commit, its trees, and one blob.
        assert_eq!(written, 1 + 104 + 1, "{way:?}");
        let before = tip(&bare, "main").unwrap();
        branch.commit(&[set(&name(5), "one")], "x").unwrap();
        assert_eq!(new_objects(&bare, &before), 1 + 5 + 1, "{way:?}");
        assert_eq!(ls(&bare, "main").len(), 10_000);
        assert_sound(&bare);
    }
}

#[test]
fn a_fetch_brings_what_is_new_and_no_history() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    // A history that is large, under a tip that is not.
    let noise = noise();
    lab.other_pushes(&bare, "main", &[("large", &noise)]);
    lab.other_pushes(&bare, "main", &[("large", "small now")]);
    import_on_top(&lab, &bare, 2_000);
    let branch = lab.open(Way::Http, "r.git");
    lab.http.take_served();
    let fetched = || {
        let served = lab.http.take_served();
        served
            .iter()
            .filter(|(method, target, _)| method == "POST" && target.ends_with("git-upload-pack"))
            .map(|(_, _, bytes)| *bytes)
            .collect::<Vec<_>>()
    };
    branch.files().unwrap();
    let first = fetched();
    assert_eq!(first.len(), 1);
    assert!((20_000..300_000).contains(&first[0]), "{first:?}");
    branch.files().unwrap();
    branch.commit(&[set("a", "1")], "x").unwrap();
    branch.commit(&[set("a", "2")], "x").unwrap();
    assert_eq!(fetched(), [0; 0], "what was pushed is here");
    lab.other_pushes(&bare, "main", &[(&name(7), "by another")]);
    branch.commit(&[set("a", "3")], "x").unwrap();
    let next = fetched();
    assert!(next.len() == 1 && next[0] < 5_000, "{next:?}");
    assert_sound(&bare);
}

fn import_on_top(lab: &Lab, bare: &Path, files: usize) {
    let files: Vec<(String, String)> = (0..files)
        .map(|n| (name(n), format!("replicas: {n}\n")))
        .collect();
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    lab.other_pushes(bare, "main", &files);
}

fn store_of(work_dir: &Path) -> PathBuf {
    let folders: Vec<PathBuf> = fs::read_dir(work_dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(folders.len(), 1);
    folders[0].clone()
}

fn packs(store: &Path) -> BTreeSet<String> {
    fs::read_dir(store.join("objects/pack"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn with_work_dir(lab: &Lab) -> Config {
    lab.config(Way::Http, "r.git", "main")
}

#[test]
fn what_is_kept_is_bounded_and_whole() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    let mut config = with_work_dir(&lab);
    config.limits.packs = 3;
    let work_dir = config.work_dir.clone();
    let branch = Branch::open(config).unwrap();
    for n in 0..10 {
        branch.commit(&[set(&format!("d{n}/a"), "1")], "x").unwrap();
        // With its index each, and no leftovers.
        let packs = packs(&store_of(&work_dir));
        assert!(packs.len() <= 2 * (3 + 1), "{packs:?}");
        assert!(
            packs.iter().all(|name| name.starts_with("pack-")),
            "{packs:?}"
        );
    }
    assert_eq!(count(&bare, "main"), 10);
    assert_eq!(branch.files().unwrap().len(), 10);
    assert_sound(&bare);
}

#[test]
fn what_is_kept_outlives_the_writer() {
    let Some(lab) = Lab::new() else { return };
    lab.bare("r.git");
    let config = with_work_dir(&lab);
    let branch = Branch::open(config.clone()).unwrap();
    branch.commit(&[set("a", "1")], "x").unwrap();
    drop(branch);
    lab.http.take_served();
    let branch = Branch::open(config).unwrap();
    assert_eq!(branch.read(&path("a")).unwrap().as_deref(), Some(&b"1"[..]));
    assert!(
        lab.http
            .take_served()
            .iter()
            .all(|(method, _, _)| method == "GET")
    );
}

#[test]
fn what_is_damaged_here_is_fetched_anew() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    let config = with_work_dir(&lab);
    let work_dir = config.work_dir.clone();
    let branch = Branch::open(config).unwrap();
    branch
        .commit(&[set("a", "1"), set("d/b", "2")], "x")
        .unwrap();
    let store = store_of(&work_dir);
    for damage in [
        Box::new(|| fs::remove_dir_all(store.join("objects")).unwrap()) as Box<dyn Fn()>,
        Box::new(|| {
            for pack in packs(&store) {
                let pack = store.join("objects/pack").join(pack);
                if pack.extension().is_none_or(|extension| extension != "pack") {
                    continue;
                }
                fs::remove_file(&pack).unwrap();
                fs::write(&pack, "PACK").unwrap();
            }
        }),
        Box::new(|| fs::write(store.join("tip"), "1".repeat(40)).unwrap()),
        Box::new(|| fs::write(store.join("tip"), "nonsense").unwrap()),
    ] {
        damage();
        assert_eq!(branch.files().unwrap(), [path("a"), path("d/b")]);
    }
    branch.commit(&[set("d/c", "2")], "x").unwrap();
    assert_eq!(ls(&bare, "main"), ["a", "d/b", "d/c"]);
    assert_sound(&bare);
}
