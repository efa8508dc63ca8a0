//! Errors of API servers in words: what [`kube::Error`] shows has the whole answer as a debug text in it.

/// What went wrong, in one line: the server's message, or else the error with its first cause, since
/// "client error (Connect)" alone leaves open what is wrong.
pub fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => one_line(&status.message),
        kube::Error::Api(status) => format!("{} {}", status.code, status.reason),
        other => with_cause(other),
    }
}

/// The error, and its first cause where that says more.
pub(crate) fn with_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let (text, cause) = (error.to_string(), cause.to_string());
    if text.contains(&cause) {
        text
    } else {
        format!("{text}: {cause}")
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn the_answer_of_a_server_is_its_message() {
        let answer = |message: &str| {
            let status = Status::failure(message, "NotFound").with_code(404);
            kube::Error::Api(status.boxed())
        };
        assert_eq!(text(&answer("404 page not found\n")), "404 page not found");
        assert_eq!(text(&answer("")), "404 NotFound");
    }
}
