//! Tables for people.

use comfy_table::{Table, presets};

/// A table without lines, like the ones of kubectl.
pub(super) fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table.trim_fmt()
}
