//! The dashboard, in a real browser.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::json;

use super::rollout::{Fleet, config_map, placement, set};
use crate::support::agent::Agent;
use crate::support::browser::Browser;
use crate::support::{Backend, Servers, Story, World};

pub(crate) fn stories() -> Vec<Story> {
    once![a_rollout_shows_as_it_goes, an_agent_alone_shows_what_it_has,]
}

/// A value that is markup, if somebody takes it for that.
const MARKUP: &str = "<b id='evil'>bold</b>";

/// The text of the first element of a selector; empty if there is none.
fn text(selector: &str) -> String {
    format!("return document.querySelector({selector:?})?.innerText ?? ''")
}

/// As a text, since that is what the browser gives.
fn count(selector: &str) -> String {
    format!("return String(document.querySelectorAll({selector:?}).length)")
}

async fn is(browser: &Browser, selector: &str, wanted: &[&str]) -> Result<()> {
    let what = format!("{wanted:?} at {selector}");
    let seen = |text: &str| wanted.iter().all(|part| text.contains(part));
    browser.shows(&what, &text(selector), seen).await?;
    Ok(())
}

async fn a_rollout_shows_as_it_goes(servers: Arc<Servers>) -> Result<()> {
    let browser = servers.browser().await?;
    let world = World::new(Backend::Embedded, servers);
    let west = "[[clusters]]\nname = \"west\"\nsimulated = true";
    let fleet = Fleet::on(&world, west).await?;
    browser.prefers("light").await?;
    browser.open(&fleet.muster.url("/")).await?;
    is(&browser, "#connection", &["live"]).await?;
    is(&browser, "section[data-key=Rollouts]", &["No replica sets"]).await?;

    fleet.create(&placement()).await?;
    let mut map = config_map("app");
    map["data"]["a"] = MARKUP.into();
    let mut web = set(&json!([map]));
    web["spec"]["manifestWorkTemplate"]["manifestConfigs"] = json!([{
        "resourceIdentifier": {
            "group": "", "resource": "configmaps", "namespace": "default", "name": "app"},
        "feedbackRules": [{"type": "JSONPaths", "jsonPaths": [{"name": "a", "path": ".data.a"}]}],
        "feedbackScrapeType": "Watch"}]);
    fleet.create(&web).await?;
    is(&browser, ".set .title", &["default/web", "Ready"]).await?;
    is(&browser, ".set .legend", &["succeeded 2"]).await?;
    let values = ["configmaps/default/app", &format!("{MARKUP} ×2")];
    is(&browser, ".set .feedback", &values).await?;
    is(
        &browser,
        ".tiles",
        &["Clusters\n2\n", "Watches\n2/", "Failing streams\n0\n"],
    )
    .await?;
    let squares = |many: &'static str| {
        let browser = &browser;
        async move {
            let squares = count(".cells .succeeded");
            browser.shows(many, &squares, |seen| seen == many).await
        }
    };
    squares("2").await?;
    for (name, many) in [("west", "1"), ("", "2")] {
        let typed = format!(
            "const filter = document.querySelector('#filter'); filter.value = '{name}'; \
             filter.dispatchEvent(new Event('input'))"
        );
        browser.run(&typed).await?;
        squares(many).await?;
    }

    // What fails comes first, whatever its name.
    let mut fine = set(&json!([config_map("fine")]));
    fine["metadata"]["name"] = "fine".into();
    fleet.create(&fine).await?;
    is(&browser, ".set .title", &["default/fine", "Ready"]).await?;
    let wrong = json!({"apiVersion": "no.such/v1", "kind": "Thing",
        "metadata": {"namespace": "default", "name": "x"}});
    fleet.add_manifest(&wrong).await?;
    is(
        &browser,
        ".set .clusters",
        &["west", "not applied", "simulated"],
    )
    .await?;
    is(&browser, ".set", &["muster explain mwrs web -n default"]).await?;
    is(
        &browser,
        ".set:nth-of-type(2) .title",
        &["default/fine", "Ready"],
    )
    .await?;
    is(&browser, ".troubled", &["west/", "resource type \"Thing\""]).await?;

    let background = "return getComputedStyle(document.body).backgroundColor";
    let light = browser.run(background).await?;
    ensure!(
        browser.screenshot("dashboard-light").await? > 20_000,
        "an empty picture"
    );
    browser.prefers("dark").await?;
    let dark = browser.run(background).await?;
    ensure!(light != dark, "{light} also where dark is preferred");
    browser.screenshot("dashboard-dark").await?;
    let wide = "return String(document.documentElement.scrollWidth - innerWidth)";
    for width in [1280, 390] {
        browser.resize(width, 900).await?;
        let over: i64 = browser.shows("all", wide, |_| true).await?.parse()?;
        ensure!(over <= 0, "{over} pixels wider than a window of {width}");
    }
    let hidden = "return String([...document.querySelectorAll('.scroll')]\
        .filter((part) => part.scrollWidth > part.clientWidth).length)";
    ensure!(browser.run(hidden).await? == "0", "a table does not fit");
    browser.screenshot("dashboard-narrow").await?;

    let evil = browser.run(&count("#evil")).await?;
    ensure!(evil == "0", "a value has become a part of the page");
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "{complaints:#?}");
    fleet.muster.kill().await?;
    is(&browser, "#connection.lost", &["no connection since"]).await?;
    browser.close().await
}

async fn an_agent_alone_shows_what_it_has(servers: Arc<Servers>) -> Result<()> {
    let browser = servers.browser().await?;
    let world = World::new(Backend::Embedded, servers);
    let agent = Agent::start(&world).await?;
    let object = agent.config_map("app", json!({"a": "b"}));
    agent
        .applied("w", json!({"workload": {"manifests": [object]}}))
        .await?;
    browser.open(&agent.url("/")?).await?;
    is(&browser, "#process", &["agents"]).await?;
    is(&browser, ".tiles", &["Works here\n1\n"]).await?;
    is(&browser, ".agents", &[agent.name()]).await?;
    let rollouts = browser.run(&count("section[data-key=Rollouts]")).await?;
    ensure!(rollouts == "0", "an agent knows of no rollouts");
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "{complaints:#?}");
    browser.close().await
}
