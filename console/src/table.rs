//! Renders tables.

use maud::{Markup, html};

pub(crate) use self::Column::{Number, Text};

/// A column of a table, with its title.
#[derive(Clone, Copy)]
pub(crate) enum Column<'a> {
    Text(&'a str),
    /// A column of numbers, which are aligned at the right.
    Number(&'a str),
}

/// Renders a table that scrolls in a narrow window. `rows` is the content of its body.
pub(crate) fn table<'a>(columns: impl IntoIterator<Item = Column<'a>>, rows: &Markup) -> Markup {
    html! { div .scroll { (bare_table("", columns, rows)) } }
}

/// Renders a table with a label for screen readers and a CSS class, which may be empty.
pub(crate) fn labelled_table<'a>(
    label: &str,
    class: &str,
    columns: impl IntoIterator<Item = Column<'a>>,
    rows: &Markup,
) -> Markup {
    html! {
        div .scroll tabindex="0" role="region" aria-label=(label) { (bare_table(class, columns, rows)) }
    }
}

/// Renders a table with a CSS class, which may be empty.
pub(crate) fn bare_table<'a>(
    class: &str,
    columns: impl IntoIterator<Item = Column<'a>>,
    rows: &Markup,
) -> Markup {
    html! {
        table class=[(!class.is_empty()).then_some(class)] {
            thead {
                tr {
                    @for column in columns {
                        @match column {
                            Text(title) => th scope="col" { (title) },
                            Number(title) => th .number scope="col" { (title) },
                        }
                    }
                }
            }
            tbody { (rows) }
        }
    }
}
