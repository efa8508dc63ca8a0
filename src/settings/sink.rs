//! Sinks: where the events of watch rules go.

use std::num::NonZeroU64;
use std::path::PathBuf;

use serde::Deserialize;

use super::check::Entry;

/// A sink, which rules name as their destination.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Raw")]
pub struct Sink {
    /// Name.
    pub name: String,
    /// What it does.
    pub kind: SinkKind,
}

/// What a sink does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SinkKind {
    /// Writes a line of JSON for each event.
    Log {
        /// The file; `None` is standard output.
        path: Option<PathBuf>,
        /// Most bytes of a file, before the next one is begun.
        max_bytes: NonZeroU64,
        /// Older files that are kept.
        keep: u32,
    },
}

/// A sink as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Raw {
    name: Option<String>,
    kind: Option<String>,
    path: Option<PathBuf>,
    max_bytes: Option<NonZeroU64>,
    keep: Option<u32>,
}

/// Most bytes of a file, unless set: ten days of a change a second, each 100 bytes.
const MAX_BYTES: NonZeroU64 = NonZeroU64::new(100 << 20).unwrap();
const KEEP: u32 = 3;

impl Entry for Raw {
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn check(&self) -> Result<(), String> {
        self.name.as_deref().ok_or("has no name")?;
        self.kind().map(|_| ())
    }
}

impl Raw {
    fn kind(&self) -> Result<SinkKind, String> {
        match self.kind.as_deref() {
            None => Err("has no kind: \"log\"".to_owned()),
            Some(_) if self.path.is_none() && (self.max_bytes.is_some() || self.keep.is_some()) => {
                Err("has max_bytes or keep, which are for a file, and no path".to_owned())
            }
            Some(_) => Ok(SinkKind::Log {
                path: self.path.clone(),
                max_bytes: self.max_bytes.unwrap_or(MAX_BYTES),
                keep: self.keep.unwrap_or(KEEP),
            }),
        }
    }
}

impl TryFrom<Raw> for Sink {
    type Error = String;

    fn try_from(raw: Raw) -> Result<Self, String> {
        raw.check()?;
        let kind = raw.kind()?;
        Ok(Self {
            name: raw.name.unwrap_or_default(),
            kind,
        })
    }
}
