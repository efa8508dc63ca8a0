//! Who writes: the request's field manager.

use super::apply;
use super::call::Call;
use crate::http::query::Query;
use crate::managed::Tracker;
use crate::status::{ApiError, ApiResult, FieldError, Subject};
use http::HeaderMap;
use http::header::USER_AGENT;

/// Longest name of a manager, as in the real server.
const MAX_BYTES: usize = 128;

/// The request's `fieldManager`, or what its user agent has before the first slash.
pub(crate) fn of(headers: &HeaderMap, query: &Query) -> String {
    if let Some(given) = query.get("fieldManager") {
        return given.to_owned();
    }
    let agent = headers
        .get(USER_AGENT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let name = agent.split('/').next().unwrap_or_default();
    let mut manager = String::new();
    for c in name.chars().filter(|c| !c.is_control()) {
        if manager.len() + c.len_utf8() > MAX_BYTES {
            break;
        }
        manager.push(c);
    }
    manager
}

impl Call {
    /// Whose change this is, for field management.
    pub(crate) fn tracker(&self) -> Tracker<'_> {
        Tracker {
            def: &self.def,
            api_version: self.api_version(),
            manager: &self.manager,
            subresource: self.subresource().unwrap_or_default(),
        }
    }

    /// Refuses options about field management that make no sense; `options` is the kind that
    /// errors name.
    pub(crate) fn check_manager(&self, options: &str) -> ApiResult<()> {
        let given = self.query.get("fieldManager");
        let error = match given {
            _ if options == "PatchOptions" && self.content_type == apply::CONTENT_TYPE => given
                .is_none()
                .then(|| FieldError::required("fieldManager", "is required for apply patch")),
            _ if options == "PatchOptions" && self.query.get("force").is_some() => Some(
                FieldError::forbidden("force", "may not be specified for non-apply patch"),
            ),
            _ => None,
        };
        let error = error.or_else(|| given.and_then(problem));
        match error {
            None => Ok(()),
            Some(error) => Err(ApiError::invalid(
                &Subject::new("meta.k8s.io", options, ""),
                &[error],
            )),
        }
    }
}

fn problem(name: &str) -> Option<FieldError> {
    if name.len() > MAX_BYTES {
        return Some(FieldError::too_long("fieldManager", MAX_BYTES as u64));
    }
    let (at, bad) = name.chars().enumerate().find(|(_, c)| c.is_control())?;
    Some(FieldError::invalid_text(
        "fieldManager",
        &go_quoted(name),
        &format!(
            "invalid character U+{:04X} (at position {at})",
            u32::from(bad)
        ),
    ))
}

/// A text as Go quotes it.
fn go_quoted(text: &str) -> String {
    let quoted: String = text
        .chars()
        .map(|c| match c {
            '\t' => "\\t".to_owned(),
            '\n' => "\\n".to_owned(),
            '\r' => "\\r".to_owned(),
            '"' | '\\' => format!("\\{c}"),
            c if c.is_ascii_control() => format!("\\x{:02x}", u32::from(c)),
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    format!("\"{quoted}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_given_or_the_user_agent_up_to_its_first_slash() {
        let long = "x".repeat(200);
        let cases = [
            ("fieldManager=me", "kubectl/v1.36 (linux)", "me"),
            ("", "kubectl/v1.36 (linux)", "kubectl"),
            ("fieldManager=", "work-agent", "work-agent"),
            ("", long.as_str(), &long[..MAX_BYTES]),
            ("", "", ""),
        ];
        for (query, agent, want) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, agent.parse().unwrap());
            assert_eq!(of(&headers, &Query::parse(Some(query))), want);
        }
        assert_eq!(of(&HeaderMap::new(), &Query::default()), "");
    }

    #[test]
    fn names_that_cannot_be_shown_are_refused() {
        let message = problem("m\u{1}b").unwrap().to_string();
        assert_eq!(
            message,
            "fieldManager: Invalid value: \"m\\x01b\": invalid character U+0001 (at position 1)"
        );
        let message = problem(&"x".repeat(MAX_BYTES + 1)).unwrap().to_string();
        assert_eq!(
            message,
            "fieldManager: Too long: may not be more than 128 bytes"
        );
        assert_eq!(problem(&"x".repeat(MAX_BYTES)).map(|e| e.to_string()), None);
    }
}
