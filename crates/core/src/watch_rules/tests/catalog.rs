use jiff::SignedDuration;

use super::*;

fn names(catalog: &Catalog) -> Vec<String> {
    catalog.types().map(|of| of.resource.to_string()).collect()
}

fn has(catalog: &Catalog, resource: &str) -> bool {
    catalog.named(resource).next().is_some()
}

fn without(group: &str, version: &str) -> Scan {
    let mut scan = scan();
    scan.answers.remove(&GroupVersion::new(group, version));
    scan
}

fn failing(group: &str, version: &str) -> Scan {
    let mut scan = scan();
    fail(&mut scan, group, version);
    scan
}

#[test]
fn what_is_not_loaded_is_not_empty() {
    let mut catalog = Catalog::default();
    assert!(!catalog.is_loaded() && !catalog.is_complete());
    // Neither failures alone nor a server that shows nothing at all tell what is served.
    let mut nothing = Scan::default();
    fail(&mut nothing, "", "v1");
    catalog.observe(at(0), nothing);
    let empty = Scan {
        complete: true,
        ..Scan::default()
    };
    catalog.observe(at(1), empty);
    assert!(!catalog.is_loaded() && !catalog.is_complete());
    assert!(catalog.observe(at(2), scan()));
    assert!(catalog.is_loaded() && catalog.is_complete());
    // A type keeps its facts; subresources are none.
    let widgets: Vec<_> = catalog.named("widgets").collect();
    assert_eq!(widgets.len(), 2);
    assert_eq!(widgets.iter().filter(|of| of.preferred).count(), 1);
    assert_eq!(&*widgets[0].kind, "Widget");
    assert!(!has(&catalog, "pods/log") && has(&catalog, "pods"));
}

#[test]
fn only_what_a_plan_may_show_is_a_change() {
    let mut catalog = catalog(scan());
    assert!(!catalog.observe(at(30), scan()));
    assert!(!catalog.observe(at(90), scan()));

    let mut changed = scan();
    let mut configmaps = found("configmaps", "ConfigMap", true);
    configmaps.verbs.remove("watch");
    let core = vec![configmaps, found("secrets", "Secret", true)];
    add(&mut changed, "", "v1", true, core);
    assert!(catalog.observe(at(90), changed.clone()));
    assert!(!catalog.observe(at(91), changed.clone()));
    assert!(!catalog.named("configmaps").next().unwrap().is_watchable());

    // An error is news once, whatever its words.
    let mut broken = changed.clone();
    fail(&mut broken, "apps", "v1");
    assert!(catalog.observe(at(92), broken.clone()));
    let of = GroupVersion::new("apps", "v1");
    broken.answers.get_mut(&of).unwrap().resources = Err("503 again".to_owned());
    assert!(!catalog.observe(at(93), broken));
    let degraded: Vec<_> = catalog.degraded().collect();
    assert_eq!(degraded, [(&of, "503 Service Unavailable")]);
    assert!(catalog.observe(at(94), changed.clone()));
    assert_eq!(catalog.degraded().count(), 0);

    // The group prefers another version.
    for (version, preferred) in [("v1", false), ("v1beta1", true)] {
        let of = GroupVersion::new("example.io", version);
        changed.answers.get_mut(&of).unwrap().preferred = preferred;
    }
    assert!(catalog.observe(at(95), changed.clone()));
    let preferred = catalog.named("widgets").find(|of| of.preferred).unwrap();
    assert_eq!(preferred.resource.version(), "v1beta1");
    // Whether all is known is told, too.
    changed.complete = false;
    assert!(catalog.observe(at(96), changed));
    assert!(!catalog.is_complete() && catalog.is_loaded());
}

/// S53.
#[test]
fn a_type_that_is_gone_stays_for_its_grace() {
    // One type of a group version that answers, and all of one that is not there any more.
    let mut fewer = scan();
    add(
        &mut fewer,
        "apps",
        "v1",
        true,
        vec![found("deployments", "Deployment", true)],
    );
    for (scan, gone) in [
        (fewer, "statefulsets"),
        (without("example.io", "v1"), "widgets"),
    ] {
        let mut catalog = catalog(super::scan());
        let all = names(&catalog).len();
        assert!(catalog.observe(at(100), scan.clone()));
        let missing: Vec<_> = catalog.types().filter(|of| of.missing).collect();
        assert!(missing.iter().any(|of| of.resource.resource() == gone));
        assert!(
            !catalog.observe(at(130), scan.clone()),
            "the grace goes on from its begin"
        );
        assert!(!catalog.observe(at(159), scan.clone()));
        assert_eq!(names(&catalog).len(), all);
        assert!(catalog.observe(at(160), scan));
        assert!(names(&catalog).len() < all);
        assert!(catalog.types().all(|of| !of.missing));
    }
}

#[test]
fn a_type_that_comes_back_in_its_grace_was_never_gone() {
    let mut catalog = catalog(scan());
    catalog.observe(at(100), without("example.io", "v1"));
    assert!(
        catalog.observe(at(170), scan()),
        "even if nothing has looked in time"
    );
    assert!(catalog.types().all(|of| !of.missing));
    assert_eq!(catalog.named("widgets").count(), 2);
    // The next grace is a new one.
    for second in [200, 259] {
        catalog.observe(at(second), without("example.io", "v1"));
        assert_eq!(catalog.named("widgets").count(), 2);
    }
    catalog.observe(at(260), without("example.io", "v1"));
    assert_eq!(catalog.named("widgets").count(), 1);
}

/// S42, S52, C133.
#[test]
fn an_error_keeps_types_for_as_long_as_it_lasts() {
    let mut catalog = catalog(scan());
    let all = names(&catalog);
    for round in 1..=11 {
        catalog.observe(at(60 * round), failing("apps", "v1"));
        assert_eq!(names(&catalog), all);
    }
    // A type that was missing before the error began is not missing for certain.
    catalog.observe(at(700), without("example.io", "v1"));
    assert!(catalog.types().any(|of| of.missing));
    assert!(catalog.observe(at(710), failing("example.io", "v1")));
    assert!(!catalog.observe(at(2_000), failing("example.io", "v1")));
    assert!(catalog.types().all(|of| !of.missing));
    // The group version is gone for good: so is its error, and then its types.
    catalog.observe(at(2_000), without("example.io", "v1"));
    assert_eq!(catalog.degraded().count(), 0);
    assert!(catalog.observe(at(2_060), without("example.io", "v1")));
    assert_eq!(catalog.named("widgets").count(), 1);
    assert!(!catalog.knows(&GroupVersion::new("example.io", "v1")));
}

/// The preferred version comes from the list of groups, so it is known of what fails to answer, and
/// of what is in its grace.
#[test]
fn types_that_are_kept_follow_the_preferred_version() {
    let preferred = |catalog: &Catalog| catalog.named("widgets").filter(|of| of.preferred).count();
    let unpreferred = |resources: Result<Vec<FoundResource>, String>| {
        let mut scan = scan();
        let answer = Answer {
            preferred: false,
            resources,
        };
        let of = GroupVersion::new("example.io", "v1");
        scan.answers.insert(of, answer);
        scan
    };
    let mut failed = catalog(failing("example.io", "v1"));
    failed.observe(at(1), scan());
    failed.observe(at(2), failing("example.io", "v1"));
    assert_eq!(preferred(&failed), 1);
    assert!(failed.observe(at(3), unpreferred(Err("503".to_owned()))));
    assert_eq!(preferred(&failed), 0);

    let mut missing = catalog(scan());
    let mut gone = unpreferred(Ok(vec![]));
    add(&mut gone, "example.io", "v1", true, vec![]);
    missing.observe(at(1), gone);
    assert_eq!(preferred(&missing), 1);
    assert!(missing.observe(at(2), unpreferred(Ok(vec![]))));
    assert_eq!(preferred(&missing), 0);
}

#[test]
fn an_error_of_what_is_gone_is_gone() {
    let mut catalog = catalog(failing("metrics.io", "v1"));
    assert_eq!(catalog.degraded().count(), 1);
    assert!(catalog.observe(at(1), scan()), "a plan would tell of it");
    assert_eq!(catalog.degraded().count(), 0);
    assert!(!catalog.observe(at(2), scan()));
}

#[test]
fn an_incomplete_scan_judges_only_what_answered() {
    let mut catalog = catalog(scan());
    let mut part = Scan::default();
    add(
        &mut part,
        "apps",
        "v1",
        true,
        vec![found("deployments", "Deployment", true)],
    );
    catalog.observe(at(100), part.clone());
    let missing: Vec<_> = catalog
        .types()
        .filter(|of| of.missing)
        .map(|of| of.resource.to_string())
        .collect();
    assert_eq!(
        missing,
        ["controllerrevisions.v1.apps", "statefulsets.v1.apps"]
    );
    catalog.observe(at(200), part.clone());
    assert!(has(&catalog, "configmaps") && !has(&catalog, "statefulsets"));
    // An error is not taken back by silence.
    catalog.observe(at(300), failing("events.k8s.io", "v1"));
    catalog.observe(at(301), part);
    assert_eq!(catalog.degraded().count(), 1);
}

#[test]
fn the_grace_is_a_parameter_and_ends_at_the_end_of_time() {
    let mut quick = Catalog::new(SignedDuration::ZERO);
    quick.observe(at(0), scan());
    quick.observe(at(1), without("apps", "v1"));
    assert!(!has(&quick, "deployments"));
    let mut endless = Catalog::new(SignedDuration::MAX);
    endless.observe(at(0), scan());
    endless.observe(at(1), without("apps", "v1"));
    // A clock that was set back begins nothing and ends nothing.
    for second in [-1_000, 1_000_000_000] {
        assert!(!endless.observe(at(second), without("apps", "v1")));
        assert!(has(&endless, "deployments"));
    }
}

#[test]
fn group_versions_are_written_as_in_objects() {
    assert_eq!(GroupVersion::new("", "v1").to_string(), "v1");
    assert_eq!(GroupVersion::new("apps", "v1").to_string(), "apps/v1");
}
