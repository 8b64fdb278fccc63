//! Renders tables, and splits long lists into pages.

use maud::{Markup, html};
use serde::Serialize;

use crate::request::{PageRequest, PageResult};

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

/// The number of rows on a page.
pub(crate) const ROWS_PER_PAGE: usize = 100;

/// One page of a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Window<T> {
    pub rows: Vec<T>,
    /// The number of elements in the whole list.
    pub total: usize,
    /// The number of this page, from 1.
    pub page: usize,
    /// The number of pages, at least 1.
    pub pages: usize,
}

impl<T> Window<T> {
    /// Returns the page that the query's field `page` names, or the last one if there are fewer.
    /// `row` is called only for the shown elements.
    pub(crate) fn new<E>(
        request: &PageRequest,
        all: &[E],
        row: impl FnMut(&E) -> T,
    ) -> PageResult<Self> {
        Self::sized(request, all, ROWS_PER_PAGE, row)
    }

    /// Returns the page like [`Window::new`], with another number of rows.
    pub(crate) fn sized<E>(
        request: &PageRequest,
        all: &[E],
        size: usize,
        row: impl FnMut(&E) -> T,
    ) -> PageResult<Self> {
        let mut pages = all.chunks(size);
        let page = request.number("page")?.unwrap_or(1);
        let page = page.clamp(1, pages.len().max(1));

        let count = pages.len().max(1);
        let shown = pages.nth(page - 1).unwrap_or_default();
        Ok(Self {
            total: all.len(),
            page,
            pages: count,
            rows: shown.iter().map(row).collect(),
        })
    }

    /// Returns a list of one page.
    pub(crate) fn whole(rows: Vec<T>, total: usize) -> Self {
        Self {
            rows,
            total,
            page: 1,
            pages: 1,
        }
    }

    /// Renders links to the pages before and after this one, or nothing for a list of one page.
    /// `anchor` is the place on these pages, such as `#nodes`, or empty.
    pub(crate) fn pager(&self, request: &PageRequest, anchor: &str) -> Markup {
        let link = |page: usize| request.link("page", Some(&page.to_string())) + anchor;
        html! {
            @if self.pages > 1 {
                nav .pager aria-label="Pages" {
                    @if self.page > 1 { a rel="prev" href=(link(self.page - 1)) { "← Before" } }
                    span { "Page " (self.page) " of " (self.pages) ", " (self.total) " in all" }
                    @if self.page < self.pages { a rel="next" href=(link(self.page + 1)) { "Next →" } }
                }
            }
        }
    }
}
