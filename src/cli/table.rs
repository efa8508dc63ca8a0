//! Tables for people.

use comfy_table::{ColumnConstraint, ContentArrangement, Row, Table, presets};

use crate::terminal;

/// Columns that are wider than this have texts, which can be broken into lines.
const LONG: usize = 40;
/// Narrowest column with lines. With less room every line of the table is cut.
const LEAST_WIDTH: usize = 20;

/// A table without lines, like the ones of kubectl. On a terminal that is narrower long texts are
/// broken into lines.
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
    let widths = table.column_max_content_widths();
    let is_long = |width: &u16| usize::from(*width) > LONG;
    // Each column has a space on both sides.
    let short = widths.iter().filter(|width| !is_long(width));
    let short: usize = short.map(|width| usize::from(*width) + 2).sum();
    let long = widths.iter().filter(|width| is_long(width)).count();
    if long == 0 || short + long * LEAST_WIDTH > width {
        let lines: Vec<String> = text.lines().map(|line| cut(line, width)).collect();
        return lines.join("\n");
    }
    for (index, _) in widths
        .iter()
        .enumerate()
        .filter(|(_, width)| !is_long(width))
    {
        if let Some(column) = table.column_mut(index) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
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
    fn a_narrow_terminal_has_long_texts_broken_into_lines() {
        let text = within(HEADER, ROWS, Some(50));
        assert!(widest(&text) <= 50, "{text}");
        let expected = " CLUSTER  STATE   MESSAGE
 north    failed  web-1: no such type, and nobody
                  knows when there will be one
 south    ok";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_long_text_between_others_leaves_them_their_place() {
        let value = "pods, events, nodes, leases, endpoints and endpointslices";
        let rows = [["a", value, "default"], ["b", "", "unset"]];
        let text = within(["KEY", "VALUE", "FROM"], rows, Some(50));
        let expected = " KEY  VALUE                             FROM
 a    pods, events, nodes, leases,      default
      endpoints and endpointslices
 b                                      unset";
        let words = |text: &str| -> Vec<Vec<String>> {
            let lines = text.lines();
            lines
                .map(|line| line.split_whitespace().map(str::to_owned).collect())
                .collect()
        };
        assert_eq!(words(&text), words(expected), "{text}");
        assert!(widest(&text) <= 50, "{text}");
    }

    #[test]
    fn a_terminal_that_is_too_narrow_for_that_has_lines_cut() {
        let text = within(HEADER, ROWS, Some(24));
        let expected = " CLUSTER  STATE   MESSAGE\n north    failed  web-1…\n south    ok";
        assert_eq!(text, expected.replace("MESSAGE", "MESSA…"));
    }
}
