//! The small commands, and what happens with wrong settings.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::support::live::LIMIT;
use crate::support::muster::{Ended, Muster, PROGRAM, run_to_end, run_with};
use crate::support::{Servers, Story, eventually, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    once![
        crds_are_those_under_deploy,
        every_wrong_key_is_told_at_once_with_its_line,
        config_check_shows_where_each_value_comes_from,
        config_check_refuses_what_a_start_refuses,
        who_reads_may_have_enough_before_the_end,
        a_hub_without_a_data_directory_is_found_while_it_runs,
        a_kind_that_cannot_be_explained_is_told_with_a_tip,
        agents_alone_need_a_hub_elsewhere,
        a_corrupt_store_is_never_started_over,
        a_data_directory_is_private_whatever_the_umask,
        a_password_is_hashed_and_none_is_refused,
        every_shell_has_completions,
        the_manual_has_a_page_for_each_command,
    ]
}

/// Names of the documents that a command prints, sorted.
fn documents(printed: &str) -> Vec<&str> {
    let names = printed
        .split("\n---")
        .filter_map(|document| document.split_once("\n  name: "))
        .filter_map(|(_, rest)| rest.lines().next());
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names
}

async fn crds_are_those_under_deploy(_: Arc<Servers>) -> Result<()> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/crds");
    let mut files = Vec::new();
    for file in std::fs::read_dir(dir)? {
        let path = file?.path();
        let name = path.file_stem().context("no name")?.to_string_lossy();
        files.push((name.into_owned(), std::fs::read_to_string(path)?));
    }
    files.sort();
    let works = "work.open-cluster-management.io";
    // What a spoke keeps for its agent, and what people write there.
    let of_set = |set: &str, name: &str| match set {
        "hub" => !name.starts_with("applied") && !name.ends_with("rules.muster.dev"),
        "spoke" => name == format!("appliedmanifestworks.{works}"),
        "rules" => name.ends_with("rules.muster.dev"),
        _ => true,
    };
    for set in ["all", "hub", "spoke", "rules"] {
        let args: &[&str] = if set == "all" {
            &["crds"]
        } else {
            &["crds", set]
        };
        let printed = run_to_end(args).await?;
        ensure!(
            printed.code == Some(0) && printed.stderr.is_empty(),
            "{printed:?}"
        );
        let of_set: Vec<_> = files.iter().filter(|(name, _)| of_set(set, name)).collect();
        let names: Vec<&str> = of_set.iter().map(|(name, _)| name.as_str()).collect();
        ensure!(
            documents(&printed.stdout) == names,
            "{set}: {}",
            printed.stdout
        );
        for (name, text) in of_set {
            // A file may begin with a note on where it comes from.
            let body = text
                .split_once("apiVersion:")
                .map_or("", |(_, body)| body)
                .trim_end();
            ensure!(
                !body.is_empty() && printed.stdout.contains(body),
                "{set}: {name}"
            );
        }
    }
    Ok(())
}

fn config(text: &str) -> Result<tempfile::NamedTempFile> {
    let file = tempfile::NamedTempFile::with_suffix(".toml")?;
    std::fs::write(file.path(), text)?;
    Ok(file)
}

async fn every_wrong_key_is_told_at_once_with_its_line(_: Arc<Servers>) -> Result<()> {
    let file = config("[hub]\nlissen = \"127.0.0.1:1\"\n\n[feedback]\npoll_interval = 5\n")?;
    let path = file.path().to_string_lossy();
    for command in [&["run"][..], &["hub"], &["config", "check"]] {
        let args = [command, &["--config", &path]].concat();
        let refused = run_to_end(&args).await?;
        ensure!(
            refused.code == Some(2)
                && refused.stderr.contains(&format!("{path}:2"))
                && refused.stderr.contains("hub.listen")
                && refused.stderr.contains(&format!("{path}:5"))
                && refused.stderr.contains("feedback.poll_interval"),
            "{refused:?}"
        );
    }
    Ok(())
}

async fn config_check_shows_where_each_value_comes_from(_: Arc<Servers>) -> Result<()> {
    let file = config("[feedback]\npoll_interval = \"30s\"\n")?;
    let path = file.path().to_string_lossy();
    let args = [
        "config",
        "check",
        "--config",
        &path,
        "--set",
        "agent.workers=3",
    ];
    let shown = run_to_end(&args).await?;
    let line = |key: &str| {
        shown
            .stdout
            .lines()
            .find(|line| line.contains(key))
            .unwrap_or("")
    };
    ensure!(shown.code == Some(0), "{shown:?}");
    let polls = line("feedback.poll_interval");
    ensure!(
        polls.contains("30s") && polls.contains(&format!("{path}:2")),
        "{polls}"
    );
    let workers = line("agent.workers");
    ensure!(
        workers.contains('3') && workers.contains("command line"),
        "{workers}"
    );
    ensure!(line("hub.api").contains("default"), "{}", line("hub.api"));
    Ok(())
}

/// With the same text, in which each file is named with the place of its setting.
async fn config_check_refuses_what_a_start_refuses(_: Arc<Servers>) -> Result<()> {
    let sink = "[[sinks]]\nname = \"record\"\nkind = \"git\"\nurl = \"/srv/git\"\n";
    let cluster = "[[clusters]]\nname = \"edge\"\nkubeconfig = \"/no/such/file\"\n";
    for (text, line, what) in [
        (sink, 1, "sinks[0] (record) needs work_dir"),
        (cluster, 3, "cluster edge: kubeconfig: "),
    ] {
        let file = config(text)?;
        let path = file.path().to_string_lossy();
        let of = |command: &str| {
            let args: Vec<String> = command
                .split(' ')
                .chain(["--config", &path])
                .map(str::to_owned)
                .collect();
            async move { run_to_end(&args.iter().map(String::as_str).collect::<Vec<_>>()).await }
        };
        let (checked, run) = (of("config check").await?, of("run").await?);
        ensure!(
            checked.code == Some(2)
                && checked.stdout.is_empty()
                && checked.stderr.contains(&format!("{path}:{line}: {what}")),
            "{checked:?}"
        );
        ensure!(
            run.code == Some(2) && run.stderr == checked.stderr,
            "{run:?}"
        );
    }
    // Another machine may have the file, and a hub does not need it.
    let file = config(cluster)?;
    let path = file.path().to_string_lossy();
    for more in [&["--skip-files"][..], &["--for", "hub"]] {
        let args = [&["config", "check", "--config", &path], more].concat();
        let checked = run_to_end(&args).await?;
        ensure!(checked.code == Some(0), "{checked:?}");
    }
    Ok(())
}

async fn a_kind_that_cannot_be_explained_is_told_with_a_tip(_: Arc<Servers>) -> Result<()> {
    let refused = run_to_end(&["explain", "hello"]).await?;
    ensure!(
        refused.code == Some(2)
            && refused.stdout.is_empty()
            && refused.stderr.contains("tip: muster explain mwrs hello"),
        "{refused:?}"
    );
    Ok(())
}

/// Runs a command that nobody reads the output of.
async fn closed(command: &str) -> Result<Ended> {
    let mut child = Command::new(PROGRAM)
        .args(command.split(' '))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()?;
    drop(child.stdout.take());
    let ended = child.wait_with_output().await?;
    Ok(Ended {
        code: ended.status.code(),
        stdout: String::new(),
        stderr: String::from_utf8(ended.stderr)?,
    })
}

/// As `muster crds | head -1` does. The demo still stops in order.
async fn who_reads_may_have_enough_before_the_end(_: Arc<Servers>) -> Result<()> {
    for command in ["crds", "config check", "completions bash", "man", "demo"] {
        let ended = closed(command).await?;
        ensure!(
            ended.code == Some(0) && ended.stderr.is_empty(),
            "{command}: {ended:?}"
        );
    }
    Ok(())
}

async fn a_hub_without_a_data_directory_is_found_while_it_runs(
    servers: Arc<Servers>,
) -> Result<()> {
    let any = "hub.listen=127.0.0.1:0";
    let refused = run_to_end(&["kubeconfig", "--set", any]).await?;
    ensure!(
        refused.code == Some(2) && refused.stderr.contains("hub.data_dir is not set"),
        "{refused:?}"
    );
    let dir = tempfile::tempdir()?;
    let set = format!("hub.data_dir={}", dir.path().display());
    let refused = run_to_end(&["kubeconfig", "--set", &set]).await?;
    ensure!(
        refused.code == Some(1) && refused.stderr.contains("has the hub been started?"),
        "{refused:?}"
    );
    let dir = servers.new_dir(&unique_name("in-memory"))?;
    let text = "[hub]\nlisten = \"HUB\"\n[[clusters]]\nname = \"edge\"\nsimulated = true\n";
    let hub = Muster::start(&dir, "run", text).await?;
    let file = dir.join("muster.toml").display().to_string();
    let printed = run_to_end(&["kubeconfig", "--config", &file]).await?;
    ensure!(
        printed.code == Some(0) && printed.stdout.contains("server: https://127.0.0.1:"),
        "{printed:?}"
    );
    let status = run_to_end(&["status", "--config", &file]).await?;
    ensure!(
        status.code == Some(0)
            && status.stdout.contains("no ManifestWorkReplicaSets found")
            && status.stdout.contains("edge"),
        "{status:?}"
    );
    let in_none = run_to_end(&["status", "--config", &file, "-n", "nope"]).await?;
    ensure!(
        in_none.code == Some(1) && in_none.stderr.contains("muster: namespace nope not found"),
        "{in_none:?}"
    );
    let in_empty = run_to_end(&["status", "--config", &file, "-n", "default"]).await?;
    ensure!(
        in_empty.code == Some(0)
            && in_empty
                .stdout
                .contains("no ManifestWorkReplicaSets found in namespace default"),
        "{in_empty:?}"
    );
    for command in ["status", "rollout history web", "explain mwrs web"] {
        let closed = closed(&[command, "--config", &file].join(" ")).await?;
        let quiet = closed.code == Some(0) || closed.stderr.contains("mwrs default/web not found");
        ensure!(quiet, "{command}: {closed:?}");
    }
    hub.kill().await?;
    let refused = run_to_end(&["status", "--config", &file]).await?;
    ensure!(refused.code == Some(1), "{refused:?}");
    Ok(())
}

async fn agents_alone_need_a_hub_elsewhere(_: Arc<Servers>) -> Result<()> {
    let missing = "--hub-kubeconfig=/does/not/exist";
    let refused = run_to_end(&[
        "agent",
        "--cluster-name=edge",
        "--spoke-kubeconfig=/does/not/exist/either",
        missing,
        "--set",
        "telemetry.listen=127.0.0.1:0",
    ])
    .await?;
    ensure!(
        refused.code == Some(2)
            && refused.stderr.contains("/does/not/exist/either")
            && refused
                .stderr
                .contains("--hub-kubeconfig: hub.kubeconfig: "),
        "{refused:?}"
    );
    let refused = run_to_end(&["agent", "--set", "telemetry.listen=127.0.0.1:0"]).await?;
    ensure!(
        refused.code == Some(1) && refused.stderr.contains("no cluster is configured"),
        "{refused:?}"
    );
    Ok(())
}

async fn a_corrupt_store_is_never_started_over(_: Arc<Servers>) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let store = dir.path().join("hub.redb");
    let damaged = b"not a database, but somebody's only copy".repeat(200);
    std::fs::write(&store, &damaged)?;
    let data_dir = format!("hub.data_dir={}", dir.path().display());
    let args = [
        "hub",
        "--set",
        &data_dir,
        "--set",
        "hub.listen=127.0.0.1:0",
        "--set",
        "telemetry.listen=127.0.0.1:0",
    ];
    let refused = run_to_end(&args).await?;
    ensure!(
        refused.code == Some(1) && refused.stderr.contains(&store.display().to_string()),
        "{refused:?}"
    );
    ensure!(
        std::fs::read(&store)? == damaged,
        "the damaged file was written to"
    );
    Ok(())
}

/// Files and folders below `path` that others than their owner can read.
pub(super) fn readable_by_others(path: &Path) -> Result<Vec<PathBuf>> {
    let found = std::fs::metadata(path).with_context(|| path.display().to_string())?;
    let mut all = Vec::new();
    if found.permissions().mode() & 0o077 != 0 {
        all.push(path.to_owned());
    }
    if found.is_dir() {
        for entry in std::fs::read_dir(path)? {
            all.extend(readable_by_others(&entry?.path())?);
        }
    }
    Ok(all)
}

/// What a hub writes is its owner's only, and so is what an earlier one has left.
async fn a_data_directory_is_private_whatever_the_umask(_: Arc<Servers>) -> Result<()> {
    for umask in ["022", "000"] {
        let dir = tempfile::tempdir()?;
        let data = dir.path().join("data");
        // The first life makes the files, the second finds them open to everybody.
        for _ in 0..2 {
            let mut hub = Command::new("sh")
                .args(["-c", "umask $0; exec \"$@\"", umask, PROGRAM, "hub"])
                .args(["--set", &format!("hub.data_dir={}", data.display())])
                .args(["--set", "hub.listen=127.0.0.1:0"])
                .args(["--set", "telemetry.listen=127.0.0.1:0"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()?;
            eventually(LIMIT, "a data directory that is private", || async {
                ensure!(data.join("kubeconfig").exists(), "no kubeconfig yet");
                let readable = readable_by_others(&data)?;
                ensure!(readable.is_empty(), "{readable:?}");
                Ok(())
            })
            .await?;
            hub.kill().await?;
            for (file, mode) in [
                ("", 0o755),
                ("hub.redb", 0o644),
                ("pki", 0o777),
                ("pki/token", 0o644),
            ] {
                let open = std::fs::Permissions::from_mode(mode);
                std::fs::set_permissions(data.join(file), open)?;
            }
            std::fs::remove_file(data.join("kubeconfig"))?;
        }
    }
    Ok(())
}

async fn a_password_is_hashed_and_none_is_refused(_: Arc<Servers>) -> Result<()> {
    // It has no input.
    let refused = run_to_end(&["hash-password"]).await?;
    ensure!(
        refused.code == Some(2) && refused.stdout.is_empty(),
        "{refused:?}"
    );
    ensure!(
        refused.stderr.contains("no password on standard input"),
        "{refused:?}"
    );
    let hashed = run_with(&["hash-password"], "open sesame\n").await?;
    ensure!(
        hashed.code == Some(0) && hashed.stdout.starts_with("$argon2id$"),
        "{hashed:?}"
    );
    ensure!(hashed.stdout.lines().count() == 1, "{hashed:?}");
    Ok(())
}

async fn every_shell_has_completions(_: Arc<Servers>) -> Result<()> {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let printed = run_to_end(&["completions", shell]).await?;
        let knows = |word: &str| printed.stdout.contains(word);
        ensure!(
            printed.code == Some(0)
                && printed.stderr.is_empty()
                && ["explain", "rollout", "status", "hash-password"]
                    .into_iter()
                    .all(knows),
            "{shell}: {printed:?}"
        );
    }
    // Bash reads its own, and says then what comes after `muster expl`.
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("muster.bash");
    std::fs::write(&file, run_to_end(&["completions", "bash"]).await?.stdout)?;
    let script = r#"source "$1"; COMP_WORDS=(muster expl); COMP_CWORD=1
        _muster muster expl muster; echo "${COMPREPLY[@]}""#;
    let said = Command::new("bash")
        .args(["-euc", script, "bash"])
        .arg(&file)
        .output()
        .await?;
    ensure!(
        said.status.success() && said.stdout == b"explain\n" && said.stderr.is_empty(),
        "{said:?}"
    );
    let refused = run_to_end(&["completions", "tcsh"]).await?;
    ensure!(
        refused.code == Some(2) && refused.stderr.contains("powershell"),
        "{refused:?}"
    );
    Ok(())
}

async fn the_manual_has_a_page_for_each_command(_: Arc<Servers>) -> Result<()> {
    let page = run_to_end(&["man"]).await?;
    ensure!(page.code == Some(0) && page.stderr.is_empty(), "{page:?}");
    for part in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", "explain"] {
        ensure!(page.stdout.contains(part), "{part}: {}", page.stdout);
    }
    let dir = tempfile::tempdir()?;
    let path = dir.path().display().to_string();
    let written = run_to_end(&["man", "--dir", &path]).await?;
    ensure!(
        written.code == Some(0) && written.stdout.is_empty(),
        "{written:?}"
    );
    for name in [
        "muster",
        "muster-explain-mwrs",
        "muster-rollout-undo",
        "muster-status",
    ] {
        let page = std::fs::read_to_string(dir.path().join(format!("{name}.1")))
            .with_context(|| format!("no page {name}.1"))?;
        ensure!(page.contains(".SH OPTIONS"), "{name}: {page}");
    }
    // Where there is a program that shows pages, it has nothing to complain about.
    let shown = Command::new("man")
        .args(["--warnings", "--pager=cat", "--local-file"])
        .arg(dir.path().join("muster-explain-mwrs.1"))
        .env("LC_ALL", "C")
        .output()
        .await;
    if let Ok(shown) = shown {
        let page = String::from_utf8_lossy(&shown.stdout);
        ensure!(
            shown.status.success() && shown.stderr.is_empty() && page.contains("SYNOPSIS"),
            "{shown:?}"
        );
    }
    let nowhere = format!("{path}/nowhere");
    let refused = run_to_end(&["man", "--dir", &nowhere]).await?;
    ensure!(
        refused.code == Some(1)
            && refused
                .stderr
                .starts_with(&format!("muster: failed to write pages to {nowhere}: ")),
        "{refused:?}"
    );
    Ok(())
}
