//! The terminal that output goes to, if it goes to one.

use std::io::{self, IsTerminal as _};

/// How large it is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// The size of the terminal that standard output is; `None` if it is none, or does not know.
pub(crate) fn size() -> Option<Size> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(out).ok()?;
    // A serial line says zero.
    (size.ws_row > 0 && size.ws_col > 0).then_some(Size {
        rows: size.ws_row.into(),
        columns: size.ws_col.into(),
    })
}

/// How wide lines may be; `None` where they may have any width.
pub(crate) fn width() -> Option<usize> {
    size().map(|size| size.columns)
}
