//! What fails, and what it says.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use muster_gitfiles::{Branch, Credentials, GitError, GitErrorKind};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

use crate::http_server::HttpServer;
use crate::lab::{Lab, WAYS, Way, count, git, ls, noise, path, set, tip};
use crate::servers::Door;

fn fails(branch: &Branch) -> GitError {
    branch
        .commit(&[set("a", "1")], "x")
        .expect_err("a commit that fails")
}

fn basic(user: &str, password: &str) -> Credentials {
    Credentials::Basic {
        user: user.to_owned(),
        password: password.to_owned(),
    }
}

#[test]
fn a_wrong_password_is_told_and_never_shown() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    lab.http.require_login("ann", "right");
    for credentials in [Credentials::None, basic("ann", "wr0ng")] {
        let mut config = lab.config(Way::Http, "r.git", "main");
        config.credentials = credentials;
        let shown = format!("{config:?}");
        let branch = Branch::open(config).unwrap();
        let error = fails(&branch);
        assert!(
            matches!(error.kind, GitErrorKind::AuthenticationFailed { .. }),
            "{error}"
        );
        assert!(!error.is_transient());
        let text = format!("{error} {error:?} {branch:?} {shown}");
        assert!(
            text.contains(&lab.url(Way::Http, "r.git")) && text.contains("main"),
            "{text}"
        );
        assert!(!text.contains("wr0ng") && !text.contains("YW5u"), "{text}");
        assert!(branch.files().is_err());
    }
    assert_eq!(tip(&bare, "main"), None);
    let mut config = lab.config(Way::Http, "r.git", "main");
    config.credentials = basic("ann", "right");
    Branch::open(config)
        .unwrap()
        .commit(&[set("a", "1")], "x")
        .unwrap();
    assert_eq!(ls(&bare, "main"), ["a"]);
}

#[test]
fn a_password_in_the_url_is_refused_and_not_shown() {
    let Some(lab) = Lab::new() else { return };
    let mut config = lab.config(Way::Http, "r.git", "main");
    config.url = config.url.replace("http://", "http://ann:secret@");
    let error = Branch::open(config).unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("url cannot be used") && !text.contains("secret"),
        "{text}"
    );
}

#[test]
fn a_right_to_read_only_is_told() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    git(&bare, &["config", "http.receivepack", "false"]);
    let error = fails(&lab.open(Way::Http, "r.git"));
    assert!(
        matches!(error.kind, GitErrorKind::AuthenticationFailed { .. }),
        "{error}"
    );
    git(&bare, &["config", "daemon.receivepack", "false"]);
    let error = fails(&lab.open(Way::Daemon, "r.git"));
    assert!(
        matches!(error.kind, GitErrorKind::NotARepository { .. }),
        "{error}"
    );
}

#[test]
fn a_host_that_is_not_there_is_told() {
    let Some(lab) = Lab::new() else { return };
    // Bound and given back, so that nobody listens there.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for scheme in ["http", "https", "git"] {
        let mut config = lab.config(Way::Http, "r.git", "main");
        config.url = format!("{scheme}://127.0.0.1:{port}/r.git");
        if scheme == "https" {
            config.authorities = Some(certificate(&lab).1);
        }
        let error = fails(&Branch::open(config).unwrap());
        assert!(
            matches!(error.kind, GitErrorKind::HostNotReachable { .. }),
            "{error}"
        );
        assert!(error.is_transient());
        assert!(
            error.to_string().contains(&format!("127.0.0.1:{port}")),
            "{error}"
        );
    }
}

#[test]
fn what_is_no_repository_is_told() {
    let Some(lab) = Lab::new() else { return };
    for way in WAYS {
        let error = fails(&lab.open(way, "none.git"));
        assert!(
            matches!(error.kind, GitErrorKind::NotARepository { .. }),
            "{way:?}: {error}"
        );
        assert!(error.to_string().contains("none.git"), "{error}");
    }
    // A web server that knows nothing of Git, one of the old dumb protocol, one for logging in.
    let ok = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n";
    for answer in [
        format!("{ok}\r\n<htm"),
        format!("{ok}content-type: text/plain\r\n\r\n<htm"),
        format!("{ok}content-type: application/x-git-upload-pack-advertisement\r\n\r\n0000"),
        "HTTP/1.1 302 Found\r\nlocation: /login\r\n\r\n".to_owned(),
        "HTTP/1.1 410 Gone\r\n\r\n".to_owned(),
    ] {
        lab.http.intercept(move |_, _| Some(answer.clone()));
        let error = fails(&lab.open(Way::Http, "r.git"));
        assert!(
            matches!(error.kind, GitErrorKind::NotARepository { .. }),
            "{error}"
        );
    }
}

#[test]
fn other_answers_are_told_apart() {
    let Some(lab) = Lab::new() else { return };
    for (answer, is_transient, part) in [
        ("HTTP/1.1 503 Busy\r\n\r\n", true, "503"),
        ("HTTP/1.1 429 Slow\r\n\r\n", true, "429"),
        ("HTTP/1.1 418 Teapot\r\n\r\n", false, "418"),
        ("HTTP/1.1 302 Found\r\n\r\n", false, "redirect to nowhere"),
        ("", true, "connection broke"),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: application/x-git-upload-pack-advertisement\r\n\
             content-length: 100\r\n\r\n001e# service=git-upload-pack\n",
            true,
            "connection broke",
        ),
    ] {
        lab.http.intercept(move |_, _| Some(answer.to_owned()));
        let error = fails(&lab.open(Way::Http, "r.git"));
        assert_eq!(error.is_transient(), is_transient, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let around = "HTTP/1.1 302 Found\r\nlocation: /r.git/info/refs?service=git-upload-pack\r\n\r\n";
    lab.http.intercept(move |_, _| Some(around.to_owned()));
    let error = fails(&lab.open(Way::Http, "r.git"));
    assert!(error.to_string().contains("redirects"), "{error}");
}

#[test]
fn redirects_are_followed_without_credentials_for_another_host() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    let port = lab.http.port();
    let front = HttpServer::start(lab.root(), None);
    front.intercept(move |_, target| {
        Some(format!(
            "HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:{port}{target}\r\n\r\n"
        ))
    });
    let mut config = lab.config(Way::Http, "r.git", "main");
    config.url = format!("http://127.0.0.1:{}/r.git", front.port());
    config.credentials = basic("ann", "secret");
    Branch::open(config)
        .unwrap()
        .commit(&[set("a", "1")], "x")
        .unwrap();
    assert_eq!(ls(&bare, "main"), ["a"]);
    assert!(front.shown().iter().all(Option::is_some));
    assert!(!lab.http.shown().is_empty());
    assert!(lab.http.shown().iter().all(Option::is_none));

    // Within a host they stay.
    lab.bare("moved.git");
    lab.http.intercept(|method, target| {
        (method == "GET" && target.starts_with("/old")).then(|| {
            let target = target.replace("/old", "/moved.git");
            format!("HTTP/1.1 301 Moved\r\nlocation: {target}\r\n\r\n")
        })
    });
    lab.http.require_login("ann", "secret");
    let mut config = lab.config(Way::Http, "old", "main");
    config.credentials = basic("ann", "secret");
    Branch::open(config)
        .unwrap()
        .commit(&[set("b", "1")], "x")
        .unwrap();
    assert_eq!(ls(&lab.root().join("moved.git"), "main"), ["b"]);
}

#[test]
fn a_server_that_stalls_is_given_up() {
    let Some(lab) = Lab::new() else { return };
    let (keep, kept) = std::sync::mpsc::channel();
    let silent = Door::open(move |stream| keep.send(stream).unwrap());
    for (scheme, stall, conversation) in [
        ("git", 50, 60_000),
        ("git", 60_000, 50),
        ("http", 60_000, 50),
    ] {
        let mut config = lab.config(Way::Http, "r.git", "main");
        config.url = format!("{scheme}://127.0.0.1:{}/r.git", silent.port());
        config.limits.stall = Duration::from_millis(stall);
        config.limits.conversation = Duration::from_millis(conversation);
        let error = fails(&Branch::open(config).unwrap());
        assert!(matches!(error.kind, GitErrorKind::Broken { .. }), "{error}");
        assert!(error.is_transient());
    }
    drop(silent);
    assert_eq!(kept.try_iter().count(), 3);
}

#[test]
fn a_hook_that_declines_is_told_with_its_reason() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    let hook = bare.join("hooks/pre-receive");
    fs::write(&hook, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    for way in [Way::Daemon, Way::Http] {
        let branch = lab.open(way, "r.git");
        let error = fails(&branch);
        assert!(
            matches!(error.kind, GitErrorKind::Refused { .. }),
            "{error}"
        );
        assert!(
            error.to_string().contains("pre-receive hook declined"),
            "{error}"
        );
        assert!(!error.is_transient());
        assert_eq!(tip(&bare, "main"), None);
    }
    let branch = lab.open(Way::Http, "r.git");
    fails(&branch);
    fs::remove_file(&hook).unwrap();
    branch.commit(&[set("a", "1")], "x").unwrap();
    assert_eq!(count(&bare, "main"), 1);
}

#[test]
fn damaged_objects_are_told() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    lab.other_pushes(&bare, "main", &[("a", "0")]);
    let tree = git(&bare, &["rev-parse", "main^{tree}"]);
    let object = bare.join("objects").join(&tree[..2]).join(&tree[2..]);
    fs::set_permissions(&object, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&object, b"garbage").unwrap();
    let error = fails(&lab.open(Way::Path, "r.git"));
    assert!(
        matches!(error.kind, GitErrorKind::Damaged { .. }),
        "{error}"
    );
    assert!(error.to_string().contains(&tree), "{error}");
    for way in [Way::Daemon, Way::Http] {
        // The server notices by itself, and cannot send it.
        let error = fails(&lab.open(way, "r.git"));
        let is_told = matches!(
            error.kind,
            GitErrorKind::Broken { .. } | GitErrorKind::Protocol { .. }
        );
        assert!(is_told, "{way:?}: {error}");
    }
    fs::remove_file(&object).unwrap();
    let error = fails(&lab.open(Way::Path, "r.git"));
    assert!(error.to_string().contains("is missing"), "{error}");
}

#[test]
fn a_repository_with_another_hash_is_not_supported() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.root().join("sha256.git");
    let format = "--object-format=sha256";
    let init = ["init", "-q", "--bare", format, bare.to_str().unwrap()];
    git(lab.folder.path(), &init);
    git(&bare, &["config", "http.receivepack", "true"]);
    for way in WAYS {
        let error = fails(&lab.open(way, "sha256.git"));
        assert!(
            matches!(error.kind, GitErrorKind::Unsupported { .. }),
            "{way:?}: {error}"
        );
        assert!(error.to_string().contains("sha256"), "{error}");
    }
}

#[test]
fn what_is_too_large_is_told() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    let noise = noise();
    lab.other_pushes(&bare, "main", &[("large", &noise)]);
    for way in [Way::Daemon, Way::Http] {
        let mut config = lab.config(way, "r.git", "main");
        config.limits.fetch_bytes = 100_000;
        let error = fails(&Branch::open(config).unwrap());
        assert!(
            matches!(error.kind, GitErrorKind::TooLarge { limit: 100_000, .. }),
            "{error}"
        );
    }
    let mut config = lab.config(Way::Path, "r.git", "main");
    config.limits.object_bytes = 100_000;
    let branch = Branch::open(config).unwrap();
    assert!(branch.read(&path("large")).is_err());
    // Nobody has to read it to write something else.
    branch.commit(&[set("a", "1")], "x").unwrap();
    assert_eq!(ls(&bare, "main"), ["a", "large"]);
}

/// Certificate and key of 127.0.0.1, and the file of the certificate.
fn certificate(lab: &Lab) -> (rcgen::CertifiedKey<rcgen::KeyPair>, std::path::PathBuf) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let path = lab.folder.path().join("ca.pem");
    fs::write(&path, made.cert.pem()).unwrap();
    (made, path)
}

#[test]
fn tls_needs_an_authority_that_is_trusted() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    let (made, path) = certificate(&lab);
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let server = HttpServer::start(lab.root(), Some(Arc::new(tls)));
    let mut config = lab.config(Way::Http, "r.git", "main");
    config.url = format!("https://127.0.0.1:{}/r.git", server.port());
    config.authorities = Some(path);
    let mut other = config.clone();
    Branch::open(config)
        .unwrap()
        .commit(&[set("a", "1")], "x")
        .unwrap();
    assert_eq!(ls(&bare, "main"), ["a"]);

    let stranger = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let path = lab.folder.path().join("other.pem");
    fs::write(&path, stranger.cert.pem()).unwrap();
    other.authorities = Some(path);
    let error = fails(&Branch::open(other.clone()).unwrap());
    assert!(
        matches!(error.kind, GitErrorKind::HostNotReachable { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("TLS"), "{error}");
    other.authorities = Some(lab.folder.path().join("none.pem"));
    let error = fails(&Branch::open(other).unwrap());
    assert!(
        error.to_string().contains("authorities cannot be used"),
        "{error}"
    );
}

#[test]
fn an_answer_that_ends_early_leaves_nothing_half_done() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    lab.other_pushes(&bare, "main", &[("large", &noise())]);
    let branch = lab.open(Way::Http, "r.git");
    lab.http.cut(Some(("POST /r.git/git-upload-pack", 10_000)));
    let error = fails(&branch);
    assert!(matches!(error.kind, GitErrorKind::Broken { .. }), "{error}");
    assert!(error.is_transient());
    lab.http.cut(None);
    assert_eq!(branch.files().unwrap(), [path("large")]);

    // The push is done, and its answer lost. Whoever asks again finds it as wanted.
    lab.http.cut(Some(("POST /r.git/git-receive-pack", 0)));
    let error = fails(&branch);
    assert!(matches!(error.kind, GitErrorKind::Broken { .. }), "{error}");
    lab.http.cut(None);
    assert_eq!(ls(&bare, "main"), ["a", "large"]);
    let again = branch.commit(&[set("a", "1")], "x").unwrap();
    assert_eq!((again.changed, again.pushed), (0, false));
    assert_eq!(count(&bare, "main"), 2);
}

#[test]
fn a_list_of_files_without_end_is_given_up() {
    let Some(lab) = Lab::new() else { return };
    let bare = lab.bare("r.git");
    lab.other_pushes(&bare, "main", &[("a/b/c/d", "1"), ("a/b/c/e", "2")]);
    let mut config = lab.config(Way::Path, "r.git", "main");
    // More than any object here has, and less than all paths.
    config.limits.object_bytes = 250;
    let branch = Branch::open(config.clone()).unwrap();
    assert_eq!(branch.files().unwrap().len(), 2);
    let many: Vec<String> = (0..5).map(|n| format!("{}/{n}", "x".repeat(60))).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|at| (at.as_str(), "1")).collect();
    lab.other_pushes(&bare, "main", &many);
    let error = branch.files().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the list of files is larger than 250 bytes"),
        "{error}"
    );
}
