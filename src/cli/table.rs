//! Tables for people.

use comfy_table::{ColumnConstraint, ContentArrangement, Row, Table, presets};

use crate::terminal;

/// Narrowest last column whose texts are broken into lines. With less room every line is cut.
const LEAST_WIDTH: usize = 20;

/// A table without lines, like the ones of kubectl. On a terminal that is narrower the texts of the
/// last column are broken into lines.
pub(super) fn table(
    header: impl Into<Row>,
    rows: impl IntoIterator<Item = impl Into<Row>>,
) -> String {
    within(header, rows, terminal::width())
}

fn within(
    header: impl Into<Row>,
    rows: impl IntoIterator<Item = impl Into<Row>>,
    width: Option<usize>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table.add_rows(rows);
    let text = table.trim_fmt();
    let Some(width) = width.filter(|width| widest(&text) > *width) else {
        return text;
    };
    let last = table.column_count().saturating_sub(1);
    let others = table.column_max_content_widths();
    // Each column has a space on both sides.
    let others: usize = others
        .iter()
        .take(last)
        .map(|width| usize::from(*width) + 2)
        .sum();
    let columns = u16::try_from(width).unwrap_or(u16::MAX);
    if others + LEAST_WIDTH > width {
        return text
            .lines()
            .map(|line| cut(line, width))
            .collect::<Vec<_>>()
            .join("\n");
    }
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(columns);
    table.set_constraints(std::iter::repeat_n(ColumnConstraint::ContentWidth, last));
    table.trim_fmt()
}

fn widest(text: &str) -> usize {
    let widths = text.lines().map(|line| line.chars().count());
    widths.max().unwrap_or(0)
}

fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let mut cut: String = line.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// A text in one line, whatever it was.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [&str; 3] = ["CLUSTER", "STATE", "MESSAGE"];
    const ROWS: [[&str; 3]; 2] = [
        [
            "north",
            "failed",
            "web-1: no such type, and nobody knows when there will be one",
        ],
        ["south", "ok", ""],
    ];

    #[test]
    fn a_table_without_a_terminal_has_any_width() {
        let text = within(HEADER, ROWS, None);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert_eq!(text, within(HEADER, ROWS, Some(120)));
    }

    #[test]
    fn a_narrow_terminal_has_the_last_column_broken_into_lines() {
        let text = within(HEADER, ROWS, Some(50));
        assert!(widest(&text) <= 50, "{text}");
        let expected = " CLUSTER  STATE   MESSAGE
 north    failed  web-1: no such type, and nobody
                  knows when there will be one
 south    ok";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_terminal_that_is_too_narrow_for_that_has_lines_cut() {
        let text = within(HEADER, ROWS, Some(24));
        let expected = " CLUSTER  STATE   MESSAGE\n north    failed  web-1…\n south    ok";
        assert_eq!(text, expected.replace("MESSAGE", "MESSA…"));
    }
}
