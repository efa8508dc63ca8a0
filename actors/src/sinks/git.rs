//! The sink `git`: each object a file, each batch a commit.
//!
//! `v1/configmaps/ns1/a.yaml`, `apps/v1/deployments/ns1/web.yaml`: below the folder of the sink, the
//! API group (unless it is the core group), version and resource, the namespace if there is one, and
//! the name. A file that is as it should be is no change, and a batch without a change no commit. Of
//! several states of an object in one batch the last counts.
//!
//! A Secret is written only as what the encryption command makes of it; without one it is left out,
//! which is counted and said.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_core::rule_events::{Event, Operation};
use muster_core::watch_rules::Ordered;
use muster_core::yaml;
use muster_gitfiles::{
    Branch, Branches, Change, Config, FilePath, GitError, GitErrorKind, ObjectName, message,
};
use muster_metrics::{Label, Metric};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tracing::warn;

use super::{SECRETS, Sink, SinkError};
use crate::rules::SinkMaker;

const LEFT_OUT: Metric = Metric::counter(
    "muster_rule_git_left_out_total",
    "States of objects that a git sink did not write.",
)
.labels(&[Label::one_of(
    "reason",
    &[
        ("secret", "there is no command to encrypt it"),
        ("path", "its name cannot be a file"),
    ],
)]);

/// What is recorded of git sinks.
pub(super) const METRICS: &[Metric] = &[LEFT_OUT];

/// How long the encryption command may take: it may ask a key server.
const ENCRYPT_LIMIT: Duration = Duration::from_secs(60);

/// Makes sinks that write to one branch. Those of one process share its writer.
#[derive(Debug)]
pub struct GitSinks {
    config: Config,
    /// The folder in the repository, with `{cluster}` where the cluster's name is to be.
    folder: String,
    /// Encrypts a Secret, from standard input to standard output.
    encrypt: Option<Arc<[String]>>,
    branches: Branches,
    window: Duration,
}

impl GitSinks {
    /// Sinks with this configuration, each below the folder of its cluster. Changes that come within
    /// `window` of the first make one commit.
    pub fn new(
        config: Config,
        folder: impl Into<String>,
        encrypt: Option<Vec<String>>,
        branches: Branches,
        window: Duration,
    ) -> Self {
        Self {
            config,
            folder: folder.into(),
            encrypt: encrypt.map(Into::into),
            branches,
            window,
        }
    }
}

impl SinkMaker for GitSinks {
    fn make(&self, cluster: &str, was_told: bool) -> Box<dyn Sink> {
        let folder = self.folder.replace("{cluster}", cluster);
        let base = if folder.is_empty() {
            Ok(None)
        } else {
            FilePath::new(folder).map(Some)
        };
        let branch = match base {
            Ok(base) => {
                let config = Config {
                    base,
                    was_there: was_told,
                    ..self.config.clone()
                };
                self.branches
                    .open(config)
                    .map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        Box::new(GitSink {
            branch: branch.map(Arc::new),
            encrypt: self.encrypt.clone(),
            window: self.window,
        })
    }

    fn refuses(&self) -> Vec<((&str, &str), &str)> {
        let refused = self.encrypt.is_none().then_some((SECRETS, NO_COMMAND));
        refused.into_iter().collect()
    }
}

const NO_COMMAND: &str = "it writes a Secret only encrypted, and the settings of the sink name no \
     command for that (encrypt)";

struct GitSink {
    /// Or why there is none, which every event is answered with.
    branch: Result<Arc<Branch>, String>,
    encrypt: Option<Arc<[String]>>,
    window: Duration,
}

impl Sink for GitSink {
    fn deliver<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<(), SinkError>> {
        let branch = self.branch.clone();
        let (events, encrypt) = (events.to_vec(), self.encrypt.clone());
        async move {
            let branch = branch.map_err(SinkError::new)?;
            let commit = move || commit(&branch, &events, encrypt.as_deref());
            let done = tokio::task::spawn_blocking(commit).await;
            done.map_err(|error| SinkError::new(error.to_string()))?
        }
        .boxed()
    }

    fn window(&self) -> Duration {
        self.window
    }
}

fn commit(branch: &Branch, events: &[Event], encrypt: Option<&[String]>) -> Result<(), SinkError> {
    let mut changes: BTreeMap<FilePath, Option<Vec<u8>>> = BTreeMap::new();
    let mut told: BTreeMap<FilePath, (muster_gitfiles::Operation, ObjectName)> = BTreeMap::new();
    for event in events {
        let name = name_of(event);
        let path = match name.path() {
            Ok(path) => path,
            Err(error) => {
                left_out(event, "path", &error.to_string());
                continue;
            }
        };
        let is_secret = (&*name.group, &*name.resource) == SECRETS;
        let content = match (&event.object, encrypt) {
            (None, _) => None,
            (Some(_), None) if is_secret => {
                left_out(event, "secret", NO_COMMAND);
                continue;
            }
            (Some(object), encrypt) => {
                let yaml = yaml_of(object)?;
                Some(match encrypt.filter(|_| is_secret) {
                    Some(command) => encrypted(command, yaml.as_bytes(), ENCRYPT_LIMIT)?,
                    None => yaml.into_bytes(),
                })
            }
        };
        let operation = match event.operation {
            Operation::Create => muster_gitfiles::Operation::Create,
            Operation::Update => muster_gitfiles::Operation::Update,
            Operation::Delete => muster_gitfiles::Operation::Delete,
        };
        changes.insert(path.clone(), content);
        told.insert(path, (operation, name));
    }
    if changes.is_empty() {
        return Ok(());
    }
    let told: Vec<_> = told.into_values().collect();
    let changes: Vec<Change> = changes
        .into_iter()
        .map(|(path, content)| Change { path, content })
        .collect();
    branch
        .commit(&changes, &message(&told))
        .map_err(|error| failed(&error))?;
    Ok(())
}

fn failed(error: &GitError) -> SinkError {
    SinkError {
        // What was there is gone with its branch.
        lost: matches!(error.kind, GitErrorKind::BranchVanished),
        text: error.to_string(),
    }
}

fn name_of(event: &Event) -> ObjectName {
    let resource = &event.key.resource;
    ObjectName {
        group: resource.group().to_owned(),
        version: resource.version().to_owned(),
        resource: resource.resource().to_owned(),
        namespace: (!event.key.namespace.is_empty()).then(|| event.key.namespace.to_string()),
        name: event.key.name.to_string(),
    }
}

/// An event that no try would bring in must not hold up the others.
fn left_out(event: &Event, reason: &'static str, why: &str) {
    warn!(object = %event.key, reason, why, "object not written to git");
    metrics::counter!(LEFT_OUT.name, "reason" => reason).increment(1);
}

fn yaml_of(object: &str) -> Result<String, SinkError> {
    let object: Value = serde_json::from_str(object)
        .map_err(|error| SinkError::new(format!("failed to parse object: {error}")))?;
    serde_json::to_string(&Ordered(&object))
        .and_then(|json| yaml::from_json(&json))
        .map_err(|error| SinkError::new(format!("failed to write object as YAML: {error}")))
}

/// What the command makes of a Secret. It has failed if it says so, says nothing, or does not end. On a
/// thread that may be blocked.
fn encrypted(command: &[String], yaml: &[u8], limit: Duration) -> Result<Vec<u8>, SinkError> {
    let told = |why: String| SinkError::new(format!("encrypt: {}: {why}", command.join(" ")));
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| told("no program".into()))?;
    let run = async {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take();
        let write = async {
            if let Some(mut input) = input {
                // A command that does not read its input reports its own failure.
                let _ = input.write_all(yaml).await;
            }
        };
        // Beside each other: a command may answer before it has read everything.
        let (output, ()) = futures::join!(child.wait_with_output(), write);
        output
    };
    let output = match Handle::current().block_on(async { timeout(limit, run).await }) {
        Ok(output) => output.map_err(|error| told(error.to_string()))?,
        Err(_) => return Err(told(format!("no end within {limit:?}"))),
    };
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        return Err(told(format!(
            "{}: {}",
            output.status,
            last.unwrap_or_default()
        )));
    }
    if output.stdout.is_empty() {
        return Err(told("it gave nothing".to_owned()));
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use muster_core::rule_events::ObjectKey;
    use muster_core::watch_plan::Resource;

    use super::super::body;
    use super::*;

    /// Runs git in a folder, which is there wherever this is built.
    fn git(folder: &Path, args: &[&str]) -> String {
        let output = std::process::Command::new("git")
            .args(args)
            .current_dir(folder)
            .output()
            .expect("the program git, for tests");
        assert!(output.status.success(), "git {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    struct World {
        folder: tempfile::TempDir,
        encrypt: Option<Vec<String>>,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            git(folder.path(), &["init", "-q", "--bare", "repository"]);
            Self {
                folder,
                encrypt: None,
            }
        }

        fn repository(&self) -> std::path::PathBuf {
            self.folder.path().join("repository")
        }

        fn sinks(&self, url: &str) -> GitSinks {
            let config = Config::new(url, "main", self.folder.path().join("work"));
            let encrypt = self.encrypt.clone();
            GitSinks::new(
                config,
                "fleet/{cluster}",
                encrypt,
                Branches::default(),
                Duration::ZERO,
            )
        }

        fn sink(&self, url: &str) -> Box<dyn Sink> {
            self.sinks(url).make("c1", false)
        }

        fn url(&self) -> String {
            self.repository().display().to_string()
        }

        async fn delivers(&self, events: &[Event]) -> Result<(), SinkError> {
            self.sink(&self.url()).deliver(events).await
        }

        fn file(&self, path: &str) -> String {
            git(&self.repository(), &["show", &format!("main:{path}")])
        }

        fn files(&self) -> Vec<String> {
            let listed = git(
                &self.repository(),
                &["ls-tree", "-r", "--name-only", "main"],
            );
            listed.lines().map(ToOwned::to_owned).collect()
        }

        fn subjects(&self) -> Vec<String> {
            let log = git(&self.repository(), &["log", "--format=%s", "main"]);
            log.lines().map(ToOwned::to_owned).collect()
        }
    }

    fn event(operation: Operation, resource: (&str, &str), name: &str, object: &str) -> Event {
        let object = (operation != Operation::Delete).then_some(object);
        Event {
            key: ObjectKey {
                resource: Resource::new(resource.0, "v1", resource.1),
                namespace: "ns1".into(),
                name: name.into(),
            },
            kind: "Kind".into(),
            ..body::tests::event(operation, object)
        }
    }

    const MAPS: (&str, &str) = ("", "configmaps");
    const MAP: &str = r#"{"kind":"ConfigMap","data":{"b":"2","a":"1"},"metadata":{"name":"a"},"apiVersion":"v1"}"#;

    /// S107, S114, S121, S131, S137, S142, S143.
    #[tokio::test]
    async fn each_object_is_a_file_and_each_batch_a_commit() {
        let world = World::new();
        let create = event(Operation::Create, MAPS, "a", MAP);
        let web = event(
            Operation::Create,
            ("apps", "deployments"),
            "web",
            "{\"a\": 1}",
        );
        world.delivers(&[create.clone(), web]).await.unwrap();
        let paths = [
            "fleet/c1/apps/v1/deployments/ns1/web.yaml",
            "fleet/c1/v1/configmaps/ns1/a.yaml",
        ];
        assert_eq!(world.files(), paths);
        let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: \"1\"\n  b: \"2\"\n";
        assert_eq!(world.file(paths[1]), yaml);
        // The same again is no commit; of two states the last counts.
        world.delivers(&[create]).await.unwrap();
        let other = MAP.replace('1', "3");
        let updates = [
            event(Operation::Update, MAPS, "a", &MAP.replace('1', "2")),
            event(Operation::Update, MAPS, "a", &other),
        ];
        world.delivers(&updates).await.unwrap();
        assert!(world.file(paths[1]).contains("a: \"3\""));
        let delete = event(Operation::Delete, MAPS, "a", "");
        world.delivers(std::slice::from_ref(&delete)).await.unwrap();
        world.delivers(&[delete]).await.unwrap();
        assert_eq!(world.files(), [paths[0]]);
        let subjects = world.subjects();
        assert_eq!(subjects.len(), 3, "{subjects:?}");
        assert_eq!(subjects[0], "[DELETE] v1/configmaps/ns1/a");
        assert_eq!(subjects[1], "[UPDATE] v1/configmaps/ns1/a");
    }

    /// A key server that does not answer must not hold up the sink for ever.
    #[tokio::test]
    async fn a_command_that_does_not_end_is_given_up() {
        let limit = Duration::from_millis(50);
        let command = ["sleep", "600"].map(str::to_owned);
        let run = move || encrypted(&command, b"x", limit);
        let error = tokio::task::spawn_blocking(run).await.unwrap().unwrap_err();
        assert_eq!(error.text, "encrypt: sleep 600: no end within 50ms");
    }

    /// L43: a Secret is never there in plain text.
    #[tokio::test]
    async fn secrets_are_left_out_or_encrypted() {
        let secret = event(
            Operation::Create,
            ("", "secrets"),
            "s",
            r#"{"data":{"password":"aHVudGVyMg=="}}"#,
        );
        let map = event(Operation::Create, MAPS, "a", MAP);
        let mut world = World::new();
        world.delivers(&[secret.clone(), map]).await.unwrap();
        assert_eq!(world.files(), ["fleet/c1/v1/configmaps/ns1/a.yaml"]);
        let refused = world.sinks(&world.url()).refuses().len();
        let command = |text: &str| Some(["sh", "-c", text].map(str::to_owned).to_vec());
        world.encrypt = command("tr a-zA-Z n-za-mN-ZA-M");
        let taken = world.sinks(&world.url()).refuses().is_empty();
        assert!(refused == 1 && taken);
        world.delivers(std::slice::from_ref(&secret)).await.unwrap();
        let file = world.file("fleet/c1/v1/secrets/ns1/s.yaml");
        assert!(
            file.contains("cnffjbeq") && !file.contains("aHVudGVyMg"),
            "{file}"
        );
        for (text, told) in [
            ("echo no key >&2; exit 3", "no key"),
            ("true", "it gave nothing"),
        ] {
            world.encrypt = command(text);
            let update = Event {
                operation: Operation::Update,
                ..secret.clone()
            };
            let error = world.delivers(&[update]).await.unwrap_err();
            assert!(error.text.contains(told), "{error}");
            assert!(error.text.starts_with("encrypt: sh -c"), "{error}");
        }
        world.encrypt = Some(vec!["no-such-program".to_owned()]);
        let error = world.delivers(&[secret]).await.unwrap_err();
        assert!(
            error.text.starts_with("encrypt: no-such-program"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn what_is_wrong_with_the_repository_is_told() {
        let world = World::new();
        let map = event(Operation::Create, MAPS, "a", MAP);
        let missing = world.folder.path().join("none").display().to_string();
        let error = world
            .sink(&missing)
            .deliver(std::slice::from_ref(&map))
            .await
            .unwrap_err();
        assert!(error.text.contains(&missing) && !error.lost, "{error}");
        // A branch that is gone takes everything along: it has to be told anew.
        let url = world.repository().display().to_string();
        let mut sink = world.sink(&url);
        sink.deliver(std::slice::from_ref(&map)).await.unwrap();
        git(
            &world.repository(),
            &["update-ref", "-d", "refs/heads/main"],
        );
        let other = event(Operation::Create, MAPS, "b", MAP);
        let error = sink
            .deliver(std::slice::from_ref(&other))
            .await
            .unwrap_err();
        assert!(error.lost, "{error}");
        let all = [map, other];
        sink.deliver(&all).await.unwrap();
        assert_eq!(world.files().len(), 2);
        // Nor need the agent have been there when it went.
        drop(sink);
        git(
            &world.repository(),
            &["update-ref", "-d", "refs/heads/main"],
        );
        let mut sink = world.sinks(&url).make("c1", true);
        assert!(sink.deliver(&all[..1]).await.unwrap_err().lost);
        sink.deliver(&all).await.unwrap();
        assert_eq!(world.files().len(), 2);
    }

    /// A folder that is none, for a cluster whose name makes it so.
    #[tokio::test]
    async fn a_folder_outside_is_refused() {
        let world = World::new();
        let config = Config::new(
            world.repository().display().to_string(),
            "main",
            world.folder.path().join("work"),
        );
        let branches = Branches::default();
        let sinks = GitSinks::new(config, "../{cluster}", None, branches, Duration::ZERO);
        let map = event(Operation::Create, MAPS, "a", MAP);
        let error = sinks.make("c1", false).deliver(&[map]).await.unwrap_err();
        assert!(error.text.contains("../c1"), "{error}");
    }
}
