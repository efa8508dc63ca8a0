//! `docs/settings.md`, made from `config/default.toml`, the table of what each key takes, and that of
//! what changes while a process runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::check::{self, Expect};
use super::running;

const DEFAULTS: &str = include_str!("../../config/default.toml");

const HEAD: &str = "\
# Settings

Made from [`config/default.toml`](../config/default.toml), which is the lowest layer, and from the \
program's own table of keys; a test keeps this page true. How layers lie over each other, and what a \
change does to a running process, is in [operations.md](operations.md#settings).

Each key can be set in a TOML file, as `MUSTER__SECTION__KEY` in the environment, and with `--set \
section.key=value`; the tables `[[clusters]]` and `[[sinks]]` only in a file. *At once* means that a \
change in the file takes effect in a running process; every other key needs a restart.
";

/// Keys that share a description.
#[derive(Default)]
struct Group {
    keys: Vec<String>,
    says: String,
}

/// A part of the page.
#[derive(Default)]
struct Section {
    name: String,
    groups: Vec<Group>,
    /// Of a list of tables: what is said of it, and the lines of its example.
    says: String,
    example: String,
}

/// Takes the file apart. A comment belongs to the keys that follow without an empty line, whether they
/// are set or commented out.
fn sections() -> Vec<Section> {
    let mut all: Vec<Section> = Vec::new();
    let mut named = String::new();
    for block in DEFAULTS.split("\n\n") {
        let mut lines = block.lines().peekable();
        if let Some(name) = lines.next_if(|line| line.starts_with('[')) {
            named = name.trim_matches(['[', ']']).to_owned();
            all.push(Section {
                name: named.clone(),
                ..Section::default()
            });
        }
        let list = check::LISTS
            .iter()
            .find(|list| block.contains(&format!("[[{list}]]\n")) && block.contains("# name ="));
        if let Some(list) = list {
            let mut section = Section {
                name: (*list).to_owned(),
                ..Section::default()
            };
            let (mut prose, mut example) = (Vec::new(), String::new());
            for line in lines.map(|line| line.trim_start_matches("# ").trim_start_matches('#')) {
                let is_key =
                    check::list_keys(list).any(|(key, _)| line.starts_with(&format!("{key} =")));
                if is_key || line.starts_with("[[") {
                    writeln!(example, "{line}").unwrap();
                } else if line.is_empty() {
                    example.push_str(if example.is_empty() { "" } else { "\n" });
                } else {
                    prose.push(line.to_owned());
                }
            }
            section.says = prose.join(" ");
            section.example = example.replace("\n\n\n", "\n\n").trim_end().to_owned();
            all.push(section);
            continue;
        }
        let mut group = Group::default();
        for line in lines {
            let plain = line.trim_start_matches("# ");
            let key = plain
                .split_once(" = ")
                .map(|(key, _)| format!("{named}.{key}"));
            match key.filter(|key| check::expected(key).is_some()) {
                Some(key) => group.keys.push(key),
                // Lines of an example.
                None if line.starts_with("#   ") => {
                    let code = plain
                        .split("  ")
                        .map(str::trim)
                        .find(|part| !part.is_empty());
                    write!(group.says, "<br>`{}`", code.unwrap_or_default()).unwrap();
                }
                None if line.starts_with('#') => {
                    let between = match &*group.says {
                        "" => "",
                        says if says.ends_with('`') => "<br>",
                        _ => " ",
                    };
                    let plain = plain.replace('<', "&lt;");
                    write!(group.says, "{between}{plain}").unwrap();
                }
                None => {} // a value over several lines
            }
        }
        if let Some(section) = all.last_mut().filter(|_| !group.keys.is_empty()) {
            section.groups.push(group);
        }
    }
    all
}

fn takes(expect: Expect) -> String {
    match expect {
        Expect::Text => "text".to_owned(),
        Expect::MayBeEmpty => "text, also empty".to_owned(),
        Expect::Address => "address and port".to_owned(),
        Expect::LogFilter => "levels".to_owned(),
        Expect::Boolean => "`true`, `false`".to_owned(),
        Expect::OneOf(words) => words.map_code(),
        Expect::Count => "number from 1".to_owned(),
        Expect::Number => "number from 0".to_owned(),
        Expect::Duration { least } if least.is_zero() => "duration".to_owned(),
        Expect::Duration { least } => format!("duration from {least:?}"),
        Expect::Rate => "number, not 0".to_owned(),
        Expect::Texts => "list of texts".to_owned(),
        Expect::Labels => "table of texts".to_owned(),
    }
}

trait Code {
    fn map_code(&self) -> String;
}

impl Code for [&str] {
    fn map_code(&self) -> String {
        let words: Vec<_> = self.iter().map(|word| format!("`{word}`")).collect();
        words.join(", ")
    }
}

fn page() -> String {
    let defaults: toml::Table = DEFAULTS.parse().unwrap();
    let default = |key: &str| {
        let (section, name) = key.split_once('.').unwrap();
        match defaults.get(section)?.get(name)? {
            toml::Value::Array(all) => Some(format!("{} names, see the file", all.len())),
            toml::Value::String(text) => Some(format!("`{text}`")),
            other => Some(format!("`{other}`")),
        }
    };
    let live: BTreeMap<&str, bool> = running::tests::live_keys().collect();
    let mut page = HEAD.to_owned();
    for section in sections() {
        if check::LISTS.contains(&&*section.name) {
            let Section {
                name,
                says,
                example,
                ..
            } = section;
            write!(
                page,
                "\n## `[[{name}]]`\n\n{says}\n\n```toml\n{example}\n```\n\n"
            )
            .unwrap();
            page.push_str("| Key | Takes |\n|---|---|\n");
            for (key, expect) in check::list_keys(&name) {
                writeln!(page, "| `{key}` | {} |", takes(expect)).unwrap();
            }
            continue;
        }
        write!(
            page,
            "\n## `[{}]`\n\n| Key | Takes | Default | What |\n|---|---|---|---|\n",
            section.name
        )
        .unwrap();
        for Group { keys, says } in section.groups {
            let cell = |of: &dyn Fn(&str) -> String| {
                let cells: Vec<_> = keys.iter().map(|key| of(key)).collect();
                cells.join("<br>")
            };
            let at_once = if keys.iter().all(|key| live[&**key]) {
                " *At once.*"
            } else {
                ""
            };
            writeln!(
                page,
                "| {} | {} | {} | {}{at_once} |",
                cell(&|key| format!("`{key}`")),
                cell(&|key| takes(check::expected(key).unwrap())),
                cell(&|key| default(key).unwrap_or_else(|| "not set".to_owned())),
                says.replace('|', "\\|"),
            )
            .unwrap();
        }
    }
    page
}

/// With `MUSTER_BLESS=1` it writes the page.
#[test]
fn the_page_is_what_the_program_knows() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/settings.md");
    let page = page();
    for key in check::keys() {
        assert!(
            page.contains(&format!("`{key}`")),
            "{key} is in no block of its own"
        );
    }
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page,
        "docs/settings.md is not up to date: MUSTER_BLESS=1 cargo test -p muster --lib reference"
    );
}
