//! What muster writes as YAML, read by kubectl.

use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use muster_core::yaml;
use serde_json::{Deserializer, Value, json};

use crate::support::{Servers, Story, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    once![kubectl_reads_what_is_written]
}

/// Pieces that mean something to some version of YAML, or to a scanner of it.
const PIECES: [&str; 58] = [
    "",
    "a",
    "b c",
    " ",
    "  ",
    "\t",
    "\n",
    "\n\n",
    "\r",
    "\r\n",
    ":",
    ": ",
    " #",
    "#",
    "-",
    "- ",
    "? ",
    "'",
    "\"",
    "\\",
    "|",
    ">",
    "&a",
    "*a",
    "!t",
    "%",
    "@",
    "`",
    "{",
    "}",
    "[",
    "]",
    ",",
    "=",
    "<<",
    "~",
    "---",
    "...",
    "0",
    "0x1f",
    "0o7",
    "010",
    "1e3",
    "1_0",
    ".5",
    ".inf",
    "+1",
    "y",
    "No",
    "ON",
    "null",
    "2026-01-01",
    "1:20",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "\u{7f}",
    "é\u{1F389}",
];

/// An object with a text as key and as value, in each place where the form differs.
fn object(name: usize, text: &str) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Gear", "metadata": {"name": format!("g{name}")},
        "data": {"text": text, "list": [text, [text], {"in": text}], text: {text: text}}})
}

/// Objects that nest, and such that are long.
fn structures() -> Vec<Value> {
    let mut deep = json!({"text": "a\nb", "list": [[], {}, [{}]]});
    for level in 0..60 {
        deep = if level % 3 == 0 {
            json!([deep])
        } else {
            json!({ "k": deep })
        };
    }
    let long = "k".repeat(3_000);
    let data = [
        deep,
        json!({ &long: {"a": &long}, format!("{long} "): [&long] }),
        json!({"numbers": [0, -1, 1.5, 1e21, 1e-7, i64::MAX, i64::MIN, true, false, null]}),
        json!({"Makefile": "all:\n\tgo build ./...\n\n\t# end\n", "first": "\tgo\n"}),
    ];
    data.into_iter()
        .enumerate()
        .map(|(number, data)| {
            json!({"apiVersion": "example.org/v1", "kind": "Gear",
                "metadata": {"name": format!("s{number}")}, "data": data})
        })
        .collect()
}

/// Every text of two pieces, as key and as value, is the same after kubectl has read it.
async fn kubectl_reads_what_is_written(servers: Arc<Servers>) -> Result<()> {
    let mut objects = structures();
    for (first, one) in PIECES.iter().enumerate() {
        for (second, other) in PIECES.iter().enumerate() {
            objects.push(object(
                first * PIECES.len() + second,
                &format!("{one}{other}"),
            ));
        }
    }
    let documents: serde_json::Result<Vec<String>> = objects
        .iter()
        .map(|object| yaml::from_json(&object.to_string()))
        .collect();
    let file = servers.new_dir(&unique_name("yaml"))?.join("all.yaml");
    std::fs::write(&file, documents?.join("---\n"))?;
    // Nothing of this asks a server.
    let output = Command::new(servers.kubectl()?)
        .env("KUBECONFIG", "/dev/null")
        .args(["annotate", "--local", "-o", "json", "-f"])
        .arg(&file)
        .arg("read=back")
        .output()?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{error}");
    let read: serde_json::Result<Vec<Value>> = Deserializer::from_slice(&output.stdout)
        .into_iter()
        .collect();
    let read = read?;
    ensure!(
        read.len() == objects.len(),
        "{} of {}",
        read.len(),
        objects.len()
    );
    for (mut read, written) in read.into_iter().zip(objects) {
        let metadata = read["metadata"].as_object_mut().context("no metadata")?;
        metadata.remove("annotations");
        ensure!(read == written, "written: {written}\nread: {read}");
    }
    Ok(())
}
