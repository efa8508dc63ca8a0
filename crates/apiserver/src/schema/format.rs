//! String formats that the real server checks.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine;

/// True when the text has the format, or when the format is not checked.
pub(super) fn matches(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => {
            text.contains(['T', 't']) && text.parse::<jiff::Timestamp>().is_ok()
        }
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "byte" => base64::engine::general_purpose::STANDARD
            .decode(text)
            .is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_uuid(text),
        "uri" => text
            .parse::<http::Uri>()
            .is_ok_and(|u| u.scheme().is_some() || text.starts_with('/')),
        "email" => text
            .split_once('@')
            .is_some_and(|(a, b)| !a.is_empty() && !b.is_empty()),
        "hostname" => {
            text.len() <= 255 && crate::validation::is_dns_subdomain(&text.to_ascii_lowercase())
        }
        "duration" => is_go_duration(text),
        _ => true,
    }
}

fn is_cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, bits)| {
        let max = if address.parse::<Ipv4Addr>().is_ok() {
            32
        } else if address.parse::<Ipv6Addr>().is_ok() {
            128
        } else {
            return false;
        };
        bits.parse::<u8>().is_ok_and(|b| b <= max)
    })
}

fn is_uuid(text: &str) -> bool {
    let digits = text.replace('-', "");
    digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// `1h30m`, `1.5s`, `-2us`, `0`.
fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (digits, after) = rest.split_at(number);
        let unit = ["ns", "us", "µs", "ms", "s", "m", "h"]
            .iter()
            .find_map(|u| {
                let tail = after.strip_prefix(u)?;
                // `m` must not be taken for the start of `ms`.
                tail.chars()
                    .next()
                    .is_none_or(|c| c.is_ascii_digit() || c == '.')
                    .then_some(tail)
            });
        let valid = digits.bytes().any(|b| b.is_ascii_digit())
            && digits.bytes().filter(|b| *b == b'.').count() <= 1;
        match unit {
            Some(tail) if valid => rest = tail,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_and_refuse() {
        let cases = [
            ("date-time", "2026-01-02T03:04:05Z", true),
            ("date-time", "2026-01-02", false),
            ("date", "2026-01-02", true),
            ("byte", "YQ==", true),
            ("byte", "Y!", false),
            ("ipv4", "1.2.3.4", true),
            ("ipv4", "1.2.3", false),
            ("ipv6", "::1", true),
            ("cidr", "10.0.0.0/8", true),
            ("cidr", "10.0.0.0/33", false),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", true),
            ("uri", "https://x.io/a", true),
            ("uri", "no uri", false),
            ("duration", "1h30m", true),
            ("duration", "1.5ms", true),
            ("duration", "5", false),
            ("duration", "", false),
            ("hostname", "a.b", true),
            ("email", "a@b", true),
            ("something", "else", true),
        ];
        for (format, text, want) in cases {
            assert_eq!(matches(format, text), want, "{format} {text}");
        }
    }
}
