//! A folder with repositories, the `git` program to look at them, and servers for them.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_gitfiles::{Author, Branch, Change, Config, FilePath, Pace};

use crate::http_server::HttpServer;
use crate::servers::DaemonServer;

/// The ways to a repository that every test of behaviour goes.
pub(crate) const WAYS: [Way; 3] = [Way::Path, Way::Daemon, Way::Http];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Path,
    Daemon,
    Http,
}

/// A clock that stands, and waiting that takes no time.
#[derive(Debug, Default)]
pub(crate) struct StillPace {
    pub(crate) waited: Mutex<Vec<Duration>>,
}

impl Pace for StillPace {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000)
    }

    fn sleep(&self, wait: Duration) {
        self.waited.lock().unwrap().push(wait);
    }

    fn chance(&self) -> f64 {
        0.5
    }
}

pub(crate) struct Lab {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) pace: Arc<StillPace>,
    daemon: DaemonServer,
    pub(crate) http: HttpServer,
}

impl Lab {
    /// Nothing, with a word on why, if there is no `git` here. In CI there has to be one.
    pub(crate) fn new() -> Option<Self> {
        let has_git = Command::new("git").arg("--version").output().is_ok();
        if !has_git {
            assert_ne!(
                std::env::var("CI").as_deref(),
                Ok("true"),
                "no git on the PATH"
            );
            eprintln!("skipped: no git on the PATH; install the package git");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        for name in ["repositories", "clones", "home"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let root = folder.path().join("repositories");
        Some(Self {
            pace: Arc::default(),
            daemon: DaemonServer::start(root.clone()),
            http: HttpServer::start(root, None),
            folder,
        })
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("repositories")
    }

    /// Makes a bare repository with nothing in it.
    pub(crate) fn bare(&self, name: &str) -> PathBuf {
        let path = self.root().join(name);
        git(
            self.folder.path(),
            &["init", "-q", "--bare", "-b", "main", path.to_str().unwrap()],
        );
        git(&path, &["config", "http.receivepack", "true"]);
        git(&path, &["config", "receive.fsckObjects", "true"]);
        path
    }

    /// How to name repository `name` on `way`.
    pub(crate) fn url(&self, way: Way, name: &str) -> String {
        match way {
            Way::Path => self.root().join(name).display().to_string(),
            Way::Daemon => format!("git://127.0.0.1:{}/{name}", self.daemon.port()),
            Way::Http => format!("http://127.0.0.1:{}/{name}", self.http.port()),
        }
    }

    /// Settings with a working folder that nobody else has.
    pub(crate) fn config(&self, way: Way, name: &str, branch: &str) -> Config {
        let work_dir = tempfile::tempdir_in(self.folder.path()).unwrap().keep();
        let mut config = Config::new(self.url(way, name), branch, work_dir);
        config.pace = self.pace.clone();
        config.author = Author {
            name: "Ann".to_owned(),
            email: "ann@example.com".to_owned(),
        };
        config
    }

    pub(crate) fn open(&self, way: Way, name: &str) -> Branch {
        Branch::open(self.config(way, name, "main")).unwrap()
    }

    /// Someone else commits and pushes with the git program.
    pub(crate) fn other_pushes(&self, bare: &Path, branch: &str, files: &[(&str, &str)]) {
        push_by_git(&self.folder.path().join("clones"), bare, branch, files);
    }
}

/// See [`Lab::other_pushes`]; for threads that have no lab.
pub(crate) fn push_by_git(clones: &Path, bare: &Path, branch: &str, files: &[(&str, &str)]) {
    let clone = tempfile::tempdir_in(clones).unwrap();
    let clone = clone.path();
    git(clone, &["clone", "-q", bare.to_str().unwrap(), "."]);
    let remote_branch = format!("origin/{branch}");
    if try_git(clone, &["rev-parse", "-q", "--verify", &remote_branch]).is_some() {
        git(clone, &["checkout", "-q", "-B", branch, &remote_branch]);
    } else {
        git(clone, &["checkout", "-q", "-B", branch]);
    }
    for (path, content) in files {
        let path = clone.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    git(clone, &["add", "-A"]);
    git(clone, &["commit", "-q", "-m", "by another"]);
    git(clone, &["push", "-q", "origin", branch]);
}

fn command(dir: &Path, args: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new("git");
    isolate(&mut command);
    command
        .current_dir(dir)
        .args(args)
        .stdin(Stdio::null())
        .env("GIT_AUTHOR_NAME", "Bob")
        .env("GIT_AUTHOR_EMAIL", "bob@example.com")
        .env("GIT_COMMITTER_NAME", "Bob")
        .env("GIT_COMMITTER_EMAIL", "bob@example.com");
    command
}

/// Keeps the machine's settings of Git out.
pub(crate) fn isolate(command: &mut Command) {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("GIT_")) {
        command.env_remove(name);
    }
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0");
}

/// What `git` prints; nothing if it fails.
pub(crate) fn try_git(dir: &Path, args: &[&str]) -> Option<String> {
    let output = command(dir, args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned();
    output.status.success().then_some(text)
}

/// What `git` prints. It has to succeed.
pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    git_with_input(dir, args, Path::new("/dev/null"))
}

/// What `git` prints when it reads a file. It has to succeed.
pub(crate) fn git_with_input(dir: &Path, args: &[&str], input: &Path) -> String {
    let input = fs::File::open(input).unwrap();
    let output = command(dir, args).stdin(input).output().unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .trim_end()
        .to_owned()
}

/// The paths of all files of a branch.
pub(crate) fn ls(bare: &Path, branch: &str) -> Vec<String> {
    let listed = git(bare, &["ls-tree", "-r", "--name-only", branch]);
    listed.lines().map(str::to_owned).collect()
}

pub(crate) fn count(bare: &Path, branch: &str) -> usize {
    git(bare, &["rev-list", "--count", branch]).parse().unwrap()
}

pub(crate) fn tip(bare: &Path, branch: &str) -> Option<String> {
    try_git(
        bare,
        &[
            "rev-parse",
            "-q",
            "--verify",
            &format!("refs/heads/{branch}"),
        ],
    )
}

/// What Git itself has to say against a repository.
pub(crate) fn assert_sound(bare: &Path) {
    git(bare, &["fsck", "--strict", "--full"]);
}

/// Some 600,000 bytes that no compression makes much smaller.
pub(crate) fn noise() -> String {
    let mut text = String::new();
    for n in 0..40_000_u64 {
        write!(text, "{:x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).unwrap();
    }
    text
}

pub(crate) fn path(text: &str) -> FilePath {
    FilePath::new(text).unwrap()
}

pub(crate) fn set(at: &str, content: &str) -> Change {
    Change {
        path: path(at),
        content: Some(content.as_bytes().to_vec()),
    }
}

pub(crate) fn delete(at: &str) -> Change {
    Change {
        path: path(at),
        content: None,
    }
}
