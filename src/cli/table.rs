//! Tables for people.

use comfy_table::{Row, Table, presets};

/// A table without lines, like the ones of kubectl.
pub(super) fn table(
    header: impl Into<Row>,
    rows: impl IntoIterator<Item = impl Into<Row>>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table.add_rows(rows);
    table.trim_fmt()
}

/// A text in one line, whatever it was.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
