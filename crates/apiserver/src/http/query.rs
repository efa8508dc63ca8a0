//! Query parameters.

/// Decoded parameters in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: Option<&str>) -> Self {
        let pairs = text
            .unwrap_or_default()
            .split('&')
            .filter(|p| !p.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode_form(key), decode_form(value))
            });
        Self(pairs.collect())
    }

    /// The first value of a parameter; empty counts as absent, as in the real server.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(k, v)| k == key && !v.is_empty())
            .map(|(_, v)| v.as_str())
    }

    /// A boolean parameter: `true` and `1` are true; a bare `watch` too.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.0
            .iter()
            .find(|(k, _)| k == key)
            .is_some_and(|(_, v)| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"))
    }
}

fn decode_form(text: &str) -> String {
    decode_percent(&text.replace('+', " "))
}

/// Decodes `%41`; what is no escape stays as it is.
pub(crate) fn decode_percent(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| bytes.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let Some(byte) = escaped {
            out.push(byte);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse(Some(
            "labelSelector=a%3Db%2Cc+in+%28d%29&watch=1&limit=&x=%zz",
        ));
        assert_eq!(query.get("labelSelector"), Some("a=b,c in (d)"));
        assert!(query.flag("watch"));
        assert!(!query.flag("follow"));
        assert_eq!(query.get("limit"), None);
        assert_eq!(query.get("x"), Some("%zz"));
        assert!(!Query::parse(Some("watch=false")).flag("watch"));
    }
}
