//! Renders plain text for people: aligned columns and fields.

use std::fmt::Write;

use comfy_table::{Table, presets};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A column of a table: its title, and the text of its cells.
pub(crate) type Column<'a, R> = (&'a str, &'a dyn Fn(&R) -> String);

/// Renders a table of rows, as [`grid`] does.
pub(crate) fn table<R>(rows: &[R], columns: &[Column<'_, R>]) -> String {
    let titles: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
    let cells = |row| columns.iter().map(|(_, cell)| cell(row)).collect();
    grid(&titles, rows.iter().map(cells))
}

/// Renders a table in kubectl's manner; an empty cell shows as `-`.
pub(crate) fn grid(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.iter().copied());
    for row in rows {
        table.add_row(row.iter().map(|cell| match plain(cell) {
            cell if cell.is_empty() => "-".into(),
            cell => cell,
        }));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    let mut out = String::new();
    for line in table.lines() {
        _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// Renders a titled table, or `none` without rows.
pub(crate) fn section<R>(title: &str, rows: &[R], columns: &[Column<'_, R>]) -> String {
    match rows {
        [] => field(title, "none"),
        rows => titled(title, &table(rows, columns)),
    }
}

/// Renders a table, indented by two spaces, below its title.
pub(crate) fn titled(title: &str, table: &str) -> String {
    let mut out = format!("{title}:\n");
    for line in table.lines() {
        _ = writeln!(out, "  {line}");
    }
    out
}

/// Renders one `Name:  value` line.
pub(crate) fn field(name: &str, value: &str) -> String {
    let cleaned = plain(value);
    let shown = if cleaned.is_empty() { "-" } else { &cleaned };
    format!("{:<18} {shown}\n", format!("{name}:"))
}

/// Returns text on one line. Reasons come from providers, and their line breaks and escape
/// sequences must not reach a terminal.
pub(crate) fn plain(text: &str) -> String {
    tautline_core::text::sanitize(text, usize::MAX)
        .trim()
        .to_owned()
}

/// Cuts the text to a number of columns, with an ellipsis.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut shortened = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used >= columns {
            break;
        }
        shortened.push(c);
    }
    shortened.push('…');
    shortened
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_removes_escape_sequences() {
        assert_eq!(
            plain("\u{1b}[2Jgone\nnext\u{9b}1m "),
            "\u{fffd}[2Jgone next\u{fffd}1m"
        );
        let text = grid(&["A", "B"], [vec!["x\ny".into(), String::new()]]);
        assert_eq!(text, "A     B\nx y   -\n");
    }

    #[test]
    fn empty_section_shows_none() {
        assert_eq!(
            section::<String>("History", &[], &[("A", &String::clone)]),
            "History:           none\n"
        );
    }

    #[test]
    fn text_is_cut_by_width() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer", 5), "long…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("ab", 1), "…");
    }
}
