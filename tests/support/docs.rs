//! What the documents tell users to type, taken from the documents.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::process::Command;

use super::muster::PROGRAM;
use super::typed::typed;

/// A part of a document that is typed or saved.
#[derive(Debug)]
pub(crate) enum Block {
    /// Lines for a shell.
    Commands(String),
    /// Text between fences, with the name of its language.
    Text { language: String, text: String },
}

/// What stands between two headings.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) heading: String,
    pub(crate) blocks: Vec<Block>,
}

impl Section {
    /// The commands, in order; what a backslash continues is one line, and comments are left out.
    pub(crate) fn lines(&self) -> Vec<String> {
        let commands = self.blocks.iter().filter_map(|block| match block {
            Block::Commands(text) => Some(text.replace("\\\n", "")),
            Block::Text { .. } => None,
        });
        let mut lines = Vec::new();
        for block in commands {
            for line in block.lines() {
                let line = line.split("  #").next().unwrap_or_default().trim();
                if !line.is_empty() {
                    lines.push(line.to_owned());
                }
            }
        }
        lines
    }

    /// The texts of one language.
    pub(crate) fn texts(&self, wanted: &str) -> Vec<&str> {
        let texts = self.blocks.iter().filter_map(|block| match block {
            Block::Text { language, text } if language == wanted => Some(&**text),
            _ => None,
        });
        texts.collect()
    }
}

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Takes a document apart, by its path from the root.
pub(crate) fn sections(document: &str) -> Result<Vec<Section>> {
    let text =
        std::fs::read_to_string(root().join(document)).with_context(|| document.to_owned())?;
    Ok(take_apart(&text))
}

/// One section of a document.
pub(crate) fn section(document: &str, heading: &str) -> Result<Section> {
    let mut all = sections(document)?.into_iter();
    let found = all.find(|section| section.heading == heading);
    found.with_context(|| format!("{document} has no {heading:?}"))
}

fn take_apart(text: &str) -> Vec<Section> {
    let mut sections = vec![Section {
        heading: String::new(),
        blocks: Vec::new(),
    }];
    let mut add = |heading: Option<&str>, block: Option<Block>| {
        if let Some(heading) = heading {
            sections.push(Section {
                heading: heading.to_owned(),
                blocks: Vec::new(),
            });
        }
        if let (Some(section), Some(block)) = (sections.last_mut(), block) {
            section.blocks.push(block);
        }
    };
    let mut lines = text.lines().peekable();
    let mut after_blank = true;
    while let Some(line) = lines.next() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            let mut body = String::new();
            for line in lines
                .by_ref()
                .take_while(|line| !line.trim_start().starts_with("```"))
            {
                body.push_str(line);
                body.push('\n');
            }
            let block = if ["sh", "console"].contains(&language) {
                Block::Commands(body)
            } else {
                Block::Text {
                    language: language.to_owned(),
                    text: body,
                }
            };
            add(None, Some(block));
        } else if line.starts_with('#') {
            add(Some(line.trim_start_matches('#').trim()), None);
        } else if after_blank && line.starts_with("    ") {
            let mut body = format!("{}\n", line.trim());
            while let Some(line) = lines.next_if(|line| line.starts_with("    ")) {
                body.push_str(line.trim());
                body.push('\n');
            }
            add(None, Some(Block::Commands(body)));
        }
        after_blank = line.trim().is_empty();
    }
    sections
}

/// A shell in which the documents' commands are typed.
#[derive(Debug)]
pub(crate) struct Shell {
    dir: PathBuf,
    path: OsString,
    kubeconfig: PathBuf,
    /// Texts that stand for something else: names in capitals, paths, addresses.
    replaced: Vec<(String, String)>,
}

impl Shell {
    /// In a folder, with `muster`, `kubectl` and access to a hub.
    pub(crate) fn new(dir: &Path, kubectl: &Path, kubeconfig: &Path) -> Result<Self> {
        let bin = dir.join("bin");
        std::fs::create_dir_all(&bin)?;
        for (name, program) in [("muster", Path::new(PROGRAM)), ("kubectl", kubectl)] {
            std::os::unix::fs::symlink(program, bin.join(name))?;
        }
        let mut path = bin.into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        Ok(Self {
            dir: dir.to_owned(),
            path,
            kubeconfig: kubeconfig.to_owned(),
            replaced: Vec::new(),
        })
    }

    /// Has `text` stand for something else.
    pub(crate) fn with(mut self, text: &str, other: &str) -> Self {
        self.replaced.push((text.to_owned(), other.to_owned()));
        self
    }

    /// Saves a text that begins with a comment of its path; gives the path.
    pub(crate) fn save(&self, text: &str) -> Result<PathBuf> {
        let first = text.lines().next().unwrap_or_default();
        let path = first
            .strip_prefix("# ")
            .context("no path in the first line")?;
        let file = self.dir.join(path);
        std::fs::create_dir_all(file.parent().context("no folder")?)?;
        std::fs::write(&file, self.replace(text))?;
        Ok(file)
    }

    fn replace(&self, text: &str) -> String {
        let replaced = self.replaced.iter();
        replaced.fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Types lines; gives what they print. Each has to succeed.
    pub(crate) async fn run(&self, lines: &[impl AsRef<str>]) -> Result<String> {
        let lines: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
        let script = self.replace(&lines.join("\n"));
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", &script])
            .current_dir(&self.dir)
            .env("PATH", &self.path)
            .env("HOME", &self.dir)
            .env("KUBECONFIG", &self.kubeconfig);
        typed(&mut command, &script).await
    }
}
