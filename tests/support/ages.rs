//! Ages in tables. They grow while a story runs, so none expects one.

/// Whether this is a time that has passed, as tables write it: `0s`, `2m5s`, `3h`.
pub(crate) fn is_age(text: &str) -> bool {
    let mut parts = text.split_inclusive(|c: char| c.is_ascii_alphabetic());
    !text.is_empty()
        && parts.all(|part| {
            let number = part.strip_suffix(|c| "smhdy".contains(c));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        })
}

/// A table of kubectl with each age replaced by `AGE`, and the column as wide as this.
pub(crate) fn ageless(table: &str) -> String {
    const HEADING: &str = "AGE";
    let Some(begin) = table.lines().next().and_then(|header| header.find(HEADING)) else {
        return table.to_owned();
    };
    let header = table.lines().next().unwrap_or_default();
    let behind = header.get(begin + HEADING.len()..).unwrap_or_default();
    let gap = behind.len() - behind.trim_start().len();
    let last = behind.trim_start().is_empty();
    let shown = |line: &str| {
        let Some((before, rest)) = line.split_at_checked(begin) else {
            return format!("{line}\n");
        };
        let cell = rest.split(' ').next().unwrap_or_default();
        if cell != HEADING && !is_age(cell) {
            return format!("{line}\n");
        }
        if last {
            return format!("{before}{HEADING}\n");
        }
        let after = rest.get(HEADING.len() + gap..).unwrap_or_default();
        format!("{before}{HEADING}   {after}\n")
    };
    table.lines().map(shown).collect()
}
