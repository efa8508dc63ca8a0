//! A container as a pod's template has it: crun runs it with the rights that a kubelet would give it.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use super::cluster::unique_name;
use super::live::LIMIT;
use super::process::Process;
use super::waiting::within;

/// What the container engines of a machine take for `RuntimeDefault`.
const SECCOMP: &str = "/usr/share/containers/seccomp.json";

/// crun, in namespaces that end with all that is in them when it does. It refuses machines with both
/// versions of cgroups, of which it uses none here; so it sees one of them only.
const CRUN: &str = r#"
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec "$1" --root "$2/state" --cgroup-manager disabled run --bundle "$2" "$3"
"#;

/// The container of a pod, before it runs.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    name: String,
    root: PathBuf,
    /// The template's `spec`, and the first container in it.
    pod: Value,
    first: Value,
    args: Vec<String>,
    env: Vec<(String, String)>,
    mounts: Vec<(String, PathBuf)>,
}

impl Container {
    /// The first container of a template, with `root` as the root file system of its image.
    pub(crate) fn of(template: &Value, name: &str, root: &Path) -> Result<Self> {
        let pod = template["spec"].clone();
        let container = pod["containers"][0].clone();
        // Other runs of these tests have their own.
        let name = format!("{}-{}", unique_name(name), std::process::id());
        let args: Vec<String> = serde_json::from_value(container["args"].clone())?;
        Ok(Self {
            // As a kubelet has it; it also tells the container from others.
            env: vec![("HOSTNAME".to_owned(), name.clone())],
            name,
            root: root.to_owned(),
            pod,
            first: container,
            args,
            mounts: Vec::new(),
        })
    }

    /// Takes other arguments than the template's.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args = args.iter().map(|&arg| arg.to_owned()).collect();
        self
    }

    /// Sets a variable, also where arguments name it.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        for arg in &mut self.args {
            *arg = arg.replace(&format!("$({name})"), value);
        }
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Has one of the template's volumes hold these files, in a folder below `dir`.
    pub(crate) fn volume(mut self, dir: &Path, name: &str, files: &Value) -> Result<Self> {
        let named = |list: &Value| {
            let mut all = list.as_array().into_iter().flatten();
            let found = all.find(|one| one["name"] == name).cloned();
            found.with_context(|| format!("no volume {name}"))
        };
        let mount = named(&self.first["volumeMounts"])?;
        ensure!(mount["readOnly"] == true, "it may write to {mount}");
        let at = mount["mountPath"].as_str().context("no path")?;
        let mode = named(&self.pod["volumes"])?["secret"]["defaultMode"].as_u64();
        let mode = mode.map_or(Ok(0o644), u32::try_from)?;
        self.mount(dir, at, files, mode)?;
        Ok(self)
    }

    /// Gives it an account's way to the API server, which a kubelet mounts without being told.
    pub(crate) fn account(mut self, dir: &Path, server: SocketAddr, files: &Value) -> Result<Self> {
        let at = "/var/run/secrets/kubernetes.io/serviceaccount";
        self.mount(dir, at, files, 0o640)?;
        let this = self.env("KUBERNETES_SERVICE_HOST", &server.ip().to_string());
        Ok(this.env("KUBERNETES_SERVICE_PORT", &server.port().to_string()))
    }

    fn mount(&mut self, dir: &Path, at: &str, files: &Value, mode: u32) -> Result<()> {
        let folder = dir.join(&self.name).join(self.mounts.len().to_string());
        std::fs::create_dir_all(&folder)?;
        let group = self.pod["securityContext"]["fsGroup"].as_u64();
        let group = group.map(u32::try_from).transpose()?;
        for (name, text) in files.as_object().into_iter().flatten() {
            let file = folder.join(name);
            std::fs::write(&file, text.as_str().context("no text")?)?;
            std::fs::set_permissions(&file, Permissions::from_mode(mode))?;
            std::os::unix::fs::chown(&file, None, group)?;
        }
        self.mounts.push((at.to_owned(), folder));
        Ok(())
    }

    /// The file for crun. What the template does not say, it gets as by default.
    fn config(&self, entrypoint: &str) -> Result<Value> {
        for mount in self.first["volumeMounts"].as_array().into_iter().flatten() {
            let at = mount["mountPath"].as_str().unwrap_or_default();
            let is_there = self.mounts.iter().any(|(path, _)| path == at);
            ensure!(is_there, "nothing for {mount}");
        }
        for variable in self.first["env"].as_array().into_iter().flatten() {
            let is_set = self.env.iter().any(|(name, _)| variable["name"] == *name);
            ensure!(is_set, "nothing for {variable}");
        }
        let (of_pod, own) = (&self.pod["securityContext"], &self.first["securityContext"]);
        ensure!(own["capabilities"]["drop"] == json!(["ALL"]), "{own}");
        let ours = self.mounts.iter().map(|(at, folder)| {
            json!({"destination": at, "type": "bind", "source": folder, "options": ["rbind", "ro"]})
        });
        let mounts = [
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                "options": ["nosuid", "mode=755"]}),
        ];
        let mounts: Vec<Value> = mounts.into_iter().chain(ours).collect();
        let env = self
            .env
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let args = std::iter::once(entrypoint).chain(self.args.iter().map(String::as_str));
        let mut config = json!({
            "ociVersion": "1.0.0",
            "hostname": self.name,
            "root": {"path": self.root, "readonly": own["readOnlyRootFilesystem"] == true},
            "process": {
                "user": {"uid": of_pod["runAsUser"], "gid": of_pod["runAsGroup"],
                    "additionalGids": [of_pod["fsGroup"]]},
                "args": args.collect::<Vec<_>>(),
                "env": env.collect::<Vec<_>>(),
                "cwd": "/",
                "capabilities": {},
                "noNewPrivileges": own["allowPrivilegeEscalation"] == false,
            },
            "mounts": mounts,
            // The network is this machine's: there are the servers of the story.
            "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"},
                {"type": "uts"}]},
        });
        if of_pod["seccompProfile"]["type"] == "RuntimeDefault" {
            config["linux"]["seccomp"] = seccomp()?;
        }
        Ok(config)
    }

    /// Starts it with files in `dir`, and waits until `ready`, which gets what it has printed.
    pub(crate) async fn start<Fut: Future<Output = Result<()>>>(
        &self,
        crun: &Path,
        dir: &Path,
        entrypoint: &str,
        ready: impl Fn(String) -> Fut,
    ) -> Result<Pod> {
        let dir = &dir.join(&self.name);
        std::fs::create_dir_all(dir)?;
        let config = self.config(entrypoint)?.to_string();
        std::fs::write(dir.join("config.json"), config)?;
        let log = dir.join("log");
        let flags = ["--mount", "--mount-proc", "--pid", "--fork", "--kill-child"];
        let mut args: Vec<_> = flags.iter().map(Into::into).collect();
        args.extend(["sh", "-ec", CRUN, "crun"].map(Into::into));
        args.extend([crun.into(), dir.into(), (&self.name).into()]);
        let is_ready = || async {
            ready(std::fs::read_to_string(&log)?).await?;
            inside(&self.name)
        };
        let unshare = Path::new("unshare");
        let (process, id) = Process::start("the pod", unshare, &args, &log, is_ready).await?;
        Ok(Pod { process, id })
    }
}

/// The rules of [`SECCOMP`] for a container without capabilities on this machine, as crun takes them.
fn seccomp() -> Result<Value> {
    let rules = std::fs::read(SECCOMP).context(SECCOMP)?;
    let rules: Value = serde_json::from_slice(&rules)?;
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let all = rules["syscalls"].as_array().into_iter().flatten();
    let ours = all.filter(|rule| {
        let includes = &rule["includes"];
        let arches = includes["arches"].as_array();
        includes["caps"].is_null()
            && arches.is_none_or(|arches| arches.iter().any(|arch| arch == machine))
    });
    let ours = ours.map(|rule| {
        let mut rule = rule.clone();
        if let Some(fields) = rule.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        rule
    });
    Ok(json!({
        "defaultAction": rules["defaultAction"],
        "defaultErrnoRet": rules["defaultErrnoRet"],
        "syscalls": ours.collect::<Vec<_>>(),
    }))
}

/// The id, outside, of the program in the container of this name.
fn inside(name: &str) -> Result<u32> {
    let host = format!("HOSTNAME={name}");
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Ok(id) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        // Others' cannot be read, and some end meanwhile.
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let mut variables = environment.split(|&byte| byte == 0);
        if variables.any(|variable| variable == host.as_bytes()) {
            return Ok(id);
        }
    }
    anyhow::bail!("no program of {name}")
}

/// A running container.
#[derive(Debug)]
pub(crate) struct Pod {
    process: Process,
    id: u32,
}

impl Pod {
    /// What the kernel says of its program: `Uid`, `CapBnd`.
    pub(crate) fn status(&self, name: &str) -> Result<String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id))?;
        let mut lines = status.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| *key == name);
        let (_, value) = found.with_context(|| format!("no {name} in {status}"))?;
        let first = value.split_whitespace().next().context("no value")?;
        Ok(first.to_owned())
    }

    /// The paths of the file systems that are not mounted read-only there.
    pub(crate) fn writable(&self) -> Result<Vec<String>> {
        let mounts = std::fs::read_to_string(format!("/proc/{}/mountinfo", self.id))?;
        let mut all = Vec::new();
        for line in mounts.lines() {
            let mut fields = line.split(' ').skip(4);
            let (path, options) = fields.next().zip(fields.next()).context("odd mount")?;
            if !options.split(',').any(|option| option == "ro") {
                all.push(path.to_owned());
            }
        }
        Ok(all)
    }

    /// Ends it as a kubelet does first; it has to end by itself, and well.
    pub(crate) async fn stop(self) -> Result<()> {
        let id = self.id.to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().await?;
        ensure!(sent.success(), "kill failed");
        let ended = within(LIMIT, "the pod to end", self.process.ended()).await??;
        ensure!(ended.success(), "{ended:?}");
        Ok(())
    }
}
