//! kubectl, as people use it: what it prints depends on discovery, tables, schemas and
//! watches of the server.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::support::ages::ageless;
use crate::support::{Cluster, Story, World, eventually, install_definitions, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        objects_are_created_waited_for_and_listed,
        a_replica_set_is_followed_by_its_short_name,
        objects_are_labelled_scaled_described_and_deleted,
        a_custom_type_is_listed_and_explained,
        apply_creates_changes_and_prunes_fields,
        a_list_of_objects_is_created_and_checked,
        mistakes_are_told_in_the_words_of_the_server,
        a_server_side_dry_run_changes_nothing,
    ]
}

/// Requires that kubectl prints exactly this.
macro_rules! prints {
    ($cluster:expr, $args:expr, $expected:expr) => {{
        let printed = $cluster.kubectl(&$args).await?.ok()?;
        ensure!(
            printed == $expected,
            "kubectl {:?} printed\n{printed}",
            $args
        );
    }};
}

/// Defines a Gadget type of the story's own; gives its group.
async fn gadgets(cluster: &Cluster) -> Result<String> {
    let group = format!("{}.example.com", unique_name("gadgets"));
    let definition = include_str!("kubectl/gadgets.yaml").replace("GROUP", &group);
    let created = cluster
        .kubectl_with_input(&["create", "-f", "-"], &definition)
        .await?
        .ok()?;
    ensure!(
        created
            == format!("customresourcedefinition.apiextensions.k8s.io/gadgets.{group} created\n"),
        "{created}"
    );
    let name = format!("crd/gadgets.{group}");
    cluster
        .kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=30s",
            &name,
        ])
        .await?
        .ok()?;
    // Discovery and schemas follow a little later: the real server publishes them in the background.
    let kind = format!("gadgets.{group}");
    eventually(
        Duration::from_secs(30),
        "the type to be explained",
        || async { type_is_published(cluster, &kind).await },
    )
    .await?;
    Ok(group)
}

async fn type_is_published(cluster: &Cluster, kind: &str) -> Result<()> {
    // Reads discovery anew, which explain does not: it would take the type for a field of another
    // story's type of the same plural that it has in its cache.
    let listed = cluster
        .kubectl(&["api-resources", "-o", "name"])
        .await?
        .ok()?;
    ensure!(
        listed.lines().any(|line| line == kind),
        "{kind} is not listed"
    );
    cluster.kubectl(&["explain", kind]).await?.ok()?;
    Ok(())
}

fn gadget(group: &str, name: &str, size: &str) -> String {
    json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "Gadget",
        "metadata": { "name": name },
        "spec": { "size": size },
    })
    .to_string()
}

async fn objects_are_created_waited_for_and_listed(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let group = gadgets(&hub).await?;
    let n = namespace.as_str();
    let kind = format!("gadgets.{group}");
    let k = kind.as_str();

    for (name, size) in [("first", "small"), ("second", "large")] {
        let created = hub
            .kubectl_with_input(&["create", "-n", n, "-f", "-"], &gadget(&group, name, size))
            .await?
            .ok()?;
        ensure!(
            created == format!("gadget.{group}/{name} created\n"),
            "{created}"
        );
    }
    let table = ageless(&hub.kubectl(&["get", k, "-n", n]).await?.ok()?);
    ensure!(
        table
            == "\
NAME     SIZE    AGE
first    small   AGE
second   large   AGE
",
        "{table}"
    );

    // Waits as long as the condition is missing, and sees it come.
    let waiting = hub.clone();
    let (in_namespace, kind_of) = (namespace.clone(), kind.clone());
    let wait = tokio::spawn(async move {
        waiting
            .kubectl(&[
                "wait",
                "--for=condition=Ready",
                "--timeout=60s",
                "-n",
                &in_namespace,
                &kind_of,
                "first",
            ])
            .await?
            .ok()
    });
    let status = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}],"phase":"Made"}}"#;
    hub.kubectl(&[
        "patch",
        k,
        "first",
        "-n",
        n,
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    ])
    .await?
    .ok()?;
    let waited = wait.await??;
    ensure!(
        waited == format!("gadget.{group}/first condition met\n"),
        "{waited}"
    );

    let wide = ageless(
        &hub.kubectl(&["get", k, "-n", n, "-o", "wide"])
            .await?
            .ok()?,
    );
    ensure!(
        wide == "\
NAME     SIZE    AGE   READY   PHASE
first    small   AGE   True    Made
second   large   AGE           \n",
        "{wide}"
    );
    prints!(
        hub,
        ["get", k, "first", "-n", n, "-o", "jsonpath={.status.phase}"],
        "Made"
    );
    prints!(
        hub,
        [
            "get",
            k,
            "-n",
            n,
            "-o",
            "custom-columns=N:.metadata.name,S:.spec.size",
            "--no-headers"
        ],
        "first    small\nsecond   large\n"
    );
    Ok(())
}

async fn a_replica_set_is_followed_by_its_short_name(world: World) -> Result<()> {
    let hub = world.hub().await?;
    install_definitions(&hub).await?;
    let namespace = hub.namespace().await?;
    let n = namespace.as_str();
    let set = json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1",
        "kind": "ManifestWorkReplicaSet",
        "metadata": { "name": "web" },
        "spec": {
            "placementRefs": [{ "name": "everywhere" }],
            "manifestWorkTemplate": { "workload": { "manifests": [
                { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } },
            ] } },
        },
    });
    let create = ["create", "-n", n, "-f", "-"];
    let created = hub
        .kubectl_with_input(&create, &set.to_string())
        .await?
        .ok()?;
    let name = "manifestworkreplicaset.work.open-cluster-management.io/web";
    ensure!(created == format!("{name} created\n"), "{created}");

    let status = json!({ "status": {
        "phase": "Progressing",
        "message": "2 of 3 clusters available",
        "conditions": [{
            "type": "PlacementVerified", "status": "True", "reason": "AsExpected", "message": "",
            "lastTransitionTime": "2026-01-22T10:00:00Z",
        }],
        "summary": {
            "total": 3, "desiredTotal": 3, "available": 2, "progressing": 1, "degraded": 0,
            "applied": 3, "updated": 3,
        },
    } });
    let status = status.to_string();
    let report = [
        "patch",
        "mwrs",
        "web",
        "-n",
        n,
        "--subresource=status",
        "--type=merge",
        "-p",
    ];
    hub.kubectl(&[&report[..], &[&status]].concat())
        .await?
        .ok()?;
    prints!(
        hub,
        [
            "wait",
            "--for=condition=PlacementVerified",
            "--timeout=30s",
            "-n",
            n,
            "mwrs/web"
        ],
        format!("{name} condition met\n")
    );
    let wide = ageless(
        &hub.kubectl(&["get", "mwrs", "-n", n, "-o", "wide"])
            .await?
            .ok()?,
    );
    let columns = [
        ("NAME   ", "web    "),
        ("PLACEMENT    ", "AsExpected   "),
        ("FOUND   ", "True    "),
        ("MANIFESTWORKS   ", "                "),
        ("APPLIED   ", "          "),
        ("STATUS        ", "Progressing   "),
        (
            "READY                       ",
            "2 of 3 clusters available   ",
        ),
        ("TOTAL   ", "3       "),
        ("AVAILABLE   ", "2           "),
        ("PROGRESSING   ", "1             "),
        ("DEGRADED   ", "0          "),
        ("AGE", "AGE"),
    ];
    let (header, row): (String, String) = columns.into_iter().unzip();
    ensure!(wide == format!("{header}\n{row}\n"), "{wide}");
    prints!(
        hub,
        ["delete", "mwrs", "web", "-n", n],
        format!(
            "{} \"web\" deleted from {n} namespace\n",
            name.trim_end_matches("/web")
        )
    );
    Ok(())
}

async fn objects_are_labelled_scaled_described_and_deleted(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let group = gadgets(&hub).await?;
    let n = namespace.as_str();
    let kind = format!("gadgets.{group}");
    let k = kind.as_str();
    for name in ["first", "second"] {
        hub.kubectl_with_input(
            &["create", "-n", n, "-f", "-"],
            &gadget(&group, name, "small"),
        )
        .await?
        .ok()?;
    }
    prints!(
        hub,
        ["label", k, "first", "-n", n, "app=shop"],
        format!("gadget.{group}/first labeled\n")
    );
    prints!(
        hub,
        ["get", k, "-n", n, "-l", "app=shop", "-o", "name"],
        format!("gadget.{group}/first\n")
    );
    prints!(
        hub,
        ["scale", k, "second", "-n", n, "--replicas=3"],
        format!("gadget.{group}/second scaled\n")
    );
    prints!(
        hub,
        [
            "get",
            k,
            "second",
            "-n",
            n,
            "-o",
            "jsonpath={.spec.replicas}"
        ],
        "3"
    );
    let described = hub
        .kubectl(&["describe", k, "first", "-n", n])
        .await?
        .ok()?;
    for line in [
        "Name:         first",
        "Kind:         Gadget",
        "  Size:  small",
    ] {
        ensure!(
            described.lines().any(|seen| seen == line),
            "no {line:?} in {described}"
        );
    }

    // Waits until they are gone.
    prints!(
        hub,
        ["delete", k, "first", "-n", n],
        format!("gadget.{group} \"first\" deleted from {n} namespace\n")
    );
    prints!(
        hub,
        ["delete", k, "--all", "-n", n],
        format!("gadget.{group} \"second\" deleted from {n} namespace\n")
    );
    let none = hub.kubectl(&["get", k, "-n", n]).await?;
    ensure!(
        none.code == Some(0)
            && none.stdout.is_empty()
            && none.stderr == format!("No resources found in {n} namespace.\n"),
        "{none:?}"
    );
    Ok(())
}

async fn a_custom_type_is_listed_and_explained(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let group = gadgets(&hub).await?;
    let resources = hub
        .kubectl(&[
            "api-resources",
            "--no-headers",
            &format!("--api-group={group}"),
        ])
        .await?
        .ok()?;
    let columns: Vec<&str> = resources.split_whitespace().collect();
    let version = format!("{group}/v1");
    ensure!(
        columns == ["gadgets", "gdg", &version, "true", "Gadget"],
        "{resources}"
    );
    let versions = hub.kubectl(&["api-versions"]).await?.ok()?;
    ensure!(versions.lines().any(|line| line == version), "{versions}");

    let kind = format!("gadgets.{group}");
    let explained = hub.kubectl(&["explain", &kind]).await?.ok()?;
    let expected = format!(
        "\
GROUP:      {group}
KIND:       Gadget
VERSION:    v1

DESCRIPTION:
    A thing to show.
    
FIELDS:
  apiVersion\t<string>
"
    );
    ensure!(explained.starts_with(&expected), "{explained}");
    ensure!(
        explained.contains("  spec\t<Object> -required-\n    What is wanted.\n"),
        "{explained}"
    );
    let field = hub
        .kubectl(&["explain", &format!("{kind}.spec.size")])
        .await?
        .ok()?;
    ensure!(
        field
            == format!(
                "\
GROUP:      {group}
KIND:       Gadget
VERSION:    v1

FIELD: size <string>
ENUM:
    small
    large

DESCRIPTION:
    How big it is.
    

"
            ),
        "{field}"
    );
    Ok(())
}

async fn apply_creates_changes_and_prunes_fields(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let n = namespace.as_str();
    let apply = async |data: &str| {
        let object = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"a\"}},\
             \"data\":{data}}}"
        );
        hub.kubectl_with_input(&["apply", "-n", n, "-f", "-"], &object)
            .await?
            .ok()
    };
    let created = apply(r#"{"one":"1","two":"2"}"#).await?;
    ensure!(created == "configmap/a created\n", "{created}");
    let unchanged = apply(r#"{"one":"1","two":"2"}"#).await?;
    ensure!(unchanged == "configmap/a unchanged\n", "{unchanged}");
    prints!(
        hub,
        [
            "patch",
            "configmap",
            "a",
            "-n",
            n,
            "--type=merge",
            "-p",
            r#"{"data":{"ours":"3"}}"#
        ],
        "configmap/a patched\n"
    );
    let configured = apply(r#"{"one":"11"}"#).await?;
    ensure!(configured == "configmap/a configured\n", "{configured}");
    // What apply set and no longer has is removed; what others set stays.
    prints!(
        hub,
        ["get", "configmap", "a", "-n", n, "-o", "jsonpath={.data}"],
        r#"{"one":"11","ours":"3"}"#
    );
    Ok(())
}

/// For a `List` kubectl asks for schemas in another form than for single objects.
async fn a_list_of_objects_is_created_and_checked(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let list = |field: &str| {
        let config_map = |name| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, field: {"a": "1"}});
        json!({"apiVersion": "v1", "kind": "List", "items": [config_map("one"), config_map("two")]})
            .to_string()
    };
    let create = ["create", "-n", namespace.as_str(), "-f", "-"];
    let created = hub.kubectl_with_input(&create, &list("data")).await?.ok()?;
    ensure!(
        created == "configmap/one created\nconfigmap/two created\n",
        "{created}"
    );
    let refused = hub.kubectl_with_input(&create, &list("date")).await?;
    ensure!(
        refused.code == Some(1) && refused.stderr.contains("unknown field \"date\""),
        "{refused:?}"
    );
    Ok(())
}

async fn mistakes_are_told_in_the_words_of_the_server(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let n = namespace.as_str();
    let group = gadgets(&hub).await?;
    let kind = format!("gadgets.{group}");
    let missing = hub.kubectl(&["get", &kind, "none", "-n", n]).await?;
    let not_found = format!("Error from server (NotFound): {kind} \"none\" not found\n");
    ensure!(
        missing.code == Some(1) && missing.stderr == not_found,
        "{missing:?}"
    );
    let unknown = hub.kubectl(&["get", "nonsense", "-n", n]).await?;
    let no_type = "error: the server doesn't have a resource type \"nonsense\"\n";
    ensure!(
        unknown.code == Some(1) && unknown.stderr == no_type,
        "{unknown:?}"
    );

    let create = ["create", "-n", n, "-f", "-"];
    let invalid = hub
        .kubectl_with_input(&create, &gadget(&group, "a", "huge"))
        .await?;
    let refusal = "The Gadget \"a\" is invalid: spec.size: Unsupported value: \"huge\": supported \
                   values: \"small\", \"large\"\n";
    ensure!(
        invalid.code == Some(1) && invalid.stderr == refusal,
        "{invalid:?}"
    );
    let typo = gadget(&group, "a", "small").replace("\"size\"", "\"sizes\":\"l\",\"size\"");
    let typo = hub.kubectl_with_input(&create, &typo).await?;
    let refusal = "Error from server (BadRequest): error when creating \"STDIN\": Gadget in \
                   version \"v1\" cannot be handled as a Gadget: strict decoding error: unknown \
                   field \"spec.sizes\"\n";
    ensure!(typo.code == Some(1) && typo.stderr == refusal, "{typo:?}");

    hub.kubectl_with_input(&create, &gadget(&group, "a", "small"))
        .await?
        .ok()?;
    let twice = hub
        .kubectl_with_input(&create, &gadget(&group, "a", "small"))
        .await?;
    let exists = format!(
        "Error from server (AlreadyExists): error when creating \"STDIN\": {kind} \"a\" already \
         exists\n"
    );
    ensure!(twice.code == Some(1) && twice.stderr == exists, "{twice:?}");
    Ok(())
}

async fn a_server_side_dry_run_changes_nothing(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let n = namespace.as_str();
    let group = gadgets(&hub).await?;
    let tried = hub
        .kubectl_with_input(
            &["create", "-n", n, "--dry-run=server", "-f", "-"],
            &gadget(&group, "a", "small"),
        )
        .await?
        .ok()?;
    ensure!(
        tried == format!("gadget.{group}/a created (server dry run)\n"),
        "{tried}"
    );
    let none = hub
        .kubectl(&["get", &format!("gadgets.{group}"), "-n", n, "-o", "name"])
        .await?;
    ensure!(none.ok()?.is_empty(), "a dry run created");
    Ok(())
}
