//! Turns stories into tests: names them, runs them side by side, tells skipped from passed.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::{Builder, Handle};
use tokio::time::timeout;

use super::own_process::CannotHere;
use super::parts::MissingPart;
use super::world::{Backend, Servers, World};

/// How many stories run at a time unless `--test-threads` says otherwise. They wait for
/// servers more than they compute, so more than there are cores.
const STORIES_AT_A_TIME: usize = 8;

/// How long a story may take before it has failed, if it does not say. Each wait inside a story has
/// its own limit and a better message; this one only keeps a hanging story from hanging the run.
const STORY_LIMIT: Duration = Duration::from_secs(360);

type Telling = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// A story, not yet told.
pub(crate) struct Story {
    name: String,
    limit: Duration,
    tell: Box<dyn FnOnce(Arc<Servers>) -> Telling + Send>,
}

impl Story {
    /// A story about a cluster: one test for each backend, `real::NAME` and so on.
    pub(crate) fn on_each_backend<Fut>(name: &str, tell: fn(World) -> Fut) -> Vec<Self>
    where
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let on = |backend: Backend| Self {
            name: format!("{}::{name}", backend.name()),
            limit: STORY_LIMIT,
            tell: Box::new(move |servers| Box::pin(tell(World::new(backend, servers)))),
        };
        Backend::ALL.map(on).into()
    }

    /// A story about a part itself.
    pub(crate) fn once<Fut>(name: &str, tell: fn(Arc<Servers>) -> Fut) -> Vec<Self>
    where
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        vec![Self {
            name: name.to_owned(),
            limit: STORY_LIMIT,
            tell: Box::new(move |servers| Box::pin(tell(servers))),
        }]
    }

    /// Lets it take so long.
    pub(crate) fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Makes a test of it that runs on `runtime`.
    fn into_trial(self, runtime: Handle, servers: Arc<Servers>) -> Trial {
        let limit = self.limit;
        Trial::ignorable_test(self.name, move || {
            // Spawned, not only waited for: a client's pooled connections live on the
            // runtime that first polls them, and stories share clients.
            let told = async move { timeout(limit, (self.tell)(servers)).await };
            let told = runtime.spawn(told);
            match runtime.block_on(told) {
                Ok(Ok(told)) => verdict(told),
                Ok(Err(_)) => Err(format!("not at its end after {limit:?}").into()),
                Err(ended) => match ended.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(cancelled) => Err(cancelled.into()),
                },
            }
        })
    }
}

/// A missing part skips a story, except where CI promises that every part is there.
fn verdict(told: Result<()>) -> Result<Completion, Failed> {
    match told {
        Ok(()) => Ok(Completion::Completed),
        Err(err)
            if (err.is::<MissingPart>() || err.is::<CannotHere>())
                && std::env::var("CI").as_deref() != Ok("true") =>
        {
            Ok(Completion::ignored_with(format!("{err:#}")))
        }
        Err(err) => Err(format!("{err:#}").into()),
    }
}

/// Tells the stories that the command line asks for.
pub(crate) fn run(stories: Vec<Story>) -> Result<ExitCode> {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(STORIES_AT_A_TIME);

    // One runtime for all: what stories share must outlive each of them.
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let servers = Arc::new(Servers::new()?);
    let trials = stories
        .into_iter()
        .map(|story| story.into_trial(runtime.handle().clone(), Arc::clone(&servers)))
        .collect();
    let conclusion = libtest_mimic::run(&args, trials);

    let servers = Arc::into_inner(servers)
        .ok_or_else(|| anyhow!("a story left something running that holds on to the servers"))?;
    let kept = runtime
        .block_on(servers.stop(conclusion.has_failed()))
        .context("clean-up")?;
    if let Some(dir) = kept {
        eprintln!("the servers' logs are in {}", dir.display());
    }
    Ok(conclusion.exit_code())
}
