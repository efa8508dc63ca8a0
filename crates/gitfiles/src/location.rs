//! Where a repository is: what a URL or a path says.

use std::path::PathBuf;

use url::Url;

use crate::error::{GitErrorKind, Result};

/// Git's own port.
const DAEMON_PORT: u16 = 9418;

/// Where a repository is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// On this machine.
    Path(PathBuf),
    /// At a `git daemon`.
    Daemon {
        /// Name or address; of IPv6 without brackets.
        host: String,
        port: u16,
        path: String,
    },
    /// At an HTTP server, without a slash at the end.
    Http(Url),
}

impl Location {
    /// Reads `text`, which is a URL if it has a scheme, and else a path.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if !text.contains("://") {
            return Self::parse_path(text);
        }
        let mut url = Url::parse(text).map_err(|error| refused(&error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused(
                "it has credentials in it, which belong in credentials",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refused("it has a query or a fragment"));
        }
        match url.scheme() {
            "file" => url
                .to_file_path()
                .map(Self::Path)
                .map_err(|()| refused("it is no path of this machine")),
            // Whether the server would decode it is not said anywhere.
            "git" if url.path().contains('%') => Err(refused(
                "its path has spaces or characters that need an encoding",
            )),
            "git" => match url.host() {
                Some(host) => Ok(Self::Daemon {
                    // Brackets are the URL's, not the address's.
                    host: host.to_string().trim_matches(['[', ']']).to_lowercase(),
                    port: url.port().unwrap_or(DAEMON_PORT),
                    path: url.path().trim_end_matches('/').to_owned(),
                }),
                None => Err(refused("it names no host")),
            },
            "http" | "https" => {
                let path = url.path().trim_end_matches('/').to_owned();
                url.set_path(&path);
                Ok(Self::Http(url))
            }
            "ssh" | "git+ssh" | "ssh+git" => Err(refused(SSH)),
            scheme => Err(refused(&format!("{scheme} is not supported"))),
        }
    }

    fn parse_path(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(refused("it is empty"));
        }
        // As the git program does: host:path is SSH if no slash comes before the colon.
        if text
            .split('/')
            .next()
            .is_some_and(|first| first.contains(':'))
        {
            return Err(refused(SSH));
        }
        std::path::absolute(text)
            .map(Self::Path)
            .map_err(|error| refused(&error.to_string()))
    }

    /// Equal for texts that surely mean the same repository.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Path(path) => {
                let path = path.canonicalize().unwrap_or_else(|_| path.clone());
                // A repository with a work tree can be named by either folder.
                let path = path
                    .parent()
                    .filter(|_| path.ends_with(".git"))
                    .unwrap_or(&path);
                format!("file://{}", path.display())
            }
            Self::Daemon { host, port, path } => format!("git://{host}:{port}{path}"),
            Self::Http(url) => url.to_string(),
        }
    }

    /// Equal also for texts that mean the same repository with nearly every server: with and
    /// without `.git` at the end.
    pub(crate) fn loose_key(&self) -> String {
        let key = self.key();
        key.strip_suffix(".git").map(str::to_owned).unwrap_or(key)
    }

    /// Whether there is a way to show it credentials.
    pub(crate) const fn takes_credentials(&self) -> bool {
        matches!(self, Self::Http(_))
    }

    /// Whether it is on this machine.
    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, Self::Path(_))
    }
}

const SSH: &str = "SSH is not supported yet; use https with a token";

fn refused(reason: &str) -> GitErrorKind {
    GitErrorKind::Setting {
        field: "url",
        reason: reason.to_owned(),
    }
}

/// `url` without what may be a password in it.
pub(crate) fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return match url.rsplit_once('@') {
            Some((_, host)) if !url.starts_with('/') => format!("…@{host}"),
            _ => url.to_owned(),
        };
    };
    // Not only up to the first slash: who writes a password into a URL may forget to encode it.
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://…@{host}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_urls_and_paths() {
        assert_eq!(
            Location::parse("/srv/a.git").unwrap(),
            Location::Path("/srv/a.git".into())
        );
        assert_eq!(
            Location::parse("file:///srv/a%20b").unwrap(),
            Location::Path("/srv/a b".into())
        );
        assert_eq!(
            Location::parse("git://Host/a.git/").unwrap(),
            Location::Daemon {
                host: "host".to_owned(),
                port: 9418,
                path: "/a.git".to_owned()
            }
        );
        assert_eq!(
            Location::parse("git://[::1]:77/a").unwrap(),
            Location::Daemon {
                host: "::1".to_owned(),
                port: 77,
                path: "/a".to_owned()
            }
        );
        let relative = Location::parse("x.git").unwrap();
        assert_eq!(
            relative,
            Location::Path(std::path::absolute("x.git").unwrap())
        );
        assert!(relative.is_local());
    }

    #[test]
    fn equal_repositories_have_equal_keys() {
        let key = |text: &str| Location::parse(text).unwrap().key();
        assert_eq!(key("HTTPS://Host:443/a/b/"), key("https://host/a/b"));
        assert_eq!(key("git://host/a"), key("git://HOST:9418/a/"));
        assert_eq!(key("file:///srv/x"), key("/srv/./x"));
        assert_eq!(key("/srv/x/.git"), key("/srv/x"));
        assert_ne!(key("http://host/a"), key("https://host/a"));
        assert_ne!(key("https://host/a"), key("https://host/A"));
        let loose = |text: &str| Location::parse(text).unwrap().loose_key();
        assert_ne!(key("https://host/a"), key("https://host/a.git"));
        assert_eq!(loose("https://host/a"), loose("https://host/a.git"));
    }

    #[test]
    fn refuses_what_is_not_supported() {
        for (text, part) in [
            ("", "empty"),
            ("ssh://git@host/a", "credentials"),
            ("ssh://host/a", "SSH is not supported"),
            ("git@host:a/b.git", "SSH is not supported"),
            ("ftp://host/a", "ftp is not supported"),
            ("https://ann:secret@host/a", "credentials"),
            ("https://host/a?x=1", "query"),
            ("https://", "empty host"),
            ("git:///a", "no host"),
            ("git://host/a b", "need an encoding"),
            ("file://host/a", "no path of this machine"),
        ] {
            let error = Location::parse(text).expect_err(text).to_string();
            assert!(
                error.starts_with("url cannot be used") && error.contains(part),
                "{text}: {error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(redacted("https://ann:sec/r@et@host/a"), "https://…@host/a");
        assert_eq!(redacted("https://host/a"), "https://host/a");
        assert_eq!(redacted("/srv/a@b"), "/srv/a@b");
        assert_eq!(redacted("ann:secret@host:a"), "…@host:a");
    }
}
