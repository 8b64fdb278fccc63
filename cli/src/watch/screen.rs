use std::io::{self, IsTerminal, Write};

use console::Term;
use unicode_width::UnicodeWidthStr;

/// Opens the alternate screen, so that the previous content comes back, and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub columns: usize,
    pub rows: usize,
}

/// Returns the terminal's size: from `COLUMNS` and `LINES`, else from the terminal, else 80 by 24.
pub(crate) fn size() -> Size {
    let (rows, columns) = Term::stdout().size_checked().unzip();
    let of = |name: &str, own: Option<u16>, default: usize| {
        let set = std::env::var(name).ok().and_then(|v| v.parse().ok());
        set.or(own.map(usize::from))
            .filter(|n| *n > 0)
            .unwrap_or(default)
    };
    Size {
        columns: of("COLUMNS", columns, 80),
        rows: of("LINES", rows, 24),
    }
}

/// Returns the columns of standard output; `None` if it is not a terminal.
pub(crate) fn columns() -> Option<usize> {
    io::stdout().is_terminal().then(|| size().columns)
}

/// A full-screen drawing on a terminal, which it restores when dropped.
pub(super) struct Screen<W: Write> {
    out: W,
    last: Vec<String>,
}

impl<W: Write> Screen<W> {
    pub(super) fn open(mut out: W) -> io::Result<Self> {
        // Windows draws by escape codes once it is asked whether it can.
        _ = Term::stdout().features().colors_supported();
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        let last = Vec::new();
        Ok(Self { out, last })
    }

    /// Overwrites the last drawing in one write, so nothing flickers.
    pub(super) fn draw(&mut self, lines: &[String], size: Size) -> io::Result<()> {
        let mut text = HOME.to_owned();
        for (row, line) in lines.iter().enumerate() {
            if row > 0 {
                text.push_str("\r\n");
            }
            text.push_str(line);
            // After a full line the cursor is still on its last character.
            if line.width() < size.columns {
                text.push_str(CLEAR_LINE);
            }
        }
        if lines.len() < size.rows {
            text.push_str("\r\n");
            text.push_str(CLEAR_BELOW);
        }
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        self.last = lines.to_vec();
        Ok(())
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        // The last table stays on the screen.
        let mut text = LEAVE.to_owned();
        for line in &self.last {
            text.push_str(line);
            text.push('\n');
        }
        _ = self.out.write_all(text.as_bytes());
        _ = self.out.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn screen_overwrites_and_restores_the_terminal() {
        let mut out = Vec::new();
        let size = Size {
            columns: 5,
            rows: 3,
        };
        let mut screen = Screen::open(&mut out).unwrap();
        screen.draw(&["one".into(), "12345".into()], size).unwrap();
        screen
            .draw(&["a".into(), "b".into(), "c".into()], size)
            .unwrap();
        drop(screen);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "\x1b[?1049h\x1b[?25l\
             \x1b[Hone\x1b[K\r\n12345\r\n\x1b[J\
             \x1b[Ha\x1b[K\r\nb\x1b[K\r\nc\x1b[K\
             \x1b[?25h\x1b[?1049la\nb\nc\n"
        );
    }
}
