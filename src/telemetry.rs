//! Logs and metrics of the process.

use std::ffi::OsStr;
use std::io;
use std::time::Duration;

use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use metrics_process::Collector;
use muster_metrics::Metric;
use thiserror::Error;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::{LevelFilter, ParseError};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use crate::reference;
use crate::settings::{LogFormat, Telemetry as Settings};

/// Bounds of every histogram of durations, in seconds.
///
/// From 0.5 ms, below what a status takes through the process, to 60 s, the default poll interval:
/// three to a decade where latencies are promised, fewer above.
const SECONDS: &[f64] = &[
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
];

/// Bounds of every histogram of sizes, in bytes: powers of four from 256 B to 1 MiB. Works may have
/// 500 KiB.
const BYTES: &[f64] = &[
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
];

/// How often histograms take in what was recorded. Scrapes do it too; this bounds the memory while
/// nobody scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Why telemetry could not be set up.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The log filter cannot be parsed.
    #[error("bad log level {level:?}")]
    LogLevel {
        /// The filter as given.
        level: String,
        /// Why.
        #[source]
        source: ParseError,
    },

    /// Another logger is already in place.
    #[error("failed to install the logger")]
    Logger(#[source] TryInitError),

    /// The logger is gone.
    #[error("failed to change the log level")]
    Reload(#[source] reload::Error),

    /// The recorder of metrics could not be put in place.
    #[error("failed to install the metrics recorder")]
    Metrics(#[source] BuildError),
}

/// Handle on the logs and metrics of the process.
#[derive(Clone)]
pub struct Telemetry {
    filter: reload::Handle<EnvFilter, Registry>,
    metrics: PrometheusHandle,
    process: Collector,
}

const CPU: Metric = Metric::counter(
    "process_cpu_seconds_total",
    "Time of user and system that the process has used, in seconds.",
);
const OPEN_FDS: Metric = Metric::gauge("process_open_fds", "Open file descriptors.");
const MAX_FDS: Metric = Metric::gauge(
    "process_max_fds",
    "Most file descriptors that there may be.",
);
const VIRTUAL_MEMORY: Metric =
    Metric::gauge("process_virtual_memory_bytes", "Virtual memory in bytes.");
const MAX_VIRTUAL_MEMORY: Metric = Metric::gauge(
    "process_virtual_memory_max_bytes",
    "Most virtual memory that there may be, in bytes.",
);
const RESIDENT_MEMORY: Metric = Metric::gauge(
    "process_resident_memory_bytes",
    "Memory that is really there, in bytes: what the process costs.",
);
const START_TIME: Metric = Metric::gauge(
    "process_start_time_seconds",
    "When the process started, in seconds since 1970.",
)
.in_seconds();
const THREADS: Metric = Metric::gauge("process_threads", "Threads of the operating system.");

/// What is recorded of the process itself, under the names that Prometheus' clients have for it. They
/// are read when the metrics are.
pub const METRICS: &[Metric] = &[
    CPU,
    OPEN_FDS,
    MAX_FDS,
    VIRTUAL_MEMORY,
    MAX_VIRTUAL_MEMORY,
    RESIDENT_MEMORY,
    START_TIME,
    THREADS,
];

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

/// Sends logs to stderr and metrics into a recorder, for the whole process.
///
/// # Errors
///
/// Fails if the log level is none, or if the process has a logger or recorder already.
pub fn init(settings: &Settings) -> Result<Telemetry, TelemetryError> {
    let (filter, handle) = reload::Layer::new(log_filter(&settings.log_level)?);
    // Where nobody reads the log any more, there is nobody to tell so either.
    let lines = fmt::layer()
        .with_writer(io::stderr)
        .log_internal_errors(false);
    let lines: Box<dyn Layer<_> + Send + Sync> = match settings.log_format {
        LogFormat::Text => {
            let terminal = io::IsTerminal::is_terminal(&io::stderr());
            let colors = has_colors(terminal, std::env::var_os("NO_COLOR").as_deref());
            lines.with_ansi(colors).boxed()
        }
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init()
        .map_err(TelemetryError::Logger)?;

    let recorder = recorder()?;
    let metrics = recorder.handle();
    metrics::set_global_recorder(recorder)
        .map_err(|error| TelemetryError::Metrics(error.into()))?;
    reference::metrics().for_each(Metric::describe);
    Ok(Telemetry {
        filter: handle,
        metrics,
        process: Collector::default(),
    })
}

impl Telemetry {
    /// Changes what is logged, from now on.
    ///
    /// # Errors
    ///
    /// Fails if `level` is no log level; the old one then stays.
    pub fn set_log_level(&self, level: &str) -> Result<(), TelemetryError> {
        let filter = log_filter(level)?;
        self.filter.reload(filter).map_err(TelemetryError::Reload)
    }

    /// All metrics in Prometheus' text format.
    pub fn render_metrics(&self) -> String {
        self.process.collect();
        self.metrics.render()
    }

    /// Keeps the memory of histograms bounded until `shutdown`.
    pub async fn upkeep(self, shutdown: CancellationToken) {
        let mut ticks = interval(UPKEEP_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
            self.metrics.run_upkeep();
        }
    }
}

/// Whether a text is a log level, or levels by module.
pub fn is_log_filter(level: &str) -> bool {
    !level.trim().is_empty() && log_filter(level).is_ok()
}

/// What the client says of each watch that fails, and the broker of each client, the program says
/// itself, and not each time. Levels for these that are set take the place of this.
const QUIET: &str = "kube_runtime::watcher=off,mqtt5=error";

/// All crates of this program have names that begin with this.
const OWN: &str = "muster";

/// Levels by module as the filter takes them. A level without a module is that of the program; the
/// libraries in it are one step quieter from `info` on, since their lines are about their own matters.
fn directives(level: &str) -> String {
    let directives = level.split(',').map(|part| {
        let libraries = match part.trim().parse() {
            Ok(LevelFilter::INFO) => LevelFilter::WARN,
            Ok(LevelFilter::DEBUG) => LevelFilter::INFO,
            Ok(LevelFilter::TRACE) => LevelFilter::DEBUG,
            _ => return part.to_owned(),
        };
        format!("{},{OWN}={}", libraries, part.trim())
    });
    let directives: Vec<String> = directives.collect();
    format!("{QUIET},{}", directives.join(","))
}

fn log_filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::builder()
        .parse(directives(level))
        .map_err(|source| TelemetryError::LogLevel {
            level: level.to_owned(),
            source,
        })
}

/// Whether lines may have colours: on a terminal, unless the user wants none (<https://no-color.org>).
fn has_colors(terminal: bool, no_color: Option<&OsStr>) -> bool {
    terminal && no_color.is_none_or(OsStr::is_empty)
}

/// A recorder with our histogram bounds. Without bounds the exporter makes summaries, which cannot
/// be added up over processes.
fn recorder() -> Result<PrometheusRecorder, TelemetryError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)
        .and_then(|builder| {
            builder.set_buckets_for_metric(Matcher::Suffix("_bytes".to_owned()), BYTES)
        })
        .map(PrometheusBuilder::build_recorder)
        .map_err(TelemetryError::Metrics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_become_histograms_with_our_bounds() {
        let recorder = recorder().unwrap();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            metrics::histogram!("muster_test_seconds").record(0.0015);
            metrics::histogram!("muster_test_bytes").record(300.0);
            metrics::counter!("muster_test_total").increment(2);
        });
        handle.run_upkeep();
        let text = handle.render();
        for line in [
            r#"muster_test_seconds_bucket{le="0.001"} 0"#,
            r#"muster_test_seconds_bucket{le="0.002"} 1"#,
            r#"muster_test_seconds_bucket{le="60"} 1"#,
            r#"muster_test_bytes_bucket{le="256"} 0"#,
            r#"muster_test_bytes_bucket{le="1024"} 1"#,
            "muster_test_total 2",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} not in:\n{text}"
            );
        }
    }

    #[test]
    fn log_filters_are_levels_by_module() {
        for level in [
            "info",
            "debug",
            "off",
            "info,kube=debug",
            "muster::http=trace",
        ] {
            assert!(is_log_filter(level), "{level:?}");
        }
        for level in ["", " ", "info,kube=loud", "[", "="] {
            assert!(!is_log_filter(level), "{level:?}");
        }
        let error = log_filter("kube=loud").unwrap_err();
        assert_eq!(error.to_string(), "bad log level \"kube=loud\"");
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn libraries_are_quieter_than_the_program_unless_they_are_named() {
        for (level, expected) in [
            ("info", "warn,muster=info"),
            ("debug", "info,muster=debug"),
            ("trace", "debug,muster=trace"),
            ("warn", "warn"),
            ("off", "off"),
            ("info,mqtt5=debug", "warn,muster=info,mqtt5=debug"),
            ("mqtt5=info, info", "mqtt5=info,warn,muster=info"),
        ] {
            assert_eq!(directives(level), format!("{QUIET},{expected}"));
            assert!(is_log_filter(level), "{level}");
        }
    }

    #[test]
    fn colors_are_for_terminals_whose_users_want_them() {
        assert!(has_colors(true, None));
        assert!(has_colors(true, Some(OsStr::new(""))));
        assert!(!has_colors(true, Some(OsStr::new("1"))));
        assert!(!has_colors(false, None));
    }

    #[test]
    fn log_level_changes_while_the_process_runs() {
        let (layer, filter) = reload::Layer::new(log_filter("info").unwrap());
        let subscriber = tracing_subscriber::registry().with(layer);
        let metrics = recorder().unwrap().handle();
        let process = Collector::default();
        let telemetry = Telemetry {
            filter,
            metrics,
            process,
        };
        tracing::subscriber::with_default(subscriber, || {
            assert!(!tracing::enabled!(tracing::Level::DEBUG));
            telemetry.set_log_level("debug").unwrap();
            assert!(tracing::enabled!(tracing::Level::DEBUG));
            assert!(!tracing::enabled!(target: "kube_runtime::watcher", tracing::Level::WARN));
            telemetry
                .set_log_level("debug,kube_runtime::watcher=debug")
                .unwrap();
            assert!(tracing::enabled!(target: "kube_runtime::watcher", tracing::Level::DEBUG));
            telemetry.set_log_level("kube=loud").unwrap_err();
            assert!(tracing::enabled!(tracing::Level::DEBUG));
        });
    }

    /// The one test that touches what belongs to the whole process.
    #[test]
    fn process_has_one_logger_and_one_recorder() {
        let mut settings = crate::settings::Settings::load(&crate::settings::Sources::default())
            .unwrap()
            .telemetry;
        settings.log_level = "kube=loud".to_owned();
        assert!(matches!(
            init(&settings),
            Err(TelemetryError::LogLevel { .. })
        ));
        settings.log_level = "off".to_owned();
        let telemetry = init(&settings).unwrap();
        metrics::counter!("muster_test_installed_total").increment(1);
        let text = telemetry.render_metrics();
        assert!(text.contains("muster_test_installed_total 1"));
        if cfg!(target_os = "linux") {
            for Metric { name, .. } in METRICS {
                let value = text
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
                let value: f64 = value.expect(name).parse().unwrap();
                assert!(value >= 0.0, "{name} {value}");
            }
        }
        settings.log_format = LogFormat::Json;
        assert!(matches!(init(&settings), Err(TelemetryError::Logger(_))));
    }

    #[tokio::test]
    async fn upkeep_ends_with_the_process() {
        let (_layer, filter) = reload::Layer::new(log_filter("info").unwrap());
        let metrics = recorder().unwrap().handle();
        let shutdown = CancellationToken::new();
        let telemetry = Telemetry {
            filter,
            metrics,
            process: Collector::default(),
        };
        let upkeep = tokio::spawn(telemetry.upkeep(shutdown.clone()));
        shutdown.cancel();
        upkeep.await.unwrap();
    }
}
