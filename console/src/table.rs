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
    styled_table("", "", columns, rows)
}

/// Renders a table with a label for screen readers and a CSS class, which may both be empty.
pub(crate) fn styled_table<'a>(
    label: &str,
    class: &str,
    columns: impl IntoIterator<Item = Column<'a>>,
    rows: &Markup,
) -> Markup {
    let label = (!label.is_empty()).then_some(label);
    html! {
        div .scroll tabindex=[label.map(|_| "0")] role=[label.map(|_| "region")] aria-label=[label] {
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
}
